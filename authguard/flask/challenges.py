"""Whose code it is, what it is for, and which challenge it goes on with."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from authguard.flask.arrival import account_key, messaging
from authguard.flask.attempts import peek
from authguard.flask.session import pending
from authguard.flask.state import current_state
from authguard.flows.otp import SECOND_FACTOR, SIGN_IN
from authguard.identity import AccountKey

if TYPE_CHECKING:
    from authguard.accounts import Member
    from authguard.notify import Channel
    from authguard.one_time import Holder

__all__ = [
    "by_code_alone",
    "continued",
    "is_shut",
    "live_challenge",
    "second_factor_channel",
    "stamp_of",
    "was_second_factor",
]

_VERIFY: Final = "otp.verify"

_log = logging.getLogger("authguard")


def continued(
    account: Member | None, name: str, named: str | None
) -> tuple[str, AccountKey, str | None]:
    """
    Tell what a new code is for, what it counts under, and which challenge it goes on with.

    A second factor goes on only for whoever holds the challenge that the password opened: named in
    the request, or kept in the session. Without it no code could sign in to an account that has
    one, so what is asked for by its name alone is counted under a stand-in, as if it were nobody's:
    the owner's sends and tries are not used up.

    Args:
        account: The account that is named, or None.
        name: The name in its one spelling.
        named: The challenge that the request names, or None.
    """
    key = account_key(account, name)
    alone = key
    if account is not None and not by_code_alone(account):
        alone = AccountKey(f"stand-in {key}")
    waiting = pending()
    kept = waiting.challenge if waiting is not None and waiting.second_factor else None
    for challenge in filter(None, (named, kept)):
        holder = current_state().guard.one_time.holder(challenge)
        if holder is None or holder.stamp != stamp_of(account):
            continue
        if (holder.purpose, holder.account) in ((SECOND_FACTOR, key), (SIGN_IN, alone)):
            goes_on = not _spent(holder.account, challenge)
            return holder.purpose, holder.account, challenge if goes_on else None
    return SIGN_IN, alone, None


def live_challenge(holder: Holder, account: Member) -> str | None:
    """Give the challenge whose code still works, or None: it may be older than a reset."""
    live = current_state().guard.one_time.live_challenge(holder)
    if live is None or _spent(holder.account, live):
        return None
    opened = current_state().guard.one_time.holder(live)
    return live if opened is not None and opened.stamp == stamp_of(account) else None


def was_second_factor(identifier: str, named: str | None) -> bool:
    """Tell whether the challenge is this session's second factor, which is over by now."""
    waiting = pending()
    return (
        waiting is not None
        and waiting.second_factor
        and (waiting.challenge, waiting.identifier) == (named, identifier)
    )


def by_code_alone(account: Member) -> bool:
    """Tell whether a code can be all that the account asks for."""
    return account.active and not account.second_factor


def second_factor_channel(account: Member) -> Channel:
    """Give the way the account's own codes go: the first that it has an address for."""
    channels = messaging().second_factor_channels
    for channel in channels:
        if account.phone if channel == "sms" else account.email:
            return channel
    _log.error("an account has a second factor and nowhere to send its code")
    return channels[0]


def stamp_of(account: Member | None) -> str:
    """Give the stamp that a challenge must have been made under."""
    return "" if account is None else account.session_stamp


def is_shut(account: Member | None) -> bool:
    """Tell whether the account takes no codes until it is recovered."""
    return account is not None and _VERIFY in account.recovery_required


def _spent(key: AccountKey, challenge: str) -> bool:
    """Tell whether a challenge has had all its tries, so that no code could answer it."""
    by_name = current_state().guard.policy(_VERIFY).by_name
    refusing = map(by_name.get, peek(_VERIFY, key, challenge=challenge).refused_by)
    return any(limit is not None and "challenge" in limit.by for limit in refusing)
