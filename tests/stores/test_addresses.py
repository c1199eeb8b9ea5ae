"""The store's address: used as written, or refused at the start without being shown."""

from __future__ import annotations

import pytest

from authguard import ConfigurationError, Guard
from authguard.stores._address import read_address
from authguard.stores.valkey import ValkeyStore

SECRET = "a secret of the tests, 32 bytes or more"
HOST = "127.0.0.1:6379"
USER = {"username": "worker", "password": "pw"}


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (f"valkey://{HOST}/0", {"host": "127.0.0.1", "port": 6379, "db": 0}),
        (f"redis://{HOST}/3", {"host": "127.0.0.1", "port": 6379, "db": 3}),
        ("valkey://store.internal", {"host": "store.internal", "port": 6379}),
        (f"valkeys://{HOST}/0", {"host": "127.0.0.1", "port": 6379, "db": 0}),
        ("rediss://store.internal", {"host": "store.internal", "port": 6379}),
        ("unix:///run/valkey.sock", {"path": "/run/valkey.sock"}),
        ("valkey+unix://worker:pw@/run/v.sock?db=2", {"path": "/run/v.sock", "db": 2, **USER}),
        ("valkey://[::1]:7000/", {"host": "::1", "port": 7000}),
        (
            "valkey://worker:p%40ss%2Fw%3Ard@db:6380/1",
            {"host": "db", "port": 6380, "db": 1, "username": "worker", "password": "p@ss/w:rd"},
        ),
        ("valkey://:pw@db", {"host": "db", "port": 6379, "password": "pw"}),
        ("valkey+cluster://worker:pw@a,b:7000", {"host": "a", "port": 6379, **USER}),
    ],
)
def test_an_address_is_used_as_written(address: str, expected: dict[str, object]) -> None:
    """Host, port, database and credentials are those of the address, and nothing else is set."""
    settings = ValkeyStore(address)._pool.named
    parts = {"host", "port", "path", "db", "username", "password"}
    assert {key: value for key, value in settings.items() if key in parts} == expected


@pytest.mark.parametrize(
    "address",
    [
        "",
        "valkey",
        "valkey://",
        "valkey:///0",
        f"http://{HOST}",
        f"valkey+tls://{HOST}",
        f"valkey://{HOST},{HOST}",
        "unix://run/valkey.sock",
        "unix:///run/valkey.sock?db=one",
        "unix:///run/valkey.sock?socket_timeout=60",
        f"valkey+sentinel://{HOST}",
        f"valkey+sentinel://{HOST}/main/zero",
        f"valkey+sentinel://{HOST}/main/0/0",
        f"valkey+sentinel://{HOST}/two words",
        f"valkey+sentinel://{HOST},/main",
        f"valkey+cluster://{HOST}/1",
        f"valkey+cluster://{HOST}/0/0",
        "valkey+cluster://",
        "valkey://127.0.0.1:port",
        "valkey://127.0.0.1:70000",
        f"valkey://{HOST}/zero",
        f"valkey://{HOST}/-1",
        f"valkey://{HOST}/0/1",
        f"valkey://{HOST}/0?socket_timeout=60",
        f"valkey://{HOST}?port=abc",
        f"valkey://{HOST}/0#fragment",
        f" valkey://{HOST}",
        f"valkey://{HOST}\n",
        "valkey://two..dots:6379",
        f"valkey://{'a' * 64}:6379",
        "valkey://worker:half/of-it@db:6379/0",
        "valkey://worker:12?of=it@db:6379/0",
    ],
)
def test_an_address_that_cant_be_meant_stops_the_start(address: str) -> None:
    """B137: no address, a wrong one or one with options is AG010 at once, and is never shown."""
    with pytest.raises(ConfigurationError) as refused:
        Guard(address, secret=SECRET)
    assert refused.value.code == "AG010"
    text = f"{refused.value} {refused.value.args}"
    assert "valkey://[user:password@]host:port/database" in text
    for part in ("127.0.0.1", "half", "of-it", "12?", "aaaa", "socket_timeout"):
        assert part not in text


@pytest.mark.parametrize(
    ("address", "part"),
    [
        (6379, "it is no text"),
        (f"http://{HOST}", "it doesn't begin with valkey://"),
        ("valkey", "it doesn't begin with valkey://"),
        (f"valkey://{HOST}\n", "a blank or the end of a line"),
        ("valkey://", "it names no host"),
        ("valkey:///0", "it names no host"),
        ("valkey://worker:pw@/0", "it names no host"),
        ("valkey+sentinel://one,/main", "it names no host"),
        ("valkey://two..dots:6379", "its host can't be one"),
        ("valkey://::1:6379", "an IPv6 address stands in [ ]"),
        ("valkey://[::1:6379", "its host can't be one"),
        ("valkey://127.0.0.1:port", "its port is no number"),
        ("valkey://127.0.0.1:70000/0", "its port is no number up to 65535"),
        ("valkey+cluster://a,[::1]:-1", "its port is no number"),
        (f"valkey://{HOST}/abc", "its database is no number"),
        (f"valkey://{HOST}/123456", "its database is no number"),
        (f"valkey+sentinel://{HOST}/main/zero", "its database is no number"),
        (f"valkey+cluster://{HOST}/1", "a cluster has database 0 alone"),
        (f"valkey://{HOST}/0/1", "more than a database stands behind its host"),
        (f"valkey+sentinel://{HOST}/main/0/0", "too much stands behind its host"),
        (f"valkey://{HOST}/0?timeout=5", "it has options"),
        (f"valkey://{HOST}#x", "it has options or a fragment"),
        (f"valkey+sentinel://{HOST}", "it lacks the NAME"),
        (f"valkey+sentinel://{HOST}/", "it lacks the NAME"),
        (f"valkey+sentinel://{HOST}/a!", "its NAME is"),
        (f"valkey://{HOST},{HOST}", "it names several hosts"),
        ("unix:///worker:pw@/run/valkey.sock", "an @ stands in its path"),
        ("valkey+unix://worker:p/w@/run/valkey.sock", "its path begins behind the @"),
        ("valkey+cluster://worker:pw@one:1,worker:pw@two:2", "stand once, before the first host"),
        ("valkey+sentinel://one:1,worker:pw@two:2/main", "stand once, before the first host"),
        ("valkey+unix://rel/path", "the path of its socket doesn't begin with /"),
        ("unix:///run/valkey.sock?db=one", "a socket takes ?db=NUMBER alone"),
        ("valkey://worker:half/of-it@db:6379/0", "an @ stands behind a /"),
        ("valkey://worker:half/of/it@db:6379/0", "an @ stands behind a /"),
        ("valkey://worker:12?of=it@db:6379/0", "? as %3F"),
        ("valkey://worker:[pw@db:6379/0", "its user or password can't be read"),
    ],
)
def test_the_part_of_an_address_that_is_at_fault_is_named(address: object, part: str) -> None:
    """AG010 says which part can't be meant and which setting it stands in; the text stays dark."""
    with pytest.raises(ConfigurationError) as refused:
        read_address(address, "AUTHGUARD_STORE_URL")
    assert refused.value.where == "AUTHGUARD_STORE_URL"
    assert part in refused.value.problem
    assert refused.value.__context__ is None
    for secret in ("127.0.0.1", "half", "12?", "pw", "two..", "abc", "timeout", "70000"):
        assert secret not in str(refused.value)


@pytest.mark.parametrize("missing", [None, ""])
def test_without_a_store_there_is_no_guard(missing: str | None) -> None:
    """B137: no store configured is an error at the start, never a silent count per process."""
    with pytest.raises(ConfigurationError, match="AG010"):
        Guard(missing, secret=SECRET)  # type: ignore[arg-type]


@pytest.mark.parametrize("setting", ["deadline_ms", "connect_ms", "read_ms", "connections"])
@pytest.mark.parametrize("value", [0, -1, 60_001, 1.5, "100", True, float("inf"), float("nan")])
def test_a_budget_out_of_range_stops_the_start(setting: str, value: object) -> None:
    """B133: no deadline is endless, zero, or a guess: AG012 names the setting and the range."""
    with pytest.raises(ConfigurationError, match=rf"^AG012 {setting}: "):
        ValkeyStore(f"valkey://{HOST}", **{setting: value})  # type: ignore[arg-type]
