"""What is counted over HTTP, to the millisecond, on a clock that only the test moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Clock
    from tests.flask.conftest import Site

OTHER = "198.51.100.7"


def test_limit_n_means_n(site: Site) -> None:
    """B009: five failures are evaluated, the sixth try is not, not even with the right password."""
    remaining = []
    for _ in range(5):
        assert site.login().status_code == 401
        remaining.append(5 - site.used())
    assert remaining == [4, 3, 2, 1, 0]
    assert site.login("vera", "right vera").status_code == 429
    assert len(site.spy.checks) == 5


@pytest.mark.parametrize("failures", range(6))
def test_each_number_is_right_alone(site: Site, failures: int) -> None:
    """B010: after k failures the count is k, 5 - k remain, and k = 5 is refused."""
    site.statuses(failures)
    decision = site.guard.peek("login", account="key-1", client=OTHER)
    account = next(verdict for verdict in decision.verdicts if verdict.name == "account")
    assert site.used() == failures
    assert account.remaining == 5 - failures
    assert account.refuses == (failures == 5)
    assert decision.allowed == (failures < 5)


def test_own_success_refills_nothing(site: Site) -> None:
    """B017, A35: from one address exactly 20 failures are evaluated, however many own successes."""
    for number in range(100):
        if site.login(f"victim-{number // 2}").status_code == 429:
            break
        if number % 4 == 3 and number < 19:
            assert site.login("omar", "right omar").status_code == 200
    assert site.spy.wrong == 20
    assert site.used("client") == 20


def test_no_status_code_touches_a_count(site: Site) -> None:
    """A36: other routes' answers, and another account's success, change no counter."""
    site.statuses(3)
    browser = site.browser()
    assert browser.get("/auth/login").status_code == 200
    browser.get("/auth/authguard-static/authguard.css").close()
    assert site.login("omar", "right omar").status_code == 200
    assert browser.post("/auth/logout").status_code == 303
    assert site.used() == 3
    assert site.used("client") == 3


def test_somebody_elses_success_unlocks_nobody(site: Site) -> None:
    """B018: omar's success from the address that locked vera leaves her locked everywhere."""
    site.statuses(5)
    assert site.login("omar", "right omar").status_code == 200
    assert site.used(key="key-2") == 0
    assert site.login("vera", "right vera").status_code == 429
    assert site.login("vera", "right vera", client=OTHER).status_code == 429


def test_success_starts_the_count_afresh(site: Site) -> None:
    """B019: four failures, a success, and a typo is failure number one."""
    assert site.statuses(4) == [401] * 4
    assert site.login("vera", "right vera").status_code == 200
    assert site.login().status_code == 401
    assert site.used() == 1
    assert site.login("vera", "right vera").status_code == 200


def test_successes_are_no_credit(site: Site) -> None:
    """B020: after 100 successes exactly five failures are evaluated."""
    assert set(site.statuses(100, "vera", "right vera")) == {200}
    assert site.statuses(6) == [401] * 5 + [429]
    assert site.spy.wrong == 5


def test_success_leaves_other_actions_alone(site_factory: Callable[..., Site]) -> None:
    """B023: signing in clears the sign-in's count, no other action's and no address's."""
    by_account = {"name": "account", "by": ["account"], "sliding_log": "3/1h"}
    by_client = {"name": "client", "by": ["client"], "sliding_log": "20/300s"}
    policy = {action: {"limits": [by_account, by_client]} for action in ("login", "mail")}
    site = site_factory(AUTHGUARD_POLICY=policy)
    for _ in range(3):
        site.guard.attempt("mail", account="key-1", client=site.home)
    site.login()
    assert site.login("vera", "right vera").status_code == 200
    assert site.used() == 0
    assert site.used("client") == 1
    assert not site.guard.peek("mail", account="key-1", client=OTHER).allowed
    mail = site.guard.peek("mail", account="somebody", client=site.home)
    assert {verdict.name: verdict.remaining for verdict in mail.verdicts}["client"] == 17


def test_refused_tries_extend_nothing(site: Site, clock: Clock) -> None:
    """A40, B105: the wait only falls while a locked account is hammered, and ends as promised."""
    site.statuses(5)
    waits = []
    for _ in range(9):
        clock.advance(100_000 - 1)
        waits.append(int(site.login("vera", "right vera").headers["Retry-After"]))
        clock.advance(1)
        site.login()
        if clock.now_ms >= 1_800_000_900_000:
            break
    assert waits == [801, 701, 601, 501, 401, 301, 201, 101, 1]
    assert site.spy.checks.count(True) == 0
    assert site.login("vera", "right vera").status_code == 200


def test_lock_ends_to_the_millisecond(site: Site, clock: Clock) -> None:
    """B105, B110: refused one millisecond before the configured end, admitted at it."""
    site.statuses(5)
    clock.advance(899_999)
    assert site.login("vera", "right vera").headers["Retry-After"] == "1"
    clock.advance(1)
    assert site.login("vera", "right vera").status_code == 200


def test_lock_leaves_fresh_tries(site: Site, clock: Clock) -> None:
    """B106: after the lock a wrong try is number one, and five are evaluated again."""
    site.statuses(5)
    clock.advance(900_000)
    assert site.login().status_code == 401
    assert site.used() == 1
    assert site.statuses(5) == [401] * 4 + [429]


def test_each_lock_has_its_own_length(site_factory: Callable[..., Site], clock: Clock) -> None:
    """B110: two limits' locks end when each says, not at a common default."""
    limits = [
        {"name": "account", "by": ["account"], "sliding_log": "2/60s", "lockout": "120s"},
        {"name": "client", "by": ["client"], "sliding_log": "4/60s", "lockout": "300s"},
    ]
    site = site_factory(clock=clock, limits=limits)
    site.statuses(2)
    assert site.login().headers["Retry-After"] == "120"
    site.statuses(2, "omar")
    assert site.login("ghost").headers["Retry-After"] == "300"
    clock.advance(120_000)
    assert site.login("vera", "right vera").status_code == 429
    assert site.login("vera", "right vera", client=OTHER).status_code == 200


def test_everybody_agrees_when_a_lock_is_over(site: Site, clock: Clock) -> None:
    """B111: at the lock's end the route and the peek say the same, and before it too."""
    site.statuses(5)
    for wait_ms, allowed in ((899_999, False), (1, True)):
        clock.advance(wait_ms)
        assert site.guard.peek("login", account="key-1", client=OTHER).allowed is allowed
    assert site.login(client=OTHER).status_code == 401


def test_cleared_record_leaves_no_timer(site_factory: Callable[..., Site], clock: Clock) -> None:
    """B112: failures made after a success live their own full window."""
    limits = [{"name": "account", "by": ["account"], "sliding_log": "5/10s"}]
    site = site_factory(clock=clock, limits=limits)
    site.statuses(3)
    clock.advance(4_000)
    assert site.login("vera", "right vera").status_code == 200
    clock.advance(1_000)
    site.statuses(2)
    clock.advance(5_500)
    assert site.used() == 2
    clock.advance(4_600)
    assert site.used() == 0


def test_many_addresses_on_one_account(site_factory: Callable[..., Site]) -> None:
    """A49: eleven addresses with one wrong password each: the default profile refuses the 11th."""
    site = site_factory(AUTHGUARD_POLICY=None)
    answers = [site.login(client=f"198.51.{number}.1").status_code for number in range(11)]
    assert answers == [401] * 10 + [429]


def test_one_address_over_many_accounts(site_factory: Callable[..., Site]) -> None:
    """A48: spraying one password over many names from one address ends at the 21st name."""
    site = site_factory(AUTHGUARD_POLICY=None)
    answers = [site.login(f"user-{number}").status_code for number in range(21)]
    assert answers == [401] * 20 + [429]


def test_all_spellings_are_one_account(site: Site) -> None:
    """A14, A24: names in any case and of any kind share the account's one budget."""
    spellings = ["vera", "VERA", "vera@example.test", "Vera@Example.test", " vera "]
    assert [site.login(each).status_code for each in spellings] == [401] * 5
    assert site.login("vera").status_code == 429
    unknown = ["ghost", "GHOST", "\uff47\uff48\uff4f\uff53\uff54", " ghost", "Ghost "]
    assert [site.login(each, client=OTHER).status_code for each in unknown] == [401] * 5
    assert site.login("ghost", client=OTHER).status_code == 429


def test_cookies_and_agents_change_nothing(site: Site) -> None:
    """A47: a new cookie jar and another user agent for each try give no fresh budget."""
    for number in range(5):
        assert site.login(headers={"User-Agent": f"agent {number}"}).status_code == 401
    assert site.login(headers={"User-Agent": "yet another"}).status_code == 429
