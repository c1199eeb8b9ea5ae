"""A crowd at the door: sixteen askers without a pause, while something is done to the store."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self, TypeVar

from authguard import AsyncGuard, Denied, Guard, StoreUnavailable
from tests.chaos.ledger import POLICIES, Person
from tests.conftest import SECRET

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.chaos.ledger import Ledger

    Ask = Callable[[Person], str]

__all__ = [
    "ADMITTED",
    "REFUSED",
    "UNAVAILABLE",
    "Crowd",
    "Storm",
    "Tasks",
    "Threads",
    "Workers",
    "person",
]

T = TypeVar("T")

ADMITTED, REFUSED, UNAVAILABLE = "admitted", "refused", "503"

ASKERS: Final = 16

#: Attempts before the fault, after it, and in all.
BEFORE, AFTER, AT_LEAST = 600, 800, 2_000

#: A bound for sanity: within it the fault is over and the crowd is through.
PATIENCE_S: Final = 60.0

#: How long somebody who was told 503 waits; else an outage would be asked a million times.
PAUSE_S: Final = 0.02

#: So many answers in a row without a 503, and all is normal again.
NORMAL: Final = 100

ROOT: Final = Path(__file__).parents[2]


def person(number: int) -> Person:
    """
    Tell who comes as the so-manyeth.

    New accounts come all the time, each tried a dozen times from two clients, so that at any moment
    some logs are empty, some half full and some full. The third try is right. Every fourth is
    a look back at somebody earlier, whose log must still be as full as it was.
    """
    right = number % 12 == 2
    if number % 4 == 3:
        number = random.Random(number).randrange(number)
    client = number // 120 * 2 + number % 2
    return Person(
        "login", f"user{number // 12}", f"198.18.{client // 250}.{client % 250 + 1}", right
    )


class Crowd(Protocol):
    """Somebody who answers: threads on one guard, or a site with workers."""

    name: str

    def asker(self) -> Ask:
        """Give a way to ask; each thread has its own."""

    def log(self) -> str:
        """Give what was logged so far, by other processes than this one."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Threads:
    """Sixteen threads of this process on one guard."""

    name = "16 threads"

    def __init__(self, url: str, ledger: Ledger, *, deadline_ms: int, verify_s: float) -> None:
        self._guard = Guard(url, secret=SECRET, policies=POLICIES, deadline_ms=deadline_ms)
        self._ledger = ledger
        self._verify_s = verify_s

    def asker(self) -> Ask:
        """Share the guard."""
        return self._ask

    def _ask(self, who: Person) -> str:
        write = self._ledger.write
        write("asked", who)
        try:
            attempt = self._guard.attempt(who.action, account=who.account, client=who.client)
        except Denied:
            return REFUSED
        except StoreUnavailable:
            write("unknown", who)
            return UNAVAILABLE
        if attempt.decision.degraded:
            write("degraded", who)
            return ADMITTED
        with attempt:
            write("begun", who)
            time.sleep(self._verify_s)
            if who.right:
                write("proved", who)
                attempt.succeed()
                if not attempt.settled:
                    write("unsettled", who)
        return ADMITTED

    def log(self) -> str:
        """Nothing of its own: pytest has it."""
        return ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._guard.close()


class Tasks:
    """Sixteen tasks of one event loop on one asynchronous guard."""

    name = "16 tasks"

    def __init__(self, url: str, ledger: Ledger, *, deadline_ms: int, verify_s: float) -> None:
        self._guard = AsyncGuard(url, secret=SECRET, policies=POLICIES, deadline_ms=deadline_ms)
        self._ledger = ledger
        self._verify_s = verify_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def asker(self) -> Ask:
        """Share the loop, and wait outside of it."""
        return lambda who: self._run(self._ask(who))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    async def _ask(self, who: Person) -> str:
        write = self._ledger.write
        write("asked", who)
        try:
            attempt = await self._guard.attempt(who.action, account=who.account, client=who.client)
        except Denied:
            return REFUSED
        except StoreUnavailable:
            write("unknown", who)
            return UNAVAILABLE
        if attempt.decision.degraded:
            write("degraded", who)
            return ADMITTED
        async with attempt:
            write("begun", who)
            await asyncio.sleep(self._verify_s)
            if who.right:
                write("proved", who)
                await attempt.succeed()
                if not attempt.settled:
                    write("unsettled", who)
        return ADMITTED

    def log(self) -> str:
        """Nothing of its own: pytest has it."""
        return ""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._guard.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Workers:
    """Four gunicorn workers of four threads each, asked over sixteen connections."""

    def __init__(
        self,
        url: str,
        ledger: Ledger,
        *,
        deadline_ms: int,
        verify_s: float,
        preload: bool = True,
    ) -> None:
        self.name = "4 workers, preloaded" if preload else "4 workers"
        settings = {
            "url": url,
            "ledger": str(ledger.path),
            "secret": SECRET,
            "deadline_ms": deadline_ms,
            "verify_s": verify_s,
        }
        self._settings = json.dumps(settings)
        self._preload = ["--preload"] if preload else []
        self._log = ledger.path.with_name("site.log")

    def __enter__(self) -> Self:
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._port = int(listener.getsockname()[1])
        self._connections: list[http.client.HTTPConnection] = []
        with self._log.open("wb") as log, listener:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "gunicorn", "tests.chaos.site:app", *self._preload),
                    *("--bind", f"fd://{listener.fileno()}", "--worker-class", "gthread"),
                    *("--workers", "4", "--threads", "4", "--keep-alive", "120"),
                    "--no-control-socket",
                ],
                cwd=ROOT,
                env={**os.environ, "CHAOS": self._settings, "PYTHONPATH": str(ROOT)},
                pass_fds=[listener.fileno()],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            self._wait_for_all()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait_for_all(self) -> None:
        last = time.monotonic() + PATIENCE_S
        answered: set[int] = set()
        while len(answered) < 4:  # each new connection may find another one
            assert time.monotonic() < last, self.log()
            assert self._process.poll() is None, self.log()
            answered.add(self._some_worker())

    def _some_worker(self) -> int:
        """Ask whoever is free who he is."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S)
        connection.request("GET", "/", headers={"Connection": "close"})
        pid: int = json.load(connection.getresponse())["pid"]
        connection.close()
        return pid

    def asker(self) -> Ask:
        """Open a connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S)
        self._connections.append(connection)

        def ask(who: Person) -> str:
            connection.request(
                "POST",
                f"/{who.action}",
                json.dumps({"account": who.account, "right": who.right}),
                {
                    "Content-Type": "application/json",
                    "Accept": "application/json",
                    "X-Forwarded-For": who.client,
                },
            )
            with connection.getresponse() as response:
                response.read()
                status = response.status
            admitted = 200 if who.right else 401
            return {admitted: ADMITTED, 429: REFUSED, 503: UNAVAILABLE}[status]

        return ask

    def log(self) -> str:
        """Give the site's log."""
        return self._log.read_text()

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise


class Answer(NamedTuple):
    """One answer: when it was asked for and came, in seconds, and what it was."""

    begun_s: float
    ended_s: float
    outcome: str


@dataclass(frozen=True, slots=True)
class Report:
    """
    How a storm went.

    Attributes:
        answers: All of them, in the order in which they came.
        began_s: When the fault began.
        lifted_s: When all that was to be done to the store was done.
        strangers: What was answered or raised that is neither admitted, refused nor 503.
    """

    answers: list[Answer]
    began_s: float
    lifted_s: float
    strangers: list[BaseException]

    @property
    def outcomes(self) -> Counter[str]:
        """How often each answer was given."""
        return Counter(answer.outcome for answer in self.answers)

    @property
    def slowest_s(self) -> float:
        """The longest wait for an answer."""
        return max(answer.ended_s - answer.begun_s for answer in self.answers)

    @property
    def normal_after_s(self) -> float:
        """From the end of the fault to the first of a hundred answers in a row without a 503."""
        since, in_a_row = self.lifted_s, 0
        for answer in self.answers:
            if answer.ended_s <= self.lifted_s:
                continue
            in_a_row += 1
            if answer.outcome == UNAVAILABLE:
                since, in_a_row = answer.ended_s, 0
            elif in_a_row == NORMAL:
                break
        return since - self.lifted_s

    def admitted_about(self, before_s: float) -> int:
        """Count who was admitted from so long before the fault until all was normal again."""
        first_s, last_s = self.began_s - before_s, self.lifted_s + self.normal_after_s
        return sum(
            answer.outcome == ADMITTED and first_s <= answer.ended_s <= last_s
            for answer in self.answers
        )


class Storm:
    """
    Sixteen askers, and a fault in their midst.

    Args:
        crowd: Who answers them.
        ledger: Where losses of data are written down.
        plan: Tells who comes as the so-manyeth.
    """

    def __init__(self, crowd: Crowd, ledger: Ledger, plan: Callable[[int], Person]) -> None:
        self._crowd = crowd
        self._ledger = ledger
        self._plan = plan
        self._numbers = count()
        self._over = threading.Event()
        self._answers: list[Answer] = []
        self._strangers: list[BaseException] = []

    def more(self, number: int) -> None:
        """Wait until so many more answers were given."""
        wanted = len(self._answers) + number
        self._until(lambda: len(self._answers) >= wanted)

    def coming(self, first: int, last: int) -> list[Person]:
        """Tell who comes next but so many, up to next but so many."""
        now = len(self._answers)
        return [self._plan(number) for number in range(now + first, now + last)]

    def lost(self) -> None:
        """Write down that the store has lost its data."""
        self._ledger.write("lost")

    def run(self, fault: Callable[[Storm], None]) -> Report:
        """Let them ask, do it to the store, and let them ask on until all is calm."""
        threads = [threading.Thread(target=self._ask) for _ in range(ASKERS)]
        for thread in threads:
            thread.start()
        try:
            self.more(BEFORE)
            began_s = time.monotonic()
            fault(self)
            lifted_s = time.monotonic()
            told = len(self._answers)
            self._until(lambda: len(self._answers) >= AT_LEAST and self._decided(told) >= AFTER)
        finally:
            self._over.set()
            for thread in threads:
                thread.join()
        return Report(self._answers, began_s, lifted_s, self._strangers)

    def _decided(self, since: int) -> int:
        return sum(answer.outcome != UNAVAILABLE for answer in self._answers[since:])

    def _until(self, true: Callable[[], bool]) -> None:
        last = time.monotonic() + PATIENCE_S
        while not true():
            assert not self._strangers, (self._strangers, self._crowd.log())
            assert time.monotonic() < last, Counter(answer.outcome for answer in self._answers)
            time.sleep(0.01)

    def _ask(self) -> None:
        try:
            ask = self._crowd.asker()
            while not self._over.is_set():
                who = self._plan(next(self._numbers))
                begun_s = time.monotonic()
                outcome = ask(who)
                self._answers.append(Answer(begun_s, time.monotonic(), outcome))
                if outcome == UNAVAILABLE:
                    self._over.wait(PAUSE_S)
        except BaseException as error:  # noqa: BLE001 (whatever it is, the test must show it)
            self._strangers.append(error)
