"""The outbox on a real SQLite file: what is kept, in which order, and what scripts are shown."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from authguard.notify import Message
from demo_app.database import Database
from demo_app.outbox import KEPT, SqlOutbox

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]

CODE = Message("code", "sms", "+14155550103", "", "Your code is 123456.", code="123456")
RESET = Message(
    "reset",
    "email",
    "vera@example.test",
    "Choose a new password",
    "Open this:\n\nhttp://127.0.0.1:5000/auth/password/reset?token=T0-k_en\n\nBye.",
    token="T0-k_en",
)
NOTICE = Message("notice", "email", "vera@example.test", "Größe: 5 'x'", "Zeile\n'; DROP TABLE x")

BUSY = """
import sys
from authguard.notify import Message
from demo_app.outbox import SqlOutbox

with SqlOutbox(sys.argv[1]) as outbox:
    for turn in range(100):
        outbox.send(Message("notice", "email", sys.argv[2], str(turn), "body"))
        outbox.messages()
"""


@pytest.fixture
def database(tmp_path: Path) -> Iterator[str]:
    """Make a file with the tables."""
    path = str(tmp_path / "demo.sqlite")
    database = Database(path)
    database.create()
    database.close()
    return path


@pytest.fixture
def outbox(database: str) -> Iterator[SqlOutbox]:
    """Give an empty outbox."""
    with SqlOutbox(database) as empty:
        yield empty


class TestKept:
    """What is kept of a message."""

    def test_comes_back_as_it_was_sent(self, outbox: SqlOutbox) -> None:
        """Every part of a message is kept as it was, the newest first."""
        for message in (CODE, RESET, NOTICE):
            outbox.send(message)
        assert [sent.message for sent in outbox.messages()] == [NOTICE, RESET, CODE]

    def test_scripts_see_these_keys(self, outbox: SqlOutbox) -> None:
        """A script sees eight keys; code and token are null where there is none."""
        outbox.send(CODE)
        (shown,) = [sent.as_json() for sent in outbox.messages()]
        assert shown == {**asdict(CODE), "sent_at": shown["sent_at"]}
        assert len(shown) == 8
        assert shown["token"] is None

    def test_time_is_utc_to_the_millisecond(self, outbox: SqlOutbox) -> None:
        """The time is ISO 8601 in UTC, to the millisecond, and the time of sending."""
        before = datetime.now(UTC)
        outbox.send(CODE)
        (sent,) = outbox.messages()
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", sent.sent_at)
        told = datetime.fromisoformat(sent.sent_at)
        assert before - timedelta(milliseconds=1) <= told <= datetime.now(UTC)

    def test_oldest_make_room(self, outbox: SqlOutbox) -> None:
        """The newest 500 are kept, however many were sent."""
        for number in range(KEPT + 20):
            outbox.send(Message("notice", "email", "a@example.test", str(number), ""))
        kept = [sent.message.subject for sent in outbox.messages()]
        assert kept == [str(number) for number in range(KEPT + 19, 19, -1)]

    def test_next_run_finds_them(self, outbox: SqlOutbox, database: str) -> None:
        """Messages are there for whoever opens the file next."""
        outbox.send(CODE)
        with SqlOutbox(database) as next_one:
            assert next_one.messages() == outbox.messages()


class TestLink:
    """The link that the page shows below a message."""

    @pytest.mark.parametrize(
        ("body", "link"),
        [
            ("Open http://h.test/u?token=T0 now", "http://h.test/u?token=T0"),
            ("Open <https://h.test/u?token=T0>.", "https://h.test/u?token=T0"),
            ("(https://h.test/u?token=T0).", "https://h.test/u?token=T0"),
            ("http://h.test/help\nhttp://h.test/T0\n", "http://h.test/T0"),
            ("http://h.test/help and T0", None),
            ("javascript:alert('T0')", None),
            ("", None),
        ],
    )
    def test_is_the_one_with_the_token(
        self, outbox: SqlOutbox, body: str, link: str | None
    ) -> None:
        """It is the web address in the text that holds the token, without what surrounds it."""
        outbox.send(Message("unlock", "email", "a@example.test", "s", body, token="T0"))
        assert outbox.messages()[0].link == link

    def test_needs_a_token(self, outbox: SqlOutbox) -> None:
        """A message without a token has none, whatever addresses its text names."""
        outbox.send(Message("notice", "email", "a@example.test", "s", "http://h.test/"))
        assert outbox.messages()[0].link is None


def test_threads_and_processes_send_at_once(outbox: SqlOutbox, database: str) -> None:
    """Nothing is lost or out of order when two processes and eight threads send together."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", BUSY, database, name], cwd=ROOT, stderr=subprocess.PIPE
        )
        for name in ("first", "second")
    ]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(outbox.send, [CODE] * 200))
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, b"")
    sent = outbox.messages()
    assert len(sent) == 400
    assert [each.message for each in sent].count(CODE) == 200
    for name in ("first", "second"):
        turns = [each.message.subject for each in sent if each.message.to == name]
        assert turns == [str(turn) for turn in range(99, -1, -1)]
    times = [each.sent_at for each in sent]
    assert times == sorted(times, reverse=True)
