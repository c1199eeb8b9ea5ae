"""
What the extension tells an app: signals in a namespace of our own.

The sender is the Flask app. No payload holds a name, an address, a password or a code; a
receiver runs inside the request and can look there for what it may know.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from blinker import Namespace

if TYPE_CHECKING:
    from blinker import NamedSignal
    from flask import Flask

__all__ = [
    "account_locked",
    "attempt_refused",
    "settle_failed",
    "sign_in_failed",
    "signed_in",
    "store_unavailable",
]

_signals = Namespace()
_log = logging.getLogger("authguard")

#: A limit or lock refused an attempt. Payload: ``action``, ``decision``.
attempt_refused = _signals.signal("attempt-refused")

#: An attempt filled a log with a lockout, and did not succeed: exactly one signal for each lock.
#: Sent when the request ends. Payload: ``action``, ``limit`` (its name), ``ends_at_ms``.
account_locked = _signals.signal("account-locked")

#: The store gave no verdict, so the attempt was refused. Payload: ``action``, ``reason``.
store_unavailable = _signals.signal("store-unavailable")

#: A success stands, but the store was away when it was told. Payload: ``action``.
settle_failed = _signals.signal("settle-failed")

#: The blueprint signed somebody in; the session is already theirs. Payload: ``action``.
signed_in = _signals.signal("signed-in")

#: The blueprint checked a credential and found it wanting. Payload: ``action``.
sign_in_failed = _signals.signal("sign-in-failed")


def send(signal: NamedSignal, app: Flask, **payload: Any) -> None:
    """
    Tell every receiver; one that raises is logged and changes neither answer nor count.

    Args:
        signal: One of the above.
        app: The Flask app, as sender.
        payload: As the signal documents.
    """
    for receiver in signal.receivers_for(app):
        try:
            receiver(app, **payload)
        except Exception:  # noqa: BLE001 - whatever an app's receiver raises
            _log.exception("a receiver of the signal %s failed", signal.name)
