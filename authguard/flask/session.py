"""Who is signed in: the account's key and a fresh random id in Flask's session."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from flask import current_app, session

if TYPE_CHECKING:
    from authguard.accounts import Account, Accounts

__all__ = ["end_session", "signed_in_account", "start_session"]

_ACCOUNT: Final = "authguard.account"
_SESSION: Final = "authguard.session"


def start_session(account: Account) -> None:
    """
    Begin a fresh session; nothing of the one before survives.

    Args:
        account: Whose session it is.
    """
    session.clear()
    # A store of sessions on the server keeps the old id when the content goes: whoever planted
    # that id in this browser would be signed in too. Flask-Session's method changes it.
    regenerate = getattr(current_app.session_interface, "regenerate", None)
    if regenerate is not None:
        regenerate(session)
    session[_SESSION] = secrets.token_urlsafe(32)
    session[_ACCOUNT] = account.key


def end_session() -> None:
    """Forget everything."""
    session.clear()


def signed_in_account(accounts: Accounts) -> Account | None:
    """
    Return the account that is signed in, or None; also None once it is gone or not active.

    Args:
        accounts: Where accounts are looked up.
    """
    key = session.get(_ACCOUNT)
    account = accounts.get(key) if isinstance(key, str) else None
    return account if account is not None and account.active else None
