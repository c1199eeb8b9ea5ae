"""What an attempt counts by must be given: no limit is skipped by accident."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from authguard import NO_ACCOUNT, ConfigurationError, Denied, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard import Guard

ACCOUNT_ONLY = {
    "login": {"limits": [{"name": "a", "by": ["account"], "sliding_log": "5/15m"}]},
    "device": {"limits": [{"name": "d", "by": ["device"], "sliding_log": "5/15m"}]},
}


@pytest.mark.parametrize("account", [None, "", 5, 0, True, b"vera", ["vera"]])
@pytest.mark.parametrize("verb", ["attempt", "peek", "clear"])
def test_an_account_that_is_no_text_skips_no_limit(
    guard_factory: Callable[..., Guard], verb: str, account: Any
) -> None:
    """A number, bytes or nothing for an account is refused, not counted by the client alone."""
    guard = guard_factory()
    if account is None and verb != "attempt":
        return  # a peek or a clear may look at the client alone
    with pytest.raises(InvalidInput) as refused:
        getattr(guard, verb)("login", account=account, client="203.0.113.9")
    assert refused.value.field == "account"


def test_a_missing_client_skips_no_limit(guard_factory: Callable[..., Guard]) -> None:
    """An attempt without a client is refused where limits count by client or network."""
    with pytest.raises(InvalidInput) as refused:
        guard_factory().attempt("login", account="vera")
    assert refused.value.field == "client"


def test_malformed_input_costs_its_client_alone(guard_factory: Callable[..., Guard]) -> None:
    """NO_ACCOUNT charges the client's limits, 30 times, and no account's."""
    guard = guard_factory()
    for _ in range(30):
        guard.attempt("login", account=NO_ACCOUNT, client="203.0.113.9")
    with pytest.raises(Denied) as denied:
        guard.attempt("login", account=NO_ACCOUNT, client="203.0.113.9")
    assert denied.value.decision.refused_by == ("client",)
    assert guard.peek("login", account="vera").remaining == 10


def test_malformed_input_passes_where_nothing_counts_by_client(
    guard_factory: Callable[..., Guard],
) -> None:
    """With limits by account alone, a request without an account has nothing to be charged to."""
    decision = guard_factory(policies=ACCOUNT_ONLY).attempt("login", account=NO_ACCOUNT).decision
    assert (decision.allowed, decision.verdicts) == (True, ())


def test_an_action_whose_limits_never_apply_is_refused_loudly(
    guard_factory: Callable[..., Guard],
) -> None:
    """AG023: a policy that could refuse nobody is a configuration error, not an open door."""
    with pytest.raises(ConfigurationError, match=r"AG023 \[device\] limits"):
        guard_factory(policies=ACCOUNT_ONLY).attempt("device", account="vera")


def test_without_a_client_a_success_forgives_nobody(guard_factory: Callable[..., Guard]) -> None:
    """Rule 5: attempts of unknown clients are not one client's: only the own entry goes."""
    guard = guard_factory(policies=ACCOUNT_ONLY)
    guard.attempt("login", account="vera")
    guard.attempt("login", account="vera").succeed()
    assert guard.peek("login", account="vera").remaining == 4
