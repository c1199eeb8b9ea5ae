"""Requests: whatever their shape, route, method or cookies, an account has its five guesses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from flask import request, session

from authguard import AccountKey, Denied
from tests.cases.conftest import add_door

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask.testing import FlaskClient
    from werkzeug.test import TestResponse

    from tests.conftest import Clock
    from tests.flask.conftest import Site

Variant = tuple[str, str, dict[str, str], int, int]

RIGHT = {"identifier": "vera", "password": "right vera"}
WRONG = {"identifier": "vera", "password": "wrong"}
JSON = {"content_type": "application/json"}
FORM = {"content_type": "application/x-www-form-urlencoded"}
GUESSES = [f"guess {number}" for number in range(99)] + ["right vera"]

#: Many passwords in one request, in the ways that test_malformed.py does not try.
BATCHES = {
    "a batch of sign-ins": {"json": [{"identifier": "vera", "password": each} for each in GUESSES]},
    "a list of 100": {"json": RIGHT | {"password": GUESSES}},
    "a list of one": {"json": RIGHT | {"password": ["right vera"]}},
    "an object": {"json": RIGHT | {"password": {str(n): each for n, each in enumerate(GUESSES)}}},
    "duplicate keys": {
        "data": '{"identifier":"vera",'
        + ",".join(f'"password":"{each}"' for each in GUESSES)
        + "}",
        **JSON,
    },
    "two documents": {"data": json.dumps(WRONG) + json.dumps(RIGHT), **JSON},
    "lines of documents": {"data": json.dumps(WRONG) + "\n" + json.dumps(RIGHT), **JSON},
    "numbered fields": {"data": "identifier=vera&password[0]=a&password[1]=right+vera", **FORM},
    "a field repeated": {
        "data": "identifier=vera&" + "&".join(f"password={each}" for each in GUESSES),
        **FORM,
    },
    "body and query": {"json": WRONG, "query_string": {"password": "right vera"}},
    "form and query": {"data": WRONG, "query_string": {"password": "right vera"}},
    "names": {"json": RIGHT | {"identifier": ["vera", "omar"]}},
}


@pytest.mark.parametrize("name", BATCHES)
def test_many_passwords_in_one_request(site: Site, name: str) -> None:
    """A41: 400, none is looked at; the client pays, and after 20 such requests it is refused."""
    answers = [site.post(**BATCHES[name]).status_code for _ in range(21)]
    assert answers == [400] * 20 + [429]
    assert site.spy.checks == []
    assert site.login("vera", "right vera", client="198.51.100.7").status_code == 200


def test_passwords_in_fields_that_nobody_reads(site: Site) -> None:
    """A41: fields beside the password give no second guess: one is looked at, one is counted."""
    more = {"passwords": GUESSES, "Password": "right vera", "password2": "right vera"}
    assert site.post(json=WRONG | more).status_code == 401
    assert site.spy.checks == [False]
    assert site.used() == 1


@pytest.mark.parametrize("account", ["username", lambda: request.get_json()["username"]])
@pytest.mark.parametrize(
    "name", [["vera"], {"a": "vera"}, 7, 7.5, None, True, False, [], {}, "\ud800", "ve\udfffra"]
)
def test_a_name_of_another_type(build: Callable[..., Site], account: Any, name: Any) -> None:
    """A26, A27: at a view of the app's own it is 400; nothing is looked at, the client pays."""
    site = build(blueprint=False)
    door = add_door(site, "/door", account=account)
    assert [door.knock(name, "right vera") for _ in range(21)] == [400] * 20 + [429]
    assert door.evaluated == 0


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", '"\\ud800"', '"a\\udc00"'])
@pytest.mark.parametrize("field", ["identifier", "password"])
def test_what_json_has_no_word_for(site: Site, field: str, literal: str) -> None:
    """A26, A27: NaN or half a surrogate pair is 400, not 500; no password is looked at."""
    body = {"identifier": '"vera"', "password": '"x"'} | {field: literal}
    text = ",".join(f'"{name}":{value}' for name, value in body.items())
    answer = site.post(data=f"{{{text}}}", headers={"Accept": "application/json"}, **JSON)
    assert (answer.status_code, answer.mimetype) == (400, "application/problem+json")
    assert [site.used(), site.used("client"), site.spy.checks] == [0, 1, []]


class Siblings:
    """An app in which seven routes look at the same password."""

    def __init__(self, site: Site) -> None:
        self.site = site
        add_door(site, "/api/v1/login", account="email")
        add_door(site, "/mobile/login", account="user")
        add_door(site, "/basic", account=self._basic)
        for path in ("/change-password", "/step-up", "/delete-account"):
            add_door(site, path, account=lambda: AccountKey(session["key"]))
        self.ways: list[Callable[[str, str], int]] = [
            lambda password, at: self._post("/auth/login", at, json=WRONG | {"password": password}),
            lambda password, at: self._post(
                "/api/v1/login", at, json={"email": "Vera@example.test", "password": password}
            ),
            lambda password, at: self._post(
                "/mobile/login", at, data={"user": "+14155550101", "password": password}
            ),
            lambda password, at: self._post(
                "/basic", at, auth=("vera", password), json={"password": password}
            ),
            *(self._inside(path) for path in ("/change-password", "/step-up", "/delete-account")),
        ]

    def _inside(self, path: str) -> Callable[[str, str], int]:
        return lambda password, at: self._post(path, at, data={"password": password})

    @staticmethod
    def _basic() -> str | None:
        return request.authorization.username if request.authorization else None

    def _post(self, path: str, at: str, **how: Any) -> int:
        browser = self.site.browser(at)
        with browser.session_transaction() as opened:  # a session that somebody has stolen
            opened["key"] = "key-1"
        return browser.post(path, **how).status_code


def test_every_route_to_a_password_shares_its_budget(build: Callable[..., Site]) -> None:
    """A43, B156: over seven routes and 11 addresses ten guesses are evaluated, then all refuse."""
    site = build(AUTHGUARD_POLICY=None)
    ways = Siblings(site).ways
    answers = [ways[number % 7]("wrong", f"198.51.{number}.7") for number in range(11)]
    assert answers == [401] * 10 + [429]
    assert len(site.spy.checks) == 10
    assert [way("right vera", f"192.0.2.{n}") for n, way in enumerate(ways)] == [429] * 7
    assert site.login("omar", "right omar").status_code == 200


@pytest.mark.parametrize("way", range(7))
def test_each_route_alone_is_guarded(build: Callable[..., Site], way: int) -> None:
    """A43: each of the routes has five guesses, and its right password gives the budget back."""
    site = build()
    knock = Siblings(site).ways[way]
    assert [knock("wrong", site.home) for _ in range(4)] == [401] * 4
    assert knock("right vera", site.home) == 200
    assert [knock("wrong", site.home) for _ in range(6)] == [401] * 5 + [429]


def test_change_password_shares_the_lock(build: Callable[..., Site], clock: Clock) -> None:
    """B156: three wrong at login and two at change-password lock both, for the right one too."""
    site = build(clock=clock)
    add_door(site, "/change-password", account=lambda: AccountKey(session["key"]))
    browser = site.browser()
    with browser.session_transaction() as opened:
        opened["key"] = "key-1"

    def change(password: str) -> int:
        return browser.post("/change-password", data={"password": password}).status_code

    assert site.statuses(3) == [401] * 3
    assert [change("wrong"), change("wrong")] == [401, 401]
    assert [change("right vera"), site.login("vera", "right vera").status_code] == [429, 429]
    assert len(site.spy.checks) == 5
    clock.advance(900_000)
    assert [change("right vera"), site.login("vera", "right vera").status_code] == [200, 200]


@pytest.mark.parametrize(
    "account", [lambda: session.get("key"), lambda: AccountKey(session.get("key"))]
)
def test_without_a_session_there_is_nobody_to_guess(
    build: Callable[..., Site], account: Callable[[], str | None]
) -> None:
    """A43, B045: a page for who is signed in, asked by nobody, is 400 and charged to the client."""
    site = build()
    door = add_door(site, "/change-password", account=account)
    assert [door.knock("vera", "right vera") for _ in range(21)] == [400] * 20 + [429]
    assert door.evaluated == 0


#: Method, path and header fields: the status, and how many passwords are looked at.
VARIANTS: list[Variant] = [
    ("POST", "/auth/login", {}, 401, 1),
    ("POST", "/auth/login?x=1", {}, 401, 1),
    ("POST", "/auth/%6cogin", {}, 401, 1),
    ("POST", "/auth%2Flogin", {}, 401, 1),
    ("POST", "/auth/login", {"X-HTTP-Method-Override": "GET"}, 401, 1),
    ("POST", "/auth/login", {"X-Original-URL": "/auth/me", "X-Rewrite-URL": "/x"}, 401, 1),
    ("GET", "/auth/login", {}, 200, 0),
    ("GET", "/auth/login", {"X-HTTP-Method-Override": "POST"}, 200, 0),
    ("GET", "/auth/login?identifier=vera&password=wrong&_method=POST", {}, 200, 0),
    ("HEAD", "/auth/login", {}, 200, 0),
    ("OPTIONS", "/auth/login", {}, 200, 0),
    ("PUT", "/auth/login", {}, 405, 0),
    ("PATCH", "/auth/login", {"X-HTTP-Method-Override": "POST"}, 405, 0),
    ("DELETE", "/auth/login", {"X-HTTP-Method": "POST"}, 405, 0),
    ("FOO", "/auth/login", {}, 405, 0),
    ("POST", "/AUTH/login", {}, 404, 0),
    ("POST", "/auth/LOGIN", {}, 404, 0),
    ("POST", "/auth/login/", {}, 404, 0),
    ("POST", "/auth/login;x", {}, 404, 0),
    ("POST", "/auth/login.json", {}, 404, 0),
    ("POST", "/auth/x/../login", {}, 404, 0),
    ("POST", "/auth/login%00", {}, 404, 0),
    ("POST", "/auth/login%20", {}, 404, 0),
]


def open_variant(site: Site, method: str, path: str, headers: dict[str, str]) -> TestResponse:
    """Send a wrong password."""
    return site.browser().open(path, method=method, json=WRONG, headers=headers)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_of_the_request(site: Site, variant: Variant) -> None:
    """A44: what leads to the route is looked at and counted; all else does neither."""
    method, path, headers, status, looked_at = variant
    assert open_variant(site, method, path, headers).status_code == status
    assert len(site.spy.checks) == looked_at
    assert [site.used(), site.used("client")] == [looked_at, looked_at]


def test_variants_share_one_budget(site: Site) -> None:
    """A44: all variants one after another, several times: five passwords are looked at in all."""
    for _ in range(3):
        for method, path, headers, status, _looked_at in VARIANTS:
            answer = open_variant(site, method, path, headers)
            assert answer.status_code in ({401, 429} if status == 401 else {status})
    assert len(site.spy.checks) == 5
    assert site.login("vera", "right vera").status_code == 429


def test_doubled_slashes(site: Site) -> None:
    """A44: //auth/login counts as the route itself; slashes doubled inside only redirect."""

    def post(path: str) -> TestResponse:
        # By the environ, since a client would read //auth as a host.
        return site.post("/", json=WRONG, environ_overrides={"PATH_INFO": path})

    for path in ("/auth//login", "///auth///login"):
        answer = post(path)
        assert (answer.status_code, answer.location) == (308, "http://localhost/auth/login")
    assert [site.used("client"), site.spy.checks] == [0, []]
    answers = [post("//auth/login").status_code for _ in range(3)]
    answers += site.statuses(2)
    answers += [post("//auth/login").status_code, site.login().status_code]
    assert answers == [401] * 5 + [429] * 2
    assert len(site.spy.checks) == 5


@pytest.fixture
def graphql(site: Site) -> Callable[[list[tuple[str, str]]], list[str]]:
    """Give a route that takes many sign-ins in one request, each with a reservation of its own."""

    def one(account: str, password: str) -> str:
        person = site.people.find(account)
        key = AccountKey(person.key) if person else account
        try:
            with site.auth.guard.attempt(
                "login", account=key, client=request.remote_addr
            ) as attempt:
                if site.spy.verify(person and person.password_hash, password):
                    attempt.succeed()
                    return "in"
                return "wrong"
        except Denied as refused:
            return f"wait {refused.retry_after}"

    @site.app.post("/graphql")
    def resolve_all() -> dict[str, str]:
        logins = request.get_json()["data"]
        return {alias: one(*login) for alias, login in logins.items()}

    def post(logins: list[tuple[str, str]]) -> list[str]:
        data = {f"a{number:03}": login for number, login in enumerate(logins)}
        answer = site.post("/graphql", json={"data": data})
        assert answer.status_code == 200
        given: dict[str, str] = answer.json  # type: ignore[assignment]
        return [given[alias] for alias in sorted(data)]

    return post


def test_a_hundred_aliases(site: Site, graphql: Callable[..., list[str]]) -> None:
    """A46: of 100 aliased sign-ins in one POST exactly five are evaluated, the right one is not."""
    answers = graphql([("vera", guess) for guess in GUESSES])
    assert answers == ["wrong"] * 5 + ["wait 900"] * 95
    assert len(site.spy.checks) == 5
    assert site.login("vera", "right vera").status_code == 429


def test_a_hundred_aliases_over_as_many_users(
    site: Site, graphql: Callable[..., list[str]]
) -> None:
    """A46: spread over 100 users exactly the client's 20 are evaluated."""
    answers = graphql([(f"user-{number}", "wrong") for number in range(100)])
    assert answers == ["wrong"] * 20 + ["wait 300"] * 80
    assert len(site.spy.checks) == 20


def test_own_success_between_aliases(site: Site, graphql: Callable[..., list[str]]) -> None:
    """A46: the attacker's own right sign-in between the aliases gives no guess back."""
    logins = [("vera", "wrong"), ("omar", "right omar")] * 50
    answers = graphql(logins)
    assert answers == ["wrong", "in"] * 5 + ["wait 900", "in"] * 45
    assert site.spy.wrong == 5


def jars(site: Site) -> dict[str, FlaskClient]:
    """Give browsers with every kind of cookie that a client may bring."""
    made = {name: site.browser() for name in ("none", "form", "omar's", "forged", "vera's old")}
    made["form"].get("/auth/login")
    made["omar's"].post("/auth/login", json={"identifier": "omar", "password": "right omar"})
    made["forged"].set_cookie("session", "eyJhdXRoZ3VhcmQuYWNjb3VudCI6ImtleS0xIn0.aaaa.bbbb")
    made["forged"].set_cookie("device", "trusted")
    made["vera's old"].post("/auth/login", json=RIGHT)
    return made


def test_no_cookie_gives_a_guess(site: Site) -> None:
    """A47: with no, a fresh, another's, a forged or an own session: five guesses in all."""
    browsers = jars(site)
    before = len(site.spy.checks)
    answers = [
        browser.post("/auth/login", json=WRONG, headers={"User-Agent": name, "X-Request-Id": name})
        for _ in range(2)
        for name, browser in browsers.items()
    ]
    assert [answer.status_code for answer in answers] == [401] * 5 + [429] * 5
    assert len(site.spy.checks) - before == 5
    for browser in browsers.values():
        assert browser.post("/auth/login", json=RIGHT).status_code == 429


@pytest.mark.parametrize(
    "field",
    ["User-Agent", "Accept-Language", "Referer", "X-Request-Id", "X-Device-Id", "Via", "Host"],
)
def test_no_header_gives_a_guess(site: Site, field: str) -> None:
    """A47: a header field that changes with every try gives no account or client more tries."""
    answers = [site.login(headers={field: f"value-{n}.test"}).status_code for n in range(6)]
    assert answers == [401] * 5 + [429]
    answers = [
        site.login(f"user-{n}", headers={field: f"value-{n}.test"}).status_code for n in range(16)
    ]
    assert answers == [401] * 15 + [429]
