"""The routes ``/login``, ``/logout``, ``/me`` and ``/devices/forget``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, cast

from flask import jsonify, redirect, request, url_for

from authguard import http
from authguard.flask import signals
from authguard.flask.arrival import (
    arrive,
    device_of,
    fail,
    forget_this_browser,
    messaging,
    signed_in,
    tell_of_failures,
    the_accounts,
)
from authguard.flask.attempts import charge_client, refuse_shut, reserve
from authguard.flask.codes import start_second_factor
from authguard.flask.fields import read_credentials
from authguard.flask.pages import endpoint, form_page, page, show
from authguard.flask.refusals import REFUSALS, refuse
from authguard.flask.responses import respond, wants_json
from authguard.flask.session import end_session, signed_in_account
from authguard.flask.state import current_app_object, current_state
from authguard.flows.login import sign_in
from authguard.identity import AccountKey

if TYPE_CHECKING:
    from werkzeug.wrappers import Response as BaseResponse

    from authguard.accounts import Account, Member
    from authguard.flask.attempts import RequestAttempt
    from authguard.http import Answer

__all__ = ["forget_devices", "login", "logout", "me"]

_LOGIN: Final = "login"

#: What the login page says, by the answer's status; the same for every cause.
_WORDS: Final = {
    400: "Enter your name and your password.",
    401: "Wrong name or password.",
    403: "Signing in is not possible from your address.",
    415: "Use the form to sign in.",
    503: "Signing in is not possible at the moment.",
}


def login() -> BaseResponse:
    """Show the form, or check a name and password."""
    if request.method != "POST":
        return show("login", state="ready", message=None, retry_after=None, identifier="")
    state = current_state()
    render = form_page("login", _WORDS)
    try:
        checked = sign_in(
            partial(read_credentials, request),
            reserve=_reserve,
            charge_client=partial(charge_client, _LOGIN),
            normalise=state.guard.normalise,
            passwords=state.passwords,
            accounts=the_accounts(),
            second_factors=bool(state.messaging and state.messaging.second_factor_channels),
        )
        account = checked.account
        if not checked.proved or account is None:
            fail(checked.attempt)
            return respond(http.unauthenticated(), render)
        tell_of_failures(account, checked.attempt)
        if account.second_factor:
            return _ask_for_code(cast("Member", account))
    except REFUSALS as error:
        return refuse(error, login, render)
    arrive(account, checked.attempt)
    return signed_in()


def logout() -> BaseResponse:
    """Show the page that signs out, or end the session, whoever's it is."""
    if request.method != "POST":
        return me()
    end_session()
    return jsonify(status="logged_out") if wants_json() else redirect(_login_url(), 303)


def me() -> BaseResponse:
    """Say who is signed in."""
    account = signed_in_account(the_accounts())
    if account is None:
        return respond(http.unauthenticated("Sign in first."), _sign_in_first)
    if wants_json():
        return jsonify(username=account.username)
    return show("me", username=account.username, devices_forgotten=False)


def forget_devices() -> BaseResponse:
    """Revoke all known devices of whoever is signed in."""
    account = signed_in_account(the_accounts())
    if account is None:
        return respond(http.unauthenticated("Sign in first."), _sign_in_first)
    messaging().members.forget_devices(account.key)
    forget_this_browser()
    subject = current_state().guard.subject(AccountKey.of_app(account.key))
    signals.send(signals.devices_forgotten, current_app_object(), subject=subject)
    if wants_json():
        return jsonify(status="forgotten")
    return show("me", username=account.username, devices_forgotten=True)


def _reserve(key: AccountKey, account: Account | None) -> RequestAttempt:
    device = device_of(account)
    member = cast("Member | None", account)
    if current_state().messaging and member and _LOGIN in member.recovery_required:
        refuse_shut(_LOGIN, key, shut=True, device=device)
    return reserve(_LOGIN, key, device=device)


def _ask_for_code(account: Member) -> BaseResponse:
    sent = start_second_factor(account, request_identifier())
    if wants_json():
        return jsonify(
            status="otp_required", challenge=sent.challenge, retry_after=sent.next_send_s
        )
    return redirect(url_for(endpoint("otp_verify")), 303)


def request_identifier() -> str:
    """Return what was typed as the name; it has been read once and was fit."""
    return read_credentials(request)[0]


def _sign_in_first(_answer: Answer) -> str:
    return page(
        "login", state="ready", message="Sign in to see this page.", retry_after=None, identifier=""
    )


def _login_url() -> str:
    return url_for(endpoint("login"))
