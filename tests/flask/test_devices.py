"""Known devices: a lane of their own for owners, worth nothing to anybody else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from http.cookies import SimpleCookie
from typing import TYPE_CHECKING, Any

import pytest
from freezegun import freeze_time

from authguard.devices import DEVICE_LIFE_S, DeviceCookies
from authguard.flask import signals
from tests.flask.conftest import SECRET, Person

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask.testing import FlaskClient
    from werkzeug.test import TestResponse

    from tests.conftest import Clock
    from tests.flask.conftest import Site

COOKIE = "authguard_device"
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
FAR = "198.18.0.9"


def given(answer: TestResponse) -> str | None:
    """Give the device cookie that an answer sets, or None."""
    for line in answer.headers.getlist("Set-Cookie"):
        morsel = SimpleCookie(line).get(COOKIE)
        if morsel is not None:
            return morsel.value
    return None


def signed_in(site: Site, who: str = "vera", **how: Any) -> str:
    """Sign in by password from nowhere known, and give the device cookie."""
    answer = site.login(who, f"right {who}", **how)
    assert answer.status_code == 200
    cookie = given(answer)
    assert cookie
    return cookie


def knock(
    site: Site, cookie: str | None, who: str = "vera", password: str = "wrong", client: str = FAR
) -> TestResponse:
    """Try to sign in from a browser that holds the cookie and nothing else."""
    browser = site.browser(client)
    if cookie is not None:
        browser.set_cookie(COOKIE, cookie)
    return browser.post("/auth/login", json={"identifier": who, "password": password})


def attack(site: Site, times: int, who: str = "vera", start: int = 0) -> None:
    """Fail as often without a cookie, from addresses of ever new networks."""
    for number in range(start, start + times):
        assert site.login(who, client=f"100.{64 + number}.1.1").status_code == 401


def free(site: Site, limit: str = "account", who: str = "vera") -> int:
    """Tell how many places of one of the account's limits are free."""
    verdicts = site.guard.peek("login", account=site.guard.account_key(who)).verdicts
    return int(next(each.remaining for each in verdicts if each.name == limit))


def test_a_full_sign_in_leaves_a_cookie(default_site: Site) -> None:
    """A54: after password alone, password and code, or code alone; never before all is proved."""
    site = default_site
    assert given(site.login("vera", "right vera"))
    assert given(site.login("vera")) is None
    browser = site.browser()
    half = browser.post("/auth/login", json={"identifier": "tess", "password": "right tess"})
    assert given(half) is None
    code = site.messages("code")[0].code
    body = {"challenge": (half.json or {})["challenge"], "code": code}
    assert given(browser.post("/auth/otp/verify", json=body | {"code": "000000"})) is None
    assert given(browser.post("/auth/otp/verify", json=body))
    sent = site.send_code("omar").json or {}
    answer = site.verify(sent["challenge"], str(site.messages("code")[0].code))
    assert (answer.status_code, bool(given(answer))) == (200, True)


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_no_script_and_no_other_site_gets_it(
    site_factory: Callable[..., Site], scheme: str
) -> None:
    """A59: HttpOnly, SameSite=Lax, a year, the whole app; Secure where the app is https."""
    site = site_factory(messages={}, AUTHGUARD_BASE_URL=f"{scheme}://app.example")
    answer = site.login("vera", "right vera")
    (line,) = [each for each in answer.headers.getlist("Set-Cookie") if each.startswith(COOKIE)]
    morsel = SimpleCookie(line)[COOKIE]
    assert morsel["httponly"] is True
    assert morsel["samesite"] == "Lax"
    assert morsel["max-age"] == str(365 * 86_400)
    assert morsel["path"] == "/"
    assert bool(morsel["secure"]) is (scheme == "https")
    assert morsel["domain"] == ""


def test_it_tells_nothing(default_site: Site) -> None:
    """A59: the cookie holds no name, address or key, and is another one in every browser."""
    from itsdangerous import URLSafeTimedSerializer

    cookies = [signed_in(default_site) for _ in range(2)]
    assert cookies[0] != cookies[1]
    for cookie in cookies:
        _, payload = URLSafeTimedSerializer("unknown").loads_unsafe(cookie)
        assert not any(each in repr(payload) for each in ("vera", "key-1", "203.0.113.9"))


def test_it_is_no_session(default_site: Site) -> None:
    """A59: the cookie alone signs nobody in."""
    browser = default_site.browser()
    browser.set_cookie(COOKIE, signed_in(default_site))
    assert browser.get("/auth/me").status_code == 401


def test_the_owner_gets_in_while_others_lock_the_account(default_site: Site, clock: Clock) -> None:
    """A54: ten and twenty failures of others: the known browser signs in, an unknown one can't."""
    site, cookie = default_site, signed_in(default_site)
    attack(site, 10)
    assert knock(site, None, password="right vera").status_code == 429
    assert knock(site, cookie, password="right vera").status_code == 200
    clock.advance(15 * MINUTE)
    attack(site, 10, start=10)
    clock.advance(2 * HOUR)
    assert site.login("vera", "right vera").status_code == 429  # the day is full
    assert knock(site, cookie, password="right vera").status_code == 200
    site.post("/auth/password/forgot", json={"identifier": "vera"})
    body = {"token": site.messages("reset")[0].token, "password": "a new password"}
    assert site.post("/auth/password/reset", json=body).status_code == 200
    assert site.login("vera", "a new password", client=FAR).status_code == 200


def test_its_success_clears_nothing_of_the_accounts(default_site: Site) -> None:
    """Rule 5, A54: a known browser's success refills no attacker's budget."""
    site, cookie = default_site, signed_in(default_site)
    attack(site, 7)
    assert knock(site, cookie).status_code == 401
    assert knock(site, cookie, password="right vera").status_code == 200
    assert (free(site), free(site, "day"), free(site, "month")) == (3, 13, 93)


def test_its_failures_are_its_own(default_site: Site, clock: Clock) -> None:
    """A59: five failures in its lane, the sixth try is 429 for it alone: the account has ten."""
    site, cookie, other = default_site, signed_in(default_site), signed_in(default_site)
    clients = [f"100.{64 + number}.1.1" for number in range(6)]
    answers = [knock(site, cookie, client=client) for client in clients]
    assert [answer.status_code for answer in answers] == [401] * 5 + [429]
    assert answers[-1].headers["Retry-After"] == "900"
    assert knock(site, cookie, password="right vera").status_code == 429
    assert (free(site), free(site, "day")) == (10, 20)
    assert knock(site, other, password="right vera").status_code == 200
    assert site.login("vera", "right vera").status_code == 200
    assert site.messages("unlock") == []
    clock.advance(15 * MINUTE)
    assert knock(site, cookie, password="right vera").status_code == 200


def test_its_refusal_looks_like_any_other(default_site: Site) -> None:
    """A52: the 429 of a known browser's lane is the one that everybody gets."""
    site, cookie = default_site, signed_in(default_site)
    for _ in range(5):
        knock(site, cookie)
        site.login("ghost", client=FAR)
    faces = [knock(site, cookie), site.login("ghost", client=FAR)]
    assert [face.status_code for face in faces] == [429, 429]
    assert faces[0].data == faces[1].data
    assert list(faces[0].headers) == list(faces[1].headers)


def test_a_success_forgives_its_own_failures(default_site: Site) -> None:
    """Rule 5: four failures, a success from the same browser, and there are five tries again."""
    site, cookie = default_site, signed_in(default_site)
    assert [knock(site, cookie).status_code for _ in range(4)] == [401] * 4
    assert knock(site, cookie, password="right vera").status_code == 200
    assert [knock(site, cookie).status_code for _ in range(6)] == [401] * 5 + [429]


def test_fifty_failures_end_it(default_site: Site, clock: Clock) -> None:
    """A59: after fifty failures in a year a cookie counts for nothing: the account's lane again."""
    site, cookie = default_site, signed_in(default_site)
    for number in range(50):
        assert knock(site, cookie, client=f"100.{64 + number}.1.1").status_code == 401
        if number % 5 == 4:
            clock.advance(15 * MINUTE)
    assert free(site) == 10
    assert knock(site, cookie).status_code == 401
    assert free(site) == 9
    attack(site, 9)
    assert knock(site, cookie, password="right vera").status_code == 429
    clock.advance(DAY)
    answer = knock(site, cookie, password="right vera")
    assert answer.status_code == 200
    fresh = given(answer)  # another id: a lane that is not worn out
    attack(site, 10, start=20)
    assert knock(site, cookie, password="right vera").status_code == 429
    assert knock(site, fresh, password="right vera").status_code == 200


def test_successes_do_not_wear_it_less(default_site: Site, clock: Clock) -> None:
    """A59: the fifty are counted over all of the year: its owner's successes give none back."""
    site, cookie = default_site, signed_in(default_site)
    for number in range(50):
        assert knock(site, cookie, client=f"100.{64 + number}.1.1").status_code == 401
        if number % 5 == 4:
            clock.advance(15 * MINUTE)
        if number % 5 == 4 and number < 45:
            answer = knock(site, cookie, password="right vera", client=f"100.{64 + number}.1.1")
            cookie = given(answer) or ""
            assert answer.status_code == 200
    assert knock(site, cookie).status_code == 401
    assert free(site) == 9


def foreign(site: Site) -> dict[str, str]:
    """Give cookies that are none of vera's."""
    own = signed_in(site)
    head, _, mac = own.rpartition(".")
    ours = DeviceCookies(SECRET)
    stranger = DeviceCookies("a secret of somebody else: 0123456789")
    vera = {"account": "key-1", "stamp": site.people.by_key["key-1"].device_stamp}
    return {
        "omar's": signed_in(site, "omar"),
        "signed by another": stranger.issue(None, **vera, keep=None),
        "of another stamp": ours.issue(None, account="key-1", stamp="another", keep=None),
        "of a name": ours.issue(None, account="vera", stamp=vera["stamp"], keep=None),
        "of nobody": ours.issue(None, account="", stamp="", keep=None),
        "bent": head + "." + ("A" if mac[0] != "A" else "B") + mac[1:],
        "cut": own[:-1],
        "grown": own + "A",
        "empty": "",
        "too long": own + "." + "A" * 3000,
        "junk": "\x01.\x02.\x03",
    }


KINDS = [
    *("omar's", "signed by another", "of another stamp", "of a name", "of nobody"),
    *("bent", "cut", "grown", "empty", "too long", "junk"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_the_accounts_counts_for_nothing(default_site: Site, kind: str) -> None:
    """A59: forged, bent or another account's: it fails in the account's lane, and locks hold."""
    site, cookie = default_site, foreign(default_site)[kind]
    for number in range(10):
        assert knock(site, cookie, client=f"100.{64 + number}.1.1").status_code == 401
    assert free(site) == 0
    assert knock(site, cookie, password="right vera").status_code == 429


@pytest.mark.parametrize("who", ["ghost", "dora", "nora"])
def test_a_cookie_opens_no_lane_for_others(default_site: Site, who: str) -> None:
    """A59: a genuine cookie gives no lane to a name that nobody has, nor to a disabled account."""
    cookie = signed_in(default_site)
    answers = [
        knock(default_site, cookie, who, client=f"100.{64 + number}.1.1").status_code
        for number in range(11)
    ]
    assert answers == [401] * 10 + [429]


def test_an_attackers_own_device_is_no_key_to_others(default_site: Site) -> None:
    """A59: eve's genuine cookie opens eve's lane alone; vera's budget is vera's."""
    site = default_site
    site.people.by_key["key-9"] = Person("key-9", "eve", site.spy.hash("right eve"))
    cookie = signed_in(site, "eve")
    for number in range(10):
        assert knock(site, cookie, client=f"100.{64 + number}.1.1").status_code == 401
    assert knock(site, cookie).status_code == 429
    assert knock(site, cookie, "eve", "right eve").status_code == 200


def forget(browser: FlaskClient) -> TestResponse:
    """Revoke all devices of whoever is signed in."""
    return browser.post("/auth/devices/forget", headers={"Accept": "application/json"})


def test_devices_can_be_forgotten(default_site: Site) -> None:
    """A59: forgetting ends every cookie of the account at once, and takes this browser's away."""
    site, told = default_site, []

    def note(_app: object, **payload: Any) -> None:
        told.append(payload)

    other, omars = signed_in(site), signed_in(site, "omar")
    browser = site.browser()
    browser.post("/auth/login", json={"identifier": "vera", "password": "right vera"})
    with signals.devices_forgotten.connected_to(note):
        answer = forget(browser)
    assert (answer.status_code, answer.json) == (200, {"status": "forgotten"})
    assert browser.get_cookie(COOKIE) is None
    assert browser.get("/auth/me").status_code == 200
    attack(site, 10)
    assert knock(site, other, password="right vera").status_code == 429
    attack(site, 10, "omar")
    assert knock(site, omars, "omar", "right omar").status_code == 200
    assert told == [{"subject": site.guard.subject(site.guard.account_key("vera"))}]


def test_only_its_owner_forgets_them(default_site: Site) -> None:
    """A59: without a session forgetting is 401 and changes nothing, device cookie or not."""
    cookie = signed_in(default_site)
    browser = default_site.browser()
    browser.set_cookie(COOKIE, cookie)
    assert forget(browser).status_code == 401
    assert browser.get("/auth/devices/forget").status_code == 405
    attack(default_site, 10)
    assert knock(default_site, cookie, password="right vera").status_code == 200


def test_a_reset_forgets_them(default_site: Site) -> None:
    """A56, A59: after a reset no earlier cookie counts for anything."""
    site, cookie = default_site, signed_in(default_site)
    site.post("/auth/password/forgot", json={"identifier": "vera"})
    body = {"token": site.messages("reset")[0].token, "password": "a new password"}
    assert site.post("/auth/password/reset", json=body).status_code == 200
    attack(site, 10)
    assert knock(site, cookie, password="a new password").status_code == 429


@pytest.mark.parametrize(("age_s", "status"), [(DEVICE_LIFE_S, 200), (DEVICE_LIFE_S + 1, 429)])
def test_a_cookie_lives_a_year(default_site: Site, age_s: int, status: int) -> None:
    """A59: good for 365 days after the last full sign-in, and for nothing from then on."""
    site, begun = default_site, datetime(2026, 3, 1, tzinfo=UTC)
    with freeze_time(begun):
        cookie = signed_in(site)
    attack(site, 10)
    with freeze_time(begun + timedelta(seconds=age_s)):
        assert knock(site, cookie, password="right vera").status_code == status


def test_each_sign_in_gives_it_another_year(default_site: Site) -> None:
    """A59: a sign-in renews the cookie and keeps the device's id, so its failures stay counted."""
    site, begun = default_site, datetime(2026, 3, 1, tzinfo=UTC)
    with freeze_time(begun):
        old = signed_in(site)
        for _ in range(4):
            knock(site, old)
    with freeze_time(begun + timedelta(days=300)):
        renewed = given(knock(site, old, password="right vera"))
    attack(site, 10)
    with freeze_time(begun + timedelta(days=600)):
        assert knock(site, old, password="right vera").status_code == 429
        assert knock(site, renewed, password="right vera").status_code == 200
    worn = site.guard.peek("login", account=site.guard.account_key("vera"), device="x").verdicts
    assert "device-worn" in [verdict.name for verdict in worn]


def test_one_browser_can_be_known_to_several(default_site: Site) -> None:
    """A family's browser is known to each of its accounts."""
    site, browser = default_site, default_site.browser()
    for who in ("vera", "omar"):
        browser.post("/auth/login", json={"identifier": who, "password": f"right {who}"})
    cookie = browser.get_cookie(COOKIE)
    assert cookie is not None
    for who in ("vera", "omar"):
        attack(site, 10, who, start=0 if who == "vera" else 20)
        assert knock(site, cookie.value, who, f"right {who}").status_code == 200


def test_without_a_limit_by_device_there_is_no_lane(post_site: Site) -> None:
    """Rule 9: where the policy has no limit by device, the account's limits stay for everybody."""
    cookie = signed_in(post_site)
    assert [knock(post_site, cookie).status_code for _ in range(6)] == [401] * 5 + [429]
    assert post_site.login("vera", "right vera").status_code == 429


def test_its_client_is_counted_all_the_same(default_site: Site) -> None:
    """A59: a known browser takes the place of the account's limits, never of its client's."""
    site, cookie = default_site, signed_in(default_site)
    for number in range(30):
        assert site.login(f"user-{number // 2}", client=FAR).status_code == 401
    assert knock(site, cookie, password="right vera").status_code == 429


def test_a_new_secret_keeps_devices(site_factory: Callable[..., Site]) -> None:
    """Cookies of the secret before are believed while it is listed."""
    old = DeviceCookies(SECRET)
    site = site_factory(
        messages={},
        AUTHGUARD_POLICY=None,
        AUTHGUARD_SECRET=["of the next year: 0123456789abcdef", SECRET],
    )
    cookie = old.issue(None, account="key-1", stamp="device-stamp-0", keep=None)
    attack(site, 10)
    assert knock(site, cookie, password="right vera").status_code == 200
