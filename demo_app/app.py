"""The demo's web app: authguard's sign-in, a home page, the outbox and the load page."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from flask import Blueprint, Flask, Response, current_app, jsonify, render_template, request
from werkzeug.exceptions import HTTPException

from authguard.flask import AuthGuard
from authguard.identity import normalise_identifier
from demo_app.accounts import PEOPLE, SqlAccounts
from demo_app.load import add_load, demo_policies, load_pages
from demo_app.outbox import SqlOutbox
from demo_app.settings import Settings

if TYPE_CHECKING:
    from flask.typing import ResponseReturnValue

    from demo_app.outbox import Sent

pages = Blueprint("demo", __name__)

#: Longest wait for messages that this process has yet to write, in seconds.
_DRAIN_S: Final = 2.0

#: Given to the other workers for theirs: their queues can't be asked.
_OTHERS_S: Final = 0.15


@dataclass(frozen=True, slots=True)
class _Demo:
    """What the pages need of one app; kept in its ``extensions``."""

    settings: Settings
    guard: AuthGuard
    outbox: SqlOutbox


def create_app(settings: Settings) -> Flask:
    """
    Build the app for one run of the demo.

    Raises:
        ConfigurationError: A setting or the policy file is wrong; the message names the mend.
    """
    app = Flask(__name__)
    app.config.update(
        SECRET_KEY=settings.session_secret,
        SESSION_COOKIE_SAMESITE="Lax",
        AUTHGUARD_STORE_URL=settings.store_url,
        AUTHGUARD_SECRET=settings.guard_secret,
        AUTHGUARD_DEADLINE_MS=settings.deadline_ms,
        AUTHGUARD_TRUSTED_PROXIES=list(settings.trusted_proxies),
        AUTHGUARD_HASH_SLOTS=settings.hash_slots,
        AUTHGUARD_POLICY=demo_policies(settings.policy),
        AUTHGUARD_BASE_URL=settings.base_url,
    )
    # The accounts' spelling for all names: else a number that nobody has would get tries for each.
    # The embedded store keeps nothing, on purpose; ``flask authguard check`` says so to who asks.
    guard = AuthGuard(app, normalise=normalise_identifier, check_at_start=False)
    outbox = SqlOutbox(settings.database)
    accounts = SqlAccounts(settings.database)
    sign_in = guard.blueprint(
        accounts=accounts,
        notifier=outbox,
        channels=("sms", "email"),
        sms_countries=("US",),
    )
    app.register_blueprint(sign_in, url_prefix="/auth")
    app.register_blueprint(pages)
    add_load(app, guard, accounts)
    app.extensions[pages.name] = _Demo(settings, guard, outbox)
    app.context_processor(_site)
    app.register_error_handler(HTTPException, _problem)
    return app


def from_environment() -> Flask:
    """Build the app in a gunicorn worker, or for the flask command."""
    return create_app(Settings.from_environment())


def _site() -> dict[str, object]:
    links = [("Start", "/"), ("Sign in", "/auth/login"), ("Outbox", "/outbox"), ("Load", "/load")]
    return {
        "authguard_site_name": "authguard demo",
        "authguard_site_url": "/",
        "authguard_links": links,
    }


def _problem(error: HTTPException) -> ResponseReturnValue:
    """Tell scripts of a wrong route or method as they are told of everything else."""
    asks_json = request.is_json or request.accept_mimetypes.best == "application/json"
    if error.response is not None or not asks_json:
        return error
    problem = {"type": "about:blank", "title": error.name, "status": error.code}
    fields = [field for field in error.get_headers() if field[0] != "Content-Type"]
    return Response(
        json.dumps(problem), error.code, fields, content_type="application/problem+json"
    )


@pages.get("/")
def home() -> ResponseReturnValue:
    """Say what this is, who the accounts are, and what to try."""
    default_policy = _demo().settings.policy is None
    return render_template("demo/home.html", people=PEOPLE, default_policy=default_policy)


@pages.get("/outbox")
def outbox() -> ResponseReturnValue:
    """Show the mails and text messages that would have gone out."""
    return render_template("demo/outbox.html", sent=_sent())


@pages.get("/outbox.json")
def outbox_json() -> ResponseReturnValue:
    """List the same messages for scripts, newest first."""
    return jsonify([each.as_json() for each in _sent()])


def _demo() -> _Demo:
    return cast("_Demo", current_app.extensions[pages.name])


def _sent() -> list[Sent]:
    """The messages, once those of the answers so far have been written."""
    demo = _demo()
    demo.guard.drain_messages(timeout_s=_DRAIN_S)
    if demo.settings.workers > 1:
        time.sleep(_OTHERS_S)
    return demo.outbox.messages()


@pages.after_request
@load_pages.after_request
def _strict(response: Response) -> Response:
    policy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    response.headers.setdefault("Content-Security-Policy", policy)
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    response.headers.setdefault("Cache-Control", "no-store")  # codes and links are shown
    return response
