"""What both colours of the store begin with: an address read, its settings, and its route."""

from __future__ import annotations

from typing import TYPE_CHECKING

from authguard.stores._address import read_address
from authguard.stores._last_moments import LastMoments
from authguard.stores._routes import route_of
from authguard.stores._settings import read_settings

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from authguard.stores._address import Address, Kind
    from authguard.stores._settings import Settings

__all__ = ["RoutedStore"]


class RoutedStore:
    """Reads its arguments; they are told at :class:`authguard.stores.valkey.ValkeyStore`."""

    def __init__(
        self,
        url: str,
        *,
        deadline_ms: int = 100,
        connect_ms: int | None = None,
        read_ms: int | None = None,
        connections: int = 64,
        breaker_ms: int = 1_000,
        tls_ca: str | Path | None = None,
        tls_certificate: str | Path | None = None,
        tls_key: str | Path | None = None,
        sentinel_username: str | None = None,
        sentinel_password: str | None = None,
    ) -> None:
        address = read_address(url)
        settings = read_settings(
            address,
            deadline_ms=deadline_ms,
            connect_ms=connect_ms,
            read_ms=read_ms,
            connections=connections,
            breaker_ms=breaker_ms,
            tls_ca=tls_ca,
            tls_certificate=tls_certificate,
            tls_key=tls_key,
            sentinel_username=sentinel_username,
            sentinel_password=sentinel_password,
        )
        self._begin(address, settings)

    @classmethod
    def _like(cls, other: RoutedStore) -> Self:
        """Make one of this colour, with another's address and settings; nothing else is shared."""
        made = cls.__new__(cls)
        made._begin(other.address, other._settings)  # noqa: SLF001 (one class)
        return made

    def _begin(self, address: Address, settings: Settings) -> None:
        self.address = address
        self._settings = settings
        self.kind: Kind = address.kind
        self._route = route_of(address)
        self._last_moments = LastMoments()
        self._prepare()

    def _prepare(self) -> None:
        """Make what is the colour's own."""
        raise NotImplementedError

    @property
    def spread(self) -> bool:
        """Whether keys of different tags may be on different servers."""
        return self._route.spread
