"""
What a call's Lua is told of its limits: the plan, in bytes (``open_limits.lua`` draws them).

Bytes and no JSON, since the server reads one at every call: that costs it less than half.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "ELASTIC",
    "HEEDS_OVERRIDES",
    "NUMBERS",
    "Plan",
    "Spec",
    "decode",
    "encode",
    "own_format",
    "with_load",
]

#: What a limit's Lua is told of it besides its numbers.
ELASTIC: Final = 1
HEEDS_OVERRIDES: Final = 2

#: What each algorithm is told of a limit, as the header of its Lua says: numbers and lists of them.
_OWN: Final = {
    "sliding_log": "nnnl",
    "sliding_window_counter": "nn",
    "fixed_window": "nnnnl",
    "token_bucket": "nnn",
    "leaky_bucket": "nnn",
    "cooldown": "l",
    "distinct": "nnn",
    "conversion": "nnnnn",
    "block": "",
}

#: What stands for each in a plan.
NUMBERS: Final = {name: number for number, name in enumerate(_OWN, 1)}

_HEAD: Final = struct.Struct(">BBHH")
_LIMIT: Final = struct.Struct(">BBIH")

#: Bytes of a number, and of the load: its share is one of two bytes.
_NUMBER: Final = 7
_LOAD: Final = 2 + _NUMBER

#: The load of a service that has all its capacity.
_WHOLE: Final = 1_000


class Spec(NamedTuple):
    """
    One limit of a plan.

    Attributes:
        algorithm: What it is.
        name: Its name, as overrides know it; ``""`` where it heeds none.
        weight: Places that one of an attempt's cost takes.
        flags: ``ELASTIC`` and ``HEEDS_OVERRIDES``.
        own: Its algorithm's numbers, as the header of its Lua says.
    """

    algorithm: str
    name: str
    weight: int
    flags: int
    own: list[Any]


class Plan(NamedTuple):
    """
    A plan that was read.

    Attributes:
        overrides: How many keys tell the account's overrides.
        loads: How many keys tell the load.
        blocks: How many keys behind the limits' are operators' blocks.
        share: Thousandths of their limit that elastic limits follow, where no key tells them.
        ends_ms: When that ends; 0: nobody has said anything.
        specs: The limits in turn.
    """

    overrides: int
    loads: int
    blocks: int
    share: int
    ends_ms: int
    specs: list[Spec]


def own_format(algorithm: str) -> str:
    """Say how the Lua unpacks an algorithm's own numbers."""
    return ">" + "".join("I7" if kind == "n" else "I2c0" for kind in _OWN[algorithm])


def encode(specs: Sequence[Spec], *, overrides: int, loads: int, blocks: int = 0) -> bytes:
    """
    Write a plan.

    Args:
        specs: The limits in turn.
        overrides: How many keys tell the account's overrides.
        loads: How many keys tell the load.
        blocks: How many keys behind the limits' are operators' blocks.
    """
    head = _HEAD.pack(overrides, loads, len(specs), blocks) + _load(_WHOLE, 0)
    return head + b"".join(map(_limit, specs))


def with_load(plan: bytes, share: int, ends_ms: int) -> bytes:
    """
    Write the load into a plan that names no key for it.

    Args:
        plan: The plan.
        share: Thousandths of their limit that elastic limits follow.
        ends_ms: When that ends, milliseconds since the epoch; 0 where nobody has said anything.
    """
    return plan[: _HEAD.size] + _load(share, ends_ms) + plan[_HEAD.size + _LOAD :]


def decode(plan: bytes) -> Plan:
    """Read a plan."""
    overrides, loads, count, blocks = _HEAD.unpack_from(plan)
    at = _HEAD.size + _LOAD
    load = plan[_HEAD.size : at]
    share, ends_ms = int.from_bytes(load[:-_NUMBER]), int.from_bytes(load[-_NUMBER:])
    specs = []
    for _ in range(count):
        number, flags, weight, size = _LIMIT.unpack_from(plan, at)
        at += _LIMIT.size
        algorithm = next(name for name, its in NUMBERS.items() if its == number)
        told = plan[at : at + size]
        at += size
        own: list[Any] = []
        for kind in _OWN[algorithm]:
            if kind == "n":
                own += _numbers(told[:_NUMBER])
                told = told[_NUMBER:]
            else:
                length = 2 + int.from_bytes(told[:2])
                own.append(list(_numbers(told[2:length])))
                told = told[length:]
        specs.append(Spec(algorithm, told.decode(), weight, flags, own))
    return Plan(overrides, loads, blocks, share, ends_ms, specs)


def _load(share: int, ends_ms: int) -> bytes:
    return share.to_bytes(2) + ends_ms.to_bytes(_NUMBER)


def _limit(spec: Spec) -> bytes:
    parts = []
    for kind, value in zip(_OWN[spec.algorithm], spec.own, strict=True):
        numbers = b"".join(_packed(each) for each in ([value] if kind == "n" else value))
        parts.append(numbers if kind == "n" else len(numbers).to_bytes(2) + numbers)
    if spec.flags & HEEDS_OVERRIDES:
        parts.append(spec.name.encode())
    told = b"".join(parts)
    return _LIMIT.pack(NUMBERS[spec.algorithm], spec.flags, spec.weight, len(told)) + told


def _packed(number: int) -> bytes:
    return number.to_bytes(_NUMBER, signed=True)


def _numbers(packed: bytes) -> Iterator[int]:
    for at in range(0, len(packed), _NUMBER):
        yield int.from_bytes(packed[at : at + _NUMBER], signed=True)
