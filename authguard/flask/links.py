"""The routes ``/password/forgot``, ``/password/reset`` and ``/unlock``: what comes by mail."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from flask import jsonify, request

from authguard import http
from authguard._password_bytes import password_bytes
from authguard.errors import StoreUnavailable
from authguard.flask import signals
from authguard.flask.arrival import messaging, recipient
from authguard.flask.attempts import charge_client, peek, requests_client, reserve
from authguard.flask.fields import in_query, read_fields, typed_text
from authguard.flask.new_password import MIN_PASSWORD
from authguard.flask.outbound import LINK_LIFE_MS
from authguard.flask.pages import error_page, form_page, show
from authguard.flask.refusals import as_http_errors
from authguard.flask.responses import respond, wants_json
from authguard.flask.session import end_session
from authguard.flask.state import current_app_object, current_state
from authguard.flows.password_reset import ask_for_link, set_new_password
from authguard.flows.unlock import unlock as unlock_flow
from authguard.identity import AccountKey, StandIn

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Response

    from authguard.accounts import Member
    from authguard.http import Answer

__all__ = ["password_forgot", "password_reset", "unlock"]

_FORGOT: Final = "password.forgot"
_RESET: Final = "password.reset"
_UNLOCK: Final = "unlock"
_LOGIN: Final = "login"
_VERIFY: Final = "otp.verify"

_FORGOT_WORDS: Final = {400: "Enter your name.", 429: "It is too soon for another link."}
_RESET_WORDS: Final = {400: "Not changed: the {detail}."}
_DEAD: Final = {
    "password_reset": "This link does not work any more. Ask for a new one.",
    "unlock": "This link does not work any more.",
}

_log = logging.getLogger("authguard")


def password_forgot() -> Response:
    """Show the form, or send a link if there is somebody to send it to."""
    if request.method != "POST":
        return show("password_forgot", state="ready", message=None, retry_after=None, identifier="")
    outbound = messaging().outbound
    next_link_s = 0

    def reserve_link(key: AccountKey) -> None:
        nonlocal next_link_s
        stand_in = StandIn(f"email {key}")
        reserve(_FORGOT, key, stand_in)
        if not wants_json():  # the page shows the wait
            next_link_s = peek(_FORGOT, key, destination=stand_in).retry_after

    with as_http_errors(form_page("password_forgot", _FORGOT_WORDS)):
        ask_for_link(
            lambda: read_fields(request, "identifier")[0],
            reserve=reserve_link,
            charge_client=partial(charge_client, _FORGOT),
            normalise=current_state().guard.normalise,
            accounts=messaging().members,
            send=lambda account: (
                outbound.nothing() if account is None else outbound.reset_link(recipient(account))
            ),
        )
    if wants_json():
        answer = jsonify(status="accepted")
        answer.status_code = 202
        return answer
    return show("sent", 202, retry_after=next_link_s, minutes=LINK_LIFE_MS // 60_000)


def password_reset() -> Response:
    """Show the form for a link's new password, or set it."""
    if request.method != "POST":
        return _link_page("password_reset", min_length=MIN_PASSWORD)
    found, state = messaging(), current_state()
    with as_http_errors(form_page("password_reset", _RESET_WORDS, _form)):
        account = set_new_password(
            _read_new_password,
            reserve=lambda: reserve(_RESET, None),
            links=state.guard.one_time,
            accounts=found.members,
            accept=found.accept_password,
            hash_password=state.passwords.hash,
        )
    if account is None:
        return respond(http.bad_link(), _dead_page("password_reset"))
    _after_reset(account)
    end_session()
    if wants_json():
        return jsonify(status="reset")
    return show(
        "done",
        title="Your password is changed",
        message="Sign in with the new one. Everywhere else you have been signed out.",
    )


def unlock() -> Response:
    """Show the button of an unlock link, or end the lock."""
    if request.method != "POST":
        return _link_page("unlock")
    found = messaging()
    with as_http_errors(form_page("unlock", {}, _form)):
        account = unlock_flow(
            lambda: read_fields(request, "token")[0],
            reserve=lambda: reserve(_UNLOCK, None),
            links=current_state().guard.one_time,
            accounts=found.members,
            lift=partial(_let_in, cause="link"),
        )
    if account is None:
        return respond(http.bad_link(), _dead_page("unlock"))
    if wants_json():
        return jsonify(status="unlocked")
    return show("done", title="The wait is over", message="You can sign in with your password.")


def _read_new_password() -> tuple[str, str]:
    token, password = read_fields(request, "token", "password")
    password_bytes(password)
    return token, password


def _after_reset(account: Member) -> None:
    """Do what follows a new password; it stands already, so nothing here may undo the answer."""
    found, app = messaging(), current_app_object()
    subject = current_state().guard.subject(AccountKey.of_app(account.key))
    found.members.lift_recovery(account.key, _LOGIN)
    # A second factor must not be what the mailbox opens: there an operator looks first.
    codes_too = not account.second_factor and found.members.lift_recovery(account.key, _VERIFY)
    try:
        _let_in(account, cause="reset", recovered=True)
        if codes_too:
            guard, key = current_state().guard, AccountKey.of_app(account.key)
            guard.recover(_VERIFY, account=key, recovered=True)
    except StoreUnavailable as error:
        _log.error("login: the lock stays after a reset, since the store is away: %s", error.reason)
    signals.send(signals.password_reset, app, subject=subject)
    found.outbound.notice(recipient(account), "notice_password")


def _let_in(account: Member, *, cause: str, recovered: bool = False) -> None:
    """End the owner's own wait at the sign-in; nobody else's, and no other action's."""
    guard, key = current_state().guard, AccountKey.of_app(account.key)
    lifted = guard.recover(_LOGIN, account=key, client=requests_client(), recovered=recovered)
    if lifted.locks:
        _log.warning("%s: unlocked by %s (subject %s)", _LOGIN, cause, guard.subject(key))
        signals.send(
            signals.account_unlocked,
            current_app_object(),
            action=_LOGIN,
            cause=cause,
            subject=guard.subject(key),
        )


def _link_page(name: str, **context: Any) -> Response:
    """Show a link's page; looking at it uses nothing up."""
    with as_http_errors(error_page):
        token = next(iter(in_query(request, "token")), "")
    state = ("ready", None) if token else ("failed", _DEAD[name])
    context |= {"state": state[0], "message": state[1], "retry_after": None, "token": token}
    response = show(name, **context)
    # The page itself then lets its form say where it comes from (a meta element), and no more.
    response.headers["Referrer-Policy"] = "no-referrer"
    return response


def _dead_page(name: str) -> Callable[[Answer], str]:
    return form_page(name, {400: _DEAD[name]}, state="failed")


def _form() -> dict[str, Any]:
    return {"token": typed_text(request, "token"), "min_length": MIN_PASSWORD}
