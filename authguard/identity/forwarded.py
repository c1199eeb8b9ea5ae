"""
The one header by which our own proxies tell whose request they pass on.

Read from the right, where the nearest proxy wrote, past our own proxies, to the first item that
is not ours: what stands left of it came from the client and may say anything.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from authguard.identity.addresses import read_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from authguard.identity.addresses import Address, AddressSet

__all__ = ["FORWARDED", "X_FORWARDED_FOR", "is_field_name", "originator"]

X_FORWARDED_FOR: Final = "X-Forwarded-For"
FORWARDED: Final = "Forwarded"

_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # a token of RFC 9110, 5.6.2
_QUOTED: Final = r'"(?:[^"\\]|\\.)*+"'
_PAIR: Final = rf"({_WORD})=({_WORD}|{_QUOTED})"
# Possessive (*+), so that no text takes longer than one reading.
_ELEMENT: Final = re.compile(rf"[ \t]*+(?:{_PAIR})?(?:[ \t]*+;[ \t]*+(?:{_PAIR})?)*+[ \t]*+")

# What splits, and what keeps from splitting: a comma, and a quote that no backslash stands before
# or an even number of them.
_COMMA_OR_QUOTE: Final = re.compile(r'(?<!\\)(?:\\\\)*+"|,')

# 203.0.113.9:443, [2001:db8::1]:443, [2001:db8::1], and RFC 7239's hidden port, ":_a".
_WITH_PORT: Final = re.compile(
    r"(?:\[(?P<six>[^\[\]:]*+:[^\[\]]*+)\]|(?P<four>[0-9.]+))(?::(?:[0-9]{1,5}|_[\w.-]{1,64}))?",
    re.ASCII,
)


def is_field_name(name: str) -> bool:
    """Tell whether a header can have this name; an underscore is another name in WSGI."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*", name, re.ASCII) is not None


def originator(name: str, value: str, ours: AddressSet) -> Address | None:
    """
    Give the address that our nearest proxies say a request came from.

    Args:
        name: The header: ``X-Forwarded-For``, ``Forwarded`` (RFC 7239), or one that holds a
            single address, such as ``CF-Connecting-IP``.
        value: All of its lines, joined with commas in order.
        ours: Our own proxies.

    Returns:
        The first item from the right that is none of ours; the leftmost if all are; None if the
        item is empty or no address.
    """
    hop = None
    for item in _items(name.lower(), value):
        hop = _node(item)
        if hop is None or hop not in ours:
            break
    return hop


def _items(name: str, value: str) -> Iterator[str]:
    """Give the items from the right; an empty text stands for one that can't be read."""
    if name == FORWARDED.lower():
        return (_for(element) for element in _elements(value))
    if name == X_FORWARDED_FOR.lower():
        return reversed(value.split(","))
    return iter((value,))


def _elements(value: str) -> Iterator[str]:
    """
    Split a Forwarded header from the right, at the commas outside of quotes.

    From the left the client's own text could open a quote that swallows what our proxies wrote.
    """
    end, quoted = len(value), False
    for found in reversed(list(_COMMA_OR_QUOTE.finditer(value))):
        if found[0] != ",":
            quoted = not quoted
        elif not quoted:
            yield value[found.end() : end]
            end = found.start()
    yield value[:end]


def _for(element: str) -> str:
    """Give the ``for`` of an element; empty unless it is well formed and has just one."""
    if not _ELEMENT.fullmatch(element):
        return ""
    values = [text for key, text in re.findall(_PAIR, element) if key.lower() == "for"]
    if len(values) != 1:
        return ""
    text: str = values[0]
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text


def _node(item: str) -> Address | None:
    """Read one address, without its port, brackets, quotes and zone."""
    text = item.strip().strip('"').strip()
    with_port = _WITH_PORT.fullmatch(text)
    if with_port is not None:
        text = with_port["six"] or with_port["four"]
    try:
        return read_address(text)
    except ValueError:
        return None
