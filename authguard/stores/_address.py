"""
Where a store is: one server, a server that sentinels name, or a cluster.

::

    valkey://[user:password@]host[:port][/db]                    one server
    valkeys://…                                                  the same under TLS
    valkey+unix://[user:password@]/path/to/socket[?db=N]         by a UNIX socket
    valkey+sentinel://[user:password@]host:port[,…]/NAME[/db]    the primary that sentinels name
    valkey+cluster://[user:password@]host:port[,…]               a cluster, by any of its nodes

``valkeys+sentinel`` and ``valkeys+cluster`` are under TLS; ``redis``, ``rediss`` and ``unix`` are
known as well. User and password are the server's; sentinels have their own, as arguments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from valkey.connection import parse_url

from authguard.errors import ConfigurationError

__all__ = ["Address", "Kind", "Node", "read_address"]

Kind: TypeAlias = Literal["server", "sentinel", "cluster"]

_SERVER_PORT: Final = 6379
_SENTINEL_PORT: Final = 26379

#: Of an address nothing but this: how connections behave is the store's own affair.
_SHAPE: Final = re.compile(
    r"(?P<brand>valkey|redis)(?P<tls>s?)(\+(?P<kind>sentinel|cluster))?"
    r"://((?P<user>[^/?#\s]*)@)?(?P<hosts>[^/?#\s@]+)(?P<path>(/[^/?#\s]*){0,2})",
    re.ASCII,
)
_UNIX: Final = re.compile(
    r"(valkey\+|redis\+)?unix://((?P<user>[^/?#\s]*)@)?(?P<path>/[^?#\s]+)(\?db=(?P<db>[0-9]{1,5}))?",
    re.ASCII,
)
_SCHEME: Final = re.compile(r"(valkey|redis)(s?(\+(sentinel|cluster))?|\+unix)|unix", re.ASCII)
_BLANK: Final = re.compile(r"\s", re.ASCII)
_DATABASE: Final = re.compile(r"[0-9]{0,5}", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}", re.ASCII)
_PORT: Final = re.compile(r"[0-9]{0,5}", re.ASCII)
_LAST_PORT: Final = 65_535

#: What helps where user and password hold a character that means something in an address.
_ENCODED: Final = "in user and password write / as %2F, ? as %3F, # as %23, @ as %40, [ as %5B"


class Node(NamedTuple):
    """
    One server to connect to.

    Attributes:
        host: Its name or address; of a UNIX socket, the path.
        port: Its TCP port; 0: ``host`` is a path.
        sentinel: It is a sentinel, which names servers and keeps no counts.
    """

    host: str
    port: int
    sentinel: bool = False

    def __str__(self) -> str:
        if not self.port:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Address:
    """
    What an address says.

    Attributes:
        kind: How the server is found.
        nodes: Whom to ask first: the server, the sentinels, or nodes of the cluster.
        tls: Connections are under TLS.
        name: Under which the sentinels know the primary.
        login: ``username``, ``password`` and ``db``, where they are given.
    """

    kind: Kind
    nodes: tuple[Node, ...]
    tls: bool = False
    name: str = ""
    login: dict[str, Any] = field(default_factory=dict, repr=False)


class _FaultError(Exception):
    """An address can't be meant: which part of it is at fault, and nothing of its text."""


def read_address(url: object, where: str = "store") -> Address:
    """
    Read an address.

    Args:
        url: The address.
        where: The setting it stands in, for the error.

    Raises:
        ConfigurationError: AG010, naming the part at fault; the address is not shown, since it may
            hold a password.
    """
    try:
        return _meant(url)
    except _FaultError as error:
        fault = str(error)
    raise ConfigurationError(
        "AG010",
        where,
        f"{fault} (the address may hold a password and is not shown)",
        "write valkey://[user:password@]host:port/database, or one of docs/store.md",
    )


def _meant(url: object) -> Address:
    if not isinstance(url, str):
        raise _FaultError("it is no text")
    if unix := _UNIX.fullmatch(url):
        if "@" in unix["path"]:  # and a path is shown
            raise _FaultError(
                f"an @ stands in its path, and user and password before it; {_ENCODED}"
            )
        login = _login(unix["user"], unix["db"] or "")
        return Address("server", (Node(unix["path"], 0),), login=login)
    if shape := _SHAPE.fullmatch(url):
        return _read(shape)
    raise _FaultError(_misshapen(url))


def _misshapen(url: str) -> str:
    """Say what keeps a text from being an address of any kind."""
    scheme, found, rest = url.partition("://")
    if _BLANK.search(url):
        return "a blank or the end of a line stands in it"
    if not found or not _SCHEME.fullmatch(scheme):
        return "it doesn't begin with valkey://, valkeys:// or another scheme that is known"
    if scheme.endswith("unix"):
        if "?" in rest or "#" in rest:
            return f"of options a socket takes ?db=NUMBER alone, of five digits at most; {_ENCODED}"
        if "@" in rest:
            return f"its path begins behind the @, with /; {_ENCODED}"
        return "the path of its socket doesn't begin with /"
    return _misplaced(rest)


def _misplaced(rest: str) -> str:
    """Say what stands behind ``://`` that no host and path can be."""
    if "?" in rest or "#" in rest:
        return f"it has options or a fragment, and takes none; {_ENCODED}"
    if "@" in rest.partition("/")[2]:
        return f"an @ stands behind a /; {_ENCODED}"
    if not rest.partition("/")[0].rpartition("@")[2]:
        return "it names no host"
    return "too much stands behind its host"


def _read(shape: re.Match[str]) -> Address:
    """Read hosts and path."""
    kind = cast("Kind", shape["kind"] or "server")
    first, second = [*shape["path"].split("/")[1:], "", ""][:2]
    name, db = (first, second) if kind == "sentinel" else ("", first)
    hosts = shape["hosts"].split(",")
    if "@" in shape["path"]:
        raise _FaultError(f"an @ stands behind a /; {_ENCODED}")
    if kind != "server" and re.search("[@,]", shape["user"] or ""):
        raise _FaultError(
            "user and password stand once, before the first host; in them write @ as %40, a comma"
            " as %2C"
        )
    if second and kind != "sentinel":
        raise _FaultError("more than a database stands behind its host")
    if kind == "sentinel" and not name:
        raise _FaultError("it lacks the NAME under which the sentinels know the primary, as /NAME")
    if kind == "sentinel" and not _NAME.fullmatch(name):
        raise _FaultError("its NAME is too long, or not of A-Z a-z 0-9 . _ - alone")
    if not _DATABASE.fullmatch(db):
        raise _FaultError("its database is no number of five digits at most")
    if kind == "cluster" and db.strip("0"):
        raise _FaultError("it names a database, and a cluster has database 0 alone")
    if kind == "server" and len(hosts) > 1:
        raise _FaultError("it names several hosts, which only +sentinel and +cluster take")
    sentinel = kind == "sentinel"
    nodes = tuple(_node(host, sentinel=sentinel) for host in hosts)
    login = _login(shape["user"], "" if kind == "cluster" else db)
    return Address(kind, nodes, tls=shape["tls"] == "s", name=name, login=login)


def _node(host: str, *, sentinel: bool) -> Node:
    try:
        parts = parse_url(f"valkey://{host}")
        parts.get("host", "").encode("idna")  # what no resolver can look up must fail here
    except ValueError:
        raise _FaultError(_part_at_fault(host)) from None
    if "host" not in parts:
        raise _FaultError("it names no host")
    port = parts.get("port", _SENTINEL_PORT if sentinel else _SERVER_PORT)
    return Node(parts["host"], port, sentinel=sentinel)


def _part_at_fault(host: str) -> str:
    """Tell a port that is none from a host that is none."""
    bracketed = host.startswith("[")
    name, colon, port = host.rpartition(":")
    if colon and (bracketed or ":" not in name) and "]" not in port:
        if not _PORT.fullmatch(port) or int(port or 0) > _LAST_PORT:
            return f"its port is no number up to {_LAST_PORT}"
    elif ":" in host and not bracketed:
        return "its host can't be one: an IPv6 address stands in [ ]"
    return "its host can't be one"


def _login(user: str | None, db: str) -> dict[str, Any]:
    """Read user, password and database, percent-decoded."""
    try:
        parts = parse_url(f"valkey://{'' if user is None else user + '@'}host/{db}")
    except ValueError:
        raise _FaultError(f"its user or password can't be read; {_ENCODED}") from None
    return {part: parts[part] for part in ("username", "password", "db") if part in parts}
