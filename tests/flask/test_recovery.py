"""Recovery: a hundred failures in thirty days shut the password until its owner has a new one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from authguard.flask import signals
from tests.flask.conftest import ALL_OF_S, Person

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import valkey
    from werkzeug.test import TestResponse

    from tests.conftest import Clock
    from tests.flask.conftest import Site

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
NEW = "a new password"


class Told:
    """What was told of recoveries and of sign-ins after failures."""

    def __init__(self) -> None:
        self.recoveries: list[dict[str, Any]] = []
        self.sign_ins: list[dict[str, Any]] = []
        self.resets: list[dict[str, Any]] = []

    def recovery(self, _app: object, **payload: Any) -> None:
        """Note that recovery is needed."""
        self.recoveries.append(payload)

    def sign_in(self, _app: object, **payload: Any) -> None:
        """Note a sign-in after failures."""
        self.sign_ins.append(payload)

    def reset(self, _app: object, **payload: Any) -> None:
        """Note a reset."""
        self.resets.append(payload)


@pytest.fixture
def told() -> Iterator[Told]:
    """Listen."""
    told = Told()
    with (
        signals.recovery_required.connected_to(told.recovery),
        signals.sign_in_after_failures.connected_to(told.sign_in),
        signals.password_reset.connected_to(told.reset),
    ):
        yield told


class Guesser:
    """Somebody with many addresses who never fills a short log."""

    def __init__(self, site: Site, clock: Clock) -> None:
        self.site, self.clock, self.tries = site, clock, 0

    def guess(self, *names: str) -> list[TestResponse]:
        """Try each name once, from a network that was never used before."""
        self.tries += 1
        client = f"100.{64 + self.tries // 200}.{self.tries % 200}.1"
        return [self.site.login(name, client=client) for name in names]

    def days(self, days: int, *names: str) -> None:
        """Fail 19 times a day, at most nine in fifteen minutes."""
        for _ in range(days):
            for number in range(19):
                assert {answer.status_code for answer in self.guess(*names)} == {401}
                if number in (8, 17):
                    self.clock.advance(15 * MINUTE)
            self.clock.advance(DAY - 30 * MINUTE)

    def hundred(self, *names: str) -> list[TestResponse]:
        """Fail a hundred times in six days; give the answers to the last."""
        self.days(5, *names)
        for _ in range(4):
            self.guess(*names)
        return self.guess(*names)


@pytest.fixture
def guesser(default_site: Site, clock: Clock) -> Guesser:
    """Give one on the default profile."""
    return Guesser(default_site, clock)


def face(answer: TestResponse) -> tuple[int, bytes, list[tuple[str, str]]]:
    """Give all that a client sees."""
    return answer.status_code, answer.data, list(answer.headers)


def reset(site: Site, who: str = "vera", password: str = NEW) -> int:
    """Ask for a link and use it."""
    assert site.post("/auth/password/forgot", json={"identifier": who}).status_code == 202
    body = {"token": site.messages("reset")[0].token, "password": password}
    return site.post("/auth/password/reset", json=body).status_code


def vera(site: Site) -> Person:
    """Give vera's account."""
    return site.people.by_key["key-1"]


def test_the_hundredth_failure_shuts_the_password(
    guesser: Guesser, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    """A50: kept once in the app's own database, told once, mailed once; the answer is the usual."""
    site = guesser.site
    kept = []
    keep = site.people.require_recovery

    def require_recovery(key: str, action: str) -> bool:
        kept.append((key, action))
        return keep(key, action)

    site.people.require_recovery = require_recovery  # type: ignore[method-assign]
    guesser.days(5, "vera", "ghost")
    for _ in range(4):
        guesser.guess("vera", "ghost")
    assert (vera(site).recovery_required, site.messages(), kept) == (set(), [], [])
    last = guesser.guess("vera", "ghost")
    assert face(last[0]) == face(last[1])
    assert last[0].status_code == 401
    assert vera(site).recovery_required == {"login"}
    (sent,) = site.messages()
    assert (sent.kind, sent.to, sent.token, sent.code) == (
        "notice",
        "vera@example.test",
        None,
        None,
    )
    assert "http://app.example/auth/password/forgot" in sent.body
    for _ in range(20):
        guesser.guess("vera", "ghost")
    assert len(site.messages()) == 1
    assert kept == [("key-1", "login")]
    subject = site.guard.subject(site.guard.account_key("vera"))
    assert told.recoveries == [{"action": "login", "subject": subject}]
    assert "vera" not in caplog.text


def test_it_is_refused_like_a_name_that_nobody_has(guesser: Guesser, clock: Clock) -> None:
    """A50, A52: 429 with Retry-After 900 for both, days later too; right passwords unchecked."""
    site = guesser.site
    guesser.hundred("vera", "ghost")
    for wait_ms in (0, MINUTE, HOUR, DAY, 5 * DAY, 18 * DAY):
        clock.advance(wait_ms)
        checked = len(site.spy.checks)
        faces = [face(answer) for answer in guesser.guess("vera", "ghost")]
        assert faces[0] == faces[1]
        assert faces[0][0] == 429
        assert dict(faces[0][2])["Retry-After"] == "900"
        right = site.login("vera", "right vera", client="198.18.0.9")
        assert face(right) == faces[0]
        assert len(site.spy.checks) == checked
    assert [sent.kind for sent in site.messages()] == ["notice"]


def test_with_other_limits_full_the_longest_wait_is_told(guesser: Guesser, clock: Clock) -> None:
    """A52: while a lock or the day refuses as well, both names wait as long."""
    guesser.days(4, "vera", "ghost")
    for _ in range(9):
        guesser.guess("vera", "ghost")
    clock.advance(15 * MINUTE)
    for _ in range(9):
        guesser.guess("vera", "ghost")
    clock.advance(DAY)
    for _ in range(6):
        guesser.guess("vera", "ghost")
    for shift_ms in (0, 5 * MINUTE, 16 * MINUTE, 2 * HOUR):
        clock.advance(shift_ms)
        faces = [face(answer) for answer in guesser.guess("vera", "ghost")]
        assert faces[0] == faces[1]
        assert faces[0][0] == 429


def test_it_costs_the_store_the_same(guesser: Guesser, client: valkey.Valkey) -> None:
    """A52: a shut account and a name that nobody has are refused with one store command each."""
    guesser.hundred("vera", "ghost")
    work = []
    for name in ("vera", "ghost") * 2:
        before: Any = client.info("commandstats")
        assert guesser.guess(name)[0].status_code == 429
        after: Any = client.info("commandstats")
        calls = {key: row["calls"] for key, row in after.items()}
        work.append(calls["cmdstat_evalsha"] - before["cmdstat_evalsha"]["calls"])
    assert work == [1, 1, 1, 1]


def test_what_is_remembered_tells_nobody_apart(
    site_factory: Callable[..., Site], client: valkey.Valkey
) -> None:
    """A52: from a client that is full, and known to be, both wait as long and cost as much."""
    # No clock of the test's own: a worker remembers what was by the store's time alone.
    limits = [
        {"name": "month", "by": ["account"], "sliding_log": "2/30d", "recovery": True},
        {"name": "client", "by": ["client"], "sliding_log": "3/1m"},
    ]
    site = site_factory(messages={}, limits=limits)
    for far in ("192.0.2.1", "192.0.2.2"):
        assert [site.login(name, client=far).status_code for name in ("vera", "ghost")] == [401] * 2
    assert vera(site).recovery_required == {"login"}
    assert site.statuses(4, "omar") == [401, 401, 429, 429]
    assert site.statuses(4, "nobody") == [401, 429, 429, 429]
    faces, work = [], []
    for name in ("vera", "ghost") * 3:
        before: Any = client.info("commandstats")
        faces.append(face(site.login(name)))
        after: Any = client.info("commandstats")
        work.append(after["cmdstat_evalsha"]["calls"] - before["cmdstat_evalsha"]["calls"])
    assert (faces, work) == ([faces[0]] * 6, [1] * 6)
    assert dict(faces[0][2])["Retry-After"] == "900"


def test_it_outlives_the_store(guesser: Guesser, client: valkey.Valkey) -> None:
    """A91: after FLUSHALL the account is still shut, with the same 900 seconds."""
    guesser.hundred("vera")
    client.flushall()
    answer = guesser.site.login("vera", "right vera", client="198.18.0.9")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "900")
    assert reset(guesser.site) == 200
    assert guesser.site.login("vera", NEW).status_code == 200


def test_a_reset_opens_it(guesser: Guesser, told: Told) -> None:
    """A56: while recovery is required a link is sent and works; then a full budget counts anew."""
    site = guesser.site
    guesser.hundred("vera")
    assert reset(site) == 200
    assert vera(site).recovery_required == set()
    assert site.login("vera", "right vera").status_code == 401
    assert site.login("vera", NEW).status_code == 200
    verdicts = site.guard.peek("login", account=site.guard.account_key("vera")).verdicts
    assert {each.name: each.remaining for each in verdicts}["month"] == 99  # the old password's try
    assert len(told.resets) == 1
    guesser.clock.advance(DAY)
    guesser.hundred("vera")
    assert vera(site).recovery_required == {"login"}
    assert len(told.recoveries) == 2
    assert len(site.messages("notice")) == 3


def test_a_reset_before_it_is_full_gives_no_fresh_month(guesser: Guesser) -> None:
    """Rule 5: an owner who resets at 95 failures leaves five: the month is nobody's to refill."""
    guesser.days(5, "vera")
    assert reset(guesser.site) == 200
    for _ in range(5):
        assert guesser.guess("vera")[0].status_code == 401
    assert guesser.guess("vera")[0].status_code == 429
    assert vera(guesser.site).recovery_required == {"login"}


def test_an_unlock_link_does_not_open_it(guesser: Guesser, clock: Clock) -> None:
    """A50: the link of a lock ends that lock, and the account stays shut."""
    site = guesser.site
    guesser.days(4, "vera")
    for _ in range(9):
        guesser.guess("vera")
    clock.advance(DAY)
    for _ in range(10):
        assert guesser.guess("vera")[0].status_code == 401
    token = site.messages("unlock")[0].token
    clock.advance(15 * MINUTE)
    for _ in range(5):
        assert guesser.guess("vera")[0].status_code == 401
    assert vera(site).recovery_required == {"login"}
    assert site.post("/auth/unlock", json={"token": token}).status_code == 200
    answer = site.login("vera", "right vera", client="198.18.0.9")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "900")
    vera(site).recovery_required.clear()
    decision = site.guard.peek("login", account=site.guard.account_key("vera"))
    assert decision.refused_by == ("month",)  # in the store as well, nothing was given back


def test_no_device_and_no_waiting_opens_it(guesser: Guesser, clock: Clock) -> None:
    """A50: a known browser is refused too, and so is everybody after the thirty days are over."""
    site, browser = guesser.site, guesser.site.browser()
    right = {"identifier": "vera", "password": "right vera"}
    assert browser.post("/auth/login", json=right).status_code == 200
    guesser.hundred("vera")
    assert browser.post("/auth/login", json=right).status_code == 429
    clock.advance(60 * DAY)
    assert site.login("vera", "right vera").status_code == 429
    assert browser.get("/auth/me").status_code == 200  # who was signed in stays so


def test_a_success_at_the_hundredth_is_none(guesser: Guesser) -> None:
    """Rule 5: the right password as the hundredth try gives its place back; nothing is shut."""
    site = guesser.site
    guesser.days(5, "vera")
    for _ in range(4):
        guesser.guess("vera")
    assert site.login("vera", "right vera").status_code == 200
    assert vera(site).recovery_required == set()
    assert guesser.guess("vera")[0].status_code == 401
    assert vera(site).recovery_required == {"login"}


def test_nobody_is_shut_who_is_nobody(guesser: Guesser, told: Told) -> None:
    """A52: a disabled account and a name that nobody has need no recovery and get no mail."""
    guesser.hundred("dora", "ghost")
    assert guesser.site.people.by_key["key-3"].recovery_required == set()
    assert (told.recoveries, guesser.site.messages()) == ([], [])


def test_other_ways_in_stay_open(guesser: Guesser) -> None:
    """Rule 6: a shut password shuts no sign-in by code."""
    site = guesser.site
    guesser.hundred("vera")
    sent = site.send_code(client="198.18.0.9").json or {}
    code = str(site.messages("code")[0].code)
    assert site.verify(sent["challenge"], code, client="198.18.0.9").status_code == 200
    assert vera(site).recovery_required == {"login"}


@pytest.mark.parametrize("failures", [2, 3, 4])
def test_a_sign_in_after_failures_is_told(
    post_site: Site, told: Told, caplog: pytest.LogCaptureFixture, failures: int
) -> None:
    """ASVS 6.3.5: from three recent failures on their owner is mailed, and the app is told."""
    caplog.set_level(logging.DEBUG)
    clients = [f"198.51.100.{number}" for number in range(failures)]
    for address in clients:
        post_site.login(client=address)
    assert post_site.login("vera", "right vera").status_code == 200
    sent = post_site.messages()
    if failures < 3:
        assert (sent, told.sign_ins) == ([], [])
        return
    subject = post_site.guard.subject(post_site.guard.account_key("vera"))
    assert told.sign_ins == [{"action": "login", "failures": failures, "subject": subject}]
    assert [(each.kind, each.to, each.token) for each in sent] == [
        ("notice", "vera@example.test", None)
    ]
    assert "http://app.example/auth/password/forgot" in sent[0].body
    assert "vera" not in caplog.text


def test_a_wrong_code_and_a_wrong_password_tell_no_owner(post_site: Site, told: Told) -> None:
    """Nobody is mailed for failures alone: that would be a way to flood an inbox."""
    post_site.statuses(4)
    assert post_site.messages() == []
    assert told.sign_ins == []


def test_a_changed_password_is_told(post_site: Site, told: Told) -> None:
    """ASVS 6.3.7: after a reset its owner is mailed once, without any secret in it."""
    assert reset(post_site) == 200
    notice, link = post_site.messages()
    assert (notice.kind, notice.channel, notice.to) == ("notice", "email", "vera@example.test")
    assert notice.token is None
    assert str(link.token) not in notice.body
    assert NEW not in notice.body
    subject = post_site.guard.subject(post_site.guard.account_key("vera"))
    assert told.resets == [{"subject": subject}]
    body = {"token": link.token, "password": "another password"}
    assert post_site.post("/auth/password/reset", json=body).status_code == 400
    assert len(post_site.messages()) == 2


class Textable(Person):
    """An account without e-mail."""

    email = None  # type: ignore[assignment]


def test_who_has_no_mail_gets_a_text_message(post_site: Site) -> None:
    """ASVS 6.3.5: without a mail address the notice goes to the stored number."""
    rita = Textable("key-6", "rita", post_site.spy.hash("right rita"), phone="+14155550109")
    post_site.people.by_key["key-6"] = rita
    assert post_site.statuses(3, "rita") == [401] * 3
    assert post_site.login("rita", "right rita").status_code == 200
    (sent,) = post_site.messages()
    assert (sent.kind, sent.channel, sent.to) == ("notice", "sms", "+14155550109")


def test_an_owner_who_cannot_be_written_to_signs_in(post_site: Site) -> None:
    """With neither mail nor phone nothing is sent, and everything else works."""
    rita = Textable("key-6", "rita", post_site.spy.hash("right rita"))
    post_site.people.by_key["key-6"] = rita
    assert post_site.statuses(5, "rita") == [401] * 5
    assert post_site.messages() == []


def test_a_provider_that_fails_changes_no_answer(site_factory: Callable[..., Site]) -> None:
    """A79: notices that can't be sent change neither sign-in nor reset."""
    site = site_factory(messages={}, AUTHGUARD_POLICY=ALL_OF_S)
    site.outbox.failure = OSError("away")
    site.statuses(4)
    assert site.login("vera", "right vera").status_code == 200
    assert site.messages() == []
    assert site.outbox.tries == 1
