"""The ready-made routes: signing in, out, and asking who one is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from flask.sessions import SecureCookieSessionInterface

from authguard import HashingUnavailable
from tests.conftest import SECRET

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask.sessions import SessionMixin

    from tests.flask.conftest import Site

WRONG = {
    "type": "about:blank",
    "title": "Unauthorized",
    "status": 401,
    "detail": "Wrong name or password.",
}
RIGHT = {"identifier": "vera", "password": "right vera"}


def test_json_signs_in(site: Site) -> None:
    """The right password by JSON gives 200 and a session that /me knows, until /logout."""
    browser = site.browser()
    answer = browser.post("/auth/login", json=RIGHT)
    assert (answer.status_code, answer.json) == (200, {"status": "authenticated"})
    mine = browser.get("/auth/me", headers={"Accept": "application/json"})
    assert (mine.status_code, mine.json) == (200, {"username": "vera"})
    out = browser.post("/auth/logout", headers={"Accept": "application/json"})
    assert (out.status_code, out.json) == (200, {"status": "logged_out"})
    assert browser.get("/auth/me", headers={"Accept": "application/json"}).status_code == 401


def test_form_signs_in(site: Site) -> None:
    """The right password by form redirects to /me with 303, and signing out to the form."""
    browser = site.browser()
    answer = browser.post("/auth/login", data=RIGHT)
    assert (answer.status_code, answer.location) == (303, "/auth/me")
    assert "vera" in browser.get("/auth/me").text
    out = browser.post("/auth/logout")
    assert (out.status_code, out.location) == (303, "/auth/login")
    assert browser.get("/auth/me").status_code == 401


@pytest.mark.parametrize(
    ("target", "where"), [("/home", "/home"), ("authguard.login", "/auth/login")]
)
def test_redirect_setting(site_factory: Callable[..., Site], target: str, where: str) -> None:
    """AUTHGUARD_LOGIN_REDIRECT names the page after a form's sign-in, by path or endpoint."""
    site = site_factory(AUTHGUARD_LOGIN_REDIRECT=target)
    assert site.post(data=RIGHT).location == where


@pytest.mark.parametrize("name", ["vera", "Vera", " vera@example.test "])
def test_any_name_of_the_account(site: Site, name: str) -> None:
    """Every name of an account signs it in."""
    assert site.login(name, "right vera").status_code == 200


@pytest.mark.parametrize("who", ["vera", "ghost", "dora", "tess", "nora"])
def test_wrong_is_one_constant_body(site: Site, who: str) -> None:
    """A wrong password gives 401 and one constant problem document, whatever the account."""
    answer = site.login(who)
    assert (answer.status_code, answer.json) == (401, WRONG)
    assert answer.mimetype == "application/problem+json"


@pytest.mark.parametrize(("who", "password"), [("dora", "right dora"), ("tess", "right tess")])
def test_right_password_is_not_enough(site: Site, who: str, password: str) -> None:
    """A disabled account, and one with a second factor, is answered and counted as wrong."""
    key = "key-3" if who == "dora" else "key-4"
    browser = site.browser()
    answer = browser.post("/auth/login", json={"identifier": who, "password": password})
    assert (answer.status_code, answer.json) == (401, WRONG)
    assert "Set-Cookie" not in answer.headers
    assert site.used(key=key) == 1
    assert site.spy.checks == [True]


def test_session_is_fresh(site: Site) -> None:
    """Signing in drops whatever the session held and draws a new random id every time."""
    browser = site.browser()
    with browser.session_transaction() as session:
        session["planted"] = "by somebody else"
    ids = set()
    for _ in range(3):
        browser.post("/auth/login", json=RIGHT)
        with browser.session_transaction() as session:
            assert "planted" not in session
            assert session["authguard.account"] == "key-1"
            ids.add(session["authguard.session"])
    assert len(ids) == 3
    assert min(map(len, ids)) >= 43


def test_server_side_session_gets_a_new_id(site: Site) -> None:
    """A session kept on the server is given another id at sign-in (fixation)."""
    given: list[SessionMixin] = []

    class ServerSide(SecureCookieSessionInterface):
        def regenerate(self, session: SessionMixin) -> None:
            given.append(session)

    site.app.session_interface = ServerSide()
    site.login("vera", "wrong")
    assert given == []
    site.login("vera", "right vera")
    assert len(given) == 1


@pytest.mark.parametrize("change", ["disabled", "deleted"])
def test_session_ends_with_the_account(site: Site, change: str) -> None:
    """A session is worth nothing once its account is disabled or gone."""
    browser = site.browser()
    browser.post("/auth/login", json=RIGHT)
    if change == "disabled":
        site.people.by_key["key-1"].active = False
    else:
        del site.people.by_key["key-1"]
    assert browser.get("/auth/me").status_code == 401


def test_rehash_after_success(site: Site) -> None:
    """A right password is hashed anew when parameters rise; a wrong one changes nothing."""
    site.spy.rehash = True
    before = site.people.by_key["key-1"].password_hash
    site.login("vera", "wrong")
    assert site.people.by_key["key-1"].password_hash == before
    assert site.login("vera", "right vera").status_code == 200
    after = site.people.by_key["key-1"].password_hash
    assert after != before
    site.spy.rehash = False
    assert site.login("vera", "right vera").status_code == 200


def test_cookie_defaults(site_factory: Callable[..., Site]) -> None:
    """The session cookie is HttpOnly and SameSite=Lax where the app has said nothing."""
    cookie = site_factory().login("vera", "right vera").headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie


def test_cookie_settings_are_the_apps(site_factory: Callable[..., Site]) -> None:
    """An app's own SameSite stays."""
    site = site_factory(SESSION_COOKIE_SAMESITE="Strict")
    assert "SameSite=Strict" in site.login("vera", "right vera").headers["Set-Cookie"]


def test_every_answer_is_private(site: Site) -> None:
    """No answer of the blueprint may be stored, and none is sniffed; assets may be kept."""
    browser = site.browser()
    answers = [
        browser.get("/auth/login"),
        browser.get("/auth/me"),
        browser.post("/auth/login", json={}),
        browser.post("/auth/login", json=RIGHT),
        browser.post("/auth/login", data=RIGHT),
        browser.get("/auth/me"),
        browser.post("/auth/logout"),
        browser.post("/auth/login", json=RIGHT, headers={"Sec-Fetch-Site": "cross-site"}),
    ]
    assert {answer.headers["Cache-Control"] for answer in answers} == {"no-store"}
    assert {answer.headers["X-Content-Type-Options"] for answer in answers} == {"nosniff"}
    with browser.get("/auth/authguard-static/authguard.css") as asset:
        assert asset.status_code == 200
        assert asset.headers["Cache-Control"] != "no-store"


def test_pages_are_confined(site: Site) -> None:
    """Every page forbids foreign content, framing, and forms that post elsewhere."""
    for answer in (site.browser().get("/auth/login"), site.post(data=RIGHT | {"password": "x"})):
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "form-action 'self'" in policy
        assert answer.headers["Referrer-Policy"] == "same-origin"


def test_failed_page_keeps_the_name(site: Site) -> None:
    """The page after a wrong password shows the typed name, escaped, and never the password."""
    answer = site.post(data={"identifier": '"><script>x', "password": "s3cret-typed"})
    assert answer.status_code == 401
    assert "<script>x" not in answer.text
    assert "&lt;script&gt;x" in answer.text
    assert "s3cret-typed" not in answer.text


@pytest.mark.parametrize(
    ("accept", "mimetype"),
    [
        (None, "text/html"),
        ("*/*", "text/html"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "text/html"),
        ("image/png", "text/html"),
        ("application/json", "application/problem+json"),
        ("application/problem+json", "application/problem+json"),
        ("application/json, text/plain, */*", "application/problem+json"),
        ("text/html;q=0.5, application/json", "application/problem+json"),
    ],
)
def test_form_is_answered_as_asked(site: Site, accept: str | None, mimetype: str) -> None:
    """A form gets a page, unless its Accept prefers JSON; the status is the same."""
    headers = {"Accept": accept} if accept else {}
    answer = site.post(data={"identifier": "vera", "password": "wrong"}, headers=headers)
    assert (answer.status_code, answer.mimetype) == (401, mimetype)


def test_the_sign_out_page(site: Site) -> None:
    """GET /logout shows the page with its form and ends nothing; POST ends the session."""
    page = {"Accept": "text/html"}
    browser = site.browser()
    browser.post("/auth/login", json={"identifier": "vera", "password": "right vera"})
    shown = browser.get("/auth/logout", headers=page)
    assert shown.status_code == 200
    assert b'action="/auth/logout"' in shown.data
    assert browser.get("/auth/me").status_code == 200
    assert browser.post("/auth/logout", headers=page).status_code == 303
    assert browser.get("/auth/logout", headers=page).status_code == 401


def test_a_rehash_without_a_free_slot_keeps_the_success(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rehash that has to wait for the next sign-in is no reason to refuse this one."""

    def full(_: str) -> str:
        raise HashingUnavailable("hash queue full")

    site.spy.rehash = True
    monkeypatch.setattr(site.spy, "hash", full)
    assert site.login("vera", "right vera").status_code == 200
    assert site.used() == 0


def test_a_rehash_never_undoes_a_change(site: Site) -> None:
    """A password changed between the check and the rehash stays changed."""
    vera = site.people.by_key["key-1"]
    changed = site.spy.real.hash("new vera")
    site.spy.rehash = True
    site.spy.before = lambda: setattr(vera, "password_hash", changed)
    as_found = replace(vera)
    site.people.find = lambda _: as_found  # type: ignore[method-assign]
    assert site.login("vera", "right vera").status_code == 200
    assert vera.password_hash == changed


def test_no_secret_in_what_a_traceback_shows(site: Site) -> None:
    """Neither the guard's secret nor the store's address is in the repr of settings or state."""
    shown = repr(site.state) + repr(site.state.settings)
    assert SECRET not in shown
    assert "valkey://" not in shown
