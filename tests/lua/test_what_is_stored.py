"""Rule 11, no raw identifiers in the store; and what a flood of refused tries costs it: nothing."""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from tests.conftest import Clock
    from tests.lua.conftest import Door

KEY = re.compile(rb"rl:v1:\{[A-Za-z0-9_-]{8}\}[A-Za-z0-9_-]{22}[!~+]?")
ENTRY, LOCK = 10, 24
NAMES = [
    "vera@example.test",
    "Vera@Example.TEST",
    "\uff36\uff25\uff32\uff21\uff20example.test",
    "ines:203.0.113.9",
    "a}{b",
    "login:client:203.0.113.9",
    "a\u00e9\u0301\u4e2d" * 60,
    "*",
    "rl:v1:{}",
    "x" * 254,
]
ACCOUNTS = [NAMES[0], *NAMES[3:]]  # the first three are one
ADDRESSES = ["203.0.113.9", "::ffff:198.51.100.7", "2001:db8:1:2::3", "2001:DB8:9::1"]
FLOOD = 10_000


def spellings(name: str, address: str) -> set[bytes]:
    """Give every way in which a name or an address could show in a key or a value."""
    host = ip_address(address)
    mapped = getattr(host, "ipv4_mapped", None) or host
    network = ip_network((mapped, 24 if mapped.version == 4 else 48), strict=False)
    texts = {name, name.lower(), name.casefold(), address, str(host), host.exploded, str(mapped)}
    texts |= {str(network), str(network.network_address), host.packed.hex()}
    encoded = {text.encode(code) for text in texts for code in ("utf-8", "utf-16-le", "utf-32-le")}
    packed = {host.packed, mapped.packed, mapped.packed[: 4 if mapped.version == 4 else 8]}
    return {spelling for spelling in encoded | packed if len(spelling) > 3}


def test_neither_keys_nor_values_name_anybody(
    door: Callable[..., Door], store: Callable[[], dict[bytes, bytes]]
) -> None:
    """Rule 11: after a run of failures, locks and successes no name or address shows anywhere."""
    login = door()
    for name in NAMES:
        for address in ADDRESSES:
            login.fail(account=name, client=address)
            login.sign_in(account=name, client=address)
    stored = b"\n".join(part for item in store().items() for part in item)
    assert len(stored) > 1000
    for name in NAMES:
        for address in ADDRESSES:
            for spelling in spellings(name, address):
                assert spelling not in stored


def test_keys_are_of_one_length_and_values_of_whole_entries(
    door: Callable[..., Door], store: Callable[[], dict[bytes, bytes]]
) -> None:
    """Rule 11: whatever is typed, a key is 38 safe characters; a value is entries or one lock."""
    login = door(("account", "2/15m", {"lockout": "15m"}), ("pair", "9/15m"), ("client", "99/15m"))
    for name in ACCOUNTS:
        login.fail(2, account=name)
    keys = store()
    assert len(keys) == 3 * len(ACCOUNTS) + 1
    for key, value in keys.items():
        assert KEY.fullmatch(key), key
        assert len(value) == LOCK if key.endswith(b"!") else len(value) % ENTRY == 0


def test_the_limits_of_an_account_share_a_slot(
    door: Callable[..., Door], store: Callable[[], dict[bytes, bytes]]
) -> None:
    """All keys of one account have one hash tag, those of a network and its clients another."""
    door().fail()
    tags = {key[6:16] for key in store()}
    assert len(tags) == 2, "account, network"


def test_numbers_of_a_limit_are_no_part_of_its_key(
    door: Callable[..., Door], clock: Clock, store: Callable[[], dict[bytes, bytes]]
) -> None:
    """A changed number goes on with what is counted; another name, action or part starts afresh."""
    door(("account", "5/15m"), clock=clock).fail()
    door(("account", "9/1h"), clock=clock).fail()
    assert len(store()) == 1
    door(("day", "5/15m"), clock=clock).fail()
    door(("account", "5/15m"), action="unlock", clock=clock).fail()
    door(("pair", "5/15m"), clock=clock).fail()
    assert len(store()) == 4


@pytest.mark.slow
def test_a_flood_of_refused_tries_costs_no_memory(
    door: Callable[..., Door],
    client: valkey.Valkey,
    store: Callable[[], dict[bytes, bytes]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Rule 8: 10,000 refused tries on one account leave each key's size as it was."""
    login = door(
        ("account", "5/15m", {"lockout": "15m"}), ("client", "5/15m", {"count_refused": True})
    )
    login.fail(5)
    login.refusal()

    def sizes() -> dict[bytes, int]:
        return {key: client.memory_usage(key) for key in store()}

    def lengths() -> dict[bytes, int]:
        return {key: client.strlen(key) for key in store()}

    before, lengths_before = sizes(), lengths()
    for _ in range(FLOOD):
        login.refusal()
    assert lengths() == lengths_before
    # The allocator may hand out a chunk that is 16 bytes larger for the very same value.
    assert all(abs(size - before[key]) <= 16 for key, size in sizes().items())
    assert client.dbsize() == len(before) == 3
    with capsys.disabled():
        print(  # noqa: T201 (a figure to be seen)
            f"\n{FLOOD:,} refused tries on one account: {client.dbsize()} keys of"
            f" {sum(before.values())} bytes before, of {sum(sizes().values())} bytes after"
        )
