"""What can go wrong with a store, in one word each; nothing of the server's text gets out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from valkey.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterCrossSlotError,
    ClusterDownError,
    InvalidResponse,
    MasterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)
from valkey.exceptions import ConnectionError as ValkeyConnectionError
from valkey.exceptions import TimeoutError as ValkeyTimeoutError

from authguard.errors import StoreUnavailable

if TYPE_CHECKING:
    from valkey.exceptions import ValkeyError

__all__ = [
    "OWN_ERRORS",
    "SILENCE",
    "SOUND",
    "STALE",
    "CrowdedError",
    "NoneFreeError",
    "reason",
    "without_echo",
]


class NoReplicasError(ResponseError):
    """Too few replicas follow: the primary takes no writes (``min-replicas-to-write``)."""


class NoneFreeError(TimeoutError):
    """No connection became free in time; that says nothing of the server."""


class CrowdedError(NoneFreeError):
    """So many wait for a connection that waiting would be in vain."""


#: What a server says besides what the client library knows: of a cluster, and of replicas.
OWN_ERRORS: Final = {
    "ASK": AskError,
    "CLUSTERDOWN": ClusterDownError,
    "CROSSSLOT": ClusterCrossSlotError,
    "MASTERDOWN": MasterDownError,
    "MOVED": MovedError,
    "NOREPLICAS": NoReplicasError,
    "TRYAGAIN": TryAgainError,
}

#: A server that doesn't know a command echoes what follows: keys, and even AUTH's password.
_ECHO: Final = ", with args beginning with"

#: The word for each kind of failure, most special first.
_REASONS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (CrowdedError, "crowded"),
    (ValkeyTimeoutError, "timeout"),
    (TimeoutError, "timeout"),
    (BusyLoadingError, "loading"),
    (AuthenticationError, "authentication"),
    (NoPermissionError, "no permission"),
    (ReadOnlyError, "read only"),
    (OutOfMemoryError, "out of memory"),
    (NoScriptError, "script cache"),
    (TryAgainError, "slot moving"),
    (AskError, "slot moving"),
    (ClusterDownError, "cluster down"),
    (NoReplicasError, "no replicas"),
    (InvalidResponse, "malformed reply"),
    (ResponseError, "error reply"),
    (ValkeyConnectionError, "connection"),
    (OSError, "connection"),
)

#: The server did not answer in time.
SILENCE: Final = (ValkeyTimeoutError, TimeoutError)

#: Whole answers by which the server says itself that nothing ran: the connection is in order.
SOUND: Final = (NoScriptError, AskError, TryAgainError)

#: After these, whoever is asked next may have to be looked for again.
STALE: Final = (
    ValkeyConnectionError,
    *SILENCE,
    OSError,
    ReadOnlyError,
    NoReplicasError,
    ClusterDownError,
    BusyLoadingError,
    StoreUnavailable,
)


#: What a server says where it is another than the address means; the client library has one error
#: for all of them. Redis 6 quotes a command otherwise.
_MISTAKEN: Final = {
    "DB index is out of range": "no such database",
    "SELECT is not allowed in cluster mode": "no such database",
    "This instance has cluster support disabled": "no cluster",
    "unknown command 'SENTINEL'": "no sentinel",
    "unknown command `SENTINEL`": "no sentinel",
}

#: How a script tells that one of its commands or keys is denied; only outside is it an error type.
_DENIED: Final = ("has no permissions to", "can't run this command", "can't access at least one")


def reason(error: BaseException) -> str:
    """Give the word."""
    if isinstance(error, StoreUnavailable):
        return error.reason
    if isinstance(error, ResponseError):
        told = str(error)
        if any(text in told for text in _DENIED):
            return "no permission"
        for text, word in _MISTAKEN.items():
            if told.startswith(text):
                return word
    return next((word for kind, word in _REASONS if isinstance(error, kind)), "client failure")


def without_echo(error: ValkeyError) -> ValkeyError:
    """Take out of an error what the server repeats of the command."""
    error.args = (str(error).partition(_ECHO)[0],)
    return error
