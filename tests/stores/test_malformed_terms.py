"""An override, load or bucket that nobody could have written admits nobody: 503, not a guess."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from authguard import Denied, StoreUnavailable

from .conftest import VERA

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from authguard import Guard
    from tests.conftest import Clock

HOUR = 3_600_000
NOW_MS = 1_800_000_000_000
ENDS_MS = NOW_MS + HOUR
OVERRIDES: list[Any] = [
    "abc",
    [1, 2],
    5,
    True,
    None,
    {"it": 5},
    {"it": "abc"},
    {"it": []},
    {"it": False},
    {"it": None},
    {"it": {}},
    *(
        {"it": ["sliding_log", *rest]}
        for rest in (
            [],
            [ENDS_MS],
            [ENDS_MS, [9, HOUR]],
            [ENDS_MS, None, NOW_MS],
            [ENDS_MS, "", NOW_MS],
            [ENDS_MS, 1, NOW_MS],
            [ENDS_MS, [], NOW_MS],
            [ENDS_MS, {}, NOW_MS],
            [ENDS_MS, {"a": 1}, NOW_MS],
            [ENDS_MS, [9, 0], NOW_MS],
            [ENDS_MS, [9, -5], NOW_MS],
            [ENDS_MS, [-9, HOUR], NOW_MS],
            [ENDS_MS, ["9", HOUR], NOW_MS],
            [str(ENDS_MS), [9, HOUR], NOW_MS],
            [ENDS_MS, [9, HOUR], str(NOW_MS)],
        )
    ),
    {"other": "abc"},
]


@pytest.fixture
def guard(guard_factory: Callable[..., Guard], clock: Clock) -> Guard:
    """Make a guard with a limit of one kind that can be overridden, and one that can be scaled."""
    assert clock() == NOW_MS
    policies = {
        "login": {"limits": [{"name": "it", "by": ["account"], "sliding_log": "5/1h"}]},
        "shop": {
            "limits": [
                {"name": "all", "by": ["global"], "fixed_window": "5/1h", "elastic": True},
            ]
        },
        "burst": {
            "limits": [{"name": "b", "by": ["account"], "token_bucket": "5/1h", "burst": 5}],
        },
        "queue": {
            "limits": [{"name": "q", "by": ["account"], "leaky_bucket": "5/1h", "queue": 4}],
        },
    }
    return guard_factory(policies=policies, clock=clock)


def judge(guard: Guard, client: valkey.Valkey, action: str) -> None:
    """Check that an action has no verdict, and that asking for one has changed nothing."""
    before = {key: client.get(key) for key in client.scan_iter()}
    for ask in (guard.attempt, guard.peek):
        with pytest.raises(StoreUnavailable):
            ask(action, **VERA)
    with pytest.raises(StoreUnavailable):
        guard.usage(action, account=VERA["account"])
    assert {key: client.get(key) for key in client.scan_iter()} == before


@pytest.mark.parametrize("value", OVERRIDES, ids=repr)
def test_an_override_that_is_none(guard: Guard, client: valkey.Valkey, value: Any) -> None:
    """What is no override is neither none nor an exemption: it may have been a lower limit."""
    guard.override("login", "it", account=VERA["account"], to="1/1h", for_ms=HOUR)
    (key,) = client.scan_iter()
    client.set(key, json.dumps(value), px=HOUR)
    judge(guard, client, "login")


@pytest.mark.parametrize("text", [b"", b"x", b"{", b"\xff\xfe", b'{"it":["sliding_log",1e9'])
def test_an_override_that_is_no_json(guard: Guard, client: valkey.Valkey, text: bytes) -> None:
    """What can't be read is no verdict."""
    guard.override("login", "it", account=VERA["account"], to="1/1h", for_ms=HOUR)
    (key,) = client.scan_iter()
    client.set(key, text, px=HOUR)
    judge(guard, client, "login")


@pytest.mark.parametrize("command", ["override", "lift_override"])
def test_an_operator_s_word_does_not_hide_it(
    guard: Guard, client: valkey.Valkey, command: str
) -> None:
    """Neither an override nor its lift reads what is malformed as nothing."""
    guard.override("login", "it", account=VERA["account"], to="1/1h", for_ms=HOUR)
    (key,) = client.scan_iter()
    client.set(key, json.dumps({"it": "abc"}), px=HOUR)
    how = {"to": "2/1h", "for_ms": HOUR} if command == "override" else {}
    with pytest.raises(StoreUnavailable):
        getattr(guard, command)("login", "it", account=VERA["account"], **how)
    assert client.get(key) == b'{"it": "abc"}'


@pytest.mark.parametrize("share", [1_001, 9_999, 65_535])
def test_a_load_above_the_whole(guard: Guard, client: valkey.Valkey, share: int) -> None:
    """More than a thousand thousandths is no load, to attempts and to current_load alike."""
    guard.load(0.5)
    (key,) = client.scan_iter()
    client.setrange(key, 12, share.to_bytes(2))
    judge(guard, client, "shop")
    for ask in (guard.current_load, guard.load_until_ms):
        with pytest.raises(StoreUnavailable):
            ask()


@pytest.mark.parametrize("length", [0, 1, 12, 13])
def test_a_load_that_is_cut(guard: Guard, client: valkey.Valkey, length: int) -> None:
    """A part of a load's record is no load."""
    guard.load(0.5)
    (key,) = client.scan_iter()
    client.set(key, client.get(key)[:length], px=HOUR)
    judge(guard, client, "shop")


@pytest.mark.parametrize("action", ["burst", "queue"])
@pytest.mark.parametrize(("at", "length"), [(13, 6), (19, 4)], ids=["period", "rate"])
def test_a_bucket_without_a_rate(
    guard: Guard, client: valkey.Valkey, action: str, at: int, length: int
) -> None:
    """Places in no time, or none in any, are no rate: a full bucket wouldn't be full by it."""
    for _ in range(5):
        guard.attempt(action, **VERA)
    with pytest.raises(Denied):
        guard.attempt(action, **VERA)
    (key,) = client.scan_iter()
    client.setrange(key, at, bytes(length))
    judge(guard, client, action)


def test_a_bucket_of_nothing(guard: Guard, client: valkey.Valkey) -> None:
    """As many zeros as a bucket has bytes are no bucket."""
    guard.attempt("burst", **VERA)
    (key,) = client.scan_iter()
    client.set(key, bytes(client.strlen(key)), px=HOUR)
    judge(guard, client, "burst")
