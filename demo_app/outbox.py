"""Where the demo's mails and text messages end up: a table instead of a provider."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Self, cast

from sqlalchemy import delete, select

from authguard.notify import Message
from demo_app.database import Database, MessageRow

if TYPE_CHECKING:
    from authguard.notify import Channel, Kind

#: Messages kept; older ones make room.
KEPT: Final = 500

_LINK = re.compile(r"https?://[^\s<>\"]+")


@dataclass(frozen=True, slots=True)
class Sent:
    """
    A message, and when it would have gone out.

    Attributes:
        message: As it was handed over.
        sent_at: ISO 8601 in UTC, to the millisecond.
    """

    message: Message
    sent_at: str

    @property
    def link(self) -> str | None:
        """The link in its text that carries its token, if there is one."""
        if not self.message.token:
            return None
        links = (link.rstrip(".,;:!?)") for link in _LINK.findall(self.message.body))
        return next((link for link in links if self.message.token in link), None)

    def as_json(self) -> dict[str, str | None]:
        """What scripts are shown."""
        return {**asdict(self.message), "sent_at": self.sent_at}


class SqlOutbox:
    """
    A notifier that only writes down. Safe for threads; each process opens its own.

    Args:
        database: The SQLite file, created by :meth:`demo_app.database.Database.create`.
    """

    def __init__(self, database: str) -> None:
        self._database = Database(database)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def send(self, message: Message) -> None:
        """Keep the message, and forget the oldest if there are too many."""
        with self._database.write() as session:  # alone from here on, so times rise with ids
            now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            row = MessageRow(**asdict(message), sent_at=now)
            session.add(row)
            session.flush()
            session.execute(delete(MessageRow).where(MessageRow.id <= row.id - KEPT))

    def messages(self) -> list[Sent]:
        """The messages, newest first."""
        with self._database.read() as session:
            rows = session.scalars(select(MessageRow).order_by(MessageRow.id.desc()))
            return [_sent(row) for row in rows]


def _sent(row: MessageRow) -> Sent:
    message = Message(
        kind=cast("Kind", row.kind),
        channel=cast("Channel", row.channel),
        to=row.to,
        subject=row.subject,
        body=row.body,
        code=row.code,
        token=row.token,
    )
    return Sent(message, row.sent_at)
