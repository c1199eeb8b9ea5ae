"""The load probe: reports in time whatever it measures by does, and never troubles the app."""

from __future__ import annotations

import logging
import math
import os
import re
import threading
import time
import tomllib
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from flask import Flask, g
from freezegun import freeze_time

from authguard import (
    AsyncGuard,
    ConfigurationError,
    LoadProbe,
    Overloaded,
    StoreUnavailable,
    load_policies,
)
from authguard.flask import AuthGuard
from tests.conftest import PATIENT_MS, SECRET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from authguard import Guard
    from authguard.testing import EmbeddedValkey

#: An elastic limit of ten, so that its share can be read off.
POLICY = {
    "api": {"limits": [{"name": "all", "by": ["global"], "fixed_window": "10/1d", "elastic": True}]}
}


def real_s() -> float:
    """Read a clock that freezegun leaves alone."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def threads() -> list[threading.Thread]:
    """List the threads of all probes."""
    return [each for each in threading.enumerate() if each.name.startswith("authguard-load")]


class Heard:
    """Stands where the guard stands, and keeps what it is told; may be away."""

    def __init__(self) -> None:
        self.told: list[tuple[float, int]] = []
        self.at_s: list[float] = []
        self.away: Exception | None = None
        self.tries = 0

    def load(self, share: float, *, for_ms: int = 60_000) -> None:
        """Keep it."""
        self.tries += 1
        if self.away is not None:
            raise self.away
        self.told.append((round(share, 6), for_ms))
        self.at_s.append(real_s())

    def wait_for(self, count: int) -> list[float]:
        """Wait until so many reports are there; give the shares."""
        until(lambda: len(self.told) >= count)
        return [share for share, _ in self.told]


def until(true: Callable[[], bool], within_s: float = 30) -> None:
    """Wait until something is so."""
    ends_s = real_s() + within_s
    while not true():
        assert real_s() < ends_s
        time.sleep(0.002)


class Script:
    """A measurement that plays its values one after the other, and repeats the last one."""

    def __init__(self, *values: Any) -> None:
        self.values = deque(values)
        self.calls = 0

    def __call__(self) -> Any:
        """Give the next value, or raise it."""
        self.calls += 1
        value = self.values.popleft() if len(self.values) > 1 else self.values[0]
        if isinstance(value, BaseException):
            raise value
        return value


@pytest.fixture
def heard() -> Heard:
    """Give a guard that only listens."""
    return Heard()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Give what hanging measurements wait for; it opens after the test at the latest."""
    opened = threading.Event()
    yield opened
    opened.set()


@pytest.fixture(autouse=True)
def no_thread_left(gate: threading.Event) -> Iterator[None]:
    """Every thread of a probe ends with it."""
    yield
    gate.set()
    until(lambda: not threads())


def probe(heard: Any, measure: Callable[[], Any], **changes: Any) -> LoadProbe:
    """Make a probe that measures a hundred times a second."""
    settings = {"good_ms": 100, "bad_ms": 500, "every_s": 0.01} | changes
    return LoadProbe(heard, measure, **settings)


@pytest.mark.parametrize(
    ("ms", "least", "share"),
    [
        (101, 0.0, 0.9975),
        (200, 0.0, 0.75),
        (300, 0.0, 0.5),
        (300, 0.2, 0.6),
        (499.9, 0.0, 0.00025),
        (500, 0.0, 0.0),
        (500, 0.1, 0.1),
        (10**300, 0.1, 0.1),
        (10**400, 0.3, 0.3),  # no number that a float could hold: a failed measurement
    ],
)
def test_the_share_falls_evenly_from_good_to_bad(
    heard: Heard, ms: float, least: float, share: float
) -> None:
    """Between good_ms and bad_ms the share falls from 1 to least in a straight line."""
    with probe(heard, lambda: ms, least=least):
        assert heard.wait_for(2)[:2] == [share, share]


def test_all_is_well_needs_no_report(heard: Heard) -> None:
    """A share of 1 is told once, after another; an idle probe says nothing at all."""
    measure = Script(0, 99.9, 100, 0, 500, 500, 100, 0, 50)
    with probe(heard, measure):
        until(lambda: measure.calls > 20)
    assert [share for share, _ in heard.told] == [0, 0, 1]


@pytest.mark.parametrize("settings", [{}, {"hold_s": 3.5}, {"every_s": 0.6}])
def test_a_report_lapses_some_intervals_after_the_last(
    heard: Heard, settings: dict[str, Any]
) -> None:
    """Each report holds for hold_s: else five intervals, or five bad_ms where that is longer."""
    with probe(heard, lambda: 300, **settings):
        heard.wait_for(1)
    expected = {"hold_s": 3500, "every_s": 3000}.get(next(iter(settings), ""), 2500)
    assert heard.told[0] == (0.5, expected)


def test_its_own_time_is_what_counts(heard: Heard) -> None:
    """Where the measurement returns nothing, the time that it took is judged."""
    with freeze_time("2020-01-01"), probe(heard, lambda: time.sleep(0.2) or None):
        (share,) = heard.wait_for(1)[:1]
    assert 0.4 < share <= 0.75


def test_a_hanging_measurement_is_reported_in_time_and_not_begun_again(
    heard: Heard, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """Hanging, it is told as least after bad_ms, then each interval; back, all is well again."""
    calls: list[float] = []

    def measure() -> float:
        calls.append(real_s())
        if len(calls) == 3:
            gate.wait(30)
        return 1.0

    with probe(heard, measure, bad_ms=200, least=0.1, every_s=0.05):
        shares = heard.wait_for(6)
        assert shares[:6] == [0.1] * 6
        assert len(calls) == 3
        assert 0.2 <= heard.at_s[0] - calls[2] < 1.5
        gaps = [after - before for before, after in zip(heard.at_s, heard.at_s[1:], strict=False)]
        assert max(gaps) < 1.5  # at least one for each time that a report holds, 1 s and more
        gate.set()
        until(lambda: heard.told[-1][0] == 1)
    assert caplog.messages.count("load probe: the measurement hangs") == 1


@pytest.mark.parametrize("error", [OSError, KeyError, SystemExit, KeyboardInterrupt])
def test_a_measurement_that_raises_leaves_least(
    heard: Heard, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    """Raising is as bad as bad_ms; it's logged once, by its type and nothing of its text."""
    measure = Script(error("postgres://app:secret@db"), error("secret"), 100)
    with probe(heard, measure, least=0.2):
        until(lambda: measure.calls > 5)
    assert [share for share, _ in heard.told] == [0.2, 0.2, 1]
    assert caplog.messages.count(f"load probe: the measurement raised {error.__name__}") == 1
    assert "secret" not in caplog.text


@pytest.mark.parametrize("value", ["12", True, -1, math.nan, math.inf, [1]])
def test_a_measurement_that_gives_no_number_has_failed(
    heard: Heard, caplog: pytest.LogCaptureFixture, value: Any
) -> None:
    """What is no number of milliseconds is a failure, and told as one."""
    with probe(heard, lambda: value):
        assert heard.wait_for(1)[0] == 0
    assert "that is no number of milliseconds" in caplog.text


def test_a_store_that_is_away_is_logged_once(
    heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    """Away, it is logged once and tried at each interval; back, what holds is told at once."""
    caplog.set_level(logging.INFO)
    measure = Script(300)
    heard.away = StoreUnavailable("no connection")
    with probe(heard, measure):
        until(lambda: heard.tries > 5)
        measure.values = deque([0])  # a report that failed may hold all the same
        tries = heard.tries
        until(lambda: heard.tries > tries + 3)
        heard.away = None
        until(lambda: bool(heard.told))
        calls = measure.calls
        until(lambda: measure.calls > calls + 3)
    assert [share for share, _ in heard.told] == [1]
    assert caplog.messages == [
        "load probe: the load could not be reported: no connection",
        "load probe: the load is reported again",
    ]


def test_what_a_guard_raises_never_ends_the_probe(heard: Heard) -> None:
    """Whatever a store of the app's own raises, the next interval tries again."""
    heard.away = RuntimeError("out of order")
    with probe(heard, lambda: 500):
        until(lambda: heard.tries > 3)
        heard.away = None
        heard.wait_for(1)


def test_a_probe_can_be_started_and_stopped_again(heard: Heard) -> None:
    """Started twice it measures once; stopped it is silent, and may be started again."""
    going = probe(heard, lambda: 500)
    going.stop()
    assert going.start() is going.start()
    heard.wait_for(1)
    assert len(threads()) == 2
    assert all(thread.daemon for thread in threads())
    going.stop()
    told = len(heard.told)
    time.sleep(0.05)
    assert len(heard.told) == told
    with going:
        heard.wait_for(told + 1)


def test_a_stop_waits_for_no_hanging_measurement(heard: Heard, gate: threading.Event) -> None:
    """While the database hangs, stopping takes no time, and nothing more is told."""
    begun = threading.Event()

    def hang() -> None:
        begun.set()
        gate.wait(30)

    going = probe(heard, hang, bad_ms=20_000).start()
    assert begun.wait(10)
    begun_s = real_s()
    going.stop()
    assert real_s() - begun_s < 5
    assert heard.tries == 0


def test_a_system_without_threads_is_told_of(
    heard: Heard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where no thread can start nothing is raised, and a later start works."""

    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    going = probe(heard, lambda: 500)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        going.start()
    assert caplog.messages == ["load probe: not started, since no thread could be"]
    with going:
        heard.wait_for(1)


def test_a_forked_child_goes_on_with_threads_of_its_own(
    guard_factory: Callable[..., Guard],
) -> None:
    """After a fork both processes report, and a probe that was stopped stays so."""
    guard = guard_factory(policies=POLICY)
    reads, writes = os.pipe()
    pids: set[int] = set()

    def measure() -> float:
        if os.getpid() not in pids:
            pids.add(os.getpid())
            os.write(writes, b"%10d" % os.getpid())
        return 300.0

    stopped = probe(guard, measure).start()
    stopped.stop()
    with probe(guard, measure):
        until(lambda: bool(pids))
        child = os.fork()
        if not child:
            until(lambda: os.getpid() in pids and guard.current_load() == 0.5)
            os._exit(len(threads()))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    os.close(writes)
    with os.fdopen(reads, "rb") as told:
        seen = told.read()
    assert b"%10d" % child in seen
    assert b"%10d" % os.getpid() in seen


def test_elastic_limits_follow_it_and_it_lapses(guard_factory: Callable[..., Guard]) -> None:
    """On the real store: slow, the limit is scaled for every guard; the probe gone, it lapses."""
    guard, other = guard_factory(policies=POLICY), guard_factory(policies=POLICY)
    slow = threading.Event()
    slow.set()
    with LoadProbe(
        guard, lambda: 420 if slow.is_set() else 1, good_ms=20, bad_ms=520, every_s=0.05, hold_s=0.8
    ) as going:
        until(lambda: other.current_load() == 0.2)
        for _ in range(2):
            other.attempt("api", account="a", client="192.0.2.1")
        with pytest.raises(Overloaded):
            other.attempt("api", account="a", client="192.0.2.1")
        slow.clear()
        until(lambda: other.current_load() == 1)
        other.attempt("api", account="a", client="192.0.2.1")
        slow.set()
        until(lambda: other.current_load() == 0.2)
        going.stop()
        stopped_s = real_s()
        until(lambda: other.current_load() == 1, within_s=5)
        assert real_s() - stopped_s < 4


def test_a_store_that_dies_and_comes_back(
    guard_factory: Callable[..., Guard],
    own_valkey: EmbeddedValkey,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A store that is frozen for a while is logged once, and told again when it wakes."""
    import signal

    guard = guard_factory(store=own_valkey.url, policies=POLICY, deadline_ms=200)
    looker = guard_factory(store=own_valkey.url, policies=POLICY)
    with probe(guard, lambda: 300, every_s=0.05, hold_s=1):
        until(lambda: looker.current_load() == 0.5)
        os.kill(own_valkey.pid, signal.SIGSTOP)
        until(lambda: "could not be reported" in caplog.text)
        time.sleep(1)
        os.kill(own_valkey.pid, signal.SIGCONT)
        until(lambda: looker.current_load() == 0.5)
    assert sum("could not be reported" in message for message in caplog.messages) >= 1


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"measure": 5}, "measure"),
        ({"good_ms": -1}, "good_ms"),
        ({"good_ms": "20"}, "good_ms"),
        ({"good_ms": math.nan}, "good_ms"),
        ({"good_ms": True}, "good_ms"),
        ({"bad_ms": 100}, "bad_ms"),
        ({"bad_ms": math.inf}, "bad_ms"),
        ({"bad_ms": 10**400}, "bad_ms"),
        ({"bad_ms": None}, "bad_ms"),
        ({"least": 1}, "least"),
        ({"least": -0.1}, "least"),
        ({"least": "0"}, "least"),
        ({"every_s": 0}, "every_s"),
        ({"every_s": math.nan}, "every_s"),
        ({"every_s": 86_401}, "every_s"),
        ({"hold_s": 0.5}, "hold_s"),
        ({"hold_s": 1, "every_s": 1}, "hold_s"),
        ({"hold_s": math.inf}, "hold_s"),
        ({"hold_s": "5"}, "hold_s"),
    ],
)
def test_a_wrong_argument_is_named(heard: Heard, changes: dict[str, Any], named: str) -> None:
    """AG057 names the argument that is of no use, and the mend."""
    settings = {"measure": lambda: None, "good_ms": 100, "bad_ms": 500} | changes
    with pytest.raises(ConfigurationError, match=rf"^AG057 LoadProbe\({named}=…\): ") as caught:
        LoadProbe(heard, settings.pop("measure"), **settings)
    assert caught.value.mend


@pytest.mark.parametrize("guard", [AsyncGuard("valkey://127.0.0.1:1", secret=SECRET), None, 5])
def test_what_can_tell_no_load_is_refused(guard: Any) -> None:
    """AG057: a guard whose load() must be awaited would never be told; nor would what is none."""
    with pytest.raises(ConfigurationError, match=r"^AG057 LoadProbe\(guard=…\): "):
        LoadProbe(guard, lambda: None, good_ms=100, bad_ms=500)


DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    """Give a document's code blocks of a language."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_page_on_load_says_what_happens(valkey_url: str) -> None:
    """docs/load.md, run as printed: the lanes' numbers at each load, the view, and the probe."""
    (policy,) = blocks("load.md", "toml")
    view, attempt, load, measured = blocks("load.md", "python")
    app = Flask("example")
    app.config.update(
        AUTHGUARD_STORE_URL=valkey_url,
        AUTHGUARD_SECRET=SECRET,
        AUTHGUARD_DEADLINE_MS=PATIENT_MS,
        AUTHGUARD_POLICY=tomllib.loads(policy),
    )
    auth = AuthGuard(app)
    with app.app_context():
        guard = auth.guard
    people = {"omar": False, "vera": True}

    @app.before_request
    def look_up() -> None:
        from flask import request

        name = request.headers.get("X-Session", "")
        operator = people.get(name, False)
        g.user = SimpleNamespace(id=name, is_operator=operator) if name in people else None

    exec(compile(view, "load.md", "exec"), {"app": app, "guard": auth, "g": g})
    table = re.findall(
        r"^\| ([\d.]+)[^|]* \| (\w+) \| (\d+) \|$", (DOCS / "load.md").read_text(), re.MULTILINE
    )
    assert len(table) == 4
    for share, ordinary, operators in table:
        guard.load(float(share))
        for priority, name, number in (
            (None, "ordinary", ordinary),
            ("operator", "operators", operators),
        ):
            verdicts = guard.peek("api", client="192.0.2.1", priority=priority).verdicts
            (limit,) = [verdict.limit for verdict in verdicts if verdict.name == name]
            assert limit == (0 if number == "none" else int(number))
    answers = [
        app.test_client().get("/api/report", headers={"X-Session": who}).status_code
        for who in ("omar", "", "vera")
    ]
    assert answers == [503, 503, 200]  # the load is 0 by now
    scope: dict[str, Any] = {"guard": guard, "database": SimpleNamespace(execute=str)}
    exec(compile(attempt + load, "load.md", "exec"), scope)
    assert guard.current_load() == 0.2
    exec(compile(measured, "load.md", "exec"), scope)
    scope["probe"].stop()
    guard.close()


def test_the_line_that_paces_messages_is_a_limit() -> None:
    """docs/messages.md's line stands as printed in a policy, and waits as long as it says."""
    (line,) = blocks("messages.md", "toml")
    policy = load_policies(tomllib.loads(f"[otp.send]\nlimits = [\n{line}\n]"))["otp.send"]
    (limit,) = policy.limits
    numbers = limit.algorithm.numbers()
    assert (numbers[0] - 1) * numbers[2] / numbers[1] == 30_000
