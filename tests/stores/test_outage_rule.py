"""What a policy says about outages: deny unless it says allow, and then nothing is counted."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from authguard import Denied, StoreUnavailable

from .conftest import VERA
from .wire import Wire, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .conftest import Guards
    from .wire import Step, Talk

LIMITS = [
    {"name": "account", "by": ["account"], "sliding_log": "2/15m"},
    {"name": "client", "by": ["client"], "sliding_log": "30/15m"},
]
POLICIES = {"newsletter": {"outage": "allow", "limits": LIMITS}, "plain": {"limits": LIMITS}}


def test_outage_allow_admits_uncounted_and_says_so(
    guard_factory: Guards, caplog: pytest.LogCaptureFixture
) -> None:
    """An action with outage = "allow" is admitted, marked degraded, and settles without a call."""

    def broken(talk: Talk, command: list[bytes]) -> Iterator[Step]:
        yield b"-ERR broken\r\n"

    with Wire(broken) as wire, caplog.at_level(logging.DEBUG, "authguard"):
        guard = guard_factory(store=wire.url, policies=POLICIES, deadline_ms=2_000)
        attempt = guard.attempt("newsletter", **VERA)
        assert attempt.decision.allowed
        assert attempt.decision.degraded
        assert attempt.decision.verdicts == ()
        assert attempt.decision.retry_after == 0
        attempt.succeed()
        assert attempt.succeeded
        assert not attempt.settled
        assert wire.verbs() == ["EVALSHA"]
    assert caplog.messages == ["newsletter: the store is away; admitted uncounted (outage = allow)"]


@pytest.mark.parametrize("action", ["login", "plain"])
def test_without_the_rule_an_outage_denies(guard_factory: Guards, action: str) -> None:
    """B048: the default of a policy, and the default profile's login, fail closed."""
    guard = guard_factory(store=f"valkey://127.0.0.1:{free_port()}", policies=POLICIES)
    assert guard.policies[action].outage == "deny"
    with pytest.raises(StoreUnavailable):
        guard.attempt(action, **VERA)


def test_a_peek_is_never_made_up(guard_factory: Guards) -> None:
    """An action with outage = "allow" still can't be looked at while the store is away."""
    guard = guard_factory(store=f"valkey://127.0.0.1:{free_port()}", policies=POLICIES)
    with pytest.raises(StoreUnavailable):
        guard.peek("newsletter", **VERA)


def test_a_refusal_is_no_outage(guard_factory: Guards) -> None:
    """B055: outage = "allow" is for outages alone; a store that says no is believed."""
    guard = guard_factory(policies=POLICIES)
    for _ in range(2):
        assert not guard.attempt("newsletter", **VERA).decision.degraded
    with pytest.raises(Denied):
        guard.attempt("newsletter", **VERA)
