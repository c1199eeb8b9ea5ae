"""What the tests of a failing store share: servers of their own, and a table of times to answer."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from authguard import StoreUnavailable
from authguard._subjects import Claims

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from authguard import Guard
    from authguard.stores.valkey import ValkeyStore
    from authguard.testing import EmbeddedValkey

    Guards = Callable[..., Guard]
    Outage = Callable[..., StoreUnavailable]
    NoteTime = Callable[[str, float, float, str], None]

#: Who signs in; a documentation address (RFC 5737).
VERA: Final = {"account": "vera", "client": "192.0.2.7"}

#: A bound for sanity only; the table shows the times themselves.
SANE_S: Final = 5.0

_ROWS: Final = pytest.StashKey[list[tuple[str, float, float, str]]]()


def warm(guard: Guard, action: str = "login") -> None:
    """Give the guard a connection in use and the server its scripts; charges nothing."""
    last = time.monotonic() + SANE_S
    while True:
        try:
            guard.peek(action, **VERA)
        except StoreUnavailable:
            if time.monotonic() > last:
                raise
        else:
            return


def keys_of(guard: Guard, account: str, client: str) -> tuple[str, ...]:
    """Name the keys of a login, in the order of its limits; a lock stands behind its log."""
    claims = Claims(account, client)
    known = guard._subjects.known(guard.policy("login"), claims)
    return guard._shape("login", known.subjects).bind(*known.pseudonyms).keys


@contextmanager
def held(store: ValkeyStore) -> Iterator[None]:
    """Hold one of a store's connections for the length of a block."""
    pool = store._pool
    connection = pool.borrow(store.one_deadline())
    try:
        yield
    finally:
        pool.give_back(connection, sound=True)


@contextmanager
def stopped(server: EmbeddedValkey) -> Iterator[None]:
    """Stop a server's process in its tracks, its sockets open, for the length of a block."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


@pytest.fixture
def note_time(request: pytest.FixtureRequest) -> NoteTime:
    """Put a line into the table of times that ends the run."""
    rows = request.config.stash.setdefault(_ROWS, [])

    def note(case: str, deadline_s: float, took_s: float, outcome: str) -> None:
        rows.append((case, deadline_s, took_s, outcome))

    return note


@pytest.fixture
def outage(
    note_time: NoteTime,
) -> Outage:
    """Expect an attempt to end with StoreUnavailable, for one of the reasons, and note the time."""

    def expect(guard: Guard, case: str, *reasons: str, **asked: Any) -> StoreUnavailable:
        begun = time.monotonic()
        with pytest.raises(StoreUnavailable) as caught:
            guard.attempt(asked.pop("action", "login"), **(VERA | asked))
        took_s = time.monotonic() - begun
        note_time(case, guard._engine.store._settings.deadline_s, took_s, caught.value.reason)
        assert caught.value.reason in reasons
        assert str(caught.value) == caught.value.reason
        assert took_s < SANE_S
        return caught.value

    return expect


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print how long a failing store kept callers waiting; the times are shown, not judged."""
    rows = config.stash.get(_ROWS, [])
    if not rows:
        return
    slowest: dict[tuple[str, float, str], list[float]] = {}
    for case, deadline_s, took_s, outcome in rows:
        slowest.setdefault((case, deadline_s, outcome), []).append(took_s)
    terminalreporter.section("a failing store: time to answer (of several: the slowest)")
    terminalreporter.line(f"{'case':<54} {'deadline':>9} {'answered':>10}  outcome")
    for (case, deadline_s, outcome), times_s in slowest.items():
        often = f" ({len(times_s)})" if len(times_s) > 1 else ""
        terminalreporter.line(
            f"{case + often:<54} {deadline_s * 1000:>6.0f} ms"
            f" {max(times_s) * 1000:>7.1f} ms  {outcome}"
        )
