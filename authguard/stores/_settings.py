"""How a store behaves: its times, its connections, TLS. Checked once, the same for both colours."""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from authguard.checks import LONGEST_DEADLINE_MS, check_whole, is_whole
from authguard.errors import ConfigurationError

if TYPE_CHECKING:
    from authguard.stores._address import Address, Node

__all__ = ["Settings", "monotonic_s", "read_settings"]

#: Most milliseconds of any time, and most connections: beyond it is a mistake.
_MOST: Final = LONGEST_DEADLINE_MS

#: The share of a wait after which silence is the server's: before, it had no chance.
_PATIENCE: Final = 0.8


def monotonic_s() -> float:
    """Give seconds of a clock that never stops: freezegun stops ``time.monotonic``."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


#: As many may wait for a connection, or four for each that there is: a local server answers them
#: within a deadline of 100 ms.
_WAITING: Final = 256


@dataclass(frozen=True, slots=True)
class Settings:
    """
    What was given, in the units of sockets.

    Attributes:
        deadline_s: Longest time of a decision, in seconds.
        connect_s: Longest time to connect.
        read_s: Longest wait for a reply.
        pause_s: From one probe of a silent server to the next.
        connections: Most connections to one server.
        tls: What TLS is made under; None: connections are plain.
        login: User, password and database of servers.
        sentinel_login: User and password of sentinels.
    """

    deadline_s: float
    connect_s: float
    read_s: float
    pause_s: float
    connections: int
    tls: ssl.SSLContext | None
    login: dict[str, Any] = field(repr=False)
    sentinel_login: dict[str, Any] = field(repr=False)

    @property
    def waiting(self) -> int:
        """How many may wait for a connection: who comes then would wait in vain."""
        return max(_WAITING, 4 * self.connections)

    @property
    def patience_s(self) -> float:
        """How long a server must have been silent for its silence to count."""
        return _PATIENCE * min(self.connect_s, self.read_s, self.deadline_s)

    @property
    def reserve_s(self) -> float:
        """What is left when one silent reply has been waited for: time to give a place back."""
        return max(0.0, self.deadline_s - self.read_s)

    def of(self, node: Node) -> dict[str, Any]:
        """Give what a connection to a server is made from."""
        place = {"host": node.host, "port": node.port} if node.port else {"path": node.host}
        return place | (self.sentinel_login if node.sentinel else self.login)


def read_settings(
    address: Address,
    *,
    deadline_ms: int,
    connect_ms: int | None,
    read_ms: int | None,
    connections: int,
    breaker_ms: int,
    tls_ca: str | Path | None,
    tls_certificate: str | Path | None,
    tls_key: str | Path | None,
    sentinel_username: str | None,
    sentinel_password: str | None,
) -> Settings:
    """
    Check a store's arguments; they are those of :class:`authguard.stores.valkey.ValkeyStore`.

    Raises:
        ConfigurationError: AG012, for what is no whole number in its range; AG058, for TLS that
            can't be made, or what does not go with the address.
    """
    half_ms = max(1, deadline_ms // 2) if is_whole(deadline_ms, 1) else 50
    numbers = {
        "deadline_ms": deadline_ms,
        "connect_ms": half_ms if connect_ms is None else connect_ms,
        "read_ms": half_ms if read_ms is None else read_ms,
        "connections": connections,
        "breaker_ms": breaker_ms,
    }
    for name, value in numbers.items():
        check_whole(value, name, 1, _MOST, unit="milliseconds" if name.endswith("_ms") else "")
    files = {"tls_ca": tls_ca, "tls_certificate": tls_certificate, "tls_key": tls_key}
    given = [name for name, value in files.items() if value is not None]
    if given and not address.tls:
        raise ConfigurationError(
            "AG058", given[0], "the address is not under TLS", "write valkeys:// instead"
        )
    login = {"username": sentinel_username, "password": sentinel_password}
    sentinel_login = {name: value for name, value in login.items() if value is not None}
    if sentinel_login and address.kind != "sentinel":
        raise ConfigurationError(
            "AG058",
            f"sentinel_{next(iter(sentinel_login))}",
            "the address names no sentinels",
            "write valkey+sentinel://host:port/NAME, or leave it out",
        )
    return Settings(
        deadline_s=deadline_ms / 1000,
        connect_s=numbers["connect_ms"] / 1000,
        read_s=numbers["read_ms"] / 1000,
        pause_s=max(breaker_ms, deadline_ms) / 1000,  # or two probes could be on their way at once
        connections=connections,
        tls=_context(tls_ca, tls_certificate, tls_key) if address.tls else None,
        login=address.login,
        sentinel_login=sentinel_login,
    )


def _context(
    ca: str | Path | None, certificate: str | Path | None, key: str | Path | None
) -> ssl.SSLContext:
    """Trust nobody but the authorities; a server must have the name it was asked by."""
    if key is not None and certificate is None:
        raise ConfigurationError(
            "AG058", "tls_key", "stands alone", "name tls_certificate, whose key it is"
        )
    where = "tls_ca"
    try:
        context = ssl.create_default_context(cafile=None if ca is None else Path(ca))
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if certificate is not None:
            where = "tls_certificate"
            context.load_cert_chain(certificate, key)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigurationError(
            "AG058",
            where,
            f"can't be used ({type(error).__name__})",
            "name a readable file in PEM form; a key stands with its certificate, unencrypted",
        ) from None
    return context
