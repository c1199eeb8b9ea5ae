"""
The client's address: the socket's peer, or what a proxy that we trust says of it.

Nobody's header is believed by default, and never more than the one that is declared: with a chain
of headers to fall back on, a client would only have to send the one that its proxy leaves alone.
"""

from __future__ import annotations

import ipaddress
import logging
import threading
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Self

from werkzeug.datastructures import EnvironHeaders

from authguard.errors import ConfigurationError, InvalidInput
from authguard.identity.addresses import INTERNAL, read_address, read_networks
from authguard.identity.forwarded import originator

if TYPE_CHECKING:
    from werkzeug.datastructures import Headers

    from authguard.identity import Address
    from authguard.identity.addresses import AddressSet

__all__ = ["UNIX", "Proxies", "client_address"]

_log = logging.getLogger("authguard")

#: Stands among the trusted proxies for the other end of a UNIX socket, as in nginx.
UNIX: Final = "unix:"

#: What such a peer counts as when its proxy names no client. No client can come from there
#: (RFC 1122, 3.2.1.3).
_NOWHERE: Final = ipaddress.IPv4Address(0)

#: How servers show a peer without an address: gunicorn, uWSGI; werkzeug; waitress.
_NO_ADDRESS: Final = frozenset({None, "", "<local>", "localhost", UNIX})

#: Headers that proxies set; only for the warning.
_FORWARDING: Final = (
    "X-Forwarded-For",
    "Forwarded",
    "X-Real-IP",
    "CF-Connecting-IP",
    "True-Client-IP",
    "Fastly-Client-IP",
    "X-Client-IP",
    "X-Cluster-Client-IP",
)

#: The same as WSGI has them: one look tells of nearly every request that none was sent.
_FORWARDING_KEYS: Final = frozenset(
    f"HTTP_{name.upper().replace('-', '_')}" for name in _FORWARDING
)

#: Longest text of a peer whose address is kept: none is longer, and what a middleware has taken
#: from a header must not fill the memory.
_LONGEST_KEPT: Final = 64

#: Taken by the first warning and kept, so that there is one for each process.
_warned = threading.Lock()


@dataclass(frozen=True, slots=True)
class Proxies:
    """
    Our own proxies, and the one header they set.

    Attributes:
        networks: Where they are.
        unix: Whether the other end of a UNIX socket is one of them.
        header: The header's name.
    """

    networks: AddressSet
    unix: bool
    header: str

    @classmethod
    def of(cls, trusted: object, header: str, where: str) -> Self:
        """
        Read them from the settings.

        Raises:
            ConfigurationError: AG017 or AG018; see ``read_networks``.
        """
        unix = isinstance(trusted, list | tuple) and UNIX in trusted
        if isinstance(trusted, list | tuple):
            trusted = [item for item in trusted if item != UNIX]
            if any(isinstance(item, str) and item.startswith("unix") for item in trusted):
                raise ConfigurationError(
                    "AG017", where, "a UNIX socket is listed by its path", f"write {UNIX!r} alone"
                )
        return cls(read_networks(trusted, where), unix, header)

    def hold(self, peer: Address | None) -> bool:
        """Tell whether a peer is one of them."""
        if peer is None:
            return self.unix
        return bool(self.networks.networks) and peer in self.networks


def client_address(
    peer: str | None, headers: Headers, proxies: Proxies, *, rewritten: bool = False
) -> Address:
    """
    Return the one address that counts as the client's.

    Args:
        peer: The address at the other end of the socket (``REMOTE_ADDR``).
        headers: The request's; several lines of one name joined with commas, as WSGI does.
        proxies: Our own.
        rewritten: A middleware has put the client's address in the peer's place already.

    Returns:
        The peer, unless it is a trusted proxy. Then the first item of its header from the right
        that is no trusted proxy; the peer if that item is empty or no address; the leftmost if
        all are trusted.

    Raises:
        InvalidInput: There is no peer address, as on a UNIX socket, and nobody said that a proxy
            of ours is there. Such clients would share one key.
    """
    text = peer or ""
    nearest = (_read_peer if len(text) <= _LONGEST_KEPT else _read_peer.__wrapped__)(text)
    if nearest is None and not (proxies.unix and peer in _NO_ADDRESS):
        # The operator's mistake, not the client's: say it where the operator looks.
        _log.error(
            "a request was refused: it has no peer address; serve the app over TCP, or list"
            " '%s' in AUTHGUARD_TRUSTED_PROXIES if a proxy of yours is at its other end",
            UNIX,
        )
        raise InvalidInput("client", "the connection has no peer address")
    value = headers.get(proxies.header) if proxies.hold(nearest) else None
    if value is None and not rewritten:
        _warn_of_undeclared(nearest, headers, proxies)
    client = originator(proxies.header, value, proxies.networks) if value else None
    return client or nearest or _NOWHERE


@lru_cache(maxsize=1024)
def _read_peer(peer: str) -> Address | None:
    """Read what a server says of the socket's other end; a proxy's, or a flood's, is one of few."""
    try:
        return read_address(peer)
    except ValueError:
        return None


def _warn_of_undeclared(peer: Address | None, headers: Headers, proxies: Proxies) -> None:
    """Say once that a proxy seems to be there which nobody declared; trust nothing for it."""
    if isinstance(headers, EnvironHeaders) and _FORWARDING_KEYS.isdisjoint(headers.environ):
        return
    if peer is not None and peer not in INTERNAL:
        return
    header = next((name for name in _FORWARDING if headers.get(name) is not None), None)
    if header is None or not _warned.acquire(blocking=False):
        return
    if proxies.hold(peer):
        _log.warning(
            "a trusted proxy sends %s and no %s: name the header that it sets in"
            " AUTHGUARD_FORWARDED_HEADER; until then all its clients share one budget",
            header,
            proxies.header,
        )
    else:
        _log.warning(
            "a private, loopback or UNIX peer sends %s, which is not believed: if it is a proxy of"
            " yours, all its clients share one budget; list it in AUTHGUARD_TRUSTED_PROXIES, and"
            " name its header in AUTHGUARD_FORWARDED_HEADER",
            header,
        )
