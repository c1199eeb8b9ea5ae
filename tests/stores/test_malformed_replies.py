"""Whatever is not the well-formed verdict of this very call admits nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from authguard import StoreUnavailable
from authguard.stores.valkey import ValkeyStore

from .conftest import VERA
from .wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .conftest import Guards, Outage
    from .wire import Step, Talk

#: Two limits, and the operators' four blocks behind them, so that a reply is 38 integers.
POLICY = {
    "login": {
        "limits": [
            {"name": "account", "by": ["account"], "sliding_log": "5/15m"},
            {"name": "client", "by": ["client"], "sliding_log": "30/15m"},
        ]
    }
}
NOW_MS = 1_800_000_000_000
NO_BLOCKS = [0, 0, 0, 0, 0, 0] * 4
WINDOW_MS = 900_000
ADMITTED = [
    *[NOW_MS, 1],
    *[0, 5, WINDOW_MS, 4, 0, 900_000],
    *[0, 30, WINDOW_MS, 29, 0, 900_000],
    *NO_BLOCKS,
]
REFUSED = [NOW_MS, 0, 1, 5, WINDOW_MS, 0, 60_000, 900_000, *ADMITTED[8:]]
BLOCKED = [
    *[NOW_MS, 0],
    *[0, 5, WINDOW_MS, 5, 0, 0],
    *REFUSED[8:14],
    *NO_BLOCKS[:18],
    *[2, 0, 0, 0, 60_000, 60_000],
]


def resp(items: list[object]) -> bytes:
    """Write a list as RESP: integers, text as bulk strings, bytes as they are."""
    out = [b"*%d\r\n" % len(items)]
    for item in items:
        if isinstance(item, int):
            out.append(b":%d\r\n" % item)
        elif isinstance(item, str):
            out.append(b"$%d\r\n%s\r\n" % (len(item), item.encode()))
        elif isinstance(item, bytes):
            out.append(item)
    return b"".join(out)


def but(index: int, item: object, of: list[int] = ADMITTED) -> bytes:
    """Exchange one item of a well-formed reply."""
    return resp([*of[:index], item, *of[index + 1 :]])


MALFORMED = {
    "nil": b"$-1\r\n",
    "nil list": b"*-1\r\n",
    "an empty list": b"*0\r\n",
    "a status": b"+OK\r\n",
    "one integer": b":1\r\n",
    "a string": b"$1\r\n1\r\n",
    "a short list": resp(ADMITTED[:-1]),
    "a list of the head alone": resp(ADMITTED[:2]),
    "a long list": resp([*ADMITTED, 0]),
    "the reply for one limit more": resp([*ADMITTED, 0, 30, WINDOW_MS, 29, 0, 900_000]),
    "strings instead of integers": resp([str(number) for number in ADMITTED]),
    "one string among integers": but(1, "1"),
    "nil among integers": but(3, b"$-1\r\n"),
    "a list inside the list": but(3, b"*1\r\n:4\r\n"),
    "a boolean": but(1, b"#t\r\n"),
    "a double": but(1, b",1.0\r\n"),
    "a clock before the epoch": but(0, -1),
    "a clock of the far future": but(0, 2**47),
    "admitted = 2": but(1, 2),
    "admitted = -1": but(1, -1),
    "admitted against a refusing limit": but(1, 1, REFUSED),
    "refused by nobody": but(1, 0),
    "an unknown state": but(2, 6),
    "a limit below zero": but(3, -1),
    "a negative state": but(2, -1),
    "a window below zero": but(4, -1),
    "remaining below zero": but(5, -1),
    "remaining above the limit": but(5, 6),
    "a wait though admitted": but(6, 1),
    "a refusal without a wait": but(6, 0, REFUSED),
    "a refusal that waits for ever": but(6, -1, REFUSED),
    "a reset below zero": but(7, -1),
    "admitted against a block": but(1, 1, BLOCKED),
    "a block with a place left": but(35, 1, BLOCKED),
    "a block without a wait": but(36, 0, BLOCKED),
}

GARBAGE = {
    "text": b"hello\r\n",
    "HTTP": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "an integer that is none": b":abc\r\n",
    "a length that is none": b"$abc\r\n",
    "a count that is none": b"*abc\r\n",
    "an integer of 100 digits": but(3, b":" + b"9" * 100 + b"\r\n"),
    "lists without end": b"*1\r\n" * 5_000,
    "a map with a list for a key": b"%1\r\n*1\r\n:1\r\n:2\r\n",
    "an error that is not UTF-8": b"-ERR \xff\xfe\r\n",
    "an error without a text": b"-\r\n",
    "an error inside the list": but(3, b"-ERR inside\r\n"),
    "an error instead of the clock": but(0, b"-LOADING inside\r\n"),
}


def answering(*replies: bytes) -> Callable[[Talk, list[bytes]], Iterator[Step]]:
    """Answer with these in turn, and with the last one from then on."""
    left = list(replies)

    def answer(talk: Talk, command: list[bytes]) -> Iterator[Step]:
        yield left.pop(0) if len(left) > 1 else left[0]

    return answer


@pytest.mark.parametrize("reply", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_verdict_admits_nobody(
    guard_factory: Guards, outage: Outage, reply: bytes
) -> None:
    """A reply that is no well-formed verdict is an outage, whatever it seems to say."""
    with Wire(answering(reply)) as wire:
        guard = guard_factory(store=wire.url, policies=POLICY, deadline_ms=2_000)
        outage(guard, "a malformed verdict", "malformed reply")
        with pytest.raises(StoreUnavailable, match=r"^malformed reply$"):
            guard.peek("login", **VERA)
    assert wire.verbs() == ["EVALSHA", "EVALSHA"]


@pytest.mark.parametrize("reply", GARBAGE.values(), ids=GARBAGE)
def test_protocol_garbage_admits_nobody(guard_factory: Guards, reply: bytes) -> None:
    """B059: what the client library can't even read is an outage, whatever it raises."""
    with Wire(answering(reply)) as wire:
        store = ValkeyStore(wire.url, deadline_ms=2_000)
        guard = guard_factory(store=store, policies=POLICY)
        with pytest.raises(StoreUnavailable) as caught:
            guard.attempt("login", **VERA)
    assert caught.value.reason in {"malformed reply", "error reply", "loading", "client failure"}
    assert wire.verbs() == ["EVALSHA"]


def test_the_well_formed_reply_is_read(guard_factory: Guards) -> None:
    """The reply that the malformed ones are made from is a verdict, so each fails by its fault."""
    with Wire(answering(resp(ADMITTED))) as wire:
        guard = guard_factory(store=wire.url, policies=POLICY)
        decision = guard.attempt("login", **VERA).decision
        assert decision.now_ms == NOW_MS
        assert [verdict.remaining for verdict in decision.verdicts] == [4, 29]
        wire.answer = answering(resp(REFUSED))
        assert guard.peek("login", **VERA).refused_by == ("account",)
        wire.answer = answering(resp(BLOCKED))
        assert guard.peek("login", **VERA).refused_by == ("block",)


@pytest.mark.parametrize(
    "reply",
    [resp([]), resp([1, 0, 1]), resp([1, 0, 1, -1]), resp(["1", "0", "1", "0"]), b"+OK\r\n"],
    ids=["empty", "short", "negative", "strings", "status"],
)
def test_a_malformed_settlement_is_not_taken_for_one(guard_factory: Guards, reply: bytes) -> None:
    """A success whose settlement is answered with nonsense stands, but is not called settled."""
    with Wire(answering(resp(ADMITTED), reply)) as wire:
        guard = guard_factory(store=wire.url, policies=POLICY)
        attempt = guard.attempt("login", **VERA)
        attempt.succeed()
        assert attempt.succeeded
        assert not attempt.settled
        with pytest.raises(StoreUnavailable, match=r"^malformed reply$"):
            guard.clear("login", **VERA)
