"""Hash slots: never more hashes at a time than slots, a bounded line, and no slot ever lost."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import pytest
from argon2 import PasswordHasher, low_level
from argon2.exceptions import VerificationError
from freezegun import freeze_time

from authguard.errors import HashingUnavailable
from authguard.passwords import Passwords

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

RIGHT = "correct horse vera"
PATIENCE_S = 30.0


class Furnace:
    """The real argon2 behind a door: counts who is inside, and can hold them there."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.fault: BaseException | None = None
        self.inside = 0
        self.peak = 0
        self._mutex = threading.Lock()

    def verify_secret(self, *arguments: object) -> bool:
        """Count the caller in, hold it while the door is shut, compute, count it out."""
        with self._mutex:
            self.inside += 1
            self.peak = max(self.peak, self.inside)
        try:
            assert self.open.wait(PATIENCE_S)
            if self.fault is not None:
                raise self.fault
            return low_level.verify_secret(*arguments)
        finally:
            with self._mutex:
                self.inside -= 1


@pytest.fixture
def furnace(monkeypatch: pytest.MonkeyPatch) -> Furnace:
    """Put every hash of every PasswordHasher through one furnace."""
    furnace = Furnace()
    monkeypatch.setattr(f"{PasswordHasher.__module__}.verify_secret", furnace.verify_secret)
    return furnace


def _until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds; fail the test if it doesn't in half a minute."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "gave up waiting"
        time.sleep(0.001)


@contextmanager
def _all_slots_held(
    passwords: Passwords, furnace: Furnace, stored: str
) -> Iterator[list[Future[bool]]]:
    """Hold every slot with a real verification that can't finish until the block ends."""
    furnace.open.clear()
    with ThreadPoolExecutor(passwords.slots) as pool:
        try:
            held = [pool.submit(passwords.verify, stored, RIGHT) for _ in range(passwords.slots)]
            _until(lambda: furnace.inside == passwords.slots)
            yield held
        finally:
            furnace.open.set()
        assert [one.result(PATIENCE_S) for one in held] == [True] * passwords.slots


def _assert_all_slots_free(passwords: Passwords, furnace: Furnace, stored: str) -> None:
    """Show that the full number of hashes can run at a time, and that nobody is in line."""
    with _all_slots_held(passwords, furnace, stored):
        assert furnace.inside == passwords.slots
    assert passwords._slots._free == passwords.slots
    assert not passwords._slots._waiting


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_never_more_hashes_at_a_time_than_slots(furnace: Furnace, slots: int) -> None:
    """Of 24 threads from a barrier at most `slots` hash at a time, and all get their answer."""
    passwords = Passwords(slots=slots, queue=24, wait_s=PATIENCE_S)
    stored = passwords.hash(RIGHT)
    barrier = threading.Barrier(24)

    def sign_in(number: int) -> bool:
        barrier.wait(PATIENCE_S)
        return passwords.verify(stored if number % 3 else None, RIGHT)

    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(sign_in, range(24)))
    assert answers == [bool(number % 3) for number in range(24)]
    _assert_all_slots_free(passwords, furnace, stored)
    assert furnace.peak == slots


def test_a_full_line_refuses_at_once(furnace: Furnace) -> None:
    """Exactly `queue` callers wait; the next is refused at once, and the waiting are served."""
    passwords = Passwords.cheapest_for_tests(slots=2, queue=3, wait_s=PATIENCE_S)
    stored = passwords.hash(RIGHT)
    for _ in range(3):  # again and again: a place in line isn't used up
        with ThreadPoolExecutor(3) as pool, _all_slots_held(passwords, furnace, stored):
            waiting = [pool.submit(passwords.verify, stored, "wrong") for _ in range(3)]
            _until(lambda: len(passwords._slots._waiting) == 3)
            before = time.monotonic()
            for ask in (lambda: passwords.verify(None, RIGHT), lambda: passwords.hash(RIGHT)):
                with pytest.raises(HashingUnavailable, match=r"^hash queue full$"):
                    ask()
            assert time.monotonic() - before < PATIENCE_S / 3, "it waited"
            assert len(passwords._slots._waiting) == 3
            furnace.open.set()
            assert [one.result(PATIENCE_S) for one in waiting] == [False] * 3
    assert furnace.peak == 2


def test_a_line_of_none_refuses_whoever_finds_no_slot(furnace: Furnace) -> None:
    """With queue=0 nobody waits: a slot now, or HashingUnavailable now."""
    passwords = Passwords.cheapest_for_tests(slots=1, queue=0, wait_s=PATIENCE_S)
    stored = passwords.hash(RIGHT)
    with (
        _all_slots_held(passwords, furnace, stored),
        pytest.raises(HashingUnavailable, match=r"^hash queue full$"),
    ):
        passwords.verify(stored, RIGHT)
    assert passwords.verify(stored, RIGHT) is True


def test_a_wait_that_is_over_refuses(furnace: Furnace) -> None:
    """Who waited `wait_s` in vain is refused and leaves the line; afterwards all is as before."""
    passwords = Passwords.cheapest_for_tests(slots=1, queue=2, wait_s=0.05)
    stored = passwords.hash(RIGHT)
    with _all_slots_held(passwords, furnace, stored):
        for _ in range(5):  # more often than there are places in line
            before = time.monotonic()
            with pytest.raises(HashingUnavailable, match=r"^no hash slot in time$") as caught:
                passwords.verify(stored, RIGHT)
            assert time.monotonic() - before >= 0.04
            assert caught.value.retry_after_s == 1
    _assert_all_slots_free(passwords, furnace, stored)


def test_the_line_is_served_in_order(furnace: Furnace) -> None:
    """A slot given back goes to whoever waited longest; a newcomer doesn't overtake."""
    passwords = Passwords.cheapest_for_tests(slots=1, queue=8, wait_s=PATIENCE_S)
    stored = passwords.hash(RIGHT)
    served: list[int] = []

    def wait_in_line(number: int) -> None:
        with passwords._slots:
            served.append(number)

    with ThreadPoolExecutor(8) as pool, _all_slots_held(passwords, furnace, stored):
        for number in range(8):
            pool.submit(wait_in_line, number)
            _until(lambda length=number + 1: len(passwords._slots._waiting) == length)
    assert served == list(range(8))


@pytest.mark.parametrize(
    "fault", [VerificationError("Threading failure"), MemoryError(), KeyboardInterrupt()], ids=repr
)
def test_every_slot_is_given_back_after_an_error(furnace: Furnace, fault: BaseException) -> None:
    """Errors in the middle of a hash, interrupts too, lose no slot and no place in line (B061)."""
    passwords = Passwords.cheapest_for_tests(slots=2, queue=1, wait_s=PATIENCE_S)
    stored = passwords.hash(RIGHT)
    furnace.fault = fault
    for _ in range(10):
        with pytest.raises((HashingUnavailable, KeyboardInterrupt)):
            passwords.verify(stored, RIGHT)
    furnace.fault = None
    _assert_all_slots_free(passwords, furnace, stored)


def test_an_interrupt_while_waiting_leaves_the_line(furnace: Furnace) -> None:
    """An exception from a signal handler during the wait leaves no ghost in the line."""
    passwords = Passwords.cheapest_for_tests(slots=1, queue=1, wait_s=PATIENCE_S)
    stored = passwords.hash(RIGHT)

    def interrupt_the_waiting() -> None:
        _until(lambda: bool(passwords._slots._waiting))
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    def handler(*_: object) -> None:
        raise InterruptedError

    previous = signal.signal(signal.SIGUSR1, handler)
    try:
        with ThreadPoolExecutor(1) as pool, _all_slots_held(passwords, furnace, stored):
            sent = pool.submit(interrupt_the_waiting)
            with pytest.raises(InterruptedError):
                passwords.verify(stored, RIGHT)
            sent.result(PATIENCE_S)
    finally:
        signal.signal(signal.SIGUSR1, previous)
    _assert_all_slots_free(passwords, furnace, stored)


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_slot_handed_over_at_the_last_moment_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, interrupted: bool
) -> None:
    """A slot that comes as the wait ends is used, or given back where a signal ended the wait."""
    slots = Passwords.cheapest_for_tests(slots=1, queue=1, wait_s=0.01)._slots

    class EndsAsTheSlotComes:
        """A turn's lock whose timed acquire ends in vain just after the holder is done."""

        def acquire(self, **_: float) -> bool:
            slots.__exit__(None, None, None)
            assert slots._free == 0, "the slot went to this turn"
            if interrupted:
                raise KeyboardInterrupt
            return False

        def release(self) -> None:
            """Come too late for the acquire."""

    class Turn:
        """The turn of a caller that finds no slot."""

        def __init__(self) -> None:
            self.came = EndsAsTheSlotComes()
            self.has_slot = False

    slots.__enter__()
    monkeypatch.setattr("authguard._slots._Turn", Turn)
    expected = pytest.raises(KeyboardInterrupt) if interrupted else nullcontext()
    with expected, slots:
        assert (slots._free, len(slots._waiting)) == (0, 0)
    assert (slots._free, len(slots._waiting)) == (1, 0)


def test_storms_of_short_waits_lose_and_invent_no_slot(furnace: Furnace) -> None:
    """After 200 tries that race hashes against ends of waits, the count of slots is exact."""
    before = time.perf_counter()
    stored = Passwords().hash(RIGHT)
    hash_s = time.perf_counter() - before  # of two hashes: the dummy's too
    passwords = Passwords(slots=2, queue=4, wait_s=hash_s)
    barrier = threading.Barrier(8)

    def storm(_: int) -> list[str]:
        barrier.wait(PATIENCE_S)
        outcomes = []
        for _ in range(25):
            try:
                outcomes.append(str(passwords.verify(stored, RIGHT)))
            except HashingUnavailable as error:
                outcomes.append(error.reason)
        return outcomes

    with ThreadPoolExecutor(8) as pool:
        outcomes = {outcome for each in pool.map(storm, range(8)) for outcome in each}
    assert outcomes <= {"True", "hash queue full", "no hash slot in time"}
    assert len(outcomes) > 1, "nobody was refused: no storm"
    _assert_all_slots_free(passwords, furnace, stored)
    assert furnace.peak == 2


def test_a_frozen_clock_does_not_freeze_the_wait(furnace: Furnace) -> None:
    """Under freezegun a wait still ends, and a slot given back still ends it early."""
    passwords = Passwords.cheapest_for_tests(slots=1, queue=1, wait_s=0.1)
    patient = Passwords.cheapest_for_tests(slots=1, queue=1, wait_s=PATIENCE_S)
    stored = passwords.hash(RIGHT)
    with (
        _all_slots_held(passwords, furnace, stored),
        freeze_time("2026-01-01"),
        pytest.raises(HashingUnavailable, match="in time"),
    ):
        passwords.verify(stored, RIGHT)
    with ThreadPoolExecutor(1) as pool, _all_slots_held(patient, furnace, stored):
        with freeze_time("2026-01-01"):
            waiting = pool.submit(patient.verify, stored, RIGHT)
        _until(lambda: bool(patient._slots._waiting))
        furnace.open.set()
        assert waiting.result(PATIENCE_S) is True


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_all_its_slots(furnace: Furnace) -> None:
    """A child forked while other threads hash and wait owes them nothing: its slots are free."""
    passwords = Passwords.cheapest_for_tests(slots=1, queue=1, wait_s=PATIENCE_S)
    stored = passwords.hash(RIGHT)
    with ThreadPoolExecutor(1) as pool, _all_slots_held(passwords, furnace, stored):
        pool.submit(passwords.verify, stored, RIGHT)
        _until(lambda: bool(passwords._slots._waiting))
        child = os.fork()
        if child == 0:
            slots = passwords._slots
            os._exit(0 if (slots._free, len(slots._waiting)) == (1, 0) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (passwords._slots._free, len(passwords._slots._waiting)) == (0, 1)
    _assert_all_slots_free(passwords, furnace, stored)


def test_slots_are_the_cpus_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a setting the slots follow the affinity of the process, not the machine's cores."""
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "process_cpu_count", lambda: 5, raising=False)
    assert Passwords.cheapest_for_tests().slots == 5
    monkeypatch.delattr(os, "process_cpu_count")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 2, 3}, raising=False)
    assert Passwords.cheapest_for_tests().slots == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert Passwords.cheapest_for_tests().slots == 64
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert Passwords.cheapest_for_tests().slots == 1
    assert Passwords.cheapest_for_tests(slots=7).slots == 7
