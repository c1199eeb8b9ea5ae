"""What authguard needs to know of an app's accounts: two protocols, no base class."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Account", "Accounts"]


class Account(Protocol):
    """
    One account, as the app keeps it; only read, never written.

    A plain object, a frozen dataclass or a row of an ORM will do.
    """

    @property
    def key(self) -> str:
        """
        The one key that every name of the account resolves to, and that never changes.

        Limits count by it, and the session holds it. Take something random that nobody can type,
        such as a UUID: a typed text that names no account counts under itself, so whoever can
        type a key can use up its tries. Taken as it is: letter case tells two keys apart.
        """
        ...

    @property
    def username(self) -> str:
        """The name shown to its owner."""
        ...

    @property
    def password_hash(self) -> str | None:
        """The encoded argon2 hash; None if the account has no password."""
        ...

    @property
    def active(self) -> bool:
        """Whether the account may sign in, and stay signed in."""
        ...

    @property
    def second_factor(self) -> bool:
        """Whether the password alone must not sign in."""
        ...


class Accounts(Protocol):
    """Where accounts are looked up: a thin layer on the app's own tables."""

    def find(self, identifier: str) -> Account | None:
        """
        Return the account that the text names, or None.

        Args:
            identifier: What somebody typed: a username, an e-mail address or a phone number of
                up to 254 characters. Look it up as the sign-up wrote it. What is evened out here,
                the extension's ``normalise`` must even out too, or counting tells who has a name.
        """
        ...

    def get(self, key: str) -> Account | None:
        """
        Return the account with this key, or None.

        Args:
            key: What ``Account.key`` gave.
        """
        ...

    def replace_password_hash(self, key: str, old: str, new: str) -> None:
        """
        Store a new hash of the same password, made with the current parameters.

        Only if the stored hash is still the old one (``… WHERE password_hash = :old``): the
        password may have been changed meanwhile, and must not be changed back.

        Args:
            key: The account's key.
            old: The encoded hash that the password was checked against.
            new: The encoded hash to store.
        """
        ...
