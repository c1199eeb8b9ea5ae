"""Groups of keys, one call each: what a refusal by one of them leaves in the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from authguard import Denied, Guard
from authguard._core.groups import Bound, Places
from authguard.identity import read_phone
from authguard.stores.memory import MemoryStore
from tests.conftest import SECRET

if TYPE_CHECKING:
    from collections.abc import Generator

    from authguard._core.calls import ScriptCall
    from authguard.decision import Decision
    from tests.conftest import Clock

HOME = "203.0.113.9"


def spread_guard(clock: Clock, action: str, *limits: dict[str, Any]) -> Guard:
    """Make a guard on the specification, asked as a cluster is."""
    store = MemoryStore(clock, spread=True)
    return Guard(store, secret=SECRET, clock=clock, policies={action: {"limits": list(limits)}})


def begun(guard: Guard, account: str) -> Generator[ScriptCall[Any], Any, Decision]:
    """Begin an attempt whose calls the test makes itself, one by one."""
    known = guard._subjects.known(guard.policy("login"), _claims(account))
    shape = guard._shape("login", known.subjects)
    bound = Bound.of(shape, known.pseudonyms, spread=True)
    return Places(bound, account.encode().ljust(5)[:5], 1, knows_client=True).acquire(None)


def _claims(account: str) -> Any:
    from authguard._subjects import Claims

    return Claims(account, HOME)


def test_refused_attempts_at_once_take_no_value_out_of_a_distinct(clock: Clock) -> None:
    """A spray limit keeps the value of a failure, however many refused attempts race on it."""
    spray = {"name": "spray", "by": ["client"], "distinct": "account", "limit": "3/1h"}
    guard = spread_guard(
        clock, "login", {"name": "account", "by": ["account"], "sliding_log": "1/1h"}, spray
    )
    guard.attempt("login", account="vera", client=HOME)
    clock.advance(10)
    racing = {begun(guard, "vera"): None for _ in range(4)}
    asked = {steps: next(steps) for steps in racing}
    while asked:  # all are charged by address first, then each is refused and gives its place back
        for steps, call in list(asked.items()):
            clock.advance(1)
            try:
                asked[steps] = steps.send(guard.store.run(call))
            except StopIteration as end:
                assert end.value.refused_by == ("account",)  # noqa: PT017 (each of them)
                del asked[steps]
    used = {each.name: each.used for each in guard.usage("login", account="vera", client=HOME)}
    assert (used["spray"], used["account"]) == (1, 1)


def test_refusals_count_in_every_group_as_on_one_server(clock: Clock) -> None:
    """count_refused counts what another group refuses, and sets no lock by it."""
    client = {"name": "client", "by": ["client"], "sliding_log": "3/1h", "count_refused": True}
    limits = (
        client | {"lockout": ["1h"]},
        {"name": "account", "by": ["account"], "sliding_log": "1/1h"},
        {"name": "all", "by": ["global"], "sliding_log": "9/1h", "count_refused": True},
    )
    guard = spread_guard(clock, "login", *limits)
    alone = Guard(
        MemoryStore(clock), secret=SECRET, clock=clock, policies={"login": {"limits": limits}}
    )
    seen: list[list[Any]] = []
    for each in (guard, alone):
        told: list[Any] = []
        for _ in range(4):
            try:
                told.append(each.attempt("login", account="vera", client=HOME).decision.verdicts)
            except Denied as error:
                told.append(error.decision.verdicts)
        told.append(each.usage("login", account="vera", client=HOME))
        seen.append(told)
    assert seen[0] == seen[1]
    used = {each.name: each.used for each in guard.usage("login", account="vera", client=HOME)}
    assert (used["client"], used["all"]) == (3, 4)


def test_what_cant_be_taken_back_is_asked_last(clock: Clock) -> None:
    """A conversion's lock that is due is set by a message that goes, not by one that is refused."""
    guard = spread_guard(
        clock,
        "otp.send",
        {"name": "country", "by": ["country"], "conversion": "1/2", "lockout": "1h", "life": "1s"},
        {"name": "budget", "by": ["global"], "channel": "sms", "fixed_window": "2/1m"},
    )
    phone = read_phone("+4791234567")
    for _ in range(2):
        guard.message("otp.send", destination=phone)
        clock.advance(2_000)
    with pytest.raises(Denied) as refused:
        guard.message("otp.send", destination=phone)
    assert refused.value.decision.refused_by == ("budget",)
    verdicts = {each.name: each for each in refused.value.decision.verdicts}
    assert not verdicts["country"].locked
    clock.advance(60_000)
    lock = guard.message("otp.send", destination=phone).decision
    assert [each.name for each in lock.verdicts if each.lock_set] == ["country"]
