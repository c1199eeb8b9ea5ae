"""The plan as the Lua reads it, and the reply that says no more than it must."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from authguard import SlidingLog
from authguard._core import calls
from authguard._core.keys import Shape
from authguard._core.plan import Spec, encode, own_format

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from tests.lua.conftest import Gate

WHO = {"account": "vera", "client": "203.0.113.9", "network": "203.0.113.0"}


@pytest.mark.parametrize("number", [0, 1, 2**32, 2**48 - 1, 2**53 - 1, 2**53])
def test_the_server_reads_numbers_whole(client: valkey.Valkey, number: int) -> None:
    """A number up to 2**53 reaches the Lua to the last digit."""
    plan = encode([Spec("token_bucket", "", 1, 0, [number] * 3)], overrides=0, loads=0)
    read = "return string.format('%.0f', select(3, struct.unpack(ARGV[1], ARGV[2])))"
    told: Any = client.execute_command("EVAL", read, 0, own_format("token_bucket"), plan[-21:])
    assert int(told) == number


@pytest.mark.parametrize("secrets", [1, 2])
def test_blocks_that_admit_say_nothing(gate: Callable[..., Gate], secrets: int) -> None:
    """Six integers a limit, and six a block of each secret only where one refuses."""
    its = gate(("account", SlidingLog("5/1h")), secrets=secrets)
    binding = its.bind(blocks=True, **WHO)

    def reply() -> Any:
        call: Any = calls.peek(binding, cost=1, now_ms=its.now_ms)
        return its.store.run(call._replace(read=lambda told: told))

    assert len(reply()) == 2 + 6 * secrets
    block = Shape.of_block(("account",)).bind(*its.named(WHO)[:1])
    its.store.run(calls.set_block(block, life_ms=5_000, now_ms=its.now_ms))
    told = reply()
    assert len(told) == 2 + 6 * secrets + 6 * 4 * secrets
    assert (told[1], told[2 + 6 * secrets]) == (0, 2)
