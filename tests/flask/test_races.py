"""Many requests in the same moment: the limit is what reaches the password check, never more."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Clock
    from tests.flask.conftest import Site

    Volley = Callable[[int, Callable[[int], int]], list[int]]

WIDE = {"name": "client", "by": ["client"], "sliding_log": "1000/300s"}
ACCOUNT = {"name": "account", "by": ["account"], "sliding_log": "5/300s", "lockout": "900s"}


def test_burst(site_factory: Callable[..., Site], volley: Volley) -> None:
    """B001: of 100 wrong guesses at once five are checked and the lock stands; 20 rounds of 20."""
    site = site_factory(limits=[ACCOUNT, WIDE])
    for number in range(20):
        name = f"round-{number}"
        answers = volley(100, lambda _, name=name: site.login(name).status_code)
        assert Counter(answers) == {401: 5, 429: 95}
        assert len(site.spy.checks) == 5 * (number + 1)
        assert site.used(key=name) == 5
        verdicts = site.guard.peek("login", account=name, client=site.home).verdicts
        assert [verdict.locked for verdict in verdicts] == [True, False]


def test_burst_on_the_default_profile(site_factory: Callable[..., Site], volley: Volley) -> None:
    """A31: 50 guesses at once from one address meet the pair's limit of five."""
    site = site_factory(AUTHGUARD_POLICY=None)
    answers = volley(50, lambda _: site.login().status_code)
    assert Counter(answers) == {401: 5, 429: 45}
    assert len(site.spy.checks) == 5


def test_burst_from_many_addresses(site_factory: Callable[..., Site], volley: Volley) -> None:
    """A32: 50 guesses at once from 50 addresses meet the account's limit of ten."""
    site = site_factory(AUTHGUARD_POLICY=None)
    answers = volley(50, lambda number: site.login(client=f"198.51.{number}.1").status_code)
    assert Counter(answers) == {401: 10, 429: 40}
    assert len(site.spy.checks) == 10


def test_burst_in_one_millisecond(
    site_factory: Callable[..., Site], volley: Volley, clock: Clock
) -> None:
    """A39: attempts that share a timestamp are as many entries as attempts."""
    site = site_factory(clock=clock, limits=[ACCOUNT | {"sliding_log": "40/300s"}, WIDE])
    answers = volley(50, lambda _: site.login().status_code)
    assert Counter(answers) == {401: 40, 429: 10}
    assert site.used() == 40
    assert site.used("client") == 40


def test_parallel_right_ones(site_factory: Callable[..., Site], volley: Volley) -> None:
    """B006: five right passwords at once are five sign-ins, and leave nothing counted or locked."""
    site = site_factory(limits=[ACCOUNT, WIDE])
    right = lambda _: site.login("vera", "right vera").status_code  # noqa: E731
    assert volley(5, right) == [200] * 5
    decision = site.guard.peek("login", account="key-1", client=site.home)
    assert (site.used(), decision.allowed) == (0, True)
    assert set(site.statuses(20, "vera", "right vera")) == {200}
    assert set(volley(20, right)) <= {200, 429}
    assert site.login("vera", "right vera").status_code == 200
    assert site.used() == 0
