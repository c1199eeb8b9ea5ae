"""The blueprint's codes and links through a real mail server that works, hangs, or is away."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
from aiosmtpd.controller import Controller
from flask import Flask

from authguard import Passwords
from authguard.flask import AuthGuard, signals
from authguard.flask.state import state_of
from authguard.smtp import SmtpNotifier
from tests.flask.conftest import ALL_OF_S, SECRET, People
from tests.notify.conftest import SENDER, Inbox

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import EmailMessage

    from aiosmtpd.smtp import SMTP, Envelope, Session
    from flask.testing import FlaskClient
    from werkzeug.test import TestResponse

    from tests.conftest import Clock

CODE = re.compile(r"^Your code to sign in[^:]*: (\d{8})$", re.MULTILINE)
LINK = re.compile(r"^http://app\.example(/auth/\S+\?token=(\S+))$", re.MULTILINE)


class Moody(Inbox):
    """A real server's mailbox, which can be told to hold a mail back, and then to refuse it."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = False
        self.has_one = threading.Event()
        self.let_go = threading.Event()
        self.answer = "250 taken"

    async def handle_DATA(  # noqa: N802 - the library's name
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        """Take a mail, at once or when it is let go."""
        answer = await super().handle_DATA(server, session, envelope)
        self.has_one.set()
        if self.holds:
            await asyncio.to_thread(self.let_go.wait)
        return self.answer if self.holds else answer


class LateServer(Controller):
    """A real server whose port is its own from the start; before the start nobody listens there."""

    def __init__(self, inbox: Inbox) -> None:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        inbox.port = self._socket.getsockname()[1]
        self.runs = False
        super().__init__(inbox, hostname="127.0.0.1", port=inbox.port)

    def start(self) -> None:
        """Begin to listen."""
        self.runs = True
        super().start()

    def end(self) -> None:
        """Stop, or give the port up."""
        if self.runs:
            self.stop()
        self._socket.close()

    def _create_server(self) -> Any:
        return self.loop.create_server(self._factory_invoker, sock=self._socket)


class MailedSite:
    """An app whose blueprint mails through a server, and short ways to ask it."""

    def __init__(self, app: Flask, clock: Clock) -> None:
        self.app = app
        self.clock = clock
        self.inbox = Moody()
        self.server = LateServer(self.inbox)
        self.auth = AuthGuard(app, clock=clock)
        self.failed: list[dict[str, Any]] = []
        signals.send_failed.connect(self._hear, app)
        passwords = Passwords.cheapest_for_tests()
        state = state_of(app)
        assert state is not None
        self.state = state
        state.passwords = passwords
        self.people = People(passwords)
        # Longer than any test: a mail that hangs hangs until the test lets it go.
        notifier = SmtpNotifier(
            "127.0.0.1", self.inbox.port, sender=SENDER, tls="none", timeout_s=20
        )
        blueprint = self.auth.blueprint(
            accounts=self.people, notifier=notifier, channels=("email",)
        )
        app.register_blueprint(blueprint, url_prefix="/auth")

    def _hear(self, _app: Flask, **payload: Any) -> None:
        self.failed.append(payload)

    def browser(self) -> FlaskClient:
        """Give a client that keeps its cookies."""
        return self.app.test_client()

    def post(self, path: str, **fields: str) -> TestResponse:
        """Send fields by JSON."""
        return self.browser().post(f"/auth{path}", json=fields)

    def send_code(self, who: str = "vera") -> TestResponse:
        """Ask for a code."""
        return self.post("/otp/send", identifier=who, channel="email")

    def drain(self, timeout_s: float = 30) -> bool:
        """Tell whether all messages are through."""
        with self.app.app_context():
            return self.auth.drain_messages(timeout_s)

    def mail(self) -> EmailMessage:
        """Give the newest mail."""
        return self.inbox.mails[-1]

    def text(self) -> str:
        """Give its text, with line ends of one kind."""
        return "\n".join(self.mail().get_content().splitlines())

    def found(self, what: re.Pattern[str]) -> re.Match[str]:
        """Find a code or a link in the newest mail."""
        match = what.search(self.text())
        assert match is not None
        return match


@pytest.fixture
def mailed(valkey_url: str, clock: Clock) -> Iterator[MailedSite]:
    """Give a site whose server isn't started yet."""
    app = Flask(__name__)
    app.config.update(
        TESTING=True,
        SECRET_KEY="of the session",
        AUTHGUARD_STORE_URL=valkey_url,
        AUTHGUARD_SECRET=SECRET,
        AUTHGUARD_POLICY=ALL_OF_S,
        AUTHGUARD_DEADLINE_MS=10_000,
        AUTHGUARD_BASE_URL="http://app.example",
    )
    site = MailedSite(app, clock)
    yield site
    site.inbox.let_go.set()
    assert site.drain()
    site.server.end()
    site.state.guard.close()


@pytest.fixture
def working(mailed: MailedSite) -> MailedSite:
    """Give a site whose server works."""
    mailed.server.start()
    return mailed


def looks(answer: TestResponse) -> tuple[Any, ...]:
    """Give what of an answer may not tell how the sending went."""
    body = answer.get_json()
    return answer.status_code, sorted(body), sorted({name for name, _ in answer.headers})


def test_a_mailed_code_signs_in(working: MailedSite) -> None:
    """A code arrives in a whole mail at the stored address, and signs in."""
    challenge = working.send_code("VERA").get_json()["challenge"]
    assert working.drain()
    (envelope,) = working.inbox.envelopes
    assert (envelope.mail_from, envelope.rcpt_tos) == (
        "no-reply@example.org",
        ["vera@example.test"],
    )
    mail = working.mail()
    assert mail["To"] == "vera@example.test"
    assert mail["Subject"] == "Your code for app.example"
    assert mail.get_content_type() == "text/plain"
    text = working.text()
    assert "Enter it within 5 minutes" in text
    assert text.splitlines()[-1].endswith("nobody gets in without it.")
    code = working.found(CODE)[1]
    assert working.post("/otp/verify", challenge=challenge, code=code).status_code == 200
    assert working.failed == []


def test_a_mailed_link_sets_a_password(working: MailedSite) -> None:
    """The link of a mail opens the form, and its token sets a new password; a notice follows."""
    assert working.post("/password/forgot", identifier="omar").status_code == 202
    assert working.drain()
    assert working.mail()["Subject"] == "Choose a new password for app.example"
    assert working.text().startswith("Hello omar,\n")
    path, token = working.found(LINK).groups()
    assert working.browser().get(path).status_code == 200
    answer = working.post("/password/reset", token=token, password="new for omar")
    assert answer.status_code == 200
    assert working.post("/login", identifier="omar", password="new for omar").status_code == 200
    assert working.drain()
    assert working.mail()["Subject"] == "Your password was changed at app.example"
    assert [envelope.rcpt_tos for envelope in working.inbox.envelopes] == [
        ["omar@example.test"]
    ] * 2


def test_a_mailed_link_ends_a_lock(working: MailedSite) -> None:
    """The mail that tells of a lock is sent once, and its link ends the lock."""
    guesses = [working.post("/login", identifier="vera", password="x") for _ in range(8)]
    assert [guess.status_code for guess in guesses] == [401] * 5 + [429] * 3
    assert working.drain()
    (mail,) = working.inbox.mails
    assert mail["Subject"] == "Sign-in is locked for a while at app.example"
    assert working.post("/unlock", token=working.found(LINK)[2]).status_code == 200
    assert working.post("/login", identifier="vera", password="right vera").status_code == 200


def test_a_server_that_hangs_holds_up_no_answer(working: MailedSite) -> None:
    """A79: the answer is there while the server still hangs; refused at last, the code is void."""
    usual = working.send_code("omar")
    assert working.drain()
    working.inbox.has_one.clear()
    working.inbox.holds, working.inbox.answer = True, "451 not now"

    answer = working.send_code()
    assert working.inbox.has_one.wait(30)
    assert not working.drain(0)  # the server has the whole mail, and has not answered yet
    assert looks(answer) == looks(usual)
    assert answer.status_code == 202
    assert working.send_code().status_code == 429
    nobody = working.send_code("ghost")
    assert looks(nobody) == looks(usual)
    code = working.found(CODE)[1]

    working.inbox.let_go.set()
    assert working.drain()
    assert working.failed == [{"action": "otp.send", "reason": "message refused"}]
    challenge = answer.get_json()["challenge"]
    assert working.post("/otp/verify", challenge=challenge, code=code).status_code == 401
    working.clock.advance(59_999)
    assert working.send_code().status_code == 429


def test_a_link_that_was_refused_is_void(working: MailedSite) -> None:
    """A79: a reset link that the server did not take opens nothing, and its limits stay charged."""
    working.inbox.holds, working.inbox.answer = True, "554 no"
    working.inbox.let_go.set()
    assert working.post("/password/forgot", identifier="vera").status_code == 202
    assert working.drain()
    assert working.failed == [{"action": "password.forgot", "reason": "message refused"}]
    token = working.found(LINK)[2]
    answer = working.post("/password/reset", token=token, password="new for vera")
    assert answer.status_code == 400
    assert working.post("/login", identifier="vera", password="right vera").status_code == 200
    again = [working.post("/password/forgot", identifier="vera").status_code for _ in range(3)]
    assert again == [202, 202, 429]


def test_a_server_that_is_away_and_comes_back(
    mailed: MailedSite, caplog: pytest.LogCaptureFixture
) -> None:
    """A79, B099: away, the answer is everybody's and the wait runs; back, the next code works."""
    caplog.set_level(logging.DEBUG)
    away, nobody = mailed.send_code(), mailed.send_code("ghost")
    assert mailed.drain()
    assert looks(away) == looks(nobody)
    assert away.status_code == 202
    assert away.get_json()["retry_after"] == nobody.get_json()["retry_after"] == 60
    assert mailed.failed == [{"action": "otp.send", "reason": "connection"}]
    assert "the mail server did not take a message: connection" in caplog.messages
    assert "example.test" not in caplog.text

    mailed.server.start()
    refused = mailed.send_code()
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "60")
    mailed.clock.advance(60_000)
    back = mailed.send_code()
    assert looks(back) == looks(away)
    assert mailed.drain()
    (mail,) = mailed.inbox.mails
    assert mail["To"] == "vera@example.test"
    code = mailed.found(CODE)[1]
    challenge = back.get_json()["challenge"]
    assert mailed.post("/otp/verify", challenge=challenge, code=code).status_code == 200
    assert len(mailed.failed) == 1
