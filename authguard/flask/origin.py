"""Cross-site requests: recognised by what browsers say of them, so that forms need no token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from flask import Request

__all__ = ["SAFE_METHODS", "is_cross_origin"]

#: Methods that change nothing (RFC 9110, section 9.2.1).
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def is_cross_origin(request: Request) -> bool:
    """
    Tell whether a page of another origin makes a browser send this request.

    ``Sec-Fetch-Site`` decides where it is sent (by browsers, to HTTPS and localhost); otherwise
    ``Origin`` must name the host and port of the request itself. A client that sends neither is
    no browser and carries nobody's cookies but its own.

    Args:
        request: The request; one with a safe method is never cross-origin, since it changes
            nothing.
    """
    if request.method in SAFE_METHODS:
        return False
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = request.headers.get("Origin")
    return origin is not None and not _is_same_host(origin, request.host)


def _is_same_host(origin: str, host: str) -> bool:
    # Not the scheme: behind a proxy that ends TLS the app sees "http" where the browser saw
    # "https". A default port may be written on one side only.
    scheme, _, theirs = origin.partition("://")
    default_port = _DEFAULT_PORTS.get(scheme)
    if default_port is None:  # "null", or an app's own scheme
        return False
    try:
        there, here = _host(theirs, default_port), _host(host, default_port)
    except ValueError:  # no possible host or port
        return False
    return there == here and there[0] is not None


def _host(text: str, default_port: int) -> tuple[str | None, int]:
    parts = urlsplit(f"//{text}")
    return parts.hostname, default_port if parts.port is None else parts.port
