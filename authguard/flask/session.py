"""Who is signed in: the account's key and a fresh random id in Flask's session."""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Self

from flask import current_app, session

if TYPE_CHECKING:
    from authguard.accounts import Account, Accounts

__all__ = ["Pending", "end_session", "pending", "signed_in_account", "start_session", "wait_for"]

_ACCOUNT: Final = "authguard.account"
_SESSION: Final = "authguard.session"
_STAMP: Final = "authguard.stamp"
_PENDING: Final = "authguard.pending"


@dataclass(frozen=True, slots=True)
class Pending:
    """
    A code that is on its way; the same for names that nobody has.

    Attributes:
        challenge: The challenge's id.
        identifier: What was typed, for the next code.
        channel: How it was sent.
        second_factor: A password was proved first.
        next_send_at: When the next one may be asked for, in seconds since the epoch.
    """

    challenge: str
    identifier: str
    channel: str
    second_factor: bool
    next_send_at: int

    @property
    def next_send_s(self) -> int:
        """Whole seconds until the next code may be asked for."""
        return max(0, self.next_send_at - int(time.time()))

    @classmethod
    def of(cls, kept: object) -> Self | None:
        """Read what an earlier request of this session kept."""
        try:
            return cls(**kept) if isinstance(kept, dict) else None
        except TypeError:  # of another version
            return None


def start_session(account: Account) -> None:
    """
    Begin a fresh session; nothing of the one before survives.

    Args:
        account: Whose session it is.
    """
    _renew()
    session[_ACCOUNT] = account.key
    session[_STAMP] = _stamp(account)


def wait_for(code: Pending, *, fresh: bool) -> None:
    """
    Keep in the session that a code is on its way; it signs nobody in.

    Args:
        code: What is waited for.
        fresh: Begin a fresh session: a password was proved.
    """
    if fresh:
        _renew()
    session[_PENDING] = asdict(code)


def pending() -> Pending | None:
    """Return the code that this session waits for, or None."""
    return Pending.of(session.get(_PENDING))


def end_session() -> None:
    """Forget everything; who comes next gets another session id."""
    session.clear()


def signed_in_account(accounts: Accounts) -> Account | None:
    """
    Return the account that is signed in, or None; also None once it is gone or not active.

    None, too, for a session that began before the account's sessions were ended.

    Args:
        accounts: Where accounts are looked up.
    """
    key = session.get(_ACCOUNT)
    account = accounts.get(key) if isinstance(key, str) else None
    if account is None or not account.active or session.get(_STAMP) != _stamp(account):
        return None
    return account


def _renew() -> None:
    session.clear()
    # A store of sessions on the server keeps the old id when the content goes: whoever planted
    # that id in this browser would be signed in too. Flask-Session's method changes it.
    regenerate = getattr(current_app.session_interface, "regenerate", None)
    if regenerate is not None:
        regenerate(session)
    session[_SESSION] = secrets.token_urlsafe(32)


def _stamp(account: Account) -> str:
    # Accounts that only sign in by password need none.
    return str(getattr(account, "session_stamp", ""))
