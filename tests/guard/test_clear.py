"""Clearing: what is given, and nothing that others share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from authguard import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard import Guard

POLICIES = {
    "otp.send": {
        "limits": [
            {"name": "account", "by": ["account"], "sliding_log": "9/1h"},
            {"name": "client", "by": ["client"], "sliding_log": "9/1h"},
            {"name": "quota", "by": ["destination"], "sliding_log": "9/1h"},
            {"name": "range", "by": ["number_range"], "sliding_log": "9/1h"},
            {"name": "budget", "by": ["global"], "sliding_log": "9/1h"},
        ]
    },
    "pair": {
        "limits": [
            {"name": "pair", "by": ["account", "client"], "sliding_log": "9/1h"},
            {"name": "budget", "by": ["global"], "sliding_log": "9/1h"},
        ]
    },
}
ALL = {"account": "vera", "client": "203.0.113.9", "destination": "+14155550101"}


@pytest.mark.parametrize(
    ("given", "cleared"),
    [
        ({"account": "vera"}, {"account"}),
        ({"client": "203.0.113.9"}, {"client"}),
        ({"destination": "+14155550101"}, {"quota"}),
        ({"client": "203.0.113.9", "destination": "+14155550101"}, {"client"}),
        (ALL, {"account"}),
        ({}, {"budget"}),
    ],
)
def test_one_is_opened_and_nobody_else(
    guard_factory: Callable[..., Guard], given: dict[str, Any], cleared: set[str]
) -> None:
    """Opening one client or one number refills neither everybody's budget nor a number range's."""
    guard = guard_factory(policies=POLICIES)
    guard.attempt("otp.send", **ALL)
    assert guard.clear("otp.send", **given).entries == 1
    verdicts = guard.peek("otp.send", **ALL).verdicts
    assert {verdict.name for verdict in verdicts if verdict.remaining == 9} == cleared


def test_nothing_to_clear_is_told(guard_factory: Callable[..., Guard]) -> None:
    """AG023: where no limit counts by what is given alone, nobody thinks that it was opened."""
    guard = guard_factory(policies=POLICIES)
    with pytest.raises(ConfigurationError, match=r"AG023 \[pair\] limits"):
        guard.clear("pair", account="vera")
    guard.attempt("pair", account="vera", client="203.0.113.9")
    assert guard.clear("pair", account="vera", client="203.0.113.9").entries == 1


def test_a_denylisted_client_can_be_cleared(guard_factory: Callable[..., Guard]) -> None:
    """An operator opens what stands in the logs, whoever is on a list by now."""
    guard_factory(policies=POLICIES).attempt("otp.send", **ALL)
    guard = guard_factory(policies=POLICIES, denylist=["203.0.113.0/24"])
    assert guard.clear("otp.send", client="203.0.113.9").entries == 1
