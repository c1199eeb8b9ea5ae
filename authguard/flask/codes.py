"""The routes ``/otp/send`` and ``/otp/verify``: a second factor, or a sign-in by code."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from flask import jsonify, redirect, request, url_for

from authguard import http
from authguard.errors import Denied, InvalidInput
from authguard.flask import signals
from authguard.flask.arrival import (
    arrive,
    fail,
    known_device,
    messaging,
    recipient,
    signed_in,
    tell_of_failures,
)
from authguard.flask.attempts import charge_client, peek, refuse_shut, reserve
from authguard.flask.challenges import (
    by_code_alone,
    continued,
    is_shut,
    live_challenge,
    second_factor_channel,
    stamp_of,
    was_second_factor,
)
from authguard.flask.fields import read_fields, read_optional, typed_text
from authguard.flask.pages import endpoint, form_page, page, show
from authguard.flask.refusals import as_http_errors
from authguard.flask.responses import respond, wants_json
from authguard.flask.session import Pending, end_session, pending, wait_for
from authguard.flask.state import current_app_object, current_state
from authguard.flows.otp import DIGITS, SECOND_FACTOR, SIGN_IN, Sent, check_code, send_code
from authguard.identity import AccountKey, StandIn
from authguard.one_time import Holder

if TYPE_CHECKING:
    from collections.abc import Callable

    from werkzeug.wrappers import Response as BaseResponse

    from authguard.accounts import Member
    from authguard.flask.attempts import RequestAttempt
    from authguard.http import Answer
    from authguard.notify import Channel

__all__ = ["otp_send", "otp_verify", "start_second_factor"]

_SEND: Final = "otp.send"
_VERIFY: Final = "otp.verify"

_log = logging.getLogger("authguard")

_CHANNEL_NAMES: Final = {"sms": "Text message", "email": "E-mail"}
_READY: Final[dict[str, Any]] = {"state": "ready", "message": None, "retry_after": None}
_SEND_WORDS: Final = {400: "Enter your name.", 429: "It is too soon for another code."}
_VERIFY_WORDS: Final = {
    400: "Enter the code.",
    401: "That code is wrong or too old.",
    429: "Too many wrong codes.",
}


def otp_send() -> BaseResponse:
    """Show the form, or send a code; the answer is the same for names that nobody has."""
    if request.method != "POST":
        return show("otp_send", **_READY, identifier="", **_channels())
    with as_http_errors(_send_page()):
        try:
            identifier, typed = read_fields(request, "identifier", "channel")
            channel = _channel(typed)
            named = read_optional(request, "challenge")
            name = current_state().guard.normalise(identifier)
            account = messaging().members.find(identifier)
            purpose, key, challenge = continued(account, name, named)
            if purpose == SIGN_IN and was_second_factor(identifier, named):
                charge_client(_SEND)
                end_session()
                return respond(http.unauthenticated("That took too long. Sign in again."), _again)
            if purpose == SECOND_FACTOR and account is not None:
                channel = second_factor_channel(account)  # the account's, whatever was asked for
            sent = _send(account, key, purpose, channel, challenge)
        except InvalidInput:
            charge_client(_SEND)
            raise
    second_factor = purpose == SECOND_FACTOR
    if second_factor or not wants_json():
        wait_for(_pending(sent, identifier, channel, second_factor=second_factor), fresh=False)
    if wants_json():
        answer = jsonify(status="sent", challenge=sent.challenge, retry_after=sent.next_send_s)
        answer.status_code = 202
        return answer
    return redirect(url_for(endpoint("otp_verify")), 303)


def otp_verify() -> BaseResponse:
    """Show the form for the code that this browser waits for, or check a code."""
    if request.method != "POST":
        waiting = pending()
        if waiting is None:
            return redirect(url_for(endpoint("otp_send")), 303)
        return show("otp_verify", **_READY, **_code_form())
    render = form_page("otp_verify", _VERIFY_WORDS, _code_form)
    state = current_state()
    with as_http_errors(render):
        found = check_code(
            _read_code,
            reserve=_reserve_check,
            charge_client=partial(charge_client, _VERIFY),
            codes=state.guard.one_time,
            accounts=messaging().members,
        )
    if found is None:
        return respond(http.unauthenticated("Wrong or expired code."), render)
    holder, challenge, code, checked = found
    if not checked.proved or checked.account is None:
        _wrong_code(holder, checked.attempt)
        return respond(http.unauthenticated("Wrong or expired code."), render)
    messaging().outbound.entered(recipient(checked.account), holder, challenge, code)
    tell_of_failures(checked.account, checked.attempt)
    arrive(checked.account, checked.attempt)
    return signed_in()


def start_second_factor(account: Member, identifier: str) -> Sent:
    """
    Send the code that a proved password asks for; it begins a fresh session that waits for it.

    Where the limits on sending refuse, the code before goes on, if there is one.

    Args:
        account: Whose password was proved.
        identifier: What was typed.

    Raises:
        Denied: No code may be sent now, and there is none before; or the code step is shut.
        StoreUnavailable: The store gave no answer.
    """
    key = AccountKey.of_app(account.key)
    channel = second_factor_channel(account)
    try:
        sent = _send(account, key, SECOND_FACTOR, channel, None)
    except Denied as error:
        holder = Holder(key, known=True, purpose=SECOND_FACTOR, channel=channel)
        live = live_challenge(holder, account)
        if live is None or error.action != _SEND:
            raise
        sent = Sent(live, error.retry_after)
    wait_for(_pending(sent, identifier, channel, second_factor=True), fresh=True)
    return sent


def _send(
    account: Member | None, key: AccountKey, purpose: str, channel: Channel, challenge: str | None
) -> Sent:
    """Send a code to an account, or do the same work for a name that nobody has."""
    found, guard = messaging(), current_state().guard
    sendable = account is not None and (purpose == SECOND_FACTOR or by_code_alone(account))
    to = recipient(account) if account is not None and sendable else None
    # Not whether there is an address: the challenge must go on or not as for a name of nobody.
    holder = Holder(key, to is not None, purpose, channel, stamp_of(account))
    claims: dict[str, Any] = {
        "destination": StandIn(f"{channel} {key}"),
        "device": known_device(account),
        "purpose": purpose,
    }

    def reserve_send() -> RequestAttempt:
        # A code that could not be entered is not sent.
        refuse_shut(_VERIFY, key, shut=sendable and is_shut(account))
        return reserve(_SEND, key, **claims)

    def send(made: str, code: str) -> None:
        if to is None:
            found.outbound.nothing()
            return
        found.outbound.code(
            to, holder, made, code, device=claims["device"], life_ms=found.code_life_ms
        )

    return send_code(
        holder,
        challenge=challenge,
        reserve=reserve_send,
        codes=guard.one_time,
        life_ms=found.code_life_ms,
        send=send,
        next_send_s=lambda: peek(_SEND, key, **claims).retry_after,
    )


def _channel(typed: str) -> Channel:
    for channel in messaging().channels:
        if channel == typed:
            return channel
    raise InvalidInput("channel", f"must be one of: {', '.join(messaging().channels)}")


def _send_page() -> Callable[[Answer], str]:
    """Give the page that a refusal of a new code belongs on: the one it was asked for on."""
    if pending() is None or not typed_text(request, "challenge"):
        return form_page("otp_send", _SEND_WORDS, _channels)

    def render(answer: Answer) -> str:
        # The code before still works: only another one has to wait.
        still = _code_form()
        still["resend"] |= {"after": answer.retry_after or 0}
        still["failed"] = "Not sent"
        return form_page("otp_verify", _SEND_WORDS, lambda: still, waits=False)(answer)

    return render


def _read_code() -> tuple[str, str]:
    challenge, code = read_fields(request, "challenge", "code")
    return challenge, code.strip(" ")  # what a message's text is copied with


def _reserve_check(holder: Holder, account: Member | None, challenge: str) -> RequestAttempt:
    if is_shut(account):
        refuse_shut(_VERIFY, holder.account, shut=True)
    return reserve(_VERIFY, holder.account, challenge=challenge, purpose=holder.purpose)


def _wrong_code(holder: Holder, attempt: RequestAttempt) -> None:
    if holder.purpose == SECOND_FACTOR:
        signals.send(
            signals.second_factor_failed,
            current_app_object(),
            action=attempt.action,
            subject=attempt.subject,
        )
    fail(attempt)


def _again(_answer: Answer) -> str:
    return page(
        "login", **_READY | {"message": "That took too long. Sign in again."}, identifier=""
    )


def _pending(sent: Sent, identifier: str, channel: str, *, second_factor: bool) -> Pending:
    next_send_at = int(time.time()) + sent.next_send_s
    return Pending(sent.challenge, identifier, channel, second_factor, next_send_at)


def _channels() -> dict[str, Any]:
    channels = [(name, _CHANNEL_NAMES[name]) for name in messaging().channels]
    return {
        "channels": channels,
        "channel": typed_text(request, "channel"),
        "waiting": pending() is not None,
    }


def _code_form() -> dict[str, Any]:
    waiting = pending()
    if waiting is None:  # a form that was kept open longer than the session
        return {
            "challenge": typed_text(request, "challenge"),
            "digits": DIGITS[SIGN_IN],
            "second_factor": False,
            "resend": None,
        }
    return {
        "challenge": waiting.challenge,
        "digits": DIGITS[SECOND_FACTOR if waiting.second_factor else SIGN_IN],
        "second_factor": waiting.second_factor,
        "channel": waiting.channel,
        "resend": {
            "after": waiting.next_send_s,
            "identifier": waiting.identifier,
            "channel": waiting.channel,
        },
    }
