"""Servers that take mail: one real, and one that misbehaves at the step a test chooses."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from typing import TYPE_CHECKING, Any

import pytest
from aiosmtpd.controller import Controller

from authguard.notify import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from email.message import EmailMessage
    from pathlib import Path

    from aiosmtpd.smtp import SMTP, Envelope, Session

TO = "vera.secret-inbox@example.test"
CODE = "918273"
TOKEN = "dG9rZW4tb2YtdGhlLXRlc3Rz"
SENDER = "Example <no-reply@example.org>"

#: All that no error and no log may hold.
SECRETS = (TO, "secret-inbox", CODE, TOKEN)


def a_message(**changes: Any) -> Message:
    """Make a message that holds everything that must not leak."""
    return Message(
        **{
            "kind": "code",
            "channel": "email",
            "to": TO,
            "subject": "Your code",
            "body": f"Your code is {CODE}.\nhttps://example.org/reset?token={TOKEN}\n",
            "code": CODE,
            "token": TOKEN,
        }
        | changes
    )


def real_s() -> float:
    """Read a clock that freezegun leaves alone."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def all_that_is_told(error: BaseException) -> str:
    """Give all that a log, a debugger or an error tracker could show of an error."""
    whole = "".join(traceback.format_exception(error))
    chain = [error.__cause__, error.__context__]
    return f"{error!s} {error!r} {error.args!r} {vars(error)!r} {chain!r} {whole}"


@dataclass
class Inbox:
    """What a real server took."""

    port: int = 0
    envelopes: list[Envelope] = field(default_factory=list)
    signed_in: list[bool] = field(default_factory=list)
    greeted: list[str] = field(default_factory=list)

    async def handle_DATA(self, _: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        """Take a mail."""
        self.envelopes.append(envelope)
        self.signed_in.append(bool(session.authenticated))
        self.greeted.append(str(session.host_name))
        return "250 taken"

    @property
    def mails(self) -> list[EmailMessage]:
        """The mails, read as a mail program reads them."""
        return [
            message_from_bytes(bytes(envelope.original_content or b""), policy=policy.default)
            for envelope in self.envelopes
        ]


class _Server(Controller):
    """A real server on a port that it has, rather than one that was free a moment ago."""

    def __init__(self, inbox: Inbox, **settings: Any) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        inbox.port = self._listener.getsockname()[1]
        super().__init__(inbox, hostname="127.0.0.1", port=inbox.port, **settings)

    def _create_server(self) -> Any:
        return self.loop.create_server(
            self._factory_invoker, sock=self._listener, ssl=self.ssl_context
        )


@pytest.fixture
def serve() -> Iterator[Callable[..., Inbox]]:
    """Start real servers; they are stopped after the test."""
    started: list[_Server] = []

    def start(**settings: Any) -> Inbox:
        inbox = Inbox()
        server = _Server(inbox, **settings)
        server.start()
        started.append(server)
        return inbox

    yield start
    for server in started:
        server.stop()


@dataclass(frozen=True)
class Certificate:
    """A certificate for 127.0.0.1 that signed itself."""

    path: Path
    key: Path

    @property
    def server_context(self) -> ssl.SSLContext:
        """What a server with it needs."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path, self.key)
        return context


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """Make a certificate."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    made = Certificate(folder / "cert.pem", folder / "key.pem")
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=mail", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(made.key), "-out", str(made.path)]
    command = ["openssl", "req", "-x509", "-days", "2", *kind, *names, *files]
    subprocess.run(command, check=True, capture_output=True)
    return made


@pytest.fixture
def trusted(certificate: Certificate, monkeypatch: pytest.MonkeyPatch) -> Certificate:
    """Make it one that this process trusts."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.path))
    return certificate


#: What the step does instead of answering: a text is answered, whatever it says.
HANG, DRIP, CLOSE = "<hang>", "<drip>", "<close>"


class Rogue:
    """A server that does as told at one step: greeting, EHLO, MAIL, RCPT, DATA, end or QUIT."""

    def __init__(
        self,
        answers: dict[str, str],
        extensions: str = "8BITMIME",
        silent_after: str = "",
        delay_s: float = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._answers = {
            "greeting": "220 here",
            "EHLO": f"250-here\r\n250 {extensions}",
            "DATA": "354 go on",
            "QUIT": "221 bye",
        } | answers
        self._silent_after = silent_after
        self._delay_s = delay_s
        self._tls = tls
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self.port: int = self._listener.getsockname()[1]
        self.heard: list[str] = []
        self.talks = 0
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def close(self) -> None:
        """End all conversations."""
        self._over.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in [self._thread, *self._threads]:
            thread.join()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                talk, _ = self._listener.accept()
            except OSError:
                return
            self.talks += 1
            thread = threading.Thread(target=self._serve, args=[talk])
            self._threads.append(thread)
            thread.start()

    def _serve(self, talk: socket.socket) -> None:
        with suppress(OSError):
            if self._tls is not None:
                talk = self._tls.wrap_socket(talk, server_side=True)
            self._converse(talk)
        talk.close()

    def _converse(self, talk: socket.socket) -> None:
        with talk.makefile("rb") as lines:
            go_on = self._answer(talk, "greeting")
            while go_on and (line := lines.readline().decode()):
                self.heard.append(line.strip())
                verb = line.split()[0].upper()
                go_on = self._answer(talk, verb)
                if verb == self._silent_after:
                    self._over.wait()
                    return
                if verb == "DATA" and go_on and self._answers["DATA"].startswith("354"):
                    while lines.readline() not in (b".\r\n", b""):
                        pass
                    go_on = self._answer(talk, "end")

    def _answer(self, talk: socket.socket, step: str) -> bool:
        """Do what the step asks for; False ends the conversation."""
        answer = self._answers.get(step, "250 fine")
        if self._over.wait(self._delay_s):
            return False
        if answer == HANG:
            self._over.wait()
        elif answer == DRIP:
            talk.sendall(b"250-")
            while not self._over.wait(0.02):
                talk.sendall(b"x")
        elif answer != CLOSE:
            talk.sendall(f"{answer}\r\n".encode())
            return True
        return False


@pytest.fixture
def rogue() -> Iterator[Callable[..., Rogue]]:
    """Start servers that misbehave; they are closed after the test."""
    started: list[Rogue] = []

    def start(answers: dict[str, str], **settings: Any) -> Rogue:
        started.append(Rogue(answers, **settings))
        return started[-1]

    yield start
    for server in started:
        server.close()
