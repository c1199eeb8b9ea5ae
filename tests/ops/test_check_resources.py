"""What ``check`` says of what a server can run out of: memory and connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import valkey

from authguard import Guard
from authguard.ops.check import check
from tests.ops.test_check import DRAWN, KEPT, Told, looked, plain, terminal_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard.ops.check import Finding
    from tests.ops.conftest import Terminal

__all__ = ["terminal_on"]

GB = 2**30


def of_memory(**fields: object) -> Finding:
    """Look a server over that tells these things of its memory."""
    text = "\r\n".join(f"{name}:{value}" for name, value in fields.items())
    found = check(Guard(Told(memory=text), secret=DRAWN)).findings
    return next(finding for finding in found if finding.code == "AG069")


def test_a_memory_that_fills_up_is_a_warning_and_then_an_error(
    terminal_on: Callable[..., Terminal],
) -> None:
    """Of maxmemory over 80 % is a warning and over 95 % an error, on a real server."""
    terminal = terminal_on(**KEPT)
    with plain(terminal) as client:
        # Beside it a look's own buffers are nothing; the server makes it, without one for it.
        client.setrange("ballast", 20_000_000, "x")
        used = client.info("memory")["used_memory"]
        for bound, level in ((used * 2, "ok"), (used * 100 // 87, "warning"), (used, "error")):
            client.config_set("maxmemory", bound)
            status, found = looked(terminal)
            (finding,) = found["AG069"]
            assert (status, finding["level"]) == (0 if level == "ok" else 3, level)
            assert " % of maxmemory (" in finding["seen"]
            assert ("every attempt is refused" in finding["seen"]) is (level != "ok")


@pytest.mark.parametrize(
    ("used", "level"), [(79, "ok"), (80, "ok"), (81, "warning"), (95, "warning"), (96, "error")]
)
def test_the_bounds_of_memory_are_as_written(used: int, level: str) -> None:
    """80 and 95 % of maxmemory are still what they were below."""
    told = of_memory(used_memory=used * GB, maxmemory=100 * GB, total_system_memory=200 * GB)
    assert (told.level, told.seen[:28]) == (level, f"{used} % of maxmemory (100.0 GB)")


def test_a_bound_above_what_the_machine_has_is_a_warning() -> None:
    """Such a maxmemory is never reached: the machine is full before."""
    told = of_memory(used_memory=GB, maxmemory=9 * GB, total_system_memory=8 * GB)
    assert told.level == "warning"
    assert told.seen == (
        "12 % of maxmemory (9.0 GB) is in use, and it is more than the machine has (8.0 GB)"
    )


def test_without_a_bound_the_machines_memory_counts() -> None:
    """No maxmemory: half of the machine is a warning, and one that isn't told can't be judged."""
    machine = {"maxmemory": 0, "total_system_memory": 10 * GB}
    assert of_memory(used_memory_rss=4 * GB, **machine).level == "ok"
    told = of_memory(used_memory_rss=5 * GB, **machine)
    assert told.level == "warning"
    assert told.seen == (
        "no maxmemory is set; the server takes 50 % of its machine's 10.0 GB: when that is full,"
        " the system ends the server"
    )
    told = of_memory(used_memory_rss=5 * GB, maxmemory=0)
    assert (told.level, told.seen[:38]) == ("warning", "can't tell: no maxmemory is set, and t")


def test_connections_that_run_out_are_a_warning_and_then_an_error(
    terminal_on: Callable[..., Terminal],
) -> None:
    """Over 80 % of maxclients in use is a warning and over 95 % an error, with the number."""
    terminal = terminal_on(**KEPT, maxclients=50)
    url = terminal.env["AUTHGUARD_STORE_URL"]
    pool = valkey.ConnectionPool.from_url(url)
    held = [pool.get_connection("PING") for _ in range(10)]
    try:
        for most, level in ((30, "ok"), (43, "warning"), (48, "error")):
            held += [pool.get_connection("PING") for _ in range(most - len(held))]
            status, found = looked(terminal)
            (finding,) = found["AG070"]
            assert (status, finding["level"]) == (0 if level == "ok" else 3, level)
            assert finding["seen"].startswith(f"{2 * (most + 1)} % of the 50 connections")
    finally:
        for connection in held:
            pool.release(connection)
        pool.disconnect()
