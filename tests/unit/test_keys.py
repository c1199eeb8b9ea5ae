"""Key names: fixed length and alphabet, one tag for what shares a slot."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from authguard import Policy, PolicyLimit, SlidingLog, default_policies
from authguard._core.keys import Shape
from authguard._core.plan import decode
from authguard.identity import Pseudonyms
from authguard.limits import heeds_pardon

PSEUDONYMS = Pseudonyms("a secret of the tests, 32 bytes or more")
KEY = re.compile(r"rl:v1:\{[A-Za-z0-9_-]{8}\}[A-Za-z0-9_-]{22}[!~+]?")
SHAPE = Shape.of(default_policies()["login"], frozenset({"account", "client", "network"}))


def keys(account: str, client: str, shape: Shape = SHAPE) -> tuple[str, ...]:
    """Bind a shape to an account and a client."""
    values = {"account": account, "client": client, "network": client}
    pseudonyms = {part: PSEUDONYMS.of(part, value) for part, value in values.items()}
    return shape.bind(pseudonyms).keys


@given(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))
def test_keys_are_of_one_length_and_alphabet(account: str, client: str) -> None:
    """A key is 38 characters of one alphabet whatever the names hold, a lock or pardon one more."""
    assert all(KEY.fullmatch(key) for key in keys(account, client))


def test_all_keys_differ() -> None:
    """No two limits, accounts or clients share a key; swapped values don't either."""
    seen = [*keys("a", "b"), *keys("b", "a"), *keys("ab", ""), *keys("", "ab")]
    assert len(set(seen)) == len(seen)


def test_limits_of_one_account_share_a_slot_and_its_client_another() -> None:
    """B119: a login has two groups of keys, the account's and the network's with its client's."""
    tags = [key[6:16] for key in keys("vera", "203.0.113.9")]
    by = [
        "account" if limit.by[0] == "account" else "network"
        for limit in SHAPE.limits
        for _ in range(1 + bool(limit.algorithm.lockout_ms) + heeds_pardon(limit.by))
    ]
    assert len(set(tags)) == 2
    assert {part: {tag for p, tag in zip(by, tags, strict=True) if p == part} for part in by} == {
        part: {tags[by.index(part)]} for part in by
    }


def test_the_numbers_are_not_in_the_key() -> None:
    """B066: a limit that is lowered goes on with the same log."""
    before, after = (
        Shape.of(
            Policy("login", (PolicyLimit("account", ("account",), SlidingLog(rate)),)),
            frozenset({"account"}),
        )
        for rate in ("10/15m", "5/1h")
    )
    assert keys("vera", "", before) == keys("vera", "", after)


def test_another_secret_makes_other_keys() -> None:
    """Without the secret nobody can name an account's keys."""
    other = Pseudonyms("another secret of the tests, as long")
    pseudonym = other.of("account", "vera")
    assert pseudonym != PSEUDONYMS.of("account", "vera")


def test_a_known_device_takes_the_place_of_the_account() -> None:
    """With a known device, limits by device count instead of those by account, pairs included."""
    shape = Shape.of(
        default_policies()["login"], frozenset({"account", "client", "network", "device"})
    )
    names = [limit.name for limit in shape.limits]
    assert names == ["client", "client-day", "network", "spray", "device", "device-worn"]


def test_a_settle_without_forgiving_says_so_to_the_lua() -> None:
    """A release takes back its own alone, also where a limit is set to forgive."""
    policy = Policy("login", (PolicyLimit("a", ("account",), SlidingLog("5/15m", forgive=True)),))
    shape = Shape.of(policy, frozenset({"account"}))
    flags = [decode(plan).specs[0].own[2] for plan in (shape.plan, shape.plan_unforgiving)]
    assert flags == [2, 0]
