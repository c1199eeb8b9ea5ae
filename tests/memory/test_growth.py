"""What grows, and what doesn't: the work of a call, a log that is hammered, hashes at a time."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from argon2 import PasswordHasher, low_level

from authguard import Denied, Guard, Passwords, SlidingLog
from authguard.limits import FixedWindow, SlidingWindowCounter, TokenBucket
from tests.memory.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from authguard.limiter import Limiter
    from authguard.limits import Algorithm
    from authguard.testing import EmbeddedValkey
    from tests.conftest import Clock
    from tests.flask.conftest import Site

    NoteWeight = Callable[[str, str], None]
    Volley = Callable[[int, Callable[[int], int]], list[int]]

FEW, MANY = 100, 70_000
CALLS = 200
ALGORITHMS: dict[str, Algorithm] = {
    "sliding log": SlidingLog("100000/24h"),
    "fixed window": FixedWindow("100000/24h"),
    "sliding window counter": SlidingWindowCounter("100000/24h"),
    "token bucket": TokenBucket("100000/24h", burst=100_000),
}
#: What an answer may differ by: the digits of its numbers.
DIGITS = 40


class Work:
    """What a server has done for the calls since it was made: counted, not timed."""

    def __init__(self, client: valkey.Valkey) -> None:
        self._client = client
        client.config_resetstat()
        client.slowlog_reset()
        self._before = self._bytes()

    def _bytes(self) -> int:
        stats = self._client.info("stats")
        return int(stats["total_net_input_bytes"] + stats["total_net_output_bytes"])

    def of_each(self, calls: int) -> tuple[dict[str, float], float, float]:
        """Give, for each call: the commands run inside, the bytes of the message; and its time."""
        sent = (self._bytes() - self._before) / calls
        commands = self._client.info("commandstats")
        inner = {
            name: commands[f"cmdstat_{name}"]["calls"] / calls
            for name in ("get", "set", "pttl", "del", "time")
            if f"cmdstat_{name}" in commands
        }
        return inner, sent, float(commands["cmdstat_evalsha"]["usec_per_call"])

    def slow(self) -> int:
        """Count the calls that took 10 ms or more (the server's default)."""
        return int(self._client.slowlog_len())


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_work_of_a_call_does_not_grow(
    small_valkey: EmbeddedValkey,
    scales: valkey.Valkey,
    note_weight: NoteWeight,
    name: str,
) -> None:
    """B115: at 70,000 entries a call sends as much as at 100; a log alone is copied the longer."""
    secret = "a secret of the tests, 32 bytes or more"
    with Guard(small_valkey.url, secret=secret, deadline_ms=10_000) as guard:
        limiter: Limiter = guard.limiter(ALGORITHMS[name])
        asking: dict[str, Callable[[], Any]] = {
            "hit": lambda: limiter.hit("key"),
            "peek": lambda: limiter.peek("key"),
        }
        for ask in asking.values():
            ask()
        for verb, ask in asking.items():
            done, kept = {}, {}
            for entries in (FEW, MANY):
                limiter.reset("key")
                limiter.hit("key", cost=entries)
                work = Work(scales)
                for _ in range(CALLS):
                    ask()
                done[entries] = work.of_each(CALLS)
                _, sent, usec = done[entries]
                (key,) = scales.scan_iter()
                kept[entries] = scales.strlen(key)
                note_weight(
                    f"{verb} of a {name}, {entries:,} entries",
                    f"{usec:,.0f} µs, {sent:,.0f} B sent, {kept[entries]:,} B kept,"
                    f" {work.slow()} slow",
                )
            assert done[MANY][0] == done[FEW][0]
            assert abs(done[MANY][1] - done[FEW][1]) <= DIGITS
            if name == "sliding log":  # its price: 10 bytes an entry, moved whole at each call
                hits = CALLS if verb == "hit" else 0
                assert kept == {entries: 10 * (entries + hits) for entries in (FEW, MANY)}
            else:
                assert kept[MANY] == kept[FEW] < 30


def test_a_thousand_refused_tries_store_nothing(
    site_factory: Callable[..., Site], clock: Clock
) -> None:
    """B116: after 5 failures and 1,000 refused tries there are 5 entries, and freedom on time."""
    site = site_factory(
        clock=clock,
        limits=[
            {"name": "account", "by": ["account"], "sliding_log": "5/6s"},
            {"name": "client", "by": ["client"], "sliding_log": "9999/6s"},
        ],
    )
    assert site.statuses(5) == [401] * 5
    before = site.used(), site.used("client")
    for _ in range(1_000):
        clock.advance(5)
        with pytest.raises(Denied):
            site.guard.attempt("login", account="key-1", client=site.home)
    assert (site.used(), site.used("client")) == before == (5, 5)
    assert len(site.spy.checks) == 5
    clock.advance(999)
    assert site.login("vera", "right vera").headers["Retry-After"] == "1"
    clock.advance(1)
    assert site.login("vera", "right vera").status_code == 200


class Counting(io.RawIOBase):
    """A body without an end, that counts what is read of it."""

    def __init__(self) -> None:
        super().__init__()
        self.read_bytes = 0

    def readable(self) -> bool:
        """Say so."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Give more of the password."""
        buffer[:] = b"x" * len(buffer)
        self.read_bytes += len(buffer)
        return len(buffer)


@pytest.mark.parametrize(
    "length", [1_000_000, 128 * 2**20, None], ids=["1 MB", "128 MiB", "chunked"]
)
def test_a_huge_password_is_neither_read_nor_hashed(
    site_factory: Callable[..., Site], length: int | None
) -> None:
    """A98, B117: of a body of a megabyte or more 16 KiB are read at most, and nothing is hashed."""
    site = site_factory()
    body = Counting()
    environ: dict[str, Any] = {"wsgi.input": body, "CONTENT_TYPE": "application/json"}
    if length is None:
        environ |= {"wsgi.input_terminated": True, "HTTP_TRANSFER_ENCODING": "chunked"}
    else:
        environ["CONTENT_LENGTH"] = str(length)
    assert site.post(environ_overrides=environ).status_code == 413
    assert body.read_bytes <= 2 * 16_384
    assert site.spy.checks == []
    assert site.used("client") == 1
    long = {"identifier": "vera", "password": "x" * 1_025}
    assert site.post(json=long).status_code == 400
    assert site.spy.checks == []


class Furnace:
    """The real argon2, with a count of who is inside."""

    def __init__(self) -> None:
        self.inside = self.peak = self.runs = 0
        self._counting = threading.Lock()

    def verify_secret(self, *arguments: Any) -> bool:
        """Count in, compute, count out."""
        with self._counting:
            self.inside += 1
            self.runs += 1
            self.peak = max(self.peak, self.inside)
        try:
            return low_level.verify_secret(*arguments)
        finally:
            with self._counting:
                self.inside -= 1


@pytest.fixture
def furnace(monkeypatch: pytest.MonkeyPatch) -> Furnace:
    """Put every hash of every PasswordHasher through one furnace."""
    furnace = Furnace()
    monkeypatch.setattr(f"{PasswordHasher.__module__}.verify_secret", furnace.verify_secret)
    return furnace


@pytest.mark.slow
def test_a_hundred_logins_hash_four_at_a_time(
    site_factory: Callable[..., Site], volley: Volley, furnace: Furnace
) -> None:
    """B117: of 100 parallel logins of 100 users 4 hash at a time; others wait, or are told 503."""
    site = site_factory(
        limits=[
            {"name": "account", "by": ["account"], "sliding_log": "5/5m"},
            {"name": "client", "by": ["client"], "sliding_log": "1000/5m"},
        ]
    )
    site.spy.real = Passwords(slots=4, queue=40, wait_s=60)
    site.spy.verify(None, "the dummy's hash is made first")
    furnace.peak = 0
    answers = Counter(volley(100, lambda number: site.login(f"user-{number}").status_code))
    assert set(answers) <= {401, 503}
    assert answers[401] >= 44
    assert furnace.peak == 4
    # Who was answered 503 was never looked at, and is not counted.
    assert site.used("client") == answers[401]


#: Hashes in a process of its own, and tells by how much its memory peaked beyond what it was.
HASHING = """
import json, re, threading
from concurrent.futures import ThreadPoolExecutor
from authguard import Passwords
passwords = Passwords(memory_kib=65_536, time_cost=2, slots=4, queue=100, wait_s=60)
stored = passwords.hash("right")
pool = ThreadPoolExecutor(100)
barrier = threading.Barrier(100)
list(pool.map(lambda _: barrier.wait(), range(100)))
def kib(field):
    return int(re.search(field + r":\\s+([0-9]+)", open("/proc/self/status").read())[1])
base = kib("VmRSS")
assert not any(pool.map(lambda _: passwords.verify(stored, "wrong"), range(100)))
print(json.dumps([base, kib("VmHWM")]))
"""


@pytest.mark.slow
def test_a_hundred_hashes_need_the_memory_of_four(note_weight: NoteWeight) -> None:
    """B117: 100 parallel hashes of 64 MiB on 4 slots peak at what 4 need, or 10 % more at most."""
    out = subprocess.run(
        [sys.executable, "-c", HASHING],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    ).stdout
    base, peak = json.loads(out)
    note_weight("100 parallel hashes of 64 MiB, 4 slots", f"{(peak - base) / 1_024:,.0f} MiB")
    assert base + 3 * 65_536 < peak <= (base + 4 * 65_536) * 1.1
