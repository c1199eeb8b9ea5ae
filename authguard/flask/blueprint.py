"""Ready-made routes: ``/login``, ``/logout``, ``/me``, each as JSON or as a page."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from flask import Blueprint, jsonify, redirect, render_template, request, url_for
from flask.sessions import SecureCookieSessionInterface

from authguard import http
from authguard.errors import ConfigurationError
from authguard.flask import signals
from authguard.flask.attempts import charge_client, reserve
from authguard.flask.fields import read_credentials, typed_text
from authguard.flask.origin import is_cross_origin
from authguard.flask.refusals import CrossOrigin, as_http_errors
from authguard.flask.responses import html, respond, wants_json
from authguard.flask.session import end_session, signed_in_account, start_session
from authguard.flask.state import current_app_object, current_state, state_of
from authguard.flows.login import sign_in
from authguard.identity import LONGEST_ACCOUNT

if TYPE_CHECKING:
    from flask import Flask, Response
    from flask.blueprints import BlueprintSetupState
    from werkzeug.wrappers import Response as BaseResponse

    from authguard.accounts import Accounts
    from authguard.http import Answer

__all__ = ["build"]

_LOGIN: Final = "login"

#: What the login page says, by the answer's status; the same for every cause.
_STATES: Final = {
    400: ("malformed", "Enter your name and your password."),
    401: ("failed", "Wrong name or password."),
    403: ("refused", "Signing in is not possible from your address."),
    413: ("malformed", "That is too long."),
    415: ("malformed", "Use the form to sign in."),
    429: ("refused", "Too many attempts."),
    503: ("unavailable", "Signing in is not possible at the moment."),
}


def build(accounts: Accounts) -> Blueprint:
    """
    Make the blueprint for one set of accounts; it can be nested, renamed, registered twice.

    Args:
        accounts: Where accounts are looked up.
    """
    # A path of its own: without a prefix the app's own /static would hide it.
    blueprint = Blueprint(
        "authguard",
        __name__,
        template_folder="templates",
        static_folder="static",
        static_url_path="/authguard-static",
    )
    blueprint.record(partial(_attach, accounts))
    blueprint.before_request(_refuse_cross_origin)
    blueprint.after_request(_finish)
    blueprint.add_url_rule("/login", view_func=login, methods=["GET", "POST"])
    blueprint.add_url_rule("/logout", view_func=logout, methods=["GET", "POST"])
    blueprint.add_url_rule("/me", view_func=me)
    return blueprint


def login() -> BaseResponse:
    """Show the form, or sign somebody in."""
    if request.method != "POST":
        return html(_page("login", **_form("ready")))
    state = current_state()
    with as_http_errors(_login_page):
        account = sign_in(
            partial(read_credentials, request),
            reserve=partial(reserve, _LOGIN),
            charge_client=partial(charge_client, _LOGIN),
            normalise=state.guard.normalise,
            passwords=state.passwords,
            accounts=_accounts(),
        )
    if account is None:
        signals.send(signals.sign_in_failed, current_app_object(), action=_LOGIN)
        return respond(http.unauthenticated(), _login_page)
    start_session(account)
    signals.send(signals.signed_in, current_app_object(), action=_LOGIN)
    if wants_json():
        return jsonify(status="authenticated")
    target = state.settings.login_redirect or ".me"
    return redirect(target if target.startswith("/") else url_for(target), 303)


def logout() -> BaseResponse:
    """Show the page that signs out, or end the session, whoever's it is."""
    if request.method != "POST":
        return me()
    end_session()
    return jsonify(status="logged_out") if wants_json() else redirect(url_for(".login"), 303)


def me() -> BaseResponse:
    """Say who is signed in."""
    account = signed_in_account(_accounts())
    if account is None:
        return respond(http.unauthenticated("Sign in first."), _sign_in_first)
    if wants_json():
        return jsonify(username=account.username)
    return html(_page("me", username=account.username))


def _attach(accounts: Accounts, setup: BlueprintSetupState) -> None:
    app = cast("Flask", setup.app)  # annotated as the base it shares with Quart
    state = state_of(app)
    if state is None:
        raise ConfigurationError(
            "AG019", "AuthGuard", "this app has not been initialised", "call init_app(app) first"
        )
    if state.look_up.accounts is not None and state.look_up.accounts is not accounts:
        raise ConfigurationError(
            "AG020",
            "blueprint(accounts=…)",
            "the app has a blueprint with other accounts, and their keys would share limits",
            "pass the same accounts object, or use one app for each",
        )
    if state.look_up.resolve is not None:
        raise ConfigurationError(
            "AG020",
            "blueprint(accounts=…)",
            "the app looks names up by resolve already, and the two could differ",
            "leave resolve out: the blueprint's accounts do what it does",
        )
    for method in ("find", "get", "replace_password_hash"):
        if not callable(getattr(accounts, method, None)):
            raise ConfigurationError(
                "AG024",
                "blueprint(accounts=…)",
                f"the object has no method {method}",
                "pass one that has the methods of authguard.accounts.Accounts",
            )
    cookies = isinstance(app.session_interface, SecureCookieSessionInterface)
    if cookies and not app.secret_key:
        raise ConfigurationError(
            "AG021", "SECRET_KEY", "is missing, so no session can start", "set it in app.config"
        )
    state.look_up.accounts = accounts


def _accounts() -> Accounts:
    accounts = current_state().look_up.accounts
    if accounts is None:  # only a view of ours put into another app by hand
        raise RuntimeError("the blueprint is not registered on this app")
    return accounts


def _refuse_cross_origin() -> None:
    if is_cross_origin(request):
        raise CrossOrigin(_error_page)


def _finish(response: Response) -> Response:
    response.headers["X-Content-Type-Options"] = "nosniff"
    if request.endpoint != f"{request.blueprint}.static":
        response.headers["Cache-Control"] = "no-store"
    return response


def _login_page(answer: Answer) -> str:
    state, message = _STATES[answer.status]
    typed = typed_text(request, "identifier")[:LONGEST_ACCOUNT]
    return _page("login", **_form(state, message, answer.retry_after, typed))


def _sign_in_first(_answer: Answer) -> str:
    return _page("login", **_form("ready", "Sign in to see this page."))


def _error_page(answer: Answer) -> str:
    return _page(
        "error",
        title=answer.body["title"],
        message=answer.body["detail"],
        retry_after=answer.retry_after,
    )


def _form(
    state: str, message: str | None = None, retry_after: int | None = None, typed: str = ""
) -> dict[str, Any]:
    return {
        "state": state,
        "message": message,
        "retry_after": retry_after,
        "identifier": typed,
    }


def _page(name: str, **context: Any) -> str:
    return render_template(f"authguard/{name}.html", url_for=_url_for, **context)


def _url_for(endpoint: str, **values: Any) -> str:
    # Templates call our endpoints "authguard.…". Nested or registered under another name, the
    # blueprint that serves this request knows what they are really called.
    if endpoint.startswith("authguard."):
        endpoint = f"{request.blueprint}.{endpoint.removeprefix('authguard.')}"
    return url_for(endpoint, **values)
