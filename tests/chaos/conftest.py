"""What the chaos suite shares: servers to ill-treat, a crowd to ask them, an audit, and a table."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import pytest

from authguard import Guard
from authguard._subjects import Claims
from tests.chaos.ledger import LIMITS, POLICIES, Key, Ledger, Person
from tests.chaos.load import ADMITTED, REFUSED, UNAVAILABLE, Storm, Tasks, Threads, Workers, person
from tests.conftest import PATIENT_MS, SECRET
from tests.servers import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.chaos.ledger import Book
    from tests.chaos.load import Crowd, Report

    Fault = Callable[[Storm], None]
    Endure = Callable[..., "Outcome"]
    RelayTo = Callable[["Victim"], "Relay"]
    VictimWith = Callable[..., "Victim"]

#: The package's default: what is measured is what is shipped.
DEADLINE_MS: Final = 100

#: A bound for sanity; the table shows the times themselves.
SANE_S: Final = 10.0

#: Who never tries anything, so that nothing may ever be counted of them.
BYSTANDERS: Final = tuple(
    Person("login", f"bystander{number}", f"203.0.113.{number}") for number in range(1, 21)
)

CROWDS: Final[dict[str, Callable[..., Crowd]]] = {
    "threads": Threads,
    "tasks": Tasks,
    "workers": Workers,
}

_ROWS: Final = pytest.StashKey[list[tuple[str, ...]]]()


class Store(Protocol):
    """What is audited when all is calm."""

    @property
    def url(self) -> str:
        """Its address, without anything in between."""

    def all_keys(self) -> Iterable[bytes]:
        """List every key there is."""


class Victim(Server):
    """
    A server that is killed, stopped or filled up; it starts again on the same port.

    Args:
        lines: Lines of its configuration.
    """

    @property
    def url(self) -> str:
        """Its address, as a guard takes it."""
        return f"valkey://{self}/0"

    def _write_configuration(self) -> None:
        self.port = _quiet_port()
        super()._write_configuration()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop it in its tracks, its sockets open, for the length of a block."""
        self.stop()
        try:
            yield
        finally:
            self.cont()

    def all_keys(self) -> Iterable[bytes]:
        """List every key there is."""
        return self.client.scan_iter(count=1000)


def _quiet_port() -> int:
    """
    Find a port that is free and stays so while the server on it is down.

    Below those that the system gives to whoever connects: of thousands of attempts to reach
    a server that is down, one would else come from the server's own port, and reach itself.
    """
    while True:
        with socket.socket() as probe:
            port = random.randrange(20_000, 32_000)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class Relay:
    """The process of relay.py in front of a server."""

    def __init__(self, server: Victim) -> None:
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("relay.py"), str(server.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = f"valkey://127.0.0.1:{self._process.stdout.readline().strip()}/0"

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Let it do something of what relay.py says, for the length of a block."""
        self._say(what)
        yield
        self._say("honest")

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop it: nothing is passed on, and once its queue is full nobody is let in."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def _say(self, what: str) -> None:
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=20)


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    What a scenario came to.

    Attributes:
        report: Every answer.
        books: What really happened, key by key.
        used: What the guard says when all is calm.
        log: What was logged meanwhile.
    """

    report: Report
    books: dict[Key, Book]
    used: dict[Key, int]
    log: str

    def of(self, action: str) -> list[Book]:
        """Give the books of an action's accounts: each attempt stands in one of them."""
        return [
            book
            for key, book in self.books.items()
            if key.action == action and key.kind == "account"
        ]


@pytest.fixture
def victim_with() -> Iterator[Callable[..., Victim]]:
    """Give a way to start servers, with lines of configuration; they end with the test."""
    made: list[Victim] = []

    def start(*, keeps: bool = False, **config: object) -> Victim:
        lines = {name.replace("_", "-"): value for name, value in config.items()}
        if keeps:
            lines |= {"appendonly": "yes", "appendfsync": "always"}
        made.append(Victim(lines))
        return made[-1]

    yield start
    for victim in made:
        victim.remove()


@pytest.fixture
def relay_to() -> Iterator[Callable[[Victim], Relay]]:
    """Give a way to put a relay in front of a server."""
    made: list[Relay] = []

    def start(victim: Victim) -> Relay:
        made.append(Relay(victim))
        return made[-1]

    yield start
    for relay in made:
        relay.close()


@pytest.fixture(params=CROWDS)
def crowd(request: pytest.FixtureRequest) -> str:
    """Ask with threads that share a guard, with tasks that do, and with a site's workers."""
    return str(request.param)


@pytest.fixture
def endure(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    crowd: str,
) -> Endure:
    """Let the crowd ask while a fault happens, audit what was admitted, and note a row."""
    rows = request.config.stash.setdefault(_ROWS, [])

    def run(
        case: str,
        store: Store,
        fault: Fault,
        *,
        url: str | None = None,
        deadline_ms: int = DEADLINE_MS,
        verify_s: float = 0.001,
        plan: Callable[[int], Person] = person,
        loses_s: float = 0.0,
        **options: Any,
    ) -> Outcome:
        ledger = Ledger(tmp_path / "ledger")
        asked: dict[str, Any] = {"deadline_ms": deadline_ms, "verify_s": verify_s}
        make = CROWDS[crowd]
        with make(url or store.url, ledger, **asked, **options) as people:
            report = Storm(people, ledger, plan).run(fault)
            assert report.strangers == []
            assert_told_as_it_was(report, ledger.books())
            assert_decides_rightly(people)
            log = caplog.text + people.log()
        ledger.close()
        books = ledger.books()
        used = read_usage(store.url, books)
        strays = strays_in(store, ledger.people())
        row = Row(
            case,
            people.name,
            report,
            deadline_ms,
            books,
            used,
            strays,
            stuck=log.count("a place it had taken stays counted"),
            forgives=report.admitted_about(loses_s) if loses_s else 0,
        )
        rows.append(row.cells())
        row.judge()
        return Outcome(report, books, used, log)

    return run


def assert_told_as_it_was(report: Report, books: dict[Key, Book]) -> None:
    """Hold what the askers were told against what was written down where they were answered."""
    accounts = [book for key, book in books.items() if key.kind == "account"]
    assert report.outcomes[ADMITTED] == sum(book.begun + book.degraded for book in accounts)
    assert report.outcomes[UNAVAILABLE] == sum(book.unknown for book in accounts)
    assert report.outcomes.total() == sum(book.asked for book in accounts)


def assert_decides_rightly(people: Crowd) -> None:
    """Ask for one fresh account after another until one met no 503: it must be right."""
    answers: list[str] = []
    for number in range(20):
        newcomer = Person("login", f"newcomer{number}", f"198.19.0.{number + 1}")
        answers = [people.asker()(newcomer) for _ in range(LIMITS["account"] + 3)]
        assert answers.count(ADMITTED) <= LIMITS["account"]
        if UNAVAILABLE not in answers:
            break
        time.sleep(0.2)
    assert answers == [ADMITTED] * LIMITS["account"] + [REFUSED] * 3


def read_usage(url: str, books: dict[Key, Book]) -> dict[Key, int]:
    """Ask the guard itself what stands in the log of each key, and of some that nobody tried."""
    with Guard(url, secret=SECRET, policies=POLICIES, deadline_ms=PATIENT_MS) as guard:
        return {
            key: guard.usage(key.action, **{key.kind: key.name})[0].used
            for key in (*books, *bystanders())
        }


def bystanders() -> Iterator[Key]:
    """List the keys of those who never tried anything."""
    for who in BYSTANDERS:
        yield Key(who.action, "account", who.account)
        yield Key(who.action, "client", who.client)


def keys_of(guard: Guard, who: Person) -> set[str]:
    """Name the keys of an attempt."""
    known = guard._subjects.known(guard.policy(who.action), Claims(who.account, who.client))
    shape = guard._shape(who.action, known.subjects)
    bindings = guard._engine.bind(shape, known.pseudonyms).bindings
    return {key for binding in bindings for key in binding.keys}


def strays_in(store: Store, people: set[Person]) -> set[bytes]:
    """Find the keys in the store that belong to nobody who ever tried."""
    with Guard(store.url, secret=SECRET, policies=POLICIES) as guard:
        known = {key.encode() for who in people for key in keys_of(guard, who)}
        known.add(guard._mark._key.encode())  # by which a loss of data is noticed
    return {key for key in store.all_keys() if key.startswith(b"rl:")} - known


@dataclass(frozen=True, slots=True)
class Row:
    """
    A line of the table, and what must hold of it.

    Attributes:
        case: What was done to the store.
        crowd: Who asked.
        report: Every answer.
        deadline_ms: The longest that a decision may take.
        books: What really happened.
        used: What the guard says.
        strays: Keys in the store that are nobody's.
        stuck: Places of refused attempts that could not be given back, as the log says; on
            a cluster alone.
        forgives: How many charges and successes the fault itself may have lost; 0: it loses none.
    """

    case: str
    crowd: str
    report: Report = field(repr=False)
    deadline_ms: int
    books: dict[Key, Book] = field(repr=False)
    used: dict[Key, int] = field(repr=False)
    strays: set[bytes]
    stuck: int
    forgives: int

    @property
    def over(self) -> int:
        """Verifications that no limit would have admitted."""
        return sum(book.over for book in self.books.values())

    @property
    def wrong(self) -> int:
        """Charges on those who never tried, and what is more than one charge for an attempt."""
        strange = len(self.strays) + sum(self.used[key] for key in bystanders())
        return strange + (0 if self.forgives else self._excess)

    @property
    def lost(self) -> int:
        """Verifications that nothing in the store tells of; and successes, if some may be lost."""
        missing = sum(
            max(0, book.taken - self.used[key])
            for key, book in self.books.items()
            if book.lives == 1
        )
        return missing + (self._excess if self.forgives else 0)

    @property
    def _excess(self) -> int:
        # One that ended without a verdict may have been charged, or not.
        excess = sum(
            max(0, self.used[key] - book.taken - book.uncertain) for key, book in self.books.items()
        )
        return max(0, excess - self.stuck)

    def cells(self) -> tuple[str, ...]:
        """Write it down."""
        outcomes = self.report.outcomes
        return (
            self.case,
            self.crowd,
            str(outcomes.total()),
            *(str(outcomes[each]) for each in (ADMITTED, REFUSED, UNAVAILABLE)),
            str(max(book.lives for book in self.books.values())),
            *(str(each) for each in (self.over, self.wrong, self.lost)),
            f"{self.report.slowest_s * 1000:.0f}",
            str(self.deadline_ms),
            f"{self.report.normal_after_s * 1000:.0f}",
        )

    def judge(self) -> None:
        """Hold it to the promises; of the times only that they are no hang."""
        assert self.wrong == 0
        # Each attempt counts on two keys.
        assert self.over <= 2 * self.forgives
        assert self.lost <= 2 * self.forgives
        for key, book in self.books.items():
            assert not book.degraded or POLICIES[key.action]["outage"] == "allow"
        assert self.report.outcomes[REFUSED] > 0, "no limit was ever reached"
        assert self.report.slowest_s < SANE_S
        assert self.report.normal_after_s < SANE_S


HEADS: Final = (
    *("scenario", "asked by", "attempts", "admitted", "refused", "503", "lives", "over-admitted"),
    *("wrongly charged", "lost", "slowest ms", "deadline ms", "normal after ms"),
)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print what was counted while the store failed; of the times none is judged."""
    rows = config.stash.get(_ROWS, [])
    if not rows:
        return
    terminalreporter.section("chaos: what was counted while the store failed")
    widths = [max(map(len, column)) for column in zip(HEADS, *rows, strict=True)]
    for row in (HEADS, *rows):
        cells = [
            cell.ljust(width) if number < 2 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        terminalreporter.line("  ".join(cells).rstrip())
