"""What to look at where a store gives no clear answer, by the reason."""

from __future__ import annotations

from typing import Final

__all__ = ["mend_of"]

_RUNS: Final = "see that it runs"

#: Of what needs more than a line.
_ELSEWHERE: Final = "docs/store.md says what that means"

#: A port without TLS answers to a handshake with an error or not at all, as chance will have it.
_TLS: Final = "valkey:// is for a port without TLS, valkeys:// for one under it"

_MENDS: Final = {
    "authentication": (
        "see that user and password of its address are right; sentinels have their own"
    ),
    "breaker open": f"{_RUNS}, and what keeps it from answering",
    "connection": (
        f"{_RUNS}, and that its address is right: {_TLS}, by a name that its certificate is for"
    ),
    "no cluster": (
        "it runs without cluster mode: write valkey:// in the store's address, or"
        " valkey+sentinel:// with the sentinels' own ports and their NAME"
    ),
    "no permission": "see that its user may do what docs/store.md lists",
    "no primary": "see that the sentinels agree on a primary, and that it runs",
    "no sentinel": (
        "who answers is no sentinel: name the sentinels' own ports in the store's address (26379"
        " by default), or write valkey:// for a server alone"
    ),
    "no such database": (
        "the server has no database of that number: take another at the end of the store's"
        " address, as /0 (of a socket ?db=0), or raise `databases` in the server's file; a node of"
        " a cluster has 0 alone"
    ),
    "timeout": f"{_RUNS}, and that its address is right: {_TLS}",
    "unknown name": (
        "the sentinels know nobody of that NAME: write the one of their `sentinel monitor NAME …`"
        " behind the hosts of the store's address"
    ),
}


def mend_of(reason: str) -> str:
    """Say what to look at, or where to read on."""
    return _MENDS.get(reason, _ELSEWHERE)
