"""One-time secrets: stored for their life, read by nobody who lacks the name, used up once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from authguard import StoreUnavailable
from authguard._core import calls
from authguard._core.keys import record_key
from authguard.stores.valkey import ValkeyStore
from tests.conftest import PATIENT_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import valkey

    from tests.conftest import Clock

LIFE = 600_000
KEY, OTHER = record_key(b"a" * 32, b"b" * 32), record_key(b"a" * 32, b"c" * 32)
PROOF = bytes(range(32))
VALUE = b"\0nonce\r\n\xff" + PROOF


@pytest.fixture
def valkey_store(valkey_url: str) -> Iterator[ValkeyStore]:
    """Give a store."""
    store = ValkeyStore(valkey_url, deadline_ms=PATIENT_MS)
    yield store
    store.close()


def test_a_record_is_read_until_its_life_is_over(valkey_store: ValkeyStore, clock: Clock) -> None:
    """Any bytes come back as they are, until the last millisecond of their life."""
    put = calls.put(KEY, VALUE, life_ms=LIFE, now_ms=clock.now_ms)
    assert valkey_store.run(put) is None
    both = (KEY, OTHER)
    clock.advance(LIFE - 1)
    assert valkey_store.run(calls.read(both, now_ms=clock.now_ms)) == (VALUE, None)
    clock.advance(1)
    assert valkey_store.run(calls.read(both, now_ms=clock.now_ms)) == (None, None)
    assert not valkey_store.run(calls.take(KEY, PROOF, now_ms=clock.now_ms))


@pytest.mark.parametrize("back_ms", [1, LIFE, 5 * 3_600_000])
def test_a_clock_that_steps_back_ends_a_record(
    valkey_store: ValkeyStore, clock: Clock, back_ms: int
) -> None:
    """A record from later than now is over for readers and takers, as long as it lies ahead."""
    clock.advance(5 * 3_600_000)
    made_ms = clock.now_ms
    valkey_store.run(calls.put(KEY, VALUE, life_ms=LIFE, now_ms=made_ms))
    clock.advance(-back_ms)
    for now_ms in (clock.now_ms, (clock.now_ms + made_ms) // 2, made_ms - 1):
        assert valkey_store.run(calls.read((KEY,), now_ms=now_ms)) == (None,)
        assert not valkey_store.run(calls.take(KEY, PROOF, now_ms=now_ms))


def test_a_clock_that_steps_back_and_on_again_lengthens_no_life(
    valkey_store: ValkeyStore, clock: Clock
) -> None:
    """Whatever the clock did in between, at the end that it was made with it is over."""
    put = calls.put(KEY, VALUE, life_ms=LIFE, now_ms=clock.now_ms)
    valkey_store.run(put)
    clock.advance(-LIFE // 2)
    assert valkey_store.run(calls.read((KEY,), now_ms=clock.now_ms)) == (None,)
    clock.advance(LIFE // 2 + LIFE)
    assert valkey_store.run(calls.read((KEY,), now_ms=clock.now_ms)) == (None,)
    assert not valkey_store.run(calls.take(KEY, PROOF, now_ms=clock.now_ms))


def test_what_is_made_after_a_step_back_lives_as_long_as_any(
    valkey_store: ValkeyStore, clock: Clock
) -> None:
    """A new one takes the place of one from later than now, for its own life."""
    valkey_store.run(calls.put(KEY, VALUE, life_ms=LIFE, now_ms=clock.now_ms))
    clock.advance(-5 * 3_600_000)
    valkey_store.run(calls.put(KEY, VALUE[::-1], life_ms=LIFE, now_ms=clock.now_ms))
    clock.advance(LIFE - 1)
    assert valkey_store.run(calls.read((KEY,), now_ms=clock.now_ms)) == (VALUE[::-1],)
    clock.advance(1)
    assert valkey_store.run(calls.read((KEY,), now_ms=clock.now_ms)) == (None,)


def test_a_new_one_takes_an_old_ones_place(valkey_store: ValkeyStore) -> None:
    """Of one name the newest alone is live."""
    for value in (VALUE, VALUE[::-1]):
        valkey_store.run(calls.put(KEY, value, life_ms=LIFE, now_ms=None))
    assert valkey_store.run(calls.read((KEY,), now_ms=None)) == (VALUE[::-1],)


@pytest.mark.parametrize(
    ("candidates", "taken"),
    [
        ((), False),
        ((PROOF,), True),
        ((bytes(32), PROOF), True),
        ((bytes(32),), False),
        ((PROOF[:-1],), False),
        ((PROOF[16:],), False),
        ((VALUE,), False),
    ],
)
def test_only_the_right_proof_takes_it(
    valkey_store: ValkeyStore, candidates: tuple[bytes, ...], taken: bool
) -> None:
    """The last 32 bytes must be one of the candidates, whole; a wrong one leaves it as it is."""
    valkey_store.run(calls.put(KEY, VALUE, life_ms=LIFE, now_ms=None))
    assert valkey_store.run(calls.take(KEY, *candidates, now_ms=None)) is taken
    assert valkey_store.run(calls.read((KEY,), now_ms=None)) == (None if taken else VALUE,)
    assert not valkey_store.run(calls.take(OTHER, PROOF, now_ms=None))


def test_of_twenty_that_take_it_one_gets_it(valkey_store: ValkeyStore) -> None:
    """A67: of twenty parallel takes of one secret exactly one is told so, every time."""
    barrier = Barrier(20)

    def one(_: int) -> bool:
        barrier.wait()
        return valkey_store.run(calls.take(KEY, PROOF, now_ms=None))

    with ThreadPoolExecutor(20) as crowd:
        for _ in range(10):
            valkey_store.run(calls.put(KEY, VALUE, life_ms=LIFE, now_ms=None))
            assert list(crowd.map(one, range(20))).count(True) == 1


def test_dropping(valkey_store: ValkeyStore) -> None:
    """A dropped secret is gone; what was not there is not counted."""
    valkey_store.run(calls.put(KEY, VALUE, life_ms=LIFE, now_ms=None))
    assert valkey_store.run(calls.drop((KEY, OTHER))) == 1
    assert valkey_store.run(calls.read((KEY,), now_ms=None)) == (None,)
    assert valkey_store.run(calls.drop((KEY,))) == 0


def test_a_record_ends_with_its_life(valkey_store: ValkeyStore, client: valkey.Valkey) -> None:
    """Its key has an expiry, by the store's clock to the millisecond."""
    valkey_store.run(calls.put(KEY, VALUE, life_ms=LIFE, now_ms=None))
    ends_ms = int.from_bytes(client.get(KEY)[:6], "big")
    assert client.pexpiretime(KEY) == ends_ms


@pytest.mark.parametrize("size", [0, 15, 129])
def test_no_candidate_is_short_or_long(size: int) -> None:
    """A proof is of 16 to 128 bytes; anything else reaches no script."""
    with pytest.raises(ValueError, match="16 to 128 bytes"):
        calls.take(KEY, bytes(size), now_ms=None)


@pytest.mark.parametrize("reply", [None, [], [2], ["1"], [b"1"], 1, [1, 1], [-1], [True]], ids=str)
def test_a_malformed_reply_is_no_answer(reply: object) -> None:
    """Whatever is not the well-formed answer of its script is an outage."""
    for call in (
        calls.put(KEY, VALUE, life_ms=LIFE, now_ms=None),
        calls.take(KEY, PROOF, now_ms=None),
        calls.drop((KEY,)),
        calls.read((KEY, OTHER), now_ms=None),
    ):
        with pytest.raises(StoreUnavailable, match="malformed reply"):
            call.read(reply)
