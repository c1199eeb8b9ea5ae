"""Kind ``header value``: every 401, 429 and 503 that a client can get, on every route."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import http_sf
import pytest

from tests.flask.conftest import ALL_OF_S, HOME
from tests.stores.wire import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from werkzeug.test import TestResponse

    from tests.conftest import Clock
    from tests.flask.conftest import Site

WHOLE_SECONDS = re.compile(r"[1-9][0-9]*")
POLICY: dict[str, Any] = {
    **ALL_OF_S,
    "unlock": {"limits": [{"name": "client", "by": ["client"], "sliding_log": "10/15m"}]},
    "api": {
        "limits": [
            {"name": "key", "by": ["account"], "sliding_log": "5/60s", "elastic": True},
            {"name": "day", "by": ["account"], "sliding_log": "50/24h"},
        ]
    },
}
TOKEN = "t" * 43
LOGIN = {"identifier": "vera", "password": "wrong"}
SEND = {"identifier": "vera", "channel": "sms"}

#: What is asked, and the statuses among these three that the route can give.
ROUTES: dict[str, tuple[str, dict[str, str], set[int]]] = {
    "login": ("/auth/login", LOGIN, {401, 429, 503}),
    "login, unknown": ("/auth/login", LOGIN | {"identifier": "nobody"}, {401, 429, 503}),
    "login, malformed": ("/auth/login", {}, {429, 503}),
    "code, sent": ("/auth/otp/send", SEND, {429, 503}),
    "code, wrong": ("/auth/otp/verify", {"challenge": "c" * 22, "code": "000000"}, {401, 429, 503}),
    "reset, asked for": ("/auth/password/forgot", {"identifier": "vera"}, {429, 503}),
    "reset": ("/auth/password/reset", {"token": TOKEN, "password": "new words"}, {429, 503}),
    "unlock": ("/auth/unlock", {"token": TOKEN}, {429, 503}),
    "devices": ("/auth/devices/forget", {}, {401}),
    "own view, protected": ("/door", {"name": "vera"}, {401, 429, 503}),
    "own view, limited": ("/api", {}, {429, 503}),
}


#: Pages differ in their body alone; that is left to the slow suites.
every_kind = pytest.mark.parametrize("kind", ["json", pytest.param("page", marks=pytest.mark.slow)])


@pytest.fixture
def site_of(site_factory: Callable[..., Site], clock: Clock) -> Callable[..., Site]:
    """Make a site with every route, and two views of the app's own."""

    def make(**config: Any) -> Site:
        site = site_factory(clock=clock, messages={}, AUTHGUARD_POLICY=POLICY, **config)
        door = site.auth.protect("login", account="name")(wrong)
        site.app.add_url_rule("/door", "door", door, methods=["POST"])
        view = site.auth.limit("api", by=lambda: "k-1")(lambda: "fine")
        site.app.add_url_rule("/api", "api", view, methods=["POST"])
        return site

    return make


def wrong() -> tuple[str, int, dict[str, str]]:
    """Answer as an app's own view does."""
    return "wrong", 401, {"Cache-Control": "no-store"}


def ask(site: Site, route: str, kind: str) -> TestResponse:
    """Ask a route, by JSON or as a browser's form."""
    path, body, _ = ROUTES[route]
    if kind == "json":
        return site.post(path, json=body, headers={"Accept": "application/json"})
    return site.post(path, data=body, headers={"Accept": "text/html"})


def check(answer: TestResponse, account_numbers: set[int]) -> None:
    """Check what must be true of each of the three."""
    for name in ("Retry-After", "RateLimit", "RateLimit-Policy", "Cache-Control", "Content-Type"):
        assert len(answer.headers.getlist(name)) <= 1, name
    assert answer.headers["Cache-Control"] == "no-store"
    wait = answer.headers.get("Retry-After")
    assert (wait is None) is (answer.status_code == 401)
    assert wait is None or WHOLE_SECONDS.fullmatch(wait)
    for name, needed in (("RateLimit", {"r"}), ("RateLimit-Policy", {"q"})):
        items: Any = http_sf.parse(answer.headers.get(name, "").encode(), tltype="list")
        assert answer.status_code == 429 or items == []
        for item, parameters in items:
            assert isinstance(item, str)
            assert needed <= set(parameters) <= {"r", "t", "q", "w"}  # no pk: nobody is named
            assert all(type(value) is int and value >= 0 for value in parameters.values())
            assert parameters.get("t", 0) <= int(wait or 0)
            assert parameters.get("q") not in account_numbers
    if answer.mimetype == "application/problem+json":
        assert answer.json is not None
        assert answer.json["status"] == answer.status_code
        assert answer.json.get("retry_after") == (None if wait is None else int(wait))


@every_kind
@pytest.mark.parametrize("route", ROUTES)
def test_every_401_and_429(site_of: Callable[..., Site], route: str, kind: str) -> None:
    """A100: never stored, Retry-After whole and no less than t, fields that parse, no pk."""
    site = site_of()
    expected = ROUTES[route][2] - {503}
    seen = set()
    for _ in range(25):
        answer = ask(site, route, kind)
        if answer.status_code in (401, 429):
            seen.add(answer.status_code)
            # What an account's limits hold is nobody's to see; an API key is its caller's own.
            check(answer, set() if route == "own view, limited" else {3, 5})
    assert seen == expected


@every_kind
@pytest.mark.parametrize("route", [name for name, (*_, told) in ROUTES.items() if 503 in told])
def test_every_503_of_a_store_that_is_away(
    site_of: Callable[..., Site], route: str, kind: str
) -> None:
    """A100: with no store every route is 503 that may not be stored, with a whole wait."""
    site = site_of(AUTHGUARD_STORE_URL=f"valkey://127.0.0.1:{free_port()}/0")
    answer = ask(site, route, kind)
    assert answer.status_code == 503
    check(answer, set())
    assert 5 <= int(answer.headers["Retry-After"]) <= 10


@every_kind
def test_every_503_of_this_service(site_of: Callable[..., Site], kind: str) -> None:
    """A100: full hash slots and a load that sheds are 503 that may not be stored, with a wait."""
    site = site_of()
    site.spy.real = type(site.spy.real).cheapest_for_tests(slots=1, queue=0)
    with site.spy.real._slots:
        answer = ask(site, "login", kind)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    check(answer, set())
    site.guard.load(0, for_ms=30_000)
    answer = ask(site, "own view, limited", kind)
    assert answer.status_code == 503
    check(answer, set())
    assert 30 <= int(answer.headers["Retry-After"]) <= 35


def test_who_am_i(site_of: Callable[..., Site]) -> None:
    """A100: the 401 of a page for those who are signed in may not be stored either."""
    answer = site_of().browser(HOME).get("/auth/me")
    assert answer.status_code == 401
    check(answer, set())
