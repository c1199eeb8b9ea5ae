"""The unlock link: one mail for a lock, one use, the owner's wait and nothing else."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

import pytest

from authguard import AccountKey
from authguard.flask import signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import valkey
    from werkzeug.test import TestResponse

    from tests.conftest import Clock
    from tests.flask.conftest import Site

UNLOCK = "/auth/unlock"
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
OTHER = "198.51.100.7"


def unlock(site: Site, token: str, **how: Any) -> TestResponse:
    """Use a link by JSON."""
    return site.post(UNLOCK, json={"token": token}, **how)


def locked(site: Site, who: str = "vera", failures: int = 5, **how: Any) -> str:
    """Lock an account, and give the token that its owner was mailed."""
    assert site.statuses(failures, who, **how) == [401] * failures
    token = site.messages("unlock")[0].token
    assert token is not None
    return token


def left(site: Site, action: str = "login", **who: Any) -> dict[str, int]:
    """Tell how many places of each limit are free."""
    who = {"account": site.guard.account_key("vera")} | who
    return {each.name: each.remaining for each in site.guard.peek(action, **who).verdicts}


def face(answer: TestResponse) -> tuple[int, bytes, list[tuple[str, str]]]:
    """Give all that a client sees."""
    return answer.status_code, answer.data, list(answer.headers)


@pytest.fixture
def heard() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Listen to what is told of locks."""
    events: list[tuple[str, dict[str, Any]]] = []

    def on_lock(_app: object, **payload: Any) -> None:
        events.append(("locked", payload))

    def on_unlock(_app: object, **payload: Any) -> None:
        events.append(("unlocked", payload))

    signals.account_locked.connect(on_lock)
    signals.account_unlocked.connect(on_unlock)
    yield events
    signals.account_locked.disconnect(on_lock)
    signals.account_unlocked.disconnect(on_unlock)


def test_one_mail_for_one_lock(post_site: Site, clock: Clock) -> None:
    """A62: one mail when the lock is set, none for fifty refused tries, a second for a second."""
    assert post_site.statuses(4) == [401] * 4
    assert post_site.messages() == []
    assert post_site.statuses(1) == [401]
    (sent,) = post_site.messages()
    assert (sent.kind, sent.channel, sent.to) == ("unlock", "email", "vera@example.test")
    assert post_site.statuses(50) == [429] * 50
    assert len(post_site.messages()) == 1
    clock.advance(900_000)
    post_site.statuses(5)
    first, second = reversed(post_site.messages("unlock"))
    assert first.token != second.token


def test_the_mail_links_to_the_configured_base(post_site: Site) -> None:
    """A62: the link begins with AUTHGUARD_BASE_URL and holds a token of 256 bits."""
    for _ in range(5):
        post_site.login(headers={"Host": "evil.example", "X-Forwarded-Host": "evil.example"})
    (sent,) = post_site.messages("unlock")
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", str(sent.token))
    assert re.findall(r"https?://\S+", sent.body) == [
        f"http://app.example/auth/unlock?token={sent.token}"
    ]
    assert "evil" not in sent.subject + sent.body


@pytest.mark.parametrize("who", ["ghost", "dora", "ghost@example.test"])
def test_nobody_else_gets_mail(post_site: Site, who: str) -> None:
    """A lock of a name that nobody has, or of a disabled account, sends nothing."""
    assert post_site.statuses(6, who) == [401] * 5 + [429]
    assert post_site.messages() == []


def test_no_mail_for_a_lock_that_its_own_success_lifts(post_site: Site) -> None:
    """The fifth try that is right locks nobody, so nothing is sent."""
    post_site.statuses(4)
    assert post_site.login("vera", "right vera").status_code == 200
    assert [sent.kind for sent in post_site.messages()] == ["notice"]


def test_mail_for_a_lock_that_a_crash_left(post_site: Site) -> None:
    """A lock is a lock, also where the check that set it ended in an error: the owner is told."""
    post_site.statuses(4)

    def crash() -> None:
        raise ZeroDivisionError

    post_site.spy.before = crash
    with pytest.raises(ZeroDivisionError):
        post_site.login()
    assert post_site.guard.peek("login", account=post_site.guard.account_key("vera")).refused_by
    assert len(post_site.messages("unlock")) == 1


def test_a_link_works_once(post_site: Site) -> None:
    """A62: the first post ends the wait, the next is 400; then the password signs in."""
    token = locked(post_site)
    assert post_site.login("vera", "right vera").status_code == 429
    answer = unlock(post_site, token)
    assert (answer.status_code, answer.json) == (200, {"status": "unlocked"})
    assert unlock(post_site, token).status_code == 400
    assert post_site.login("vera", "right vera").status_code == 200


def test_of_twenty_at_once_one_is_believed(
    post_site: Site, volley: Callable[[int, Callable[[int], int]], list[int]]
) -> None:
    """A62: twenty posts of one link at the same moment: one success."""
    token = locked(post_site)
    answers = volley(20, lambda n: unlock(post_site, token, client=f"192.0.2.{n}").status_code)
    assert sorted(answers) == [200] + [400] * 19


def test_it_never_signs_in(post_site: Site) -> None:
    """A62: an unlock leaves no session, no device, and a wrong password is still wrong."""
    browser = post_site.browser()
    answer = browser.post(UNLOCK, json={"token": locked(post_site)})
    assert answer.status_code == 200
    assert "Set-Cookie" not in answer.headers
    assert browser.get("/auth/me").status_code == 401
    assert post_site.login().status_code == 401


def test_looking_at_a_link_ends_nothing(post_site: Site, client: valkey.Valkey) -> None:
    """A62: GET and HEAD change nothing in the store; the page holds a button, not the deed."""
    token = locked(post_site)
    kept = {key: client.get(key) for key in client.scan_iter()}
    browser = post_site.browser()
    for _ in range(30):
        page = browser.get(UNLOCK, query_string={"token": token})
        assert browser.head(UNLOCK, query_string={"token": token}).status_code == 200
    assert {key: client.get(key) for key in client.scan_iter()} == kept
    assert page.status_code == 200
    assert page.headers["Referrer-Policy"] == "no-referrer"
    assert '<form method="post" action="/auth/unlock">' in page.text
    assert browser.put(UNLOCK, json={"token": token}).status_code == 405
    assert browser.post(UNLOCK, query_string={"token": token}).status_code == 400
    assert post_site.login("vera", "right vera").status_code == 429
    done = browser.post(UNLOCK, data={"token": token})
    assert (done.status_code, done.mimetype) == (200, "text/html")
    assert post_site.login("vera", "right vera").status_code == 200


def test_guesses_are_limited_by_client(post_site: Site, clock: Clock) -> None:
    """A62: ten bad tokens in fifteen minutes; then not even the right one is looked at there."""
    token = locked(post_site)
    answers = [unlock(post_site, f"{n:043}") for n in range(11)]
    assert [answer.status_code for answer in answers] == [400] * 10 + [429]
    assert answers[-1].headers["Retry-After"] == "900"
    assert unlock(post_site, token).status_code == 429
    assert unlock(post_site, token, client=OTHER).status_code == 200


def test_malformed_ones_count_too(post_site: Site) -> None:
    """B158: ten unlocks without a token are 400, the next is 429."""
    bodies: list[Any] = [{}, {"token": None}, {"token": ["a"]}, {"token": ""}, [], "x", 5, None]
    answers = [post_site.post(UNLOCK, json=bodies[n % 8]).status_code for n in range(11)]
    assert answers == [400] * 10 + [429]


@pytest.mark.parametrize(("age_ms", "status"), [(30 * MINUTE - 1, 200), (30 * MINUTE, 400)])
def test_a_link_lives_half_an_hour(post_site: Site, clock: Clock, age_ms: int, status: int) -> None:
    """A62: good for 30 minutes to the millisecond, by the guard's clock."""
    token = locked(post_site)
    clock.advance(age_ms)
    assert unlock(post_site, token).status_code == status


def test_one_answer_for_every_bad_token(post_site: Site, clock: Clock) -> None:
    """A62: used, replaced, for another purpose or made up: one 400, byte for byte."""
    replaced = locked(post_site)
    clock.advance(900_000)
    used = locked(post_site)
    unlock(post_site, used)
    post_site.post("/auth/password/forgot", json={"identifier": "vera"})
    foreign = post_site.messages("reset")[0].token
    bad = (replaced, used, foreign, "A" * 43, "x", "x" * 5000, "\u00e4")
    faces = [face(unlock(post_site, str(token))) for token in bad]
    assert faces[0][0] == 400
    assert all(each == faces[0] for each in faces)
    assert b"vera" not in faces[0][1]


@pytest.mark.parametrize("change", ["password", "session", "disabled", "deleted"])
def test_a_change_of_the_account_kills_its_link(post_site: Site, change: str) -> None:
    """A62: after a change of password or sessions, or without the account, the link is dead."""
    token, vera = locked(post_site), post_site.people.by_key["key-1"]
    if change == "password":
        vera.password_hash = post_site.spy.hash("hers")
    elif change == "session":
        vera.session_stamp = "another"
    elif change == "disabled":
        vera.active = False
    else:
        del post_site.people.by_key["key-1"]
    assert unlock(post_site, token).status_code == 400


def test_what_it_lifts_and_what_it_leaves(default_site: Site) -> None:
    """A62: lock, short log and the pair with that client; the day, month, clients, codes stay."""
    site = default_site
    site.statuses(4)
    site.statuses(4, client=OTHER)
    site.statuses(2, client="192.0.2.7")
    (sent,) = site.messages("unlock")
    challenge = (site.send_code().json or {})["challenge"]
    site.verify(challenge, "00000000")
    codes = left(site, "otp.verify", client=site.home)
    assert unlock(site, str(sent.token)).status_code == 200
    home, other = left(site, client=site.home), left(site, client=OTHER)
    assert (home["account"], home["pair"], home["day"], home["month"]) == (10, 5, 10, 90)
    assert (home["client"], home["client-day"], home["network"]) == (26, 146, 116)
    assert (other["pair"], other["client"]) == (1, 26)
    assert left(site, "otp.verify", client=site.home) == codes
    assert site.login("vera", "right vera").status_code == 200


def test_a_full_day_does_not_keep_the_owner_out(default_site: Site, clock: Clock) -> None:
    """A54: the owner's link lifts a day that an attacker has filled, and leaves the month."""
    site = default_site
    for number in range(20):
        assert site.login(client=f"100.{64 + number}.1.1").status_code == 401
        if number == 9:
            clock.advance(15 * MINUTE)
    token = site.messages("unlock")[0].token
    assert len(site.messages("unlock")) == 2
    clock.advance(20 * MINUTE)
    assert set(site.guard.peek("login", account=vera_key(site)).refused_by) == {"account", "day"}
    assert unlock(site, str(token)).status_code == 200
    assert site.login("vera", "right vera").status_code == 200
    assert left(site)["month"] == 80


def test_it_lifts_nobody_elses_lock(post_site: Site) -> None:
    """The link of one account leaves another's lock, and the one of the code step, as they are."""
    token = locked(post_site)
    locked(post_site, "omar")
    challenge = (post_site.send_code().json or {})["challenge"]
    assert [post_site.verify(challenge, "00000000").status_code for _ in range(6)][-1] == 429
    assert unlock(post_site, token).status_code == 200
    assert post_site.login("omar", "right omar").status_code == 429
    assert post_site.verify(challenge, "00000000").status_code == 429


def test_an_operators_block_stays(post_site: Site) -> None:
    """B146: the link ends the lock, and the operator's block goes on refusing."""
    token = locked(post_site)
    post_site.guard.block(account=post_site.guard.account_key("vera"))
    assert unlock(post_site, token).status_code == 200
    assert post_site.login("vera", "right vera").status_code == 429


def test_a_second_lock_after_an_unlock_climbs(default_site: Site) -> None:
    """Rule 6: ended by its link, the lock leaves fresh tries, and the next one is longer."""
    site = default_site
    for number in range(10):
        site.login(client=f"100.{64 + number}.1.1")
    assert unlock(site, str(site.messages("unlock")[0].token)).status_code == 200
    for number in range(10):
        assert site.login(client=f"100.{84 + number}.1.1").status_code == 401
    assert site.login(client=OTHER).status_code == 429
    usage = {each.name: each for each in site.guard.usage("login", account=vera_key(site))}
    assert usage["account"].frees_after_ms == HOUR
    assert len(site.messages("unlock")) == 2


def vera_key(site: Site) -> Any:
    """Give the key that vera counts under."""
    return site.guard.account_key("vera")


@pytest.mark.parametrize("cause", ["reset", "link"])
def test_locked_once_and_unlocked_once(
    post_site: Site,
    heard: list[tuple[str, dict[str, Any]]],
    caplog: pytest.LogCaptureFixture,
    clock: Clock,
    cause: str,
) -> None:
    """B145: a lock, fifty refused tries, an unlock: two events, with the cause; no secret told."""
    caplog.set_level(logging.DEBUG)
    token, path = locked(post_site), UNLOCK
    post_site.statuses(50)
    if cause == "reset":
        post_site.post("/auth/password/forgot", json={"identifier": "vera"})
        token, path = str(post_site.messages("reset")[0].token), "/auth/password/reset"
    body = {"token": token, "password": "a new password"}
    assert post_site.post(path, json=body).status_code == 200
    assert post_site.post(path, json=body).status_code == 400
    subject = post_site.guard.subject(vera_key(post_site))
    ends_at_ms = clock.now_ms + 900_000
    where = {"action": "login", "subject": subject}
    assert heard == [
        ("locked", {**where, "limit": "account", "ends_at_ms": ends_at_ms}),
        ("unlocked", {**where, "cause": cause}),
    ]
    for secret in (token, "vera", "203.0.113.9", "a new password", "wrong"):
        assert secret not in caplog.text


def test_nothing_to_unlock_is_no_event(
    post_site: Site, heard: list[tuple[str, dict[str, Any]]], clock: Clock
) -> None:
    """B145: a link used after its lock has ended by time is 200, and tells of no unlock."""
    token = locked(post_site)
    clock.advance(900_000)
    assert unlock(post_site, token).status_code == 200
    assert [name for name, _ in heard] == ["locked"]


def test_a_lock_that_another_view_sets_is_told_too(post_site: Site) -> None:
    """B156: where the app's own view of the same action sets the lock, its owner gets the link."""

    @post_site.app.post("/change-password")
    @post_site.auth.protect("login", account=lambda: AccountKey("key-1"))
    def change() -> tuple[str, int]:
        return "wrong", 401

    post_site.statuses(4)
    assert post_site.post("/change-password").status_code == 401
    assert post_site.login("vera", "right vera").status_code == 429
    assert len(post_site.messages("unlock")) == 1
