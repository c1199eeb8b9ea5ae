"""
What a protected login adds to a bare Flask request, and what a refusal costs; Flask-Limiter beside.

All apps have the same route, which reads the same form and finds every password wrong, without a
hash. A request is one WSGI call, without a socket; its environment is made beforehand. Refusals
are also asked for by Flask's test client, whose own work stands on both sides of the ratio.
"""

from __future__ import annotations

import io
import random
import statistics
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlencode

from flask import Flask, Response, request
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address

from authguard.flask import AuthGuard
from authguard.testing import embedded_valkey
from bench.figures import interleaved, ratios, spread, table, told
from bench.logins import OURS, REMEMBERING, SECRET, WINDOW_S, Numbers, plain, policy, stream

if TYPE_CHECKING:
    from collections.abc import Callable
    from wsgiref.types import WSGIApplication

__all__ = ["measure", "report"]

BARE, READING = "bare route", "bare route that reads the form"
THEIRS: Final = "Flask-Limiter moving-window"

#: An account and a client's address.
Who: TypeAlias = tuple[str, str]
#: Status, headers and body.
Answer: TypeAlias = tuple[str, list[tuple[str, str]], bytes]


def environ(account: str, client: str) -> dict[str, Any]:
    """Make the environment of one login, as a server would."""
    body = urlencode({"username": account, "password": "wrong"}).encode()
    return {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/login",
        "QUERY_STRING": "",
        "CONTENT_TYPE": "application/x-www-form-urlencoded",
        "CONTENT_LENGTH": str(len(body)),
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "8000",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": client,
        "HTTP_HOST": "127.0.0.1:8000",
        "HTTP_ACCEPT": "application/json",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }


def call(app: WSGIApplication, of: dict[str, Any]) -> Answer:
    """Make one request; give status, headers and body."""
    started: list[Any] = []

    def start(status: str, headers: list[tuple[str, str]], _: object = None) -> Any:
        started[:] = status, headers

    parts = app(of, start)
    body = b"".join(parts)
    close = getattr(parts, "close", None)
    if close is not None:
        close()
    return started[0], started[1], body


def _login() -> tuple[str, int]:
    if request.form["password"] == f"right for {request.form['username']}":
        return "welcome", 200
    return "wrong name or password", 401


def bare_app() -> Flask:
    """Make the app without limits."""
    app = Flask("bare")
    app.post("/login")(_login)
    return app


def our_app(url: str, **settings: Any) -> Flask:
    """Make the app with the view protected as README tells; the three limits of all."""
    app = Flask("ours")
    app.config["AUTHGUARD_STORE_URL"] = url
    app.config["AUTHGUARD_SECRET"] = SECRET
    app.config["AUTHGUARD_POLICY"] = policy(Numbers())
    app.config["AUTHGUARD_DEADLINE_MS"] = 10_000
    app.config.update(settings)
    guard = AuthGuard(app, check_at_start=False)
    app.post("/login")(guard.protect("login", account="username")(_login))
    return app


def their_app(url: str) -> Flask:
    """Make the app with three limits of Flask-Limiter, as its documentation tells."""
    app, numbers = Flask("theirs"), Numbers()
    limiter = Limiter(get_remote_address, app=app, storage_uri=url, strategy="moving-window")

    def account() -> str:
        return request.form["username"]

    def pair() -> str:
        return f"{request.form['username']}:{get_remote_address()}"

    view: Callable[..., Any] = _login
    for limit, key in (
        (numbers.pair, pair),
        (numbers.client, get_remote_address),
        (numbers.account, account),
    ):
        view = limiter.limit(f"{limit} per {WINDOW_S} seconds", key_func=key)(view)
    app.post("/login")(view)
    return app


def canned_app(answer: Answer, *, reads: bool) -> Flask:
    """Make the app whose route gives this very answer, having read the form or nothing."""
    app = Flask("canned")
    status, headers, body = answer
    shown = [(name, value) for name, value in headers if name != "Content-Length"]

    def canned() -> Response:
        if reads:
            _ = request.form["username"]
        return Response(body, status, shown)

    app.post("/login")(canned)
    return app


def _times_us(app: WSGIApplication, asked: list[Who], expected: tuple[str, ...]) -> list[float]:
    times_us = []
    for who in asked:
        of = environ(*who)
        begin = time.perf_counter_ns()
        status, _, _ = call(app, of)
        times_us.append((time.perf_counter_ns() - begin) / 1_000)
        if not status.startswith(expected):
            raise RuntimeError(f"status {status}")
    return times_us


def _test_client_us(app: Flask, who: Who, requests: int) -> float:
    """Give the mean of requests by Flask's own test client."""
    account, client = who
    browser = app.test_client(use_cookies=False)
    begin = time.perf_counter_ns()
    for _ in range(requests):
        browser.post(
            "/login",
            data={"username": account, "password": "wrong"},
            headers={"Accept": "application/json"},
            environ_base={"REMOTE_ADDR": client},
        )
    return (time.perf_counter_ns() - begin) / 1_000 / requests


def _refusing(app: WSGIApplication, who: Who) -> Answer:
    """Ask until it is refused, and give that answer."""
    for _ in range(20):
        answer = call(app, environ(*who))
        if answer[0].startswith("429"):
            return answer
    raise RuntimeError("never refused")


def measure(*, quick: bool) -> dict[str, Any]:
    """Measure what is added to an admitted login, and how fast refusals go out."""
    rounds, chunk = (6, 100) if quick else (40, 500)
    chosen = random.Random(24)
    off = {"AUTHGUARD_REMEMBER_REFUSALS_MS": 0}
    with embedded_valkey() as server, plain(server.url) as admin:

        def at(database: int) -> str:
            return f"valkey://127.0.0.1:{server.port}/{database}"

        apps = {
            BARE: bare_app(),
            OURS: our_app(at(0), **off),
            THEIRS: their_app(at(1)),
        }
        asked = list(stream(rounds * chunk))

        def logins(name: str) -> Callable[[], float]:
            parts = iter([asked[at : at + chunk] for at in range(0, len(asked), chunk)])
            _times_us(apps[name], [("warm-up", "203.0.113.9")], ("401",))
            return lambda: statistics.median(_times_us(apps[name], next(parts), ("401", "429")))

        login_us = interleaved({name: logins(name) for name in apps}, rounds, chosen)

        admin.flushall()
        who = ("full", "198.51.100.7")
        refusing = {
            REMEMBERING: our_app(at(0)),
            OURS: our_app(at(0), **off),
            THEIRS: their_app(at(1)),
        }
        answers = {name: _refusing(app, who) for name, app in refusing.items()}
        refusing = {
            BARE: canned_app(answers[REMEMBERING], reads=False),
            READING: canned_app(answers[REMEMBERING], reads=True),
        } | refusing
        doors = {
            "test client": lambda app: _test_client_us(app, who, chunk),
            "WSGI": lambda app: statistics.fmean(_times_us(app, [who] * chunk, ("429",))),
        }
        refusal_us = {
            door: interleaved(
                {name: partial(mean_us, app) for name, app in refusing.items()}, rounds, chosen
            )
            for door, mean_us in doors.items()
        }
    added = {
        name: [a - b for a, b in zip(login_us[name], login_us[BARE], strict=True)]
        for name in (OURS, THEIRS)
    }
    return {
        "rounds": rounds,
        "logins_a_round": chunk,
        "login_us": {name: spread(times, 1) for name, times in login_us.items()},
        "adds_us": {name: spread(times, 1) for name, times in added.items()},
        "ours_adds_to_theirs": spread(ratios(added[OURS], added[THEIRS])),
        "refusals": {
            door: {
                name: {
                    "mean_us": spread(times, 1),
                    "to_bare": spread(ratios(times_us[BARE], times)),
                    "to_bare_that_reads": spread(ratios(times_us[READING], times)),
                }
                for name, times in times_us.items()
            }
            for door, times_us in refusal_us.items()
        },
    }


def report(figures: dict[str, Any]) -> None:
    """Print both tables."""
    adds = figures["adds_us"]
    table(
        f"A login through Flask, {figures['rounds']} rounds of {figures['logins_a_round']}",
        ("", "p50 us", "adds us"),
        ((name, it, adds.get(name)) for name, it in figures["login_us"].items()),
        "adds: its time less the bare route's of the same round.",
    )
    told("what authguard adds, to what Flask-Limiter adds", figures["ours_adds_to_theirs"])
    for door, refusals in figures["refusals"].items():
        table(
            f"A refused login by {door}, beside bare routes that give the same answer",
            ("", "mean us", "requests a second, to bare", "to bare that reads the form"),
            ((name, *it.values()) for name, it in refusals.items()),
        )
