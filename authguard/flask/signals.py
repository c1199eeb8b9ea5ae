"""
What the extension tells an app: signals in a namespace of our own.

The sender is the Flask app. No payload holds a name, an address, a password or a code; a
receiver runs inside the request and can look there for what it may know (those of messages run
in the background, after it). ``subject`` is the account's pseudonym, as ``Guard.subject`` gives
it: the same in all events of one account, and nobody without the secret can tell whose.
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
    "account_unlocked",
    "admitted_uncounted",
    "attempt_refused",
    "data_lost",
    "devices_forgotten",
    "operator_acted",
    "password_reset",
    "recovery_required",
    "second_factor_failed",
    "send_failed",
    "send_withheld",
    "sends_stopped",
    "settle_failed",
    "sign_in_after_failures",
    "sign_in_failed",
    "signed_in",
    "store_unavailable",
]

_signals = Namespace()
_log = logging.getLogger("authguard")

#: A limit or lock refused an attempt. Payload: ``action``, ``decision``.
attempt_refused = _signals.signal("attempt-refused")

#: An attempt filled a log with a lockout, and did not succeed: exactly one signal for each lock.
#: Sent when the request ends. Payload: ``action``, ``limit`` (its name), ``ends_at_ms``,
#: ``subject`` (None where no account was named).
account_locked = _signals.signal("account-locked")

#: The store gave no verdict, so the attempt was refused. Payload: ``action``, ``reason``.
store_unavailable = _signals.signal("store-unavailable")

#: The store gave no verdict, and the action's outage rule is ``allow``: the attempt was admitted
#: and counts nowhere. Payload: ``action``.
admitted_uncounted = _signals.signal("admitted-uncounted")

#: The store has lost data (FLUSHALL, a restart without persistence): counts, locks and blocks may
#: have begun afresh. Each process tells once, some ten seconds after it. No payload.
data_lost = _signals.signal("data-lost")

#: A success stands, but the store was away when it was told. Payload: ``action``.
settle_failed = _signals.signal("settle-failed")

#: The blueprint signed somebody in; the session is already theirs. Payload: ``action``.
signed_in = _signals.signal("signed-in")

#: The blueprint checked a credential and found it wanting. Payload: ``action``.
sign_in_failed = _signals.signal("sign-in-failed")


#: A lock is over before its time. Payload: ``action``, ``cause`` (``success`` of the attempt that
#: set it, ``reset``, ``link`` or ``operator``), ``subject``.
account_unlocked = _signals.signal("account-unlocked")

#: So many failures in a long time that the account is shut for an action until its owner has reset
#: the password, or an operator has opened it. Payload: ``action``, ``subject``.
recovery_required = _signals.signal("recovery-required")

#: A new password was set by a link that was sent. Payload: ``subject``.
password_reset = _signals.signal("password-reset")

#: The password was right and the code was not. Payload: ``action``, ``subject``.
second_factor_failed = _signals.signal("second-factor-failed")

#: A password or code was proved after several failures by account (or, on a known device, by that
#: device); a second factor may still be asked for. Payload: ``action``, ``failures``, ``subject``.
sign_in_after_failures = _signals.signal("sign-in-after-failures")

#: All known devices of an account were revoked. Payload: ``subject``.
devices_forgotten = _signals.signal("devices-forgotten")

#: A message was not sent though its request was admitted, and was answered as if it were.
#: Payload: ``action``, ``reasons`` (limits' names, ``country`` or ``address``), ``subject``.
send_withheld = _signals.signal("send-withheld")

#: So few codes of a range or country were entered that sends there stop. Payload: ``action``,
#: ``limit`` (its name), ``ends_at_ms``.
sends_stopped = _signals.signal("sends-stopped")

#: The notifier raised, or too many messages were waiting. Payload: ``action``, ``reason``.
send_failed = _signals.signal("send-failed")

#: An operator unlocked, blocked or overrode something. Payload: ``act``, ``action``, ``reason``,
#: ``by``, ``subject``; of an override also ``limit`` and ``to``, else None.
operator_acted = _signals.signal("operator-acted")


def send(signal: NamedSignal, app: Flask, **payload: Any) -> None:
    """
    Tell every receiver; one that raises is logged and changes neither answer nor count.

    Args:
        signal: One of the above.
        app: The Flask app, as sender.
        payload: As the signal documents.
    """
    if not signal.receivers:  # as nearly always
        return
    for receiver in signal.receivers_for(app):
        try:
            receiver(app, **payload)
        except Exception:  # noqa: BLE001 - whatever an app's receiver raises
            _log.exception("a receiver of the signal %s failed", signal.name)
