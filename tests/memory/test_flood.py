"""A flood of names that nobody has: what it leaves in the store is bounded, and hurts nobody."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from authguard import Guard, default_policies
from authguard.limits import Distinct, SlidingLog
from tests.flask.conftest import SECRET
from tests.memory.conftest import KEY_BYTES, ROUNDING, Weight, flooded
from tests.memory.flood import Catching, calls

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from authguard.testing import EmbeddedValkey
    from tests.flask.conftest import Site

    NoteWeight = Callable[[str, str], None]

HOUR_MS = 3_600_000
LOGIN = default_policies()["login"]
#: What a log keeps of one attempt, and a ``distinct`` of one value (lua/README.md).
ENTRY, VALUE = 10, 22

#: Each in a network of its own, in the range for measurements (RFC 2544).
ADDRESSES = [f"198.{18 + number // 100}.{number % 100}.7" for number in range(200)]
#: In none of those networks.
HOME, FAR, SAFE = "203.0.113.9", "203.0.113.77", "192.0.2.7"

BY_ACCOUNT: dict[str, Any] = {
    "login": {
        "limits": [
            {
                "name": "account",
                "by": ["account"],
                "sliding_log": "10/15m",
                "lockout": ["15m", "1h", "24h"],
            },
            {"name": "day", "by": ["account"], "sliding_log": "20/24h"},
            {"name": "month", "by": ["account"], "sliding_log": "100/30d"},
        ]
    }
}


def names_of_one_client() -> int:
    """Reckon how many new names one client can bring into the store within an hour."""
    limits = [limit.algorithm for limit in LOGIN.limits if limit.by == ("client",)]
    return min(
        it.limit * -(-HOUR_MS // it.window_ms)
        for it in limits
        if isinstance(it, SlidingLog | Distinct)
    )


def bound(names: int, clients: int) -> tuple[int, int]:
    """
    Reckon the most keys and bytes that so many new names of so many clients can be.

    A name has one key for each limit by account, with one entry. A client has one for each limit
    by client or network, which holds no more than its limit.
    """
    by_account = [limit for limit in LOGIN.limits if "account" in limit.by]
    by_client = [limit for limit in LOGIN.limits if limit.by in (("client",), ("network",))]
    values = sum(
        limit.algorithm.limit * (VALUE if isinstance(limit.algorithm, Distinct) else ENTRY)
        for limit in by_client
        if isinstance(limit.algorithm, SlidingLog | Distinct)
    )
    of_a_name = len(by_account) * (KEY_BYTES + ENTRY)
    of_a_client = len(by_client) * KEY_BYTES + ROUNDING * values
    keys = names * len(by_account) + clients * len(by_client)
    return keys, int(names * of_a_name + clients * of_a_client)


def learn(server: valkey.Valkey, policies: dict[str, Any]) -> None:
    """Give the server its script beforehand, so that the weight of that is not the flood's."""
    with Guard(Catching(), secret=SECRET, policies=policies) as guard:
        (call,) = calls(guard, [HOME], 1, 0)
        server.script_load(call.script.text)


def when_swept(server: valkey.Valkey, before: Weight) -> Weight:
    """Wait until the server has swept away what expired, as it does by itself; half a minute."""
    patience_ends_s = time.monotonic() + 30
    while True:
        now = Weight.of(server)
        if (
            now.keys == before.keys and now.used <= 1.05 * before.used
        ) or time.monotonic() > patience_ends_s:
            return now
        time.sleep(0.05)


@pytest.fixture
def besieged(site_factory: Callable[..., Site], small_valkey: EmbeddedValkey) -> Site:
    """Give a site on the default profile, and on the server that the flood goes to."""
    return site_factory(
        AUTHGUARD_POLICY=None, AUTHGUARD_STORE_URL=small_valkey.url, AUTHGUARD_DEADLINE_MS=60_000
    )


@pytest.mark.parametrize(
    ("attempts", "clients"),
    [
        pytest.param(2_000, 4, id="2,000 of 4"),
        pytest.param(
            1_000_000,
            200,
            id="1,000,000 of 200",
            marks=[pytest.mark.slow, pytest.mark.timeout(1_800)],
        ),
    ],
)
def test_a_flood_of_random_names(
    besieged: Site,
    scales: valkey.Valkey,
    note_weight: NoteWeight,
    attempts: int,
    clients: int,
) -> None:
    """A92: names without end from some addresses weigh what the policy allows; locks stay."""
    for client in (HOME, FAR):
        assert besieged.statuses(5, "vera", client=client) == [401] * 5
    locked = besieged.guard.peek("login", account="key-1", client=SAFE)
    assert locked.refused_by == ("account",)
    lock_ends_ms = locked.now_ms + locked.retry_after_ms
    before = Weight.of(scales)

    flood = flooded(besieged.app.config["AUTHGUARD_STORE_URL"], ADDRESSES[:clients], attempts)

    after = Weight.of(scales)
    names = names_of_one_client() * clients
    keys, bytes_ = bound(names, clients)
    assert (flood.admitted, flood.refused) == (names, attempts - names)
    assert after.keys - before.keys <= keys
    assert after.used - before.used <= bytes_
    assert after.largest <= KEY_BYTES + ROUNDING * ENTRY * 150
    assert after.longest_ms <= 30 * 24 * HOUR_MS
    assert flood.grown <= 0.05
    weight = f"{attempts:,} attempts of {clients} addresses"
    grown = after.used - before.used
    note_weight(f"{weight}: names admitted", f"{flood.admitted:,}")
    note_weight(f"{weight}: used_memory before", f"{before.used:,} B")
    note_weight(f"{weight}: used_memory after", f"{after.used:,} B (bound: {bytes_:,} more)")
    note_weight(f"{weight}: for each admitted name", f"{grown / names:,.0f} B")
    note_weight(f"{weight}: keys", f"{after.keys - before.keys:,} (bound: {keys:,})")
    note_weight(f"{weight}: largest key", f"{after.largest:,} B")
    note_weight(f"{weight}: a flooding process grew by", f"{flood.grown:.1%}")

    for address in ADDRESSES[:clients]:
        assert besieged.login("nobody-of-the-flood", client=address).status_code == 429
    assert besieged.login("vera", "right vera", client=SAFE).status_code == 429
    still = besieged.guard.peek("login", account="key-1", client=SAFE)
    assert still.now_ms + still.retry_after_ms == lock_ends_ms
    at_its_end = {
        besieged.guard.peek(
            "login", account="key-1", client=SAFE, now_ms=lock_ends_ms - left_ms
        ).allowed: left_ms
        for left_ms in (1, 0)
    }
    assert at_its_end == {False: 1, True: 0}
    assert besieged.login("omar", "right omar", client=SAFE).status_code == 200


@pytest.mark.slow
def test_without_client_limits_each_name_weighs_its_own(
    small_valkey: EmbeddedValkey,
    scales: valkey.Valkey,
    note_weight: NoteWeight,
) -> None:
    """A92: with limits by account alone every name is kept, at three keys of one entry a name."""
    learn(scales, BY_ACCOUNT)
    before = Weight.of(scales)
    flood = flooded(small_valkey.url, ADDRESSES, 20_000, policies=BY_ACCOUNT)
    after = Weight.of(scales)
    assert (flood.admitted, flood.refused) == (20_000, 0)
    assert after.keys == 60_000
    assert after.used - before.used <= 60_000 * (KEY_BYTES + ENTRY)
    assert after.longest_ms <= 30 * 24 * HOUR_MS
    each = (after.used - before.used) / 20_000
    note_weight("20,000 names by account alone: for each name", f"{each:,.0f} B")
    note_weight("20,000 names by account alone: largest key", f"{after.largest:,} B")


@pytest.mark.slow
def test_the_store_is_as_before_when_the_windows_are_over(
    small_valkey: EmbeddedValkey, scales: valkey.Valkey, note_weight: NoteWeight
) -> None:
    """B113: one window and quiet time after the last try no key is left, and no job clears up."""
    policies = {
        "login": {
            "limits": [
                {"name": "account", "by": ["account"], "sliding_log": "1/3s", "lockout": "9s"},
                {"name": "client", "by": ["client"], "sliding_log": "9999/3s"},
            ]
        }
    }
    clients = [f"198.18.{number // 250}.{number % 250}" for number in range(500)]
    learn(scales, policies)
    before = Weight.of(scales)
    flood = flooded(small_valkey.url, clients, 10_000, policies=policies)
    last = Weight.of(scales)
    assert (flood.admitted, flood.refused) == (10_000, 0)
    # A lock of 9 s, and the quiet time of 9 s more after which its level is forgotten.
    assert 0 < last.longest_ms <= 18_000
    time.sleep(last.longest_ms / 1_000)
    after = when_swept(scales, before)
    assert after.keys == before.keys == 0
    assert after.used <= 1.05 * before.used
    assert flood.grown <= 0.05
    note_weight("10,000 names, locks and all, when their time is over", f"{after.keys} keys")
