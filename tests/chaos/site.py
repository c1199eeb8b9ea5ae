"""
A tiny site whose views check credentials behind a guard; gunicorn runs it as ``site:app``.

It writes down every step in the ledger. With ``--preload`` the app, its guard and even a connection
in use are there before the workers are forked.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from flask import Flask, g, request

from authguard import StoreUnavailable
from authguard.flask import AuthGuard, current_attempt
from authguard.flask.signals import admitted_uncounted, settle_failed, store_unavailable
from tests.chaos.ledger import POLICIES, Ledger, Person

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask.typing import ResponseReturnValue

__all__ = ["app", "create_app"]


def create_app() -> Flask:
    """Build it from the environment."""
    settings: dict[str, Any] = json.loads(os.environ["CHAOS"])
    ledger = Ledger(settings["ledger"])
    app = Flask(__name__)
    app.config.update(
        AUTHGUARD_STORE_URL=settings["url"],
        AUTHGUARD_SECRET=settings["secret"],
        AUTHGUARD_DEADLINE_MS=settings["deadline_ms"],
        AUTHGUARD_POLICY=POLICIES,
        AUTHGUARD_TRUSTED_PROXIES=["127.0.0.1/32"],
    )
    auth = AuthGuard(app)

    @app.before_request
    def write_down_who_asks() -> None:
        if request.method == "POST":
            asked = request.get_json()
            g.who = Person(
                request.path.strip("/"),
                asked["account"],
                request.headers["X-Forwarded-For"],
                asked["right"],
            )
            ledger.write("asked", g.who)

    listen(app, ledger)

    def check() -> ResponseReturnValue:
        if current_attempt.decision.degraded:
            return {}, 200 if g.who.right else 401
        ledger.write("begun", g.who)
        time.sleep(settings["verify_s"])
        if not g.who.right:
            return {}, 401
        ledger.write("proved", g.who)
        current_attempt.succeed()
        return {}, 200

    for action in POLICIES:
        view = auth.protect(action, account="account")(check)
        app.add_url_rule(f"/{action}", action, view, methods=["POST"])

    @app.get("/")
    def index() -> dict[str, int]:
        return {"pid": os.getpid()}

    with app.app_context(), suppress(StoreUnavailable):
        auth.guard.peek("login", account="nobody", client="192.0.2.1")
    return app


def listen(app: Flask, ledger: Ledger) -> None:
    """Write down what the extension's signals tell."""

    def into(mark: str) -> Callable[..., None]:
        return lambda *_, **__: ledger.write(mark, g.who)

    for signal, mark in (
        (store_unavailable, "unknown"),
        (settle_failed, "unsettled"),
        (admitted_uncounted, "degraded"),
    ):
        signal.connect(into(mark), app, weak=False)


app = create_app()
