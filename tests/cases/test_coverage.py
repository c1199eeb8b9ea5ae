"""Cases of the kind coverage: every way to a link, a code or a lock is the guarded one."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest
from flask import Blueprint

from authguard import AccountKey
from tests.cases.conftest import add_door
from tests.flask.conftest import ALL_OF_S, MESSAGES

if TYPE_CHECKING:
    from collections.abc import Callable

    from werkzeug.test import TestResponse

    from tests.conftest import Clock
    from tests.flask.conftest import Site

OTHER, OFFICE = "198.51.100.7", "192.0.2.5"
NEW = "a new password"
FORM = {"content_type": "application/x-www-form-urlencoded"}
JSON = {"content_type": "application/json"}

#: Each route that takes what comes by mail or text message, and its action.
ROUTES = {
    "/auth/password/forgot": "password.forgot",
    "/auth/password/reset": "password.reset",
    "/auth/unlock": "unlock",
    "/auth/otp/send": "otp.send",
    "/auth/otp/verify": "otp.verify",
}


@pytest.fixture
def post_site(site_factory: Callable[..., Site], clock: Callable[[], int]) -> Site:
    """Give a site that sends, on set-up S."""
    return site_factory(clock=clock, messages={}, AUTHGUARD_POLICY=ALL_OF_S)


def used_by_client(site: Site, action: str) -> int:
    """Tell how many places of the client's first limit are taken."""
    verdicts = site.guard.peek(action, account="nobody at all", client=site.home).verdicts
    client = next(verdict for verdict in verdicts if verdict.name == "client")
    return int(client.limit - client.remaining)


def taken(site: Site, who: str) -> dict[str, int]:
    """Tell what is taken of an account's own limits, in all actions."""
    key = site.guard.account_key(who)
    return {
        f"{action} {each.name}": each.limit - each.remaining
        for action in ROUTES.values()
        if action not in ("password.reset", "unlock")
        for each in site.guard.peek(action, account=key, client=OTHER).verdicts
        if each.limit != each.remaining
    }


def nest(site: Site, number: int) -> str:
    """Register the routes again, renamed below a parent; give their prefix."""
    parent = Blueprint(f"parent{number}", __name__)
    options: dict[str, Any] = {**MESSAGES, "notifier": site.outbox}
    inner = site.auth.blueprint(accounts=site.people, **options)
    parent.register_blueprint(inner, url_prefix="/in", name=f"renamed{number}")
    site.app.register_blueprint(parent, url_prefix=f"/p{number}")
    return f"/p{number}/in"


def test_nested_routes_share_budgets_and_links(post_site: Site) -> None:
    """B153: nested under two parents, renamed: budgets are one, and a link works at each."""
    site = post_site
    paths = ["/auth", nest(site, 0), nest(site, 1)]
    for path in paths:
        answer = site.post(f"{path}/password/forgot", json={"identifier": "vera"})
        assert answer.status_code == 202
        (sent, *_) = site.messages("reset")
        link = f"http://app.example/auth/password/reset?token={sent.token}"  # the first's
        assert f"\n{link}\n" in sent.body
        page = site.browser().get(f"{path}/password/reset", query_string={"token": sent.token})
        assert f'action="{path}/password/reset"' in page.text
    assert site.post("/p0/in/password/forgot", json={"identifier": "vera"}).status_code == 429
    answers = [
        site.post(f"{paths[n % 3]}/login", json={"identifier": "vera", "password": "wrong"})
        for n in range(6)
    ]
    assert [answer.status_code for answer in answers] == [401] * 5 + [429]
    body = {"token": site.messages("unlock")[0].token}
    assert site.post("/p1/in/unlock", json=body).status_code == 200
    assert site.login("vera", "right vera").status_code == 200


def test_routes_that_are_only_nested_link_to_themselves(
    site_factory: Callable[..., Site], clock: Clock
) -> None:
    """B153: where the routes stand nested alone, links lead there."""
    site = site_factory(clock=clock, blueprint=False, AUTHGUARD_POLICY=ALL_OF_S)
    path = nest(site, 0)
    assert site.post(f"{path}/password/forgot", json={"identifier": "vera"}).status_code == 202
    (sent,) = site.messages("reset")
    assert f"\nhttp://app.example{path}/password/reset?token={sent.token}\n" in sent.body
    body = {"token": sent.token, "password": NEW}
    assert site.post(f"{path}/password/reset", json=body).status_code == 200


def test_all_spellings_of_a_route_are_one(post_site: Site) -> None:
    """B154: every URL that leads to a view of links draws on its one budget."""
    spellings = ["/auth/password/forgot", "/auth/password/%66orgot", "//auth/password/forgot"]
    spellings += ["/auth/password/forgot/", "/AUTH/password/forgot", "/auth//password/forgot"]
    for path in spellings * 2:
        answer = post_site.post(
            path,
            json={"identifier": "vera"},
            base_url="http://localhost",
            follow_redirects=True,
        )
        assert answer.status_code in (202, 404, 405, 429)
    assert len(post_site.messages("reset")) == 3


@pytest.mark.parametrize("path", ROUTES)
def test_looking_is_free_and_other_methods_are_refused(post_site: Site, path: str) -> None:
    """B154: GET, HEAD and OPTIONS cost nothing, PUT, PATCH and DELETE are 405, nothing is sent."""
    browser = post_site.browser()
    query = {"identifier": "vera", "token": "x", "challenge": "x", "code": "1" * 8}
    for method in ("GET", "HEAD", "OPTIONS"):
        answer = browser.open(path, method=method, query_string=query)
        assert answer.status_code in (200, 303)
    headers = {"X-HTTP-Method-Override": "POST"}
    assert browser.get(path, headers=headers, query_string=query).status_code in (200, 303)
    for method in ("PUT", "PATCH", "DELETE"):
        assert browser.open(path, method=method, query_string=query).status_code == 405
    assert used_by_client(post_site, ROUTES[path]) == 0
    assert (post_site.messages(), taken(post_site, "vera")) == ([], {})


def test_every_page_that_checks_the_password_is_let_in_again(post_site: Site) -> None:
    """B156: 3 wrong at login and 2 at change-password lock both; a reset opens both."""
    site = post_site
    door = add_door(site, "/change-password", account=lambda: AccountKey("key-1"))
    assert site.statuses(3) == [401] * 3
    assert [door.knock("", "wrong") for _ in range(2)] == [401] * 2
    assert door.knock("", "right vera") == 429
    assert site.login("vera", "right vera").status_code == 429
    assert site.post("/auth/password/forgot", json={"identifier": "vera"}).status_code == 202
    body = {"token": site.messages("reset")[0].token, "password": NEW}
    assert site.post("/auth/password/reset", json=body).status_code == 200
    assert door.knock("", NEW) == 200
    assert site.login("vera", NEW).status_code == 200


@pytest.mark.parametrize("field", ["username", "email", "user", "email_or_username", "name"])
@pytest.mark.parametrize("path", ["/auth/password/forgot", "/auth/otp/send"])
def test_a_name_in_another_field_is_no_name(post_site: Site, path: str, field: str) -> None:
    """B157: without the field that is read it is 400, nothing is sent, and no user is charged."""
    for how in ({"json": {field: "vera", "channel": "sms"}}, {"data": {field: "vera"}}):
        request: dict[str, Any] = dict(how)
        assert post_site.post(path, **request).status_code == 400
    only_asked: dict[str, Any] = {"query_string": {"identifier": "vera", "channel": "sms"}}
    assert post_site.post(path, **only_asked).status_code == 400
    assert (post_site.messages(), taken(post_site, "vera")) == ([], {})
    assert used_by_client(post_site, ROUTES[path]) == 3


def test_names_count_from_form_and_json_alike(post_site: Site) -> None:
    """B157: by form, multipart form and JSON one account has three links an hour in all."""
    ways: list[dict[str, Any]] = [
        {"json": {"identifier": "vera"}},
        {"data": {"identifier": "Vera@example.test"}},
        {"data": {"identifier": "vera"}, "content_type": "multipart/form-data"},
    ]
    answers = [post_site.post("/auth/password/forgot", **way).status_code for way in ways * 2]
    assert answers == [202] * 3 + [429] * 3


def broken() -> dict[str, dict[str, Any]]:
    """Give requests that no route can use."""
    good = {"identifier": "vera", "channel": "sms", "challenge": "x", "code": "1", "token": "x"}
    good |= {"password": "long enough"}
    return {
        "empty": {},
        "empty JSON": {"data": b"", **JSON},
        "null": {"data": b"null", **JSON},
        "a list": {"json": [good]},
        "a number": {"data": b"5", **JSON},
        "a text": {"data": b'"vera"', **JSON},
        "broken": {"data": b'{"identifier": "vera"', **JSON},
        "no UTF-8": {"data": b'{"identifier": "\xff", "token": "\xff"}', **JSON},
        "deep": {"data": b"[" * 8000, **JSON},
        "NaN": {"data": b'{"identifier": NaN, "token": NaN, "challenge": NaN}', **JSON},
        "nulls": {"json": dict.fromkeys(good)},
        "numbers": {"json": dict.fromkeys(good, 5)},
        "lists": {"json": {key: [value] for key, value in good.items()}},
        "objects": {"json": {key: {"": value} for key, value in good.items()}},
        "booleans": {"json": dict.fromkeys(good, True)},
        "empty texts": {"json": dict.fromkeys(good, "")},
        "surrogates": {"data": b'{"identifier":"\\ud800","token":"\\ud800"}', **JSON},
        "twice": {
            "data": b'{"identifier":"vera","token":"x","challenge":"x","identifier":"omar",'
            b'"token":"y","challenge":"y"}',
            **JSON,
        },
        "form twice": {
            "data": "identifier=a&identifier=b&token=x&token=y&challenge=x&challenge=y",
            **FORM,
        },
        "cut multipart": {"data": b"--x\r\n", "content_type": "multipart/form-data; boundary=x"},
        "query no UTF-8": {"json": good, "environ_overrides": {"QUERY_STRING": "a=\xff"}},
        "another in the query": {
            "json": good,
            "query_string": {"identifier": "omar", "token": "y", "challenge": "y"},
        },
    }


@pytest.mark.parametrize("kind", broken())
@pytest.mark.parametrize("path", ROUTES)
def test_a_broken_body_is_400(post_site: Site, path: str, kind: str) -> None:
    """B158: answered 400 as problem+json; the client is charged, no user is, nothing is sent."""
    answer = post_site.post(path, headers={"Accept": "application/json"}, **broken()[kind])
    assert (answer.status_code, answer.mimetype) == (400, "application/problem+json")
    assert (answer.json or {}).keys() == {"type", "title", "status", "detail"}
    assert used_by_client(post_site, ROUTES[path]) == 1
    for who in ("vera", "omar"):
        assert taken(post_site, who) == {}
    assert (post_site.messages(), post_site.spy.checks) == ([], [])


@pytest.mark.parametrize("path", ROUTES)
def test_other_media_and_long_bodies(post_site: Site, path: str) -> None:
    """B158: 415 for what is neither form nor JSON, 413 for over 16 KiB, chunked as well."""
    long = b'{"identifier": "' + b"x" * 17_000 + b'"}'
    chunks = {
        "wsgi.input": io.BytesIO(long),
        "wsgi.input_terminated": True,
        "HTTP_TRANSFER_ENCODING": "chunked",
    }
    answers: list[TestResponse] = [
        post_site.post(path, data=b"{}", content_type="text/plain"),
        post_site.post(path, data=b"<a/>", content_type="application/xml"),
        post_site.post(path, data=long, **JSON),
        post_site.post(path, environ_overrides=chunks, **JSON),
    ]
    assert [answer.status_code for answer in answers] == [415, 415, 413, 413]
    assert used_by_client(post_site, ROUTES[path]) == 4
    assert post_site.messages() == []


@pytest.mark.parametrize("path", ROUTES)
def test_broken_bodies_are_limited_and_hold_nobody_up(
    post_site: Site, clock: Clock, path: str
) -> None:
    """B158: ten broken bodies leave vera's sign-in as it is, and a flood of them ends in 429."""
    statuses = [post_site.post(path, json={}).status_code for _ in range(21)]
    assert statuses[:10] == [400] * 10
    assert statuses[-1] == 429
    assert set(statuses) == {400, 429}
    assert post_site.login("vera", "right vera").status_code == 200


def test_an_allowlisted_office_meets_no_limit_by_address(
    site_factory: Callable[..., Site], clock: Clock
) -> None:
    """B144: from a listed network every ready-made flow works past the address's limits."""
    site = site_factory(
        clock=clock,
        messages={},
        AUTHGUARD_POLICY=ALL_OF_S,
        AUTHGUARD_ALLOWLIST=["192.0.2.0/24"],
    )
    for number in range(25):
        name = f"user-{number}"
        assert site.login(name, client=OFFICE).status_code == 401
        ask = {"identifier": name}
        assert site.post("/auth/password/forgot", json=ask, client=OFFICE).status_code == 202
        bad = {"token": "x", "password": "long enough"}
        assert site.post("/auth/password/reset", json=bad, client=OFFICE).status_code == 400
        assert site.post("/auth/unlock", json=bad, client=OFFICE).status_code == 400
        assert site.send_code(name, client=OFFICE).status_code == 202
        assert site.verify("x", "1" * 8, client=OFFICE).status_code == 401


def test_an_allowlisted_office_meets_every_limit_by_account(
    site_factory: Callable[..., Site], clock: Clock
) -> None:
    """B144: locks, cooldowns and quotas of one user hold from a listed network too."""
    site = site_factory(
        clock=clock,
        messages={},
        AUTHGUARD_POLICY=ALL_OF_S,
        AUTHGUARD_ALLOWLIST=["192.0.2.0/24"],
    )
    assert [site.login(client=OFFICE).status_code for _ in range(6)] == [401] * 5 + [429]
    ask = {"identifier": "vera"}
    answers = [site.post("/auth/password/forgot", json=ask, client=OFFICE) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [202] * 3 + [429]
    sent = site.send_code(client=OFFICE)
    assert site.send_code(client=OFFICE).status_code == 429
    challenge = (sent.json or {})["challenge"]
    codes = [site.verify(challenge, "0" * 8, client=OFFICE).status_code for _ in range(6)]
    assert codes == [401] * 5 + [429]
    assert len(site.messages("unlock")) == 1
    assert len(site.messages("reset")) == 3
