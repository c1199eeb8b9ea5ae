"""The demo's accounts on SQLite, and how authguard looks them up and changes them."""

from __future__ import annotations

import secrets
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self, cast

from sqlalchemy import delete, literal, select, update
from sqlalchemy.dialects.sqlite import insert

from authguard import InvalidInput
from authguard.identity import normalise_identifier
from demo_app.database import AccountRow, Database, NameRow, RecoveryRow

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, CursorResult
    from sqlalchemy.sql.base import Executable

    from authguard import Passwords


@dataclass(frozen=True, slots=True)
class Person:
    """A demo account as it is created at start, its password in the open."""

    username: str
    email: str
    phone: str
    password: str
    active: bool = True
    second_factor: bool = False


PEOPLE: Final = (
    Person("vera", "vera@example.test", "+14155550101", "correct horse vera"),
    Person("omar", "omar@example.test", "+14155550102", "correct horse omar"),
    Person("tess", "tess@example.test", "+14155550103", "correct horse tess", second_factor=True),
    Person("dora", "dora@example.test", "+14155550104", "correct horse dora", active=False),
)


@dataclass(frozen=True, slots=True)
class DemoAccount:
    """An account as authguard wants to see it; :class:`authguard.accounts.Member` explains it."""

    key: str
    username: str
    email: str | None = field(repr=False)
    phone: str | None = field(repr=False)
    password_hash: str | None = field(repr=False)
    active: bool
    second_factor: bool
    session_stamp: str = field(repr=False)
    device_stamp: str = field(repr=False)
    recovery_required: frozenset[str]


class SqlAccounts:
    """The accounts in one SQLite file. Safe for threads; each process opens its own."""

    def __init__(self, database: str) -> None:
        self._database = Database(database)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def create(self, passwords: Passwords) -> None:
        """
        Make the tables, and put the demo accounts into the state this file gives them.

        Raises:
            ForeignDatabaseError: The file has other tables.
        """
        self._database.create()
        hashes = [passwords.hash(person.password) for person in PEOPLE]  # before the lock: slow
        with self._database.write() as session:
            for person, password_hash in zip(PEOPLE, hashes, strict=True):
                known = session.get(NameRow, normalise_identifier(person.username))
                # Nobody can type a random key, so no name can stand for another's account.
                key = known.account_key if known else uuid.uuid4().hex
                session.merge(
                    AccountRow(
                        key=key,
                        username=person.username,
                        email=person.email,
                        phone=person.phone,
                        password_hash=password_hash,
                        active=person.active,
                        second_factor=person.second_factor,
                        session_stamp=_fresh_stamp(),
                        device_stamp=_fresh_stamp(),
                    )
                )
                session.flush()
                for each in (person.username, person.email, person.phone):
                    session.merge(NameRow(name=normalise_identifier(each), account_key=key))
                session.execute(delete(RecoveryRow).where(RecoveryRow.account_key == key))

    def find(self, identifier: str) -> DemoAccount | None:
        """The account that answers to this username, e-mail or phone, however spelt, or None."""
        try:
            name = normalise_identifier(identifier)
        except InvalidInput:
            return None
        named = select(NameRow.account_key).where(NameRow.name == name)
        return self._read(AccountRow.key == named.scalar_subquery())

    def get(self, key: str) -> DemoAccount | None:
        """The account with this key, or None."""
        return self._read(AccountRow.key == key)

    def replace_password_hash(self, key: str, old: str, new: str) -> None:
        """Keep a new hash for this account, unless the password was changed meanwhile."""
        unchanged = update(AccountRow).where(AccountRow.key == key, AccountRow.password_hash == old)
        self._write(unchanged.values(password_hash=new))

    def set_password(self, key: str, new: str) -> None:
        """Keep the hash of a new password; sessions and devices of the old one end."""
        self._write(
            update(AccountRow)
            .where(AccountRow.key == key)
            .values(password_hash=new, session_stamp=_fresh_stamp(), device_stamp=_fresh_stamp())
        )

    def forget_devices(self, key: str) -> None:
        """Make all devices of this account unknown ones."""
        self._write(
            update(AccountRow).where(AccountRow.key == key).values(device_stamp=_fresh_stamp())
        )

    def require_recovery(self, key: str, action: str) -> bool:
        """Shut the account for this action; True if it was open. No such account: False."""
        account = select(AccountRow.key, literal(action)).where(AccountRow.key == key)
        shut = insert(RecoveryRow).from_select(["account_key", "action"], account)
        return self._write(shut.on_conflict_do_nothing()) == 1

    def lift_recovery(self, key: str, action: str) -> bool:
        """Open the account for this action; True if it was shut."""
        shut = delete(RecoveryRow).where(
            RecoveryRow.account_key == key, RecoveryRow.action == action
        )
        return self._write(shut) == 1

    def _read(self, wanted: ColumnElement[bool]) -> DemoAccount | None:
        with self._database.read() as session:
            found = session.execute(_ACCOUNTS.where(wanted)).all()
            if not found:
                return None
            row: AccountRow = found[0][0]
            return DemoAccount(
                key=row.key,
                username=row.username,
                email=row.email,
                phone=row.phone,
                password_hash=row.password_hash,
                active=row.active,
                second_factor=row.second_factor,
                session_stamp=row.session_stamp,
                device_stamp=row.device_stamp,
                recovery_required=frozenset(action for _, action in found if action is not None),
            )

    def _write(self, change: Executable) -> int:
        """Make one change; give the number of rows that it touched."""
        with self._database.write() as session:
            return cast("CursorResult[Any]", session.execute(change)).rowcount


#: An account and what it is shut for: a row for each action, one without any.
_ACCOUNTS: Final = select(AccountRow, RecoveryRow.action).outerjoin(
    RecoveryRow, RecoveryRow.account_key == AccountRow.key
)


def _fresh_stamp() -> str:
    return secrets.token_hex(16)
