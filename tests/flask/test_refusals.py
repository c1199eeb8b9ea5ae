"""The fields of a refusal: always there, once, in range, also in an app's own error pages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from flask import Blueprint, Response, jsonify
from werkzeug.exceptions import HTTPException

from authguard.errors import StoreUnavailable
from authguard.flask import NoVerdict, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from werkzeug.test import TestResponse

    from tests.conftest import Clock
    from tests.flask.conftest import Site

WHOLE_SECONDS = re.compile(r"[1-9][0-9]*")
SINGLE = ("Retry-After", "Cache-Control", "RateLimit", "RateLimit-Policy", "Content-Type")
JSON = {"Accept": "application/json"}


def check(answer: TestResponse, status: int, longest_s: int) -> int:
    """Check what every refusal must have, and give its wait."""
    assert answer.status_code == status
    for name in SINGLE:
        assert len(answer.headers.getlist(name)) <= 1, name
    assert answer.headers["Cache-Control"] == "no-store"
    wait = answer.headers["Retry-After"]
    assert WHOLE_SECONDS.fullmatch(wait)
    assert int(wait) <= longest_s
    if answer.mimetype == "application/problem+json":
        assert answer.json is not None
        assert answer.json["retry_after"] == int(wait)
        assert answer.json["status"] == status
    return int(wait)


def by_account(site: Site) -> None:
    """Fill the account's log, which locks it."""
    site.statuses(5)


def by_client(site: Site) -> None:
    """Fill the client's log over many names."""
    for number in range(20):
        site.login(f"user-{number}")


def by_malformed(site: Site) -> None:
    """Fill the client's log with requests that name nobody."""
    for _ in range(20):
        site.post(json={})


@pytest.mark.parametrize("kind", ["json", "page"])
@pytest.mark.parametrize("source", [by_account, by_client, by_malformed])
def test_every_429(site: Site, source: Callable[[Site], None], kind: str) -> None:
    """B063, B068: account, lock and client refusals all carry the wait, in JSON and as a page."""
    source(site)
    how: dict[str, Any] = {
        "json" if kind == "json" else "data": {"identifier": "vera", "password": "x"}
    }
    answer = site.post(**how)
    check(answer, 429, 900)
    assert answer.mimetype == ("application/problem+json" if kind == "json" else "text/html")


def test_malformed_ones_are_refused_too(site: Site) -> None:
    """B068: once the client's limit is full, a malformed request gets the 429 as well."""
    by_malformed(site)
    check(site.post(json={}), 429, 300)


def test_page_counts_down_from_the_header(site: Site) -> None:
    """The page's countdown starts at the seconds of its own Retry-After."""
    by_account(site)
    answer = site.post(data={"identifier": "vera", "password": "x"})
    wait = check(answer, 429, 900)
    assert f'data-retry-after="{wait}"' in answer.text


def test_waits_are_honest(site: Site, clock: Clock) -> None:
    """B062, B063: at every moment of a hammered hour the wait is a whole number in range."""
    for _ in range(200):
        answer = site.login()
        if answer.status_code == 429:
            check(answer, 429, 900)
        else:
            assert answer.status_code == 401
            assert "Retry-After" not in answer.headers
        clock.advance(17_777)


HANDLERS: dict[str, Callable[[Refused], Any]] = {
    "text": lambda error: f"wait {error.retry_after}",
    "tuple": lambda error: (f"wait {error.retry_after}", 429, {"X-App": "1"}),
    "JSON": lambda error: (jsonify(wait=error.retry_after), 429),
    "response": lambda error: Response(f"wait {error.retry_after}", 429),
    "default": lambda error: error.get_response(),
    "shorter": lambda error: Response(f"wait {error.retry_after}", 429, {"Retry-After": "1"}),
    "date": lambda _: Response("x", 429, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}),
}


@pytest.mark.parametrize("level", ["app", "blueprint", "class", "any"])
@pytest.mark.parametrize("style", HANDLERS)
def test_app_error_handlers(site_factory: Callable[..., Site], level: str, style: str) -> None:
    """B064, B067: the app's 429 handler knows the wait, and the response keeps it exactly once."""
    site = site_factory()
    seen: list[Refused] = []

    def handle(error: Refused) -> Any:
        seen.append(error)
        return HANDLERS[style](error)

    doors = Blueprint("doors", __name__)
    view = site.auth.protect("login", account="username")(lambda: ("wrong", 401))
    doors.add_url_rule("/door", "door", view, methods=["POST"])
    if level == "blueprint":
        doors.register_error_handler(429, handle)
    else:
        kinds: dict[str, Any] = {"app": 429, "class": Refused, "any": HTTPException}
        site.app.register_error_handler(kinds[level], handle)
    site.app.register_blueprint(doors)
    data = {"username": "vera"}
    assert [site.post("/door", data=data).status_code for _ in range(5)] == [401] * 5
    assert seen == []
    answer = site.post("/door", data=data)
    assert answer.headers.getlist("Retry-After") == [str(seen[0].retry_after)]
    assert answer.headers.getlist("Cache-Control") == ["no-store"]
    assert isinstance(seen[0].retry_after, int)
    assert seen[0].decision.refused_by == ("account",)
    if style in ("text", "tuple", "response"):
        assert answer.text == f"wait {seen[0].retry_after}"


def test_longer_wait_of_the_app_is_kept(site_factory: Callable[..., Site]) -> None:
    """B064: if the app's handler asks for a longer wait than ours, the longer one is sent, once."""
    site = site_factory()
    site.app.register_error_handler(429, lambda _: Response("later", 429, {"Retry-After": "9999"}))
    by_account(site)
    assert site.login().headers.getlist("Retry-After") == ["9999"]


def test_other_answers_of_the_app_are_left_alone(site_factory: Callable[..., Site]) -> None:
    """B064: a Retry-After that the app sets on an answer of its own stays as it is."""
    site = site_factory()
    site.app.add_url_rule("/maintenance", "m", lambda: ("soon", 503, {"Retry-After": "7"}))
    answer = site.browser().get("/maintenance")
    assert answer.headers.getlist("Retry-After") == ["7"]
    assert "Cache-Control" not in answer.headers


def test_app_handles_503_and_400_too(site_factory: Callable[..., Site]) -> None:
    """B067, B068: the app's own 503 and 400 pages work as its 429 page does."""
    site = site_factory()
    seen: list[HTTPException] = []

    def handle(error: HTTPException) -> str:
        seen.append(error)
        return "sorry"

    site.app.register_error_handler(503, handle)
    site.app.register_error_handler(400, handle)
    assert site.post(json={}).text == "sorry"

    def away() -> None:
        raise StoreUnavailable("connection")

    site.spy.before = away
    answer = site.login()
    assert isinstance(seen[1], NoVerdict)
    assert answer.headers.getlist("Retry-After") == [str(seen[1].retry_after)]
    assert seen[1].reason == "connection"


def test_views_without_the_blueprint(site_factory: Callable[..., Site]) -> None:
    """A protected view of an app without our templates answers with a plain page, or JSON."""
    site = site_factory(blueprint=False)
    view = site.auth.protect("login", account="username")(lambda: ("wrong", 401))
    site.app.add_url_rule("/door", "door", view, methods=["POST"])
    data = {"username": "vera"}
    for _ in range(5):
        site.post("/door", data=data)
    page = site.post("/door", data=data)
    wait = check(page, 429, 900)
    assert f"{wait} seconds" in page.text
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    check(site.post("/door", data=data, headers=JSON), 429, 900)
    assert "username: is missing" in site.post("/door", data={"x": "<b>"}).text
