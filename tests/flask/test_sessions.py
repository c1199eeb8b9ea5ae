"""Sessions: a new one at every step up, an end for all of them at a reset, nothing to plant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from flask.sessions import SecureCookieSessionInterface

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask.testing import FlaskClient
    from werkzeug.test import TestResponse

    from tests.flask.conftest import Site

RIGHT = {"identifier": "vera", "password": "right vera"}
TESS = {"identifier": "tess", "password": "right tess"}
JSON = {"Accept": "application/json"}


def value(browser: FlaskClient) -> str:
    """Give the session cookie that a browser holds."""
    cookie = browser.get_cookie("session")
    return "" if cookie is None else cookie.value


def inside(browser: FlaskClient) -> dict[str, Any]:
    """Give what the session holds."""
    with browser.session_transaction() as session:
        return dict(session)


def me(site: Site, cookie: str) -> TestResponse:
    """Ask who is signed in, with that session cookie in a new browser."""
    browser = site.browser()
    browser.set_cookie("session", cookie)
    return browser.get("/auth/me", headers=JSON)


def by_code(browser: FlaskClient, site: Site) -> TestResponse:
    """Give the code that tess was sent."""
    code = site.messages("code")[0].code
    challenge = inside(browser)["authguard.pending"]["challenge"]
    return browser.post("/auth/otp/verify", json={"challenge": challenge, "code": code})


def link(site: Site, who: str = "vera") -> str:
    """Ask for a link, and give its token."""
    site.post("/auth/password/forgot", json={"identifier": who})
    return str(site.messages("reset")[0].token)


def test_every_step_has_its_own_session(post_site: Site) -> None:
    """A61: cookie and session id differ before login, after password, after code, after reset."""
    browser, cookies, ids = post_site.browser(), [], []

    def note() -> None:
        cookies.append(value(browser))
        ids.append(inside(browser).get("authguard.session"))

    with browser.session_transaction() as session:
        session["planted"] = "before"
    note()
    assert browser.post("/auth/login", json=TESS).status_code == 200
    note()
    assert by_code(browser, post_site).status_code == 200
    note()
    assert browser.get("/auth/me").status_code == 200
    body = {"token": link(post_site, "tess"), "password": "a new password"}
    assert browser.post("/auth/password/reset", json=body).status_code == 200
    note()
    again = TESS | {"password": "a new password"}
    post_site.state.guard.clear("otp.send", account=post_site.guard.account_key("tess"))  # type: ignore[union-attr]
    assert browser.post("/auth/login", json=again).status_code == 200
    note()
    assert len(set(cookies)) == 5
    assert [each is None for each in ids] == [True, False, False, True, False]
    assert len(set(ids) - {None}) == 3
    assert "planted" not in inside(browser)


def test_an_earlier_cookie_is_nobodys(post_site: Site) -> None:
    """A61: what a browser held before the last proof signs nobody in afterwards."""
    browser = post_site.browser()
    browser.post("/auth/login", json=TESS)
    half = value(browser)
    assert by_code(browser, post_site).status_code == 200
    full = value(browser)
    assert me(post_site, half).status_code == 401
    assert me(post_site, full).json == {"username": "tess"}
    body = {"token": link(post_site, "tess"), "password": "a new password"}
    post_site.post("/auth/password/reset", json=body)
    assert me(post_site, full).status_code == 401


def test_a_planted_session_is_never_the_victims(post_site: Site) -> None:
    """A61: whoever plants a cookie before the sign-in knows nothing of the session after it."""
    attacker = post_site.browser("198.51.100.7")
    attacker.get("/auth/login")
    with attacker.session_transaction() as session:
        session["cart"] = "planted"
    victim = post_site.browser()
    victim.set_cookie("session", value(attacker))
    assert victim.post("/auth/login", json=RIGHT).status_code == 200
    assert value(victim) != value(attacker)
    assert me(post_site, value(attacker)).status_code == 401
    assert "cart" not in inside(victim)


class Kept(SecureCookieSessionInterface):
    """Stands for a store of sessions on the server: it counts how often the id is changed."""

    regenerated = 0

    def regenerate(self, _session: object) -> None:
        """Change the id."""
        self.regenerated += 1


def test_a_server_side_id_changes_at_each_proof(post_site: Site) -> None:
    """A61: where sessions are kept on the server their id is changed at password and at code."""
    post_site.app.session_interface = kept = Kept()
    browser = post_site.browser()
    browser.post("/auth/login", json=TESS)
    assert kept.regenerated == 1
    by_code(browser, post_site)
    assert kept.regenerated == 2


def test_a_failure_keeps_what_is_there(post_site: Site) -> None:
    """A failed sign-in ends no session of whoever sits at that browser."""
    browser = post_site.browser()
    browser.post("/auth/login", json=RIGHT)
    assert browser.post("/auth/login", json=RIGHT | {"password": "wrong"}).status_code == 401
    bad = {"token": "A" * 43, "password": "a new password"}
    assert browser.post("/auth/password/reset", json=bad).status_code == 400
    assert browser.get("/auth/me").status_code == 200


@pytest.mark.parametrize("change", ["stamp", "inactive", "deleted"])
def test_what_ends_all_sessions(post_site: Site, change: str) -> None:
    """A61: another session stamp, a disabled or a deleted account: everybody is out at once."""
    browsers = [post_site.browser(), post_site.browser("198.51.100.7")]
    for browser in browsers:
        browser.post("/auth/login", json=RIGHT)
    if change == "deleted":
        del post_site.people.by_key["key-1"]
    elif change == "inactive":
        post_site.people.by_key["key-1"].active = False
    else:
        post_site.people.by_key["key-1"].session_stamp = "another"
    for browser in browsers:
        assert browser.get("/auth/me").status_code == 401
        assert browser.post("/auth/devices/forget").status_code == 401


def test_one_accounts_reset_ends_no_other(post_site: Site) -> None:
    """A61: omar's session goes on while vera resets."""
    browser = post_site.browser()
    browser.post("/auth/login", json={"identifier": "omar", "password": "right omar"})
    body = {"token": link(post_site), "password": "a new password"}
    assert post_site.post("/auth/password/reset", json=body).status_code == 200
    assert browser.get("/auth/me", headers=JSON).json == {"username": "omar"}


def test_cookies_are_for_the_server_alone(site_factory: Callable[..., Site]) -> None:
    """A61: session cookies are HttpOnly and SameSite=Lax, and Secure where the base is https."""
    site = site_factory(messages={}, AUTHGUARD_BASE_URL="https://app.example")
    lines = site.login("vera", "right vera").headers.getlist("Set-Cookie")
    assert len(lines) == 2
    for line in lines:
        assert {"Secure", "HttpOnly", "SameSite=Lax"} <= set(line.split("; "))


def test_signing_out_ends_what_was_pending(post_site: Site) -> None:
    """After a sign-out nothing of the half-done sign-in is left in the browser."""
    browser = post_site.browser()
    browser.post("/auth/login", json=TESS)
    browser.post("/auth/logout")
    assert inside(browser) == {}


def test_answers_show_nothing_of_others_failures(default_site: Site) -> None:
    """A60: before a 429 no answer tells how many tries are left, whoever else has failed."""
    faces = []
    for number in range(4):
        answer = default_site.login(client="198.51.100.7")
        faces.append((answer.status_code, answer.data, list(answer.headers)))
        default_site.login(client=f"100.{64 + number}.1.1")
    assert all(each == faces[0] for each in faces)
    assert not any("ratelimit" in name.lower() for name, _ in faces[0][2])


def test_a_429_shows_the_clients_limit_alone(default_site: Site) -> None:
    """A60: the fields of a 429 are the same whichever limit refuses, and never the account's."""
    for number in range(10):
        default_site.login(client=f"100.{64 + number}.1.1")
    by_account = default_site.login(client="198.51.100.7")
    for number in range(30):
        default_site.login(f"user-{number // 2}", client="198.51.100.8")
    by_client = default_site.login("ghost", client="198.51.100.8")
    assert by_account.status_code == by_client.status_code == 429
    assert by_account.headers["RateLimit-Policy"] == by_client.headers["RateLimit-Policy"]
    assert by_account.headers["RateLimit-Policy"] == '"login";q=30;w=900'
    assert by_account.data == by_client.data
    assert "pk" not in by_account.headers["RateLimit"]
