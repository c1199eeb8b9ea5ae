"""Work in the background: each job once, bounded in number, and never in the way of an exit."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from freezegun import freeze_time

from authguard import ConfigurationError, Denied
from authguard._outgoing import Outgoing
from authguard.smtp import SmtpNotifier

from .conftest import CODE, SECRETS, SENDER, TO, real_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from authguard import Guard
    from tests.conftest import Clock


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Give what hanging jobs wait for; it opens after the test at the latest."""
    opened = threading.Event()
    yield opened
    opened.set()


def hanging(outgoing: Outgoing, gate: threading.Event, count: int) -> None:
    """Occupy so many threads, and wait until they are."""
    begun = threading.Semaphore(0)

    def hang() -> None:
        begun.release()
        gate.wait(30)

    for _ in range(count):
        assert outgoing.put(hang)
        assert begun.acquire(timeout=10)


def our_threads() -> list[threading.Thread]:
    """List the threads of all queues."""
    return [thread for thread in threading.enumerate() if thread.name == "authguard-outgoing"]


def test_every_job_runs_once() -> None:
    """Jobs put by many threads at once all run, each once; idle threads end."""
    outgoing = Outgoing(threads=4, queue=1000)
    ran: list[int] = []

    def put(first: int) -> None:
        for number in range(first, first + 100):
            assert outgoing.put(lambda number=number: ran.append(number))  # type: ignore[misc]

    putters = [threading.Thread(target=put, args=[first]) for first in range(0, 800, 100)]
    for putter in putters:
        putter.start()
    for putter in putters:
        putter.join()
    assert outgoing.drain(30)
    assert sorted(ran) == list(range(800))
    assert (outgoing.failed, outgoing.unfinished) == (0, 0)
    for thread in our_threads():
        thread.join(10)
    assert our_threads() == []


def test_a_full_queue_says_so_at_once(gate: threading.Event) -> None:
    """With all threads hanging, the queue takes its number and then refuses without a wait."""
    outgoing = Outgoing(threads=2, queue=3)
    ran: list[int] = []
    hanging(outgoing, gate, 2)
    begun = real_s()
    taken = [outgoing.put(lambda: ran.append(1)) for _ in range(6)]
    assert real_s() - begun < 1
    assert taken == [True] * 3 + [False] * 3
    assert len(our_threads()) == 2
    assert outgoing.unfinished == 5
    gate.set()
    assert outgoing.drain(30)
    assert ran == [1] * 3
    assert outgoing.put(lambda: ran.append(2))
    assert outgoing.drain(30)


def test_a_hanging_job_holds_up_no_other(gate: threading.Event) -> None:
    """While one thread hangs the others send."""
    outgoing = Outgoing(threads=2)
    hanging(outgoing, gate, 1)
    done = threading.Event()
    assert outgoing.put(done.set)
    assert done.wait(10)


@pytest.mark.parametrize("kind", [OSError, KeyError, SystemExit, KeyboardInterrupt])
def test_a_job_that_raises_is_named_counted_and_not_run_again(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], kind: type[BaseException]
) -> None:
    """A79, A84, B099: it ran once; the log has the type and nothing of the text; the rest runs."""
    caplog.set_level(logging.DEBUG)
    outgoing = Outgoing(threads=1)
    tries: list[int] = []
    rest = threading.Event()

    def fail() -> None:
        tries.append(1)
        raise kind(" ".join(SECRETS)) from ValueError(TO)

    assert outgoing.put(fail)
    assert outgoing.put(rest.set)
    assert outgoing.drain(30)
    assert rest.is_set()
    assert tries == [1]
    assert outgoing.failed == 1
    assert caplog.messages == [f"a message could not be sent: {kind.__name__}"]
    (record,) = caplog.records
    assert (record.levelno, record.exc_info, record.stack_info) == (logging.ERROR, None, None)
    shown = [caplog.text, repr(record.__dict__), *capfd.readouterr()]
    assert not [secret for secret in SECRETS for text in shown if secret in text]


def test_what_a_failed_job_held_is_let_go() -> None:
    """Neither the queue nor a traceback keeps a message alive once it's done."""

    class Held:
        """Stands for a message."""

    def put() -> weakref.ref[Held]:
        held = Held()

        def fail(held: Held = held) -> None:
            raise OSError(held)

        assert outgoing.put(fail)
        return weakref.ref(held)

    outgoing = Outgoing()
    held = put()
    assert outgoing.drain(30)
    for thread in our_threads():
        thread.join(10)
    gc.collect()
    assert held() is None


def test_drain_waits_for_what_was_put_before(gate: threading.Event) -> None:
    """What was put before is waited for, and time runs out in frozen time, too."""
    outgoing = Outgoing(threads=2)
    assert outgoing.drain(0)
    hanging(outgoing, gate, 1)
    with freeze_time("2020-01-01"):
        begun = real_s()
        assert not outgoing.drain(0.2)
        assert 0.1 < real_s() - begun < 5
        assert not outgoing.drain(-1)
    gate.set()
    again = threading.Event()
    assert outgoing.drain(30)
    hanging(outgoing, again, 1)
    assert not outgoing.drain(0)
    again.set()
    assert outgoing.drain(30)


def test_a_system_without_threads_is_a_full_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread can start the job isn't taken, and nothing waits for ever."""

    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    outgoing = Outgoing()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        assert not outgoing.put(lambda: None)
    assert outgoing.unfinished == 0
    assert outgoing.put(lambda: None)
    assert outgoing.drain(30)


def test_spare_jobs_take_half_the_queue(gate: threading.Event) -> None:
    """What may be left out never takes the last places; what may not has them all."""
    outgoing, ran = Outgoing(threads=1, queue=5), []
    hanging(outgoing, gate, 1)
    assert [outgoing.put(lambda: ran.append("spare"), spare=True) for _ in range(4)] == [
        *(True, True),
        *(False, False),
    ]
    assert [outgoing.put(lambda: ran.append("due")) for _ in range(4)] == [True] * 3 + [False]
    assert not outgoing.put(lambda: ran.append("spare"), spare=True)
    assert outgoing.unfinished == 6
    gate.set()
    assert outgoing.drain(30)
    assert ran == ["spare"] * 2 + ["due"] * 3
    assert outgoing.put(lambda: ran.append("spare"), spare=True)
    assert outgoing.drain(30)


def test_spare_jobs_count_what_is_due(gate: threading.Event) -> None:
    """Half a queue of messages leaves no place for what may be left out."""
    outgoing = Outgoing(threads=1, queue=4)
    hanging(outgoing, gate, 1)
    assert [outgoing.put(lambda: None) for _ in range(2)] == [True] * 2
    assert not outgoing.put(lambda: None, spare=True)
    assert [outgoing.put(lambda: None) for _ in range(3)] == [True, True, False]
    gate.set()
    assert outgoing.drain(30)


def test_a_delayed_job_begins_later_and_is_waited_for() -> None:
    """No job begins before its delay is over, in frozen time too; drain waits for it."""
    outgoing, begun = Outgoing(threads=2, delay_s=0.5), []
    with freeze_time("2020-01-01"):
        put_at = real_s()
        for _ in range(4):
            assert outgoing.put(lambda: begun.append(real_s()))
        assert real_s() - put_at < 0.4  # the one who puts is not made to wait
        assert not outgoing.drain(0.02)
        assert outgoing.drain(30)
    assert len(begun) == 4
    assert min(begun) - put_at >= 0.5
    # Each waits from when it was put, not from when the one before was done.
    assert max(begun) - put_at < 0.95


def test_an_exit_sends_what_is_delayed() -> None:
    """A process that ends within the delay sends all the same."""
    printed, logged, took = run("""
outgoing = Outgoing(threads=1, queue=10, delay_s=0.2)
for _ in range(3): assert outgoing.put(lambda: os.write(1, b"sent\\n"))
""")
    assert (printed, logged) == ("sent\n" * 3, "")
    assert took < 5


@pytest.mark.parametrize(
    ("port", "tls", "mend"), [(465, "starttls", "implicit"), (587, "implicit", "starttls")]
)
def test_a_port_that_speaks_otherwise_is_refused(port: int, tls: Any, mend: str) -> None:
    """B138: AG050 names the TLS that the port speaks: the other would hang until its timeout."""
    with pytest.raises(ConfigurationError, match=r"^AG050 smtp\.tls: ") as caught:
        SmtpNotifier("mail.example.org", port=port, tls=tls, sender=SENDER)
    assert repr(mend) in caught.value.mend
    right: Any = mend
    SmtpNotifier("mail.example.org", port=port, tls=right, sender=SENDER)


@pytest.mark.parametrize("settings", [{"threads": 0}, {"threads": 1.0}, {"queue": 0}])
def test_a_wrong_number_is_named(settings: dict[str, Any]) -> None:
    """AG050 names the number that is none."""
    with pytest.raises(ConfigurationError, match=r"^AG050 outgoing\.(threads|queue): "):
        Outgoing(**settings)


def test_a_provider_that_fails_refunds_nothing(
    guard_factory: Callable[..., Guard], clock: Clock
) -> None:
    """A79, B099: after a send that failed the cooldown runs; then the next one is tried."""
    cooldown = {"name": "cooldown", "by": ["destination"], "sliding_log": "1/60s"}
    guard = guard_factory(policies={"otp.send": {"limits": [cooldown]}}, clock=clock)
    outgoing = Outgoing()
    tries: list[str] = []

    def provider() -> None:
        tries.append(CODE)
        raise ConnectionError(TO)

    def send() -> bool:
        try:
            guard.attempt("otp.send", destination=TO)
        except Denied as denied:
            return denied.retry_after < 0
        return outgoing.put(provider) and outgoing.drain(30)

    assert [send() for _ in range(5)] == [True] + [False] * 4
    clock.advance(60_000)
    assert send()
    assert len(tries) == outgoing.failed == 2


def run(script: str, *, within_s: float = 60) -> tuple[str, str, float]:
    """Run a script in a process of its own; give what it printed, logged, and took."""
    begun = real_s()
    preamble = """
import logging, os, sys, threading, time
logging.basicConfig(format="%(message)s")
from authguard._outgoing import Outgoing
outgoing = Outgoing(threads=2, queue=10)
begun = threading.Event()
def hang():
    begun.set()
    threading.Event().wait()
"""
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", preamble + script],
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout, result.stderr, real_s() - begun


def test_an_exit_waits_for_what_is_queued() -> None:
    """A process that ends first sends what it took, and then ends at once."""
    printed, logged, took = run("""
def slow(): time.sleep(0.2); os.write(1, b"sent\\n")
for _ in range(6): assert outgoing.put(slow)
""")
    assert printed == "sent\n" * 6
    assert logged == ""
    assert took < 5


@pytest.mark.slow
def test_an_exit_does_not_wait_for_a_provider_that_hangs() -> None:
    """A job that hangs delays the end by five seconds at most; what is lost is counted."""
    script = "for _ in range(5): assert outgoing.put(hang)\nbegun.wait()\n"
    _, logged, took = run(script)
    assert 4.5 < took < 9
    assert logged == "the process ended before all was sent; messages lost: 5\n"


def test_a_forked_child_has_a_queue_of_its_own() -> None:
    """A child sends its own jobs, not its parent's, though it was forked from the midst of them."""
    printed, logged, took = run("""
go = threading.Event()
def parents(): begun.set(); go.wait(); os.write(1, b"parent\\n")
for _ in range(12): outgoing.put(parents)
begun.wait()
child = os.fork()
if not child:
    assert outgoing.unfinished == 0 and outgoing.drain(0)
    assert all(outgoing.put(lambda: os.write(1, b"child\\n")) for _ in range(5))
    assert outgoing.drain(20)
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
go.set()
assert outgoing.drain(20)
""")
    assert printed.split() == ["child"] * 5 + ["parent"] * 12
    assert logged == ""
    assert took < 20


def test_forks_from_the_midst_of_work_never_hang() -> None:
    """Whatever the threads were at when a child was forked, the child can send and end."""
    printed, logged, _ = run("""
stop = threading.Event()
def busy():
    while not stop.is_set(): outgoing.put(lambda: None)
putters = [threading.Thread(target=busy) for _ in range(2)]
for putter in putters: putter.start()
for _ in range(40):
    child = os.fork()
    if not child:
        done = threading.Event()
        assert outgoing.put(done.set) and done.wait(20) and outgoing.drain(20)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
for putter in putters: putter.join()
print("never")
""")
    assert printed == "never\n"
    assert logged == ""
