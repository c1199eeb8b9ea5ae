"""A UNIX socket, databases and users of the access list: as by TCP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from authguard import AsyncGuard, Denied, Guard, StoreUnavailable
from authguard.testing import embedded_valkey
from tests.conftest import PATIENT_MS, SECRET
from tests.stores.conftest import VERA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import valkey as valkey_client

    Tries = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def listening(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Path, valkey_client.Valkey]]:
    """Run a server that listens at a socket too; give its path and a client by TCP."""
    import valkey

    path = tmp_path_factory.mktemp("s") / "valkey.sock"
    with (
        embedded_valkey(unixsocket=str(path), unixsocketperm="700") as server,
        valkey.Valkey(port=server.port, socket_timeout=10) as plain,
    ):
        yield path, plain
        plain.connection_pool.disconnect()


@pytest.fixture
def socket_path(listening: tuple[Path, valkey_client.Valkey]) -> Path:
    """Give the socket's path; the server is empty."""
    path, plain = listening
    plain.flushall()
    return path


@pytest.fixture
def plain(listening: tuple[Path, valkey_client.Valkey]) -> valkey_client.Valkey:
    """Give the client."""
    return listening[1]


def _blocking(url: str) -> list[str]:
    outcomes = []
    with Guard(url, secret=SECRET, deadline_ms=PATIENT_MS) as guard:
        for _ in range(6):
            try:
                guard.attempt("login", **VERA)
            except (Denied, StoreUnavailable) as error:
                outcomes.append(getattr(error, "reason", "refused"))
            else:
                outcomes.append("admitted")
    return outcomes


def _awaited(url: str) -> list[str]:
    async def story() -> list[str]:
        outcomes = []
        async with AsyncGuard(url, secret=SECRET, deadline_ms=PATIENT_MS) as guard:
            for _ in range(6):
                try:
                    await guard.attempt("login", **VERA)
                except (Denied, StoreUnavailable) as error:
                    outcomes.append(getattr(error, "reason", "refused"))
                else:
                    outcomes.append("admitted")
        return outcomes

    return asyncio.run(story())


@pytest.fixture(params=["blocking", "awaited"])
def tries(request: pytest.FixtureRequest) -> Tries:
    """Attempt six times by either guard; tells the outcomes in a word each."""
    return _blocking if request.param == "blocking" else _awaited


@pytest.mark.parametrize(
    ("scheme", "query", "database"),
    [("valkey+unix", "", "db0"), ("unix", "?db=2", "db2"), ("redis+unix", "?db=3", "db3")],
)
def test_a_socket_is_used(  # noqa: PLR0917 (fixtures and cases)
    socket_path: Path,
    plain: valkey_client.Valkey,
    tries: Tries,
    scheme: str,
    query: str,
    database: str,
) -> None:
    """By a path it counts as by a port, in the database that is named."""
    assert tries(f"{scheme}://{socket_path}{query}") == ["admitted"] * 5 + ["refused"]
    assert plain.info("keyspace").keys() == {database}


def test_a_missing_socket_is_an_outage(tmp_path: Path, tries: Tries) -> None:
    """B059: where no socket is, or a file that is none, it is 503 "connection" at once."""
    (tmp_path / "file").touch()
    for name in ("missing.sock", "file", "no/such/folder.sock", "x" * 120):
        assert tries(f"valkey+unix://{tmp_path / name}") == ["connection"] * 6


@pytest.mark.parametrize("way", ["tcp", "unix"])
def test_a_user_of_the_access_list(
    socket_path: Path, plain: valkey_client.Valkey, tries: Tries, way: str
) -> None:
    """User and password in the address, percent-encoded, are those of the server's access list."""
    plain.acl_setuser(
        "wor:ker",
        enabled=True,
        passwords=["+p@ss/w:rd"],
        keys=["rl:v1:*"],
        commands=["+evalsha", "+eval", "+time", "+get", "+set", "+del", "+pttl", "+select"],
    )
    port = plain.get_connection_kwargs()["port"]
    where = {"tcp": ("valkey", f"127.0.0.1:{port}/0"), "unix": ("unix", str(socket_path))}
    scheme, place = where[way]
    right = f"{scheme}://wor%3Aker:p%40ss%2Fw%3Ard@{place}"
    assert tries(right) == ["admitted"] * 5 + ["refused"]
    assert tries(right.replace("p%40ss", "pass")) == ["authentication"] * 6
    plain.acl_setuser("wor:ker", enabled=True, commands=["-evalsha"])
    plain.flushall()
    assert tries(right) == ["no permission"] * 6
    plain.acl_deluser("wor:ker")
