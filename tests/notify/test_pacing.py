"""Messages paced by a leaky bucket: each leaves at its turn, and keeps nobody else waiting."""

from __future__ import annotations

import os
import threading
import time
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from flask import Flask
from freezegun import freeze_time

from authguard import Passwords
from authguard._outgoing import Later, Outgoing, Timer
from authguard.flask import AuthGuard, signals
from authguard.flask.state import state_of
from authguard.smtp import SmtpNotifier
from tests.flask.conftest import SECRET, People, Person

from .conftest import SENDER, Inbox, real_s
from .test_flows_over_smtp import LateServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from freezegun.api import FrozenDateTimeFactory
    from werkzeug.test import TestResponse

    from authguard.guard import Attempt
    from authguard.notify import Message

#: Mail at ten a second; what else a request could meet is wide.
PACE = {"name": "pace", "by": ["global"], "channel": "email", "leaky_bucket": "10/1s", "queue": 50}
CLIENT = {"name": "client", "by": ["client"], "sliding_log": "1000/1h"}


def sends(*limits: dict[str, Any]) -> dict[str, Any]:
    """Give a policy for codes, and a wide one for what else is asked for."""
    return {
        "otp": {
            "send": {"limits": [*limits, CLIENT]},
            "verify": {"limits": [CLIENT]},
        },
        "password": {"forgot": {"limits": [CLIENT]}},
    }


EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - as freezegun's, which are UTC and don't say so


class FrozenTimer(Timer):
    """Time that stands, and jumps from one job's begin to the next as far as a test lets it."""

    def __init__(self, frozen: FrozenDateTimeFactory) -> None:
        self._frozen = frozen
        self.limit_ms = self.now_ms()
        self.rests = threading.Event()

    def now_ms(self) -> int:
        """Read it; of freezegun itself, which gives threads the real time."""
        return round((self._frozen() - EPOCH) / timedelta(milliseconds=1))

    def now_s(self) -> float:
        """Read it, in seconds."""
        return (self._frozen() - EPOCH) / timedelta(seconds=1)

    def wait(self, changed: threading.Condition, longest_s: float) -> None:
        """Jump to when the next job begins; wait really if the test hasn't come so far."""
        step_ms = -int(-longest_s * 1000 // 1)
        if self.now_ms() + step_ms <= self.limit_ms:
            self._frozen.tick(timedelta(milliseconds=max(1, step_ms)))
        else:
            self.rests.set()
            changed.wait(0.005)

    def run_to(self, ms: int) -> None:
        """Let time go on to a moment, past everything that is due before; then it stands again."""
        self.limit_ms = ms
        self.rests.clear()
        assert self.rests.wait(30)
        self._frozen.tick(timedelta(milliseconds=ms - self.now_ms()))

    def run(self) -> None:
        """Let time go on as far as there is anything to do."""
        self.limit_ms += 10**9


class Left:
    """A notifier that keeps when each message left; fails on demand."""

    def __init__(self, timer: FrozenTimer) -> None:
        self._timer = timer
        self.at: list[tuple[int, Message]] = []
        self.failure: Exception | None = None

    def send(self, message: Message) -> None:
        """Keep it."""
        self.at.append((self._timer.now_ms(), message))
        if self.failure is not None:
            raise self.failure

    def times(self, kind: str = "code") -> list[int]:
        """Give when those of one kind left."""
        return [at_ms for at_ms, message in self.at if message.kind == kind]


class Paced:
    """An app that sends codes by mail, and when each message was due."""

    def __init__(self, url: str, policy: dict[str, Any], notifier: Any, clock: Any = None) -> None:
        self.app = Flask(__name__)
        self.app.config.update(
            TESTING=True,
            SECRET_KEY="of the session",
            AUTHGUARD_STORE_URL=url,
            AUTHGUARD_SECRET=SECRET,
            AUTHGUARD_POLICY=policy,
            AUTHGUARD_DEADLINE_MS=10_000,
            AUTHGUARD_BASE_URL="http://app.example",
        )
        self.auth = AuthGuard(self.app, clock=clock)
        self.state: Any = state_of(self.app)
        self.state.passwords = Passwords.cheapest_for_tests()
        self.people = People(self.state.passwords)
        self.app.register_blueprint(
            self.auth.blueprint(accounts=self.people, notifier=notifier, channels=("email",)),
            url_prefix="/auth",
        )
        self.due: list[tuple[float, Attempt]] = []  # when it was asked, and what was answered
        self.withheld: list[tuple[str, ...]] = []
        self.failed: list[str] = []
        signals.send_withheld.connect(self._hear_withheld, self.app)
        signals.send_failed.connect(self._hear_failed, self.app)
        message = self.state.guard.message

        def noted(*args: Any, **how: Any) -> Attempt:
            asked_s = real_s()
            attempt: Attempt = message(*args, **how)
            self.due.append((asked_s, attempt))
            return attempt

        self.state.guard.message = noted

    def _hear_withheld(self, _app: Flask, **payload: Any) -> None:
        self.withheld.append(payload["reasons"])

    def _hear_failed(self, _app: Flask, **payload: Any) -> None:
        self.failed.append(payload["reason"])

    @property
    def due_ms(self) -> list[int]:
        """When each message's turn is, as the store's answer says."""
        decisions = [attempt.decision for _, attempt in self.due]
        return [decision.now_ms + decision.delay_ms for decision in decisions]

    def use(self, outgoing: Outgoing) -> Outgoing:
        """Have another queue run the jobs."""
        self.state.messaging.outbound._outgoing = outgoing
        return outgoing

    def post(self, path: str, **fields: str) -> TestResponse:
        """Send fields by JSON, from a browser without cookies."""
        return self.app.test_client().post(f"/auth{path}", json=fields)

    def ask(self, count: int) -> list[str]:
        """Ask for so many codes, each for another account; give their challenges."""
        challenges = []
        for _ in range(count):
            number = 100 + len(self.people.by_key)
            self.people.by_key[f"key-{number}"] = Person(f"key-{number}", f"user-{number}", None)
            answer = self.post("/otp/send", identifier=f"user-{number}", channel="email")
            assert answer.status_code == 202
            challenges.append(answer.get_json()["challenge"])
        return challenges

    def drain(self, timeout_s: float = 30) -> bool:
        """Tell whether all messages are through."""
        with self.app.app_context():
            return self.auth.drain_messages(timeout_s)

    def until_due(self, count: int) -> None:
        """Wait until so many messages have been given their turn."""
        ends_s = real_s() + 30
        while len(self.due) < count:
            assert real_s() < ends_s
            time.sleep(0.002)


@pytest.fixture
def frozen() -> Iterator[FrozenDateTimeFactory]:
    """Freeze time."""
    with freeze_time("2031-05-06T07:08:09.123Z") as factory:
        yield factory


@pytest.fixture
def timer(frozen: FrozenDateTimeFactory) -> FrozenTimer:
    """Give what moves it."""
    return FrozenTimer(frozen)


@pytest.fixture
def left(timer: FrozenTimer) -> Left:
    """Give what sees messages leave."""
    return Left(timer)


@pytest.fixture
def paced_by(
    valkey_url: str, timer: FrozenTimer, left: Left
) -> Iterator[Callable[[dict[str, Any]], Paced]]:
    """Make a site in frozen time; a single thread of it sends."""
    made: list[Paced] = []

    def make(policy: dict[str, Any]) -> Paced:
        site = Paced(valkey_url, policy, left, clock=timer.now_ms)
        site.use(Outgoing(threads=1, timer=timer))
        made.append(site)
        return site

    yield make
    timer.run()
    for site in made:
        assert site.drain()
        site.state.guard.close()


def test_messages_leave_within_a_millisecond_of_their_turns(
    paced_by: Callable[..., Paced], timer: FrozenTimer, left: Left
) -> None:
    """On the frozen clock each leaves within 1 ms of the moment the bucket gave it."""
    site, begun_ms = paced_by(sends(PACE)), timer.now_ms()
    site.ask(6)
    site.until_due(6)
    timer.run_to(begun_ms + 250)
    assert left.times() == [begun_ms, begun_ms + 100, begun_ms + 200]
    site.ask(6)  # asked for in the midst of a turn, they join the queue at its end
    site.until_due(12)
    assert site.due_ms == [begun_ms + 100 * turn for turn in range(12)]
    timer.run()
    assert site.drain()
    assert len(left.times()) == 12
    late = [at_ms - due_ms for at_ms, due_ms in zip(left.times(), site.due_ms, strict=True)]
    assert all(0 <= ms <= 1 for ms in late), late
    assert site.withheld == site.failed == []


def test_a_rate_that_is_no_whole_number_of_milliseconds(
    paced_by: Callable[..., Paced], timer: FrozenTimer, left: Left
) -> None:
    """Three a second leave at thirds of a second, rounded up: no turn drifts from the rate."""
    site = paced_by(sends(PACE | {"leaky_bucket": "3/1s"}))
    begun_ms = timer.now_ms()
    site.ask(31)
    timer.run()
    assert site.drain()
    turns = [begun_ms + -(-1000 * turn // 3) for turn in range(31)]
    assert site.due_ms == turns
    assert all(0 <= at - due <= 1 for at, due in zip(left.times(), turns, strict=True))


def test_who_waits_for_a_turn_keeps_no_thread(
    paced_by: Callable[..., Paced], timer: FrozenTimer, left: Left
) -> None:
    """With one thread and nine codes waiting, every link is mailed before the next code's turn."""
    site, begun_ms = paced_by(sends(PACE)), timer.now_ms()
    site.ask(10)
    site.until_due(10)
    for who in ("vera", "omar", "tess"):
        assert site.post("/password/forgot", identifier=who).status_code == 202
    ends_s = real_s() + 30
    while len(left.times("reset")) < 3:
        assert real_s() < ends_s
        time.sleep(0.002)
    assert left.times("reset") == [begun_ms] * 3
    assert left.times() == [begun_ms]
    assert not site.drain(0.05)  # drain waits for the paced ones, too
    threads = [each for each in threading.enumerate() if each.name == "authguard-outgoing"]
    assert len(threads) == 1
    timer.run()
    assert site.drain()
    assert len(left.times()) == 10


def test_a_full_bucket_withholds(
    paced_by: Callable[..., Paced], timer: FrozenTimer, left: Left
) -> None:
    """What the bucket's queue has no place for is withheld at once; what has a turn keeps it."""
    site = paced_by(sends(PACE | {"queue": 3}))
    site.ask(6)  # one leaves at once, three wait
    timer.run()
    assert site.drain()
    assert len(left.times()) == 4
    assert site.withheld == [("pace",)] * 2


def test_each_destination_has_turns_of_its_own(
    paced_by: Callable[..., Paced], timer: FrozenTimer, left: Left
) -> None:
    """Links to one inbox are a minute apart, and another's wait for none of them."""
    own = {"name": "own", "by": ["destination"], "leaky_bucket": "1/1m", "queue": 5}
    site = paced_by({"password": {"forgot": {"limits": [own, CLIENT]}}})
    begun_ms = timer.now_ms()
    for who in ("vera", "vera", "omar"):
        assert site.post("/password/forgot", identifier=who).status_code == 202
    timer.run()
    assert site.drain()
    assert [(at_ms - begun_ms, message.to) for at_ms, message in left.at] == [
        (0, "vera@example.test"),
        (0, "omar@example.test"),
        (60_000, "vera@example.test"),
    ]


def test_a_paced_message_that_fails_is_void(
    paced_by: Callable[..., Paced], timer: FrozenTimer, left: Left
) -> None:
    """Refused at its turn, the message is told of, and its code opens nothing; others go on."""
    site = paced_by(sends(PACE))
    first, second = site.ask(2)
    site.until_due(2)
    timer.run_to(timer.now_ms() + 50)
    left.failure = OSError("user-106@example.test")
    timer.run()
    assert site.drain()
    assert site.failed == ["OSError"]
    codes = [str(message.code) for _, message in left.at]
    verified = [
        site.post("/otp/verify", challenge=challenge, code=code).status_code
        for challenge, code in zip((first, second), codes, strict=True)
    ]
    assert verified == [200, 401]


def test_a_turn_is_never_refused_a_place(timer: FrozenTimer) -> None:
    """Those that wait for a turn neither fill the queue for others nor lose their own place."""
    outgoing = Outgoing(threads=1, queue=2, timer=timer)
    ran: list[str] = []
    begun_s = timer.now_s()

    def paced(number: int) -> Later:
        ran.append(f"given {number}")
        return Later(begun_s + 10 - number, lambda: ran.append(f"turn {number}"))

    for number in range(5):
        ends_s = real_s() + 10
        while not outgoing.put(lambda number=number: paced(number)):  # type: ignore[misc]
            assert real_s() < ends_s
    ends_s = real_s() + 10
    while len(ran) < 5:
        assert real_s() < ends_s
    assert outgoing.unfinished == 5
    done = threading.Event()
    assert outgoing.put(done.set)
    assert done.wait(10)
    timer.run()
    assert outgoing.drain(30)
    assert ran == [f"given {number}" for number in range(5)] + [
        f"turn {number}" for number in (4, 3, 2, 1, 0)
    ]
    assert outgoing.unfinished == 0


def test_no_thread_but_one_waits_and_jobs_still_run_side_by_side() -> None:
    """In real time: a rest begins at its time while hanging jobs hold the other threads."""
    outgoing = Outgoing(threads=3)
    gate, at_s = threading.Event(), []
    try:
        due_s = outgoing.now_s() + 0.4
        for wait_s in (0.0, 0.1, 0.2):
            later = Later(due_s + wait_s, lambda: at_s.append(outgoing.now_s()))
            assert outgoing.put(lambda later=later: later)
        for _ in range(2):
            assert outgoing.put(lambda: gate.wait(30))
        time.sleep(0.1)
        named = [each for each in threading.enumerate() if each.name == "authguard-outgoing"]
        assert len(named) == 3
        assert not outgoing.drain(0.1)
        ends_s = real_s() + 20
        while len(at_s) < 3:
            assert real_s() < ends_s
            time.sleep(0.005)
    finally:
        gate.set()
    assert outgoing.drain(30)
    late = [at - (due_s + wait_s) for at, wait_s in zip(at_s, (0.0, 0.1, 0.2), strict=True)]
    assert all(0 <= each < 2 for each in late), late


def test_a_forked_child_leaves_the_turns_to_its_parent(timer: FrozenTimer) -> None:
    """What waits for its turn when a child is forked leaves once, from the parent."""
    outgoing = Outgoing(threads=1, timer=timer)
    reads, writes = os.pipe()
    given = threading.Event()

    def paced() -> Later:
        given.set()
        return Later(timer.now_s() + 5, lambda: os.write(writes, b"x"))

    assert outgoing.put(paced)
    assert given.wait(10)
    child = os.fork()
    if not child:
        timer.run()
        os._exit(not (outgoing.unfinished == 0 and outgoing.drain(0)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    timer.run()
    assert outgoing.drain(30)
    os.close(writes)
    with os.fdopen(reads, "rb") as written:
        assert written.read() == b"x"


class Arrivals(Inbox):
    """A real server's mailbox that keeps when each mail came."""

    def __init__(self) -> None:
        super().__init__()
        self.at_s: list[float] = []

    async def handle_DATA(self, *about: Any) -> str:  # noqa: N802 - the library's name
        """Take a mail."""
        self.at_s.append(real_s())
        return await super().handle_DATA(*about)


@pytest.fixture
def arrivals() -> Iterator[Arrivals]:
    """Run a real server."""
    inbox = Arrivals()
    server = LateServer(inbox)
    server.start()
    yield inbox
    server.end()


def test_mails_do_not_bunch_at_a_real_server(valkey_url: str, arrivals: Arrivals) -> None:
    """In real time, 20 codes asked for at once reach the server at 25 a second, none too early."""
    notifier = SmtpNotifier("127.0.0.1", arrivals.port, sender=SENDER, tls="none", timeout_s=20)
    site = Paced(valkey_url, sends(PACE | {"leaky_bucket": "25/1s"}), notifier)
    try:
        site.ask(20)
        assert site.drain(60)
        assert len(arrivals.mails) == len(site.due) == 20
        delays = [attempt.decision.delay_ms for _, attempt in site.due]
        earliest = sorted(
            asked_s + attempt.decision.delay_ms / 1000 for asked_s, attempt in site.due
        )
        assert max(delays) > 300
        assert [at >= due for at, due in zip(arrivals.at_s, earliest, strict=True)] == [True] * 20
        # A busy machine may hold one up, and the next one then comes sooner after it.
        gaps = sorted(after - before for before, after in pairwise(arrivals.at_s))
        assert 0.02 < gaps[9] < 0.2
        turns = sorted(
            attempt.decision.now_ms + attempt.decision.delay_ms for _, attempt in site.due
        )
        assert min(after - before for before, after in pairwise(turns)) >= 40 - 1
    finally:
        assert site.drain(60)
        site.state.guard.close()
