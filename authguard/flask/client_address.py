"""
The client's address: the socket's peer, or what a proxy that we trust says of it.

Nobody's header is believed by default. Behind trusted proxies ``X-Forwarded-For`` is read from
the right, where the nearest proxy wrote, past trusted addresses, to the first that is not ours:
what stands left of it came from the client and may say anything.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final

from authguard.errors import InvalidInput
from authguard.identity import read_address

if TYPE_CHECKING:
    from authguard.flask.settings import Network
    from authguard.identity import Address

__all__ = ["client_address"]

_log = logging.getLogger("authguard")

# 203.0.113.9:443, [2001:db8::1]:443, [2001:db8::1]: the forms that carry a port or brackets.
_WITH_PORT: Final = re.compile(r"(?:\[(?P<six>[^\]]*)\]|(?P<four>[0-9.]+))(?::[0-9]{1,5})?")


def client_address(
    peer: str | None, forwarded_for: str | None, trusted: tuple[Network, ...]
) -> str:
    """
    Return the one address that counts as the client's.

    Args:
        peer: The address at the other end of the socket (``REMOTE_ADDR``).
        forwarded_for: All ``X-Forwarded-For`` lines, joined with commas as WSGI does.
        trusted: The networks of our own proxies.

    Returns:
        The peer, unless it is a trusted proxy. Then the first item from the right that is no
        trusted proxy; the peer if that item is empty or no address; the leftmost if all are
        trusted.

    Raises:
        InvalidInput: There is no peer address, as on a UNIX socket. Such clients would share one
            key, so the app must be served over TCP.
    """
    nearest = _parse(peer or "")
    if nearest is None:
        # The operator's mistake, not the client's: say it where the operator looks.
        _log.error("a request was refused: it has no peer address; serve the app over TCP")
        raise InvalidInput("client", "the connection has no peer address; serve the app over TCP")
    if not forwarded_for or not _is_in(nearest, trusted):
        return str(nearest)
    client = nearest
    for item in reversed(forwarded_for.split(",")):
        hop = _parse(item)
        if hop is None:
            return str(nearest)
        client = hop
        if not _is_in(hop, trusted):
            break
    return str(client)


def _parse(item: str) -> Address | None:
    """Read one address, without port, brackets, quotes and zone; IPv4-mapped as IPv4."""
    text = item.strip().strip('"').strip()
    with_port = _WITH_PORT.fullmatch(text)
    if with_port is not None:
        text = with_port["six"] or with_port["four"] or ""
    try:
        return read_address(text)
    except ValueError:
        return None


def _is_in(address: Address, networks: tuple[Network, ...]) -> bool:
    return any(address in network for network in networks)
