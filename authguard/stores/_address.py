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
from contextlib import suppress
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
_DATABASE: Final = re.compile(r"[0-9]{0,5}", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}", re.ASCII)


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


def read_address(url: object) -> Address:
    """
    Read an address.

    Raises:
        ConfigurationError: AG010; the address is not shown, since it may hold a password.
    """
    if isinstance(url, str):
        with suppress(ValueError):
            if unix := _UNIX.fullmatch(url):
                login = _login(unix["user"], unix["db"] or "")
                return Address("server", (Node(unix["path"], 0),), login=login)
            if shape := _SHAPE.fullmatch(url):
                return _read(shape)
    raise ConfigurationError(
        "AG010",
        "store",
        "the address can't be used (its text may hold a password and is not shown)",
        "write valkey://[user:password@]host:port/database, or one of docs/store.md",
    )


def _read(shape: re.Match[str]) -> Address:
    """Read hosts and path; a ValueError says that it can't be meant."""
    kind = cast("Kind", shape["kind"] or "server")
    first, second = [*shape["path"].split("/")[1:], "", ""][:2]
    name, db = (first, second) if kind == "sentinel" else ("", first)
    if second and kind != "sentinel":
        raise ValueError
    if (kind == "sentinel" and not _NAME.fullmatch(name)) or not _DATABASE.fullmatch(db):
        raise ValueError
    if kind == "cluster" and db.strip("0"):
        raise ValueError  # a cluster has database 0 alone
    hosts = shape["hosts"].split(",")
    if kind == "server" and len(hosts) > 1:
        raise ValueError
    sentinel = kind == "sentinel"
    nodes = tuple(_node(host, sentinel=sentinel) for host in hosts)
    login = _login(shape["user"], "" if kind == "cluster" else db)
    return Address(kind, nodes, tls=shape["tls"] == "s", name=name, login=login)


def _node(host: str, *, sentinel: bool) -> Node:
    parts = parse_url(f"valkey://{host}")
    if "host" not in parts:
        raise ValueError
    parts["host"].encode("idna")  # what no resolver can look up must fail here
    port = parts.get("port", _SENTINEL_PORT if sentinel else _SERVER_PORT)
    return Node(parts["host"], port, sentinel=sentinel)


def _login(user: str | None, db: str) -> dict[str, Any]:
    """Read user, password and database, percent-decoded."""
    parts = parse_url(f"valkey://{'' if user is None else user + '@'}host/{db}")
    return {part: parts[part] for part in ("username", "password", "db") if part in parts}
