"""The calls of real decisions as the server received them, to be sent again without us."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import valkey

__all__ = ["Sent", "pieces", "recorded"]

#: EVALSHA's arguments: its script, how many keys, the keys, the arguments.
Sent: TypeAlias = tuple[str | bytes, ...]

_PIECE = re.compile(rb'"((?:[^"\\]|\\.)*)"')


def pieces(line: bytes) -> Sent:
    """
    Read a line of MONITOR; what is text is given as text, as one would write it.

    Args:
        line: As it came: the time, who sent it, and each piece of the command in quotes.
    """
    return tuple(_text(ast.literal_eval(f'b"{it.decode()}"')) for it in _PIECE.findall(line))


def _text(piece: bytes) -> str | bytes:
    return piece.decode() if piece.isascii() and piece.decode().isprintable() else piece


def recorded(server: valkey.Valkey, decide: Callable[[], object]) -> list[Sent]:
    """
    Let decisions run, and give the arguments of each EVALSHA that came from outside.

    The server itself is asked (MONITOR), so that it does not matter how we send.
    """
    return list(_between(server, decide))


def _between(server: valkey.Valkey, decide: Callable[[], object]) -> Iterator[Sent]:
    with server.monitor() as monitor:
        decide()
        server.echo("the end")
        while (sent := pieces(monitor.connection.read_response()))[1:] != ("the end",):
            if sent and str(sent[0]).upper() == "EVALSHA":
                yield sent[1:]
