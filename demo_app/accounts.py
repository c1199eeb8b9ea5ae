"""The demo's accounts on SQLite, and how authguard asks for them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from sqlalchemy import URL, ForeignKey, create_engine, select, update
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,  # noqa: TC002 - SQLAlchemy reads the annotations at run time
    Session,
    mapped_column,
)

from authguard import InvalidInput
from authguard.identity import normalise_identifier

if TYPE_CHECKING:
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


class _Base(DeclarativeBase):
    pass


class _AccountRow(_Base):
    __tablename__ = "account"

    key: Mapped[str] = mapped_column(primary_key=True)
    username: Mapped[str] = mapped_column(unique=True)
    password_hash: Mapped[str | None]
    active: Mapped[bool]
    second_factor: Mapped[bool]


class _NameRow(_Base):
    """One of the names an account answers to; unknown and known names cost the same one query."""

    __tablename__ = "account_name"

    name: Mapped[str] = mapped_column(primary_key=True)
    account_key: Mapped[str] = mapped_column(ForeignKey("account.key"))


@dataclass(frozen=True, slots=True)
class DemoAccount:
    """An account as authguard wants to see it."""

    key: str
    username: str
    password_hash: str | None = field(repr=False)
    active: bool
    second_factor: bool


class SqlAccounts:
    """The accounts in one SQLite file. Safe for threads; each process opens its own."""

    def __init__(self, database: str) -> None:
        self._engine = create_engine(
            URL.create("sqlite", database=database),
            hide_parameters=True,  # errors must not hold names or hashes
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.dispose()

    def create(self, passwords: Passwords) -> None:
        """Make the tables, and put the demo accounts into the state this file gives them."""
        _Base.metadata.create_all(self._engine)
        with Session(self._engine) as session, session.begin():
            for person in PEOPLE:
                known = session.get(_NameRow, normalise_identifier(person.username))
                # Nobody can type a random key, so no name can stand for another's account.
                key = known.account_key if known else uuid.uuid4().hex
                session.merge(
                    _AccountRow(
                        key=key,
                        username=person.username,
                        password_hash=passwords.hash(person.password),
                        active=person.active,
                        second_factor=person.second_factor,
                    )
                )
                session.flush()
                for each in (person.username, person.email, person.phone):
                    session.merge(_NameRow(name=normalise_identifier(each), account_key=key))

    def find(self, identifier: str) -> DemoAccount | None:
        """The account that answers to this username, e-mail or phone, however spelt, or None."""
        try:
            name = normalise_identifier(identifier)
        except InvalidInput:
            return None
        query = (
            select(_AccountRow)
            .join(_NameRow, _NameRow.account_key == _AccountRow.key)
            .where(_NameRow.name == name)
        )
        with Session(self._engine) as session:
            return _account(session.scalar(query))

    def get(self, key: str) -> DemoAccount | None:
        """The account with this key, or None."""
        with Session(self._engine) as session:
            return _account(session.get(_AccountRow, key))

    def replace_password_hash(self, key: str, old: str, new: str) -> None:
        """Keep a new hash for this account, unless the password was changed meanwhile."""
        change = (
            update(_AccountRow)
            .where(_AccountRow.key == key, _AccountRow.password_hash == old)
            .values(password_hash=new)
        )
        with Session(self._engine) as session, session.begin():
            session.execute(change)


def _account(row: _AccountRow | None) -> DemoAccount | None:
    if row is None:
        return None
    return DemoAccount(row.key, row.username, row.password_hash, row.active, row.second_factor)
