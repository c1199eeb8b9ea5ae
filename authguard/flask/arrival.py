"""What follows a proved or a failed credential: session, device cookie, words to the owner."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, cast

from flask import after_this_request, current_app, jsonify, redirect, request, url_for

from authguard.devices import DEVICE_LIFE_S
from authguard.errors import ConfigurationError, StoreUnavailable
from authguard.flask import signals
from authguard.flask.attempts import peek
from authguard.flask.ledger import kept_ledger
from authguard.flask.outbound import Recipient
from authguard.flask.pages import endpoint
from authguard.flask.responses import wants_json
from authguard.flask.session import start_session
from authguard.flask.state import current_app_object, current_state
from authguard.identity import AccountKey
from authguard.limits import SHORT_MS, SlidingLog

if TYPE_CHECKING:
    from flask import Response
    from werkzeug.wrappers import Response as BaseResponse

    from authguard.accounts import Account, Accounts, Member
    from authguard.flask.attempts import RequestAttempt
    from authguard.flask.state import Messaging

__all__ = [
    "account_key",
    "arrive",
    "device_of",
    "fail",
    "forget_this_browser",
    "known_device",
    "messaging",
    "recipient",
    "signed_in",
    "tell_of_failures",
    "tell_owners",
    "the_accounts",
]

_log = logging.getLogger("authguard")

_LOGIN: Final = "login"
_COOKIE: Final = "authguard_device"

#: What an account must have.
_MEMBER: Final = (
    *("key", "username", "password_hash", "active", "second_factor"),
    *("email", "phone", "session_stamp", "device_stamp", "recovery_required"),
)

#: Failures in a short log of the account from which its owner is told of the sign-in after them.
#: People mistype once or twice.
_SEVERAL: Final = 3


def the_accounts() -> Accounts:
    """Return the accounts that the blueprint was made with."""
    accounts = current_state().look_up.accounts
    if accounts is None:  # only a view of ours put into another app by hand
        raise RuntimeError("the blueprint is not registered on this app")
    return accounts


def messaging() -> Messaging:
    """Return what sends codes and links; the routes that need it exist only with a notifier."""
    found = current_state().messaging
    if found is None:
        raise RuntimeError("the blueprint has no notifier on this app")
    return found


def recipient(account: Account) -> Recipient:
    """Copy what messages to this account's owner need."""
    _check(account)
    return Recipient.of(cast("Member", account), current_state().guard)


def device_of(account: Account | None) -> str | None:
    """
    Give the id of this browser, if it is known to the account; the same work for a name of nobody.

    Args:
        account: The account that is named, or None.
    """
    state = current_state()
    if state.messaging is None:
        return None
    member = cast("Member | None", account)
    if member is not None:
        _check(member)
    return state.devices.read(
        request.cookies.get(_COOKIE),
        account="" if member is None else member.key,
        stamp="" if member is None else member.device_stamp,
    )


def known_device(account: Account | None) -> str | None:
    """
    Give the same, unless the device is worn out; one browser is one device for all its life.

    Args:
        account: The account that is named, or None.
    """
    device = device_of(account)
    if account is None or device is None:
        return None
    try:
        decision = peek(_LOGIN, AccountKey.of_app(account.key), device=device)
    except StoreUnavailable as error:
        _log.warning("login: a known device is taken for a stranger: %s", error.reason)
        return None
    policy = current_state().guard.policy(_LOGIN)
    return None if policy.wears_out(decision.refused_by) else device


def arrive(account: Account, attempt: RequestAttempt) -> None:
    """
    Begin the session of somebody who has proved all that is asked, and remember the browser.

    Args:
        account: Whose session it is.
        attempt: The attempt that proved it.
    """
    # The attempt at a code knows no device: what the sign-in would say of it is asked.
    device = attempt.device if attempt.action == _LOGIN else known_device(account)
    start_session(account)
    signals.send(signals.signed_in, current_app_object(), action=attempt.action)
    state = current_state()
    if state.messaging is None:
        return
    member = cast("Member", account)
    _remember(
        state.devices.issue(
            request.cookies.get(_COOKIE),
            account=member.key,
            stamp=member.device_stamp,
            keep=device,
        )
    )


def tell_of_failures(account: Account, attempt: RequestAttempt) -> None:
    """
    Tell the owner that a password or code was proved after several failures, by whomever.

    Told when it is proved, whether or not a second factor is asked for next: half of a guessed
    sign-in is worth knowing of.

    Args:
        account: Whose it is.
        attempt: The attempt that proved it.
    """
    failures = _recent_failures(attempt)
    if failures < _SEVERAL:
        return
    signals.send(
        signals.sign_in_after_failures,
        current_app_object(),
        action=attempt.action,
        failures=failures,
        subject=attempt.subject,
    )
    found = current_state().messaging
    if found is not None:
        found.outbound.notice(recipient(account), "notice_sign_in")


def fail(attempt: RequestAttempt) -> None:
    """
    Tell of a credential that was found wanting.

    Args:
        attempt: The attempt, a counted failure now.
    """
    signals.send(signals.sign_in_failed, current_app_object(), action=attempt.action)


def tell_owners(_error: BaseException | None) -> None:
    """
    Do what this request's failures ask for; runs when the request is over.

    However an attempt failed, and in whichever view: its owner is told of a lock once, and that
    recovery is needed is kept. Looks an account up for names of nobody as well.
    """
    state, record = current_state(), kept_ledger()
    if state.messaging is None or record is None:
        return
    for attempt in record.attempts.values():
        if attempt.account is None or not attempt.stands:
            continue
        verdicts = attempt.decision.verdicts
        recovery = any(verdict.recovery for verdict in verdicts)
        if not recovery and not any(verdict.lock_set for verdict in verdicts):
            continue
        try:
            _tell_owner(state.messaging, attempt, recovery=recovery)
        except Exception as error:  # noqa: BLE001 - whatever the app's accounts raise; text unseen
            _log.error("%s: an owner was not told: %s", attempt.action, type(error).__name__)


def _tell_owner(messaging: Messaging, attempt: RequestAttempt, *, recovery: bool) -> None:
    members, outbound = messaging.members, messaging.outbound
    account = members.get(attempt.account or "")
    if account is None or not account.active:
        return
    if recovery and members.require_recovery(account.key, attempt.action):
        signals.send(
            signals.recovery_required,
            current_app_object(),
            action=attempt.action,
            subject=attempt.subject,
        )
        outbound.notice(
            recipient(account),
            "notice_recovery",
            codes=attempt.action != _LOGIN,
            second_factor=account.second_factor,
        )
    elif attempt.action == _LOGIN and _locks_account(attempt):
        outbound.unlock_link(recipient(account))


def _locks_account(attempt: RequestAttempt) -> bool:
    """Tell whether a lock that this attempt set is the account's, and not its client's."""
    limits = current_state().guard.policy(attempt.action).by_name
    return any(
        verdict.lock_set and "account" in limits[verdict.name].by
        for verdict in attempt.decision.verdicts
    )


def signed_in() -> BaseResponse:
    """Answer somebody who has just signed in."""
    if wants_json():
        return jsonify(status="authenticated")
    target = current_state().settings.login_redirect or endpoint("me")
    return redirect(target if target.startswith("/") else url_for(target), 303)


def forget_this_browser() -> None:
    """Take the device cookie away."""

    @after_this_request
    def _delete(response: Response) -> Response:
        response.delete_cookie(_COOKIE, **_cookie_fields())
        return response


def _remember(cookie: str) -> None:
    @after_this_request
    def _set(response: Response) -> Response:
        response.set_cookie(_COOKIE, cookie, max_age=DEVICE_LIFE_S, **_cookie_fields())
        return response


def _cookie_fields() -> dict[str, Any]:
    interface = current_app.session_interface
    return {
        "path": interface.get_cookie_path(current_app),
        "domain": interface.get_cookie_domain(current_app),
        "secure": interface.get_cookie_secure(current_app),
        "httponly": True,
        "samesite": "Lax",
    }


def _recent_failures(attempt: RequestAttempt) -> int:
    """Count the failures by account, or known device, that stood in a short log before this."""
    limits = current_state().guard.policy(attempt.action).by_name
    counts = [0]
    for verdict in attempt.decision.verdicts:
        limit = limits[verdict.name]
        short = isinstance(limit.algorithm, SlidingLog) and limit.algorithm.window_ms <= SHORT_MS
        if short and limit.by in (("account",), ("device",)):
            counts.append(verdict.limit - verdict.remaining - 1)
    return max(counts)


def _check(member: Account) -> None:
    """
    Refuse an account that lacks what is needed, by the first one that is found.

    Raises:
        ConfigurationError: AG024.
    """
    for name in _MEMBER:
        if not hasattr(member, name):
            raise ConfigurationError(
                "AG024",
                "blueprint(accounts=…)",
                f"find gave an account without {name}",
                "give accounts all attributes of authguard.accounts.Member",
            )


def account_key(account: Account | None, name: str) -> AccountKey:
    """Give what an account counts under: its key, or the name if it names nobody."""
    return AccountKey(name) if account is None else AccountKey.of_app(account.key)
