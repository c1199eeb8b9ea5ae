"""Attempts as a request sees them: one for each action and account, whoever asks for it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, cast

from werkzeug.local import LocalProxy

from authguard.errors import (
    Denied,
    Denylisted,
    InvalidInput,
    RecoveryRequired,
    StoreUnavailable,
    refusal,
)
from authguard.flask import signals
from authguard.flask.client_address import client_address
from authguard.flask.ledger import kept_ledger, ledger
from authguard.flask.state import current_app_object, current_request, current_state
from authguard.guard import NO_ACCOUNT

if TYPE_CHECKING:
    from flask import Request

    from authguard.decision import Decision
    from authguard.flask.ledger import Ledger
    from authguard.flask.state import State
    from authguard.guard import Attempt
    from authguard.identity import AccountKey, Address, Email, Phone, StandIn

__all__ = [
    "RequestAttempt",
    "charge_client",
    "count",
    "current_attempt",
    "peek",
    "refuse_shut",
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

    @property
    def device(self) -> str | None:
        """The known device that it counts by, if there is one."""
        return self._attempt.device

    @property
    def subject(self) -> str | None:
        """The account's pseudonym, for events; None if no account was named."""
        return None if self.account is None else current_state().guard.subject(self.account)

    def succeed(self) -> None:
        """Say that the credential was proved; a second call changes nothing."""
        if not self._attempt.pending:
            return
        self._attempt.succeed()
        if self._attempt.unlocked:
            signals.send(
                signals.account_unlocked,
                current_app_object(),
                action=self.action,
                cause="success",
                subject=self.subject,
            )
        if not self._attempt.settled and not self.decision.degraded:
            signals.send(signals.settle_failed, current_app_object(), action=self.action)

    def release(self) -> None:
        """Say that the credential was never looked at; never call it after it was."""
        self._attempt.release()

    @property
    def stands(self) -> bool:
        """Whether it counts: it has not been given back."""
        return not self._attempt.settled

    def report_lock(self) -> None:
        """Tell of each lock that this attempt set and did not lift again."""
        if not self.stands:
            return
        for verdict in self.decision.verdicts:
            if verdict.lock_set:
                ends_at_ms = self.decision.now_ms + verdict.reset_after_ms
                _log.warning(
                    "%s: locked by %s for %d s (subject %s)",
                    self.action,
                    verdict.name,
                    verdict.reset_after_ms // 1000,
                    self.subject,
                )
                signals.send(
                    signals.account_locked,
                    current_app_object(),
                    action=self.action,
                    limit=verdict.name,
                    ends_at_ms=ends_at_ms,
                    subject=self.subject,
                )


def reserve(
    action: str,
    account: str | None,
    destination: str | Email | Phone | StandIn | None = None,
    *,
    device: str | None = None,
    challenge: str | None = None,
    purpose: str | None = None,
) -> RequestAttempt:
    """
    Reserve an attempt, unless this request has reserved the same one already.

    Args:
        action: The policy's name.
        account: The account, by any of its names or by its :class:`AccountKey`; None where the
            action names none.
        destination: Where a message would go.
        device: A known device of this account.
        challenge: The challenge that a code answers.
        purpose: What a code is for.

    Raises:
        Denied: A limit refuses; nothing was charged.
        StoreUnavailable: The store gave no verdict.
        InvalidInput: The account, the destination or the client's address can't be used.
    """
    record = ledger()
    attempts, state = record.attempts, record.state
    key = None if account is None else state.guard.account_key(account)
    asked = (action, key, destination, device, challenge, purpose)
    if asked not in attempts:
        attempts[asked] = _reserve(
            record,
            action,
            key,
            destination=destination,
            device=device,
            challenge=challenge,
            purpose=purpose,
        )
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
    record = ledger()
    if not record.clientless:
        record.attempts[action, None] = _reserve(record, action, None)


def count(action: str, key: AccountKey | None, **claims: Any) -> Decision:
    """
    Count this request for a limit, unless it was counted for the same action and key already.

    Args:
        action: The policy's name.
        key: What limits by account count; None: they don't apply.
        claims: ``cost``, ``tier`` and ``priority`` of :meth:`authguard.Guard.attempt`.

    Raises:
        Denied: A limit refuses; nothing was charged.
        StoreUnavailable: The store gave no verdict.
        InvalidInput: The client's address can't be used.
        TooDear: The cost is more than a limit could ever admit.
    """
    record = ledger()
    counted = record.limits
    if (action, key) not in counted:
        counted[action, key] = _reserve(record, action, key, **claims)
    return counted[action, key].decision


def refuse_shut(action: str, account: AccountKey, *, shut: bool, **claims: Any) -> None:
    """
    Refuse an attempt that could not succeed: its limits are used up, or the account is shut.

    Asks and charges nothing. What is refused because the account must be recovered looks like any
    other refusal, and comes as late.

    Args:
        action: The policy's name.
        account: The account's key.
        shut: Whether the account must be recovered first.
        claims: What else it counts by, as in :func:`reserve`.

    Raises:
        Denied: It is refused.
        StoreUnavailable: The store gave no verdict.
        InvalidInput: The client's address can't be used.
    """
    decision = peek(action, account, **claims)
    if decision.denylisted:
        raise Denylisted(action)
    if shut or not decision.allowed:
        error = RecoveryRequired(decision) if shut else refusal(decision)
        signals.send(
            signals.attempt_refused, current_app_object(), action=action, decision=error.decision
        )
        raise error


def peek(action: str, account: AccountKey, **claims: Any) -> Decision:
    """
    Tell what the limits would say to such an attempt of this client; charges nothing.

    Args:
        action: The policy's name.
        account: The account's key.
        claims: What else it counts by, as in :func:`reserve`.

    Raises:
        StoreUnavailable: The store gave no verdict.
        InvalidInput: The client's address can't be used.
    """
    record = ledger()
    client = _client(record)
    try:
        return record.state.guard.peek(action, account=account, client=client, **claims)
    except StoreUnavailable as error:
        _tell_of_no_verdict(action, error)
        raise


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
    return _client_of(current_request(), current_state())


def _client_of(running: Request, state: State) -> Address:
    return client_address(
        running.remote_addr,
        running.headers,
        state.proxies,
        rewritten="werkzeug.proxy_fix.orig" in running.environ,
    )


def _client(record: Ledger) -> Address:
    try:
        return _client_of(record.request, record.state)
    except InvalidInput:
        record.clientless = True
        raise


def _reserve(record: Ledger, action: str, account: str | None, **claims: Any) -> RequestAttempt:
    try:
        attempt = record.state.guard.attempt(
            action,
            account=NO_ACCOUNT if account is None else account,
            client=_client(record),
            **claims,
        )
    except StoreUnavailable as error:
        _tell_of_no_verdict(action, error)
        raise
    except Denied as error:
        signals.send(
            signals.attempt_refused, current_app_object(), action=action, decision=error.decision
        )
        raise
    if attempt.decision.degraded:
        signals.send(signals.admitted_uncounted, current_app_object(), action=action)
    return RequestAttempt(attempt)


def _tell_of_no_verdict(action: str, error: StoreUnavailable) -> None:
    _log.error("%s: refused, since the store gave no verdict: %s", action, error.reason)
    signals.send(
        signals.store_unavailable, current_app_object(), action=action, reason=error.reason
    )


def report_locks(_error: BaseException | None) -> None:
    """Tell of the locks that this request's failures set; runs when the request is over."""
    record = kept_ledger()
    if record is not None:
        for attempt in (*record.attempts.values(), *record.limits.values()):
            attempt.report_lock()


def _current_attempt() -> RequestAttempt:
    record = kept_ledger()
    if record is None or not record.attempts:
        raise RuntimeError(
            "this request has reserved no attempt; decorate its view with protect(), and read"
            " credentials only from requests that are not free (see protect)"
        )
    return next(reversed(record.attempts.values()))


#: The attempt of the running request: in a protected view, call ``current_attempt.succeed()``
#: once the credential is proved. With several, the one reserved last.
current_attempt = cast("RequestAttempt", LocalProxy(_current_attempt))
