"""
The same work for everyone: hashes, store commands and sends are counted, times only printed.

Each try is of a name and an address that were not there before, on the default profile, with the
real store and argon2id at its real cost. A time can only be looked at: no assertion reads a clock.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, replace
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import pytest
from argon2 import PasswordHasher

from authguard import Passwords
from authguard.flask import AuthGuard
from authguard.flask.state import state_of
from tests.flask.conftest import MESSAGES, Outbox, People, Person

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    import valkey
    from flask import Flask
    from werkzeug.test import TestResponse

    from authguard.flask.state import State

    #: A path, and the fields beside the name for each kind of account.
    Asked: TypeAlias = tuple[str, dict[str, dict[str, str]]]

PASSWORD = "correct horse of everybody"
EMAIL = {"channel": "email"}


def parameters(encoded: str) -> str:
    """Give what an encoded hash says before its salt."""
    return encoded.rsplit("$", 2)[0]


@dataclass(frozen=True)
class Work:
    """
    What one request cost.

    Attributes:
        status: How it was answered.
        hashes: Kind and parameters of each argon2 hash that was computed.
        commands: How often the store ran each command.
        jobs: What was put into the queue of messages.
        took_ms: How long the answer took.
    """

    status: int
    hashes: tuple[str, ...]
    commands: Counter[str]
    jobs: int
    took_ms: float


class Crowd(People):
    """Accounts that are found by name in one step, so that looking for nobody costs the same."""

    def __init__(self) -> None:
        super().__init__(Passwords.cheapest_for_tests())
        self.by_key.clear()
        self.by_name: dict[str, Person] = {}
        self.stored = Passwords().hash(PASSWORD)

    def find(self, identifier: str) -> Person | None:
        """Look a name up."""
        return self.by_name.get(identifier)

    def join(self, kind: str, name: str) -> None:
        """Make a name what its kind says; "nobody" has no account."""
        person = Person(f"key of {name}", name, self.stored, phone="+14155550101")
        if kind != "nobody":
            people = {
                "known": person,
                "disabled": replace(person, active=False),
                "no password": replace(person, password_hash=None),
                "second factor": replace(person, second_factor=True),
            }
            self.by_key[person.key] = self.by_name[name] = people[kind]


class Bench:
    """An app on the default profile, and the cost of each request to it."""

    def __init__(self, app: Flask, store: valkey.Valkey, hashes: list[str]) -> None:
        self._app = app
        self._store = store
        self._hashes = hashes
        self.auth = AuthGuard(app)
        self.crowd = Crowd()
        self.outbox = Outbox()
        blueprint = self.auth.blueprint(accounts=self.crowd, notifier=self.outbox, **MESSAGES)
        app.register_blueprint(blueprint, url_prefix="/auth")
        self._names = iter(range(100_000))

    @property
    def state(self) -> State:
        """What the extension keeps."""
        state = state_of(self._app)
        assert state is not None
        return state

    @property
    def outgoing(self) -> Any:
        """The queue of messages."""
        assert self.state.messaging is not None
        return self.state.messaging.outbound._outgoing

    def drain(self) -> None:
        """Wait until nothing is on its way."""
        with self._app.app_context():
            assert self.auth.drain_messages(timeout_s=60)

    def newcomer(self, kind: str) -> str:
        """Give a name of some kind that nobody has asked for yet; all are of one length."""
        name = f"name-{next(self._names):05}"
        self.crowd.join(kind, name)
        return name

    def ask(self, path: str, **fields: str) -> Work:
        """Send one request from an address of a network that has sent none yet."""
        number = next(self._names)
        browser = self._app.test_client()
        browser.environ_base["REMOTE_ADDR"] = f"10.{number // 256}.{number % 256}.1"
        hashes, jobs, commands = len(self._hashes), self.outgoing.unfinished, self._commands()
        begun = time.perf_counter()
        answer: TestResponse = browser.post(f"/auth{path}", json=fields)
        took_ms = (time.perf_counter() - begun) * 1000
        return Work(
            answer.status_code,
            tuple(self._hashes[hashes:]),
            self._commands() - commands,
            self.outgoing.unfinished - jobs,
            took_ms,
        )

    def _commands(self) -> Counter[str]:
        told: Any = self._store.info("commandstats")
        return Counter({name: each["calls"] for name, each in told.items() if "info" not in name})


@pytest.fixture
def bench(
    bare_app: Flask, client: valkey.Valkey, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    """Give an app whose hashes are counted where argon2 computes them."""
    hashes: list[str] = []
    verify = PasswordHasher.verify

    def counted(hasher: PasswordHasher, encoded: str, password: bytes) -> bool:
        hashes.append(parameters(encoded))
        return verify(hasher, encoded, password)

    monkeypatch.setattr(PasswordHasher, "verify", counted)
    bare_app.config["AUTHGUARD_POLICY"] = None
    bench = Bench(bare_app, client, hashes)
    yield bench
    bench.drain()
    bench.state.guard.close()


@pytest.fixture
def held(bench: Bench) -> Iterator[threading.Event]:
    """Hold back what is put into the queue until the event is set."""
    gate, begun = threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        begun.release()
        gate.wait(60)

    for _ in range(4):
        assert bench.outgoing.put(hang)
        assert begun.acquire(timeout=30)
    yield gate
    gate.set()


#: What is asked for, of whom, and with which fields beside the name.
LOGIN: Asked = (
    "/login",
    {
        "known": {"password": "a guess"},
        "nobody": {"password": "a guess"},
        "disabled": {"password": PASSWORD},
        "no password": {"password": "a guess"},
        "second factor": {"password": "a guess"},
    },
)
FORGOT: Asked = "/password/forgot", {"known": {}, "nobody": {}, "disabled": {}, "second factor": {}}
SEND: Asked = (
    "/otp/send",
    {"known": EMAIL, "nobody": EMAIL, "disabled": EMAIL, "second factor": EMAIL},
)


def interleaved(
    bench: Bench, asked: Asked, tries: int, after: Callable[[], None] = lambda: None
) -> dict[str, list[Work]]:
    """Ask for all kinds in turn, in an order that changes; the first round warms up."""
    path, kinds = asked
    order, dice = list(kinds), random.Random(53)
    work: dict[str, list[Work]] = {kind: [] for kind in kinds}
    for turn in range(tries + 1):
        dice.shuffle(order)
        for kind in order:
            done = bench.ask(path, identifier=bench.newcomer(kind), **kinds[kind])
            after()
            if turn:
                work[kind].append(done)
    return work


def costs(work: dict[str, list[Work]]) -> set[tuple[Any, ...]]:
    """Give the different costs, times left out."""
    return {
        (done.status, done.hashes, done.jobs, tuple(sorted(done.commands.items())))
        for each in work.values()
        for done in each
    }


def told(capsys: pytest.CaptureFixture[str], path: str, work: dict[str, list[Work]]) -> None:
    """Print each kind's median, and how far the middle half of it spreads."""
    with capsys.disabled():
        print(f"\n{path}: milliseconds of {len(next(iter(work.values())))} tries each")  # noqa: T201
        first: float | None = None
        for kind, each in work.items():
            took = [done.took_ms for done in each]
            low, _, high = quantiles(took, n=4)
            middle = median(took)
            first = middle if first is None else first
            print(  # noqa: T201
                f"  {kind:14} median {middle:7.3f}  quartiles {low:7.3f} to {high:7.3f}"
                f"  off the first {middle - first:+7.3f}"
            )


def test_a_login_costs_the_same_whoever_it_is_for(bench: Bench) -> None:
    """A53, B080: one real hash with today's parameters and the same store commands for each."""
    ((status, hashes, _, commands),) = costs(interleaved(bench, LOGIN, 5))
    assert (status, hashes) == (401, (parameters(bench.crowd.stored),))
    assert dict(commands)["cmdstat_evalsha"] == 1


@pytest.mark.parametrize(("password", "hashes"), [("", 0), ("x", 1), ("x" * 2000, 0)])
def test_no_password_is_a_shorter_way(bench: Bench, password: str, hashes: int) -> None:
    """B079: empty and over-long passwords cost a known name what they cost an unknown one."""
    fields = {"password": password}
    work = interleaved(bench, ("/login", {"known": fields, "nobody": fields}), 5)
    ((_, computed, _, _),) = costs(work)
    assert len(computed) == hashes


def test_a_refusal_costs_the_same_and_no_hash(bench: Bench) -> None:
    """B081: locked, a known and an unknown name cost no hash and the same store commands."""
    names = {kind: bench.newcomer(kind) for kind in ("known", "nobody", "disabled")}
    for name in names.values():
        statuses = [bench.ask("/login", identifier=name, password="x").status for _ in range(11)]
        assert statuses == [401] * 10 + [429]
    bench.drain()
    work = {
        kind: [bench.ask("/login", identifier=name, password=PASSWORD) for _ in range(5)]
        for kind, name in names.items()
    }
    ((status, hashes, _, _),) = costs(work)
    assert (status, hashes) == (429, ())


@pytest.mark.parametrize(("asked", "kind"), [(FORGOT, "reset"), (SEND, "code")])
def test_a_send_costs_the_same_before_the_answer(
    bench: Bench, held: threading.Event, asked: Asked, kind: str
) -> None:
    """For each the same store commands and one job; then one message to whom it is due."""
    work = interleaved(bench, asked, 5)
    ((status, hashes, jobs, _),) = costs(work)
    assert (status, hashes, jobs) == (202, (), 1)
    due = {"known": 1, "nobody": 0, "disabled": 0, "second factor": int(kind == "reset")}
    assert bench.outbox.messages == []
    held.set()
    bench.drain()
    assert len(bench.outbox.messages) == 6 * sum(due.values())
    assert {message.kind for message in bench.outbox.messages} == {kind}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("asked", [LOGIN, FORGOT, SEND], ids=lambda asked: asked[0])
def test_times_of_200_interleaved_tries(
    bench: Bench, capsys: pytest.CaptureFixture[str], asked: Asked
) -> None:
    """A53: 200 tries each, known or not: hashes and sends as promised; medians to look at."""
    path, _ = asked
    # What one try leaves to the background doesn't slow the next one down.
    work = interleaved(bench, asked, 200, after=bench.drain)
    told(capsys, path, work)
    assert {len(done.hashes) for each in work.values() for done in each} == {path == "/login"}
    statuses = {done.status for each in work.values() for done in each}
    assert statuses == ({401} if path == "/login" else {202})
    sent = Counter(message.to for message in bench.outbox.messages)
    due = {"/login": 0, "/otp/send": 201, "/password/forgot": 402}[path]
    assert sent == Counter(dict.fromkeys(sent, 1))
    assert len(sent) == due


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_times_of_200_refusals(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """B081: 200 refused tries each of a known and an unknown name: no hash; medians to look at."""
    names = {kind: bench.newcomer(kind) for kind in ("known", "nobody", "disabled")}
    for name in names.values():
        for _ in range(10):
            bench.ask("/login", identifier=name, password="x")
    bench.drain()
    work: dict[str, list[Work]] = {kind: [] for kind in names}
    order, dice = list(names), random.Random(81)
    for _ in range(200):
        dice.shuffle(order)
        for kind in order:
            work[kind].append(bench.ask("/login", identifier=names[kind], password=PASSWORD))
    told(capsys, "/login, locked", work)
    assert {(status, hashes) for status, hashes, _, _ in costs(work)} == {(429, ())}
