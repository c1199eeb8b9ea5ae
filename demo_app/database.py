"""The demo's one SQLite file: its tables, and transactions that threads and processes share."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from sqlalchemy import URL, ForeignKey, create_engine, event, inspect
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,  # noqa: TC002 - SQLAlchemy reads the annotations at run time
    Session,
    mapped_column,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

__all__ = ["AccountRow", "Database", "ForeignDatabaseError", "MessageRow", "NameRow", "RecoveryRow"]

#: Longest wait for another's transaction, in seconds; each is a few milliseconds long.
_PATIENCE_S: Final = 10.0

#: Kept in the file; rises when a table changes.
_VERSION: Final = 2

#: The execution option that says how a transaction begins.
_BEGIN: Final = "demo_begin"


class ForeignDatabaseError(Exception):
    """The file holds tables, but not this version's."""


class Base(DeclarativeBase):
    """What the tables share."""


class AccountRow(Base):
    """An account."""

    __tablename__ = "account"

    key: Mapped[str] = mapped_column(primary_key=True)
    username: Mapped[str] = mapped_column(unique=True)
    email: Mapped[str | None]
    phone: Mapped[str | None]
    password_hash: Mapped[str | None]
    active: Mapped[bool]
    second_factor: Mapped[bool]
    session_stamp: Mapped[str]
    device_stamp: Mapped[str]


class NameRow(Base):
    """One of the names an account answers to; unknown and known names cost the same one query."""

    __tablename__ = "account_name"

    name: Mapped[str] = mapped_column(primary_key=True)
    account_key: Mapped[str] = mapped_column(ForeignKey("account.key"))


class RecoveryRow(Base):
    """An action that stays shut for an account until its owner has recovered it."""

    __tablename__ = "account_recovery"

    account_key: Mapped[str] = mapped_column(ForeignKey("account.key"), primary_key=True)
    action: Mapped[str] = mapped_column(primary_key=True)


class MessageRow(Base):
    """A mail or text message that would have gone out."""

    __tablename__ = "message"

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    channel: Mapped[str]
    to: Mapped[str]
    subject: Mapped[str]
    body: Mapped[str]
    code: Mapped[str | None]
    token: Mapped[str | None]
    sent_at: Mapped[str]


class Database:
    """
    The SQLite file. Safe for threads; each process opens its own.

    Args:
        path: The file; :meth:`create` makes it if it isn't there.
    """

    def __init__(self, path: str) -> None:
        self._engine = create_engine(
            URL.create("sqlite", database=path),
            hide_parameters=True,  # errors must not hold names, hashes or codes
            connect_args={"timeout": _PATIENCE_S},
        )
        event.listen(self._engine, "connect", _leave_transactions_to_us)
        event.listen(self._engine, "begin", _begin)
        # A write takes the lock before it reads: one that found it later could only give up.
        self._writing = self._engine.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"})

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def create(self) -> None:
        """
        Make the tables that are not there yet.

        Raises:
            ForeignDatabaseError: There are others in the file.
        """
        bare = self._engine.execution_options(**{_BEGIN: None})
        with bare.connect() as connection:  # no transaction: within one the mode can't be changed
            connection.exec_driver_sql(
                "PRAGMA journal_mode = WAL"
            )  # readers don't wait for writers
        with self._writing.begin() as connection:
            version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
            if version != _VERSION and inspect(connection).get_table_names():
                raise ForeignDatabaseError("it was not made by this version of the demo")
            Base.metadata.create_all(connection)
            connection.exec_driver_sql(f"PRAGMA user_version = {_VERSION}")

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Look at one state of the file."""
        with Session(self._engine) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Change it in one transaction, alone; an exception leaves it as it was."""
        with Session(self._writing) as session, session.begin():
            session.connection()  # takes the lock now; by itself it would with the first statement
            yield session


def _leave_transactions_to_us(connection: object, _record: object) -> None:
    # Else Python's driver begins one of its own, of the kind that can't wait, before each change.
    connection.isolation_level = None  # type: ignore[attr-defined]


def _begin(connection: Connection) -> None:
    statement = connection.get_execution_options().get(_BEGIN, "BEGIN")
    if statement is not None:
        connection.exec_driver_sql(statement)
