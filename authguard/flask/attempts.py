"""Attempts as a request sees them: one for each action and account, whoever asks for it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

from flask import request
from werkzeug.local import LocalProxy

from authguard.errors import Denied, InvalidInput, StoreUnavailable
from authguard.flask import signals
from authguard.flask.client_address import client_address
from authguard.flask.ledger import ledger
from authguard.flask.state import current_app_object, current_state
from authguard.guard import NO_ACCOUNT

if TYPE_CHECKING:
    from authguard.decision import Decision
    from authguard.guard import Attempt
    from authguard.identity import Address, Email, Phone

__all__ = [
    "RequestAttempt",
    "charge_client",
    "current_attempt",
    "release_all",
    "report_locks",
    "requests_client",
    "reserve",
]

_log = logging.getLogger("authguard")


class RequestAttempt:
    """
    A reservation made for this request: a counted failure until :meth:`succeed`.

    Attributes:
        decision: What the limits said when they admitted it.
        account: What was counted: the name in its one spelling, or the account's key where
            ``resolve`` or the blueprint's accounts know it; None if the request names no usable
            account. Check the password of this one, so that nothing else is checked than was
            counted.
    """

    def __init__(self, attempt: Attempt) -> None:
        self.decision: Decision = attempt.decision
        self.account = attempt.account
        self._attempt = attempt

    @property
    def action(self) -> str:
        """The action it belongs to."""
        return self._attempt.action

    def succeed(self) -> None:
        """Say that the credential was proved; a second call changes nothing."""
        if not self._attempt.pending:
            return
        self._attempt.succeed()
        if not self._attempt.settled and not self.decision.degraded:
            signals.send(signals.settle_failed, current_app_object(), action=self.action)

    def release(self) -> None:
        """Say that the credential was never looked at; never call it after it was."""
        self._attempt.release()

    def report_lock(self) -> None:
        """Tell of each lock that this attempt set and did not lift again."""
        if self._attempt.settled:
            return
        for verdict in self.decision.verdicts:
            if verdict.lock_set:
                signals.send(
                    signals.account_locked,
                    current_app_object(),
                    action=self.action,
                    limit=verdict.name,
                    ends_at_ms=self.decision.now_ms + verdict.reset_after_ms,
                )


def reserve(
    action: str, account: str, destination: str | Email | Phone | None = None
) -> RequestAttempt:
    """
    Reserve an attempt, unless this request has reserved the same one already.

    Args:
        action: The policy's name.
        account: The account, by any of its names or by its :class:`AccountKey`.
        destination: Where a message would go.

    Raises:
        Denied: A limit refuses; nothing was charged.
        StoreUnavailable: The store gave no verdict.
        InvalidInput: The account, the destination or the client's address can't be used.
    """
    attempts = ledger().attempts
    asked = (action, current_state().guard.account_key(account), destination)
    if asked not in attempts:
        attempts[asked] = _reserve(*asked)
    return attempts[asked]


def charge_client(action: str) -> None:
    """
    Count a request that names no usable account: a failure of its client, and of nobody else.

    Where it was refused just because there is no client to be told, there is nobody to count it.

    Args:
        action: The policy's name.

    Raises:
        Denied: A limit refuses; nothing was charged.
        StoreUnavailable: The store gave no verdict.
        InvalidInput: The client's address can't be used.
    """
    if not ledger().clientless:
        ledger().attempts[action, None, None] = _reserve(action, None)


def release_all(action: str) -> None:
    """Release this request's attempts at an action: no credential could be looked at."""
    for (of, *_), attempt in ledger().attempts.items():
        if of == action:
            attempt.release()


def requests_client() -> Address:
    """
    Give the address that counts as the client's of the running request.

    Raises:
        InvalidInput: Nobody can tell; see ``client_address``.
    """
    return client_address(
        request.remote_addr,
        request.headers,
        current_state().proxies,
        rewritten="werkzeug.proxy_fix.orig" in request.environ,
    )


def _reserve(
    action: str, account: str | None, destination: str | Email | Phone | None = None
) -> RequestAttempt:
    state = current_state()
    try:
        client = requests_client()
    except InvalidInput:
        ledger().clientless = True
        raise
    try:
        attempt = state.guard.attempt(
            action,
            account=NO_ACCOUNT if account is None else account,
            client=client,
            destination=destination,
        )
        return RequestAttempt(attempt)
    except Denied as error:
        signals.send(
            signals.attempt_refused, current_app_object(), action=action, decision=error.decision
        )
        raise
    except StoreUnavailable as error:
        _log.error("%s: refused, since the store gave no verdict: %s", action, error.reason)
        signals.send(
            signals.store_unavailable, current_app_object(), action=action, reason=error.reason
        )
        raise


def report_locks(_error: BaseException | None) -> None:
    """Tell of the locks that this request's failures set; runs when the request is over."""
    for attempt in ledger().attempts.values():
        attempt.report_lock()


def _current_attempt() -> RequestAttempt:
    attempts = list(ledger().attempts.values())
    if not attempts:
        raise RuntimeError(
            "this request has reserved no attempt; decorate its view with protect(), and read"
            " credentials only from requests that are not free (see protect)"
        )
    return attempts[-1]


#: The attempt of the running request: in a protected view, call ``current_attempt.succeed()``
#: once the credential is proved. With several, the one reserved last.
current_attempt = cast("RequestAttempt", LocalProxy(_current_attempt))
