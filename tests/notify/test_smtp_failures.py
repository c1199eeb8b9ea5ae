"""A provider that is down, hangs, drips or refuses costs one bounded wait, and tells no secret."""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING, Any

import pytest
from freezegun import freeze_time

from authguard import smtp
from authguard._outgoing import Outgoing
from authguard.smtp import DeliveryFailed, SmtpNotifier

from .conftest import CLOSE, DRIP, HANG, SECRETS, SENDER, TO, a_message, all_that_is_told, real_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Certificate, Rogue

STEPS = ["greeting", "EHLO", "MAIL", "RCPT", "DATA", "end"]
#: What a server says that repeats all it was told.
ECHO = " ".join(SECRETS)


def plain(port: int, **settings: Any) -> SmtpNotifier:
    """Make a notifier for a server on this host."""
    return SmtpNotifier("127.0.0.1", port, sender=SENDER, tls="none", **settings)


def failure(notifier: SmtpNotifier) -> DeliveryFailed:
    """Send a message that can't be sent."""
    with pytest.raises(DeliveryFailed) as failed:
        notifier.send(a_message())
    return failed.value


def test_a_server_that_is_down() -> None:
    """Where nobody listens the failure is told at once."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    begun = real_s()
    assert str(failure(plain(port))) == "connection"
    assert real_s() - begun < 5


def test_a_name_that_nobody_knows() -> None:
    """A name that can't be looked up is a failed connection."""
    unknown = SmtpNotifier("mail.invalid", sender=SENDER)
    assert failure(unknown).reason == "connection"


@pytest.mark.parametrize("how", [HANG, DRIP])
@pytest.mark.parametrize("step", STEPS)
def test_the_whole_conversation_has_one_deadline(
    rogue: Callable[..., Rogue], step: str, how: str
) -> None:
    """A server that is silent or drips, at whichever step, holds a thread for timeout_s only."""
    server = rogue({step: how})
    begun = real_s()
    failed = failure(plain(server.port, timeout_s=0.4))
    took = real_s() - begun
    assert (failed.reason, failed.status) == ("timeout", None)
    assert 0.3 < took < 3
    assert server.talks == 1


def test_slow_answers_add_up(rogue: Callable[..., Rogue]) -> None:
    """The deadline is of the conversation, not of each step; a new conversation has a new one."""
    server = rogue({}, delay_s=0.2)
    for _ in range(2):
        begun = real_s()
        assert failure(plain(server.port, timeout_s=0.5)).reason == "timeout"
        assert 0.4 < real_s() - begun < 1.1
    plain(server.port, timeout_s=30).send(a_message())


@pytest.mark.parametrize("how", [HANG, DRIP])
@pytest.mark.parametrize("step", ["greeting", "end"])
def test_the_deadline_holds_under_tls(
    rogue: Callable[..., Rogue], trusted: Certificate, step: str, how: str
) -> None:
    """Encrypted bytes that drip are given up in time, too."""
    server = rogue({step: how}, tls=trusted.server_context)
    notifier = SmtpNotifier("127.0.0.1", server.port, sender=SENDER, tls="implicit", timeout_s=0.5)
    begun = real_s()
    assert failure(notifier).reason == "timeout"
    assert real_s() - begun < 3


@pytest.mark.parametrize("tls", ["starttls", "implicit"])
def test_the_deadline_holds_in_the_handshake(rogue: Callable[..., Rogue], tls: Any) -> None:
    """A server that is silent instead of shaking hands is given up in time."""
    answers = {"greeting": HANG} if tls == "implicit" else {"STARTTLS": "220 go on"}
    server = rogue(answers, extensions="STARTTLS", silent_after="STARTTLS")
    notifier = SmtpNotifier("127.0.0.1", server.port, sender=SENDER, tls=tls, timeout_s=0.4)
    begun = real_s()
    assert failure(notifier).reason == "timeout"
    assert real_s() - begun < 3


@pytest.mark.parametrize("step", ["send", "shake hands", "send encrypted"])
def test_no_step_of_a_socket_outlasts_the_deadline(
    rogue: Callable[..., Rogue], trusted: Certificate, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Sending to a server that reads nothing ends by the deadline, whatever the timeout was."""
    encrypted = step == "send encrypted"
    server = rogue({"greeting": HANG}, tls=trusted.server_context if encrypted else None)
    begun = real_s()
    monkeypatch.setattr(smtp._deadline, "ends_s", begun + 0.4)
    with smtp._connected("127.0.0.1", server.port) as sock:
        sock.settimeout(30)
        if step == "send":
            with pytest.raises(TimeoutError):
                sock.sendall(bytes(50_000_000))
        elif encrypted:
            with smtp._context().wrap_socket(sock, server_hostname="127.0.0.1") as tls:
                tls.settimeout(30)
                with pytest.raises(TimeoutError):
                    tls.sendall(bytes(50_000_000))
        else:
            with pytest.raises(TimeoutError):
                smtp._context().wrap_socket(sock, server_hostname="127.0.0.1")
    assert 0.3 < real_s() - begun < 5


def test_the_deadline_passes_in_frozen_time(rogue: Callable[..., Rogue]) -> None:
    """A silent server is given up in time while freezegun holds the clock."""
    server = rogue({"RCPT": HANG})
    begun = real_s()
    with freeze_time("2020-01-01"):
        assert failure(plain(server.port, timeout_s=0.3)).reason == "timeout"
    assert real_s() - begun < 3


@pytest.mark.parametrize("how", [HANG, DRIP, CLOSE, "500 what?"])
def test_a_mail_that_was_taken_is_no_failure(rogue: Callable[..., Rogue], how: str) -> None:
    """Once the server has taken the mail, a bad goodbye neither fails it nor takes long."""
    server = rogue({"QUIT": how})
    begun = real_s()
    plain(server.port, timeout_s=0.4).send(a_message())
    assert real_s() - begun < 3
    assert server.talks == 1


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({"greeting": f"554 {ECHO}"}, "server error (554)"),
        ({"greeting": CLOSE}, "connection"),
        ({"greeting": ECHO}, "server error"),
        ({"EHLO": f"502 {ECHO}", "HELO": f"550 {ECHO}"}, "server error (550)"),
        ({"MAIL": f"550 {ECHO}"}, "sender refused (550)"),
        ({"MAIL": f"421 {ECHO}"}, "sender refused (421)"),
        ({"RCPT": f"550 {ECHO}"}, "recipient refused (550)"),
        ({"RCPT": f"450 {ECHO}"}, "recipient refused (450)"),
        ({"RCPT": f"421 {ECHO}"}, "recipient refused (421)"),
        ({"RCPT": f"550 {ECHO}", "RSET": CLOSE}, "recipient refused (550)"),
        ({"RCPT": CLOSE}, "connection"),
        ({"DATA": f"554 {ECHO}"}, "message refused (554)"),
        ({"end": f"552 {ECHO}"}, "message refused (552)"),
        ({"end": ECHO}, "message refused"),
        ({"end": CLOSE}, "connection"),
        ({"RCPT": HANG}, "timeout"),
        ({"RCPT": "250 " + "x" * 9000}, "server error (500)"),
    ],
)
def test_a_failure_is_a_word_and_a_number_and_holds_no_secret(
    rogue: Callable[..., Rogue],
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    answers: dict[str, str],
    told: str,
) -> None:
    """A79, A84, B099: it's tried once, and no error, log or output holds address, code or token."""
    caplog.set_level(logging.DEBUG)
    server = rogue(answers)
    notifier = plain(server.port, timeout_s=0.5)
    failed = failure(notifier)
    assert str(failed) == told
    assert server.talks == 1
    outgoing = Outgoing()
    assert outgoing.put(lambda: notifier.send(a_message()))
    assert outgoing.drain(30)
    assert (outgoing.failed, server.talks) == (1, 2)
    assert "a message could not be sent: DeliveryFailed" in caplog.messages
    shown = [all_that_is_told(failed), caplog.text, *capfd.readouterr(), repr(notifier)]
    shown += [f"{record.__dict__!r} {record.exc_info!r}" for record in caplog.records]
    assert failed.__context__ is None
    assert not [secret for secret in SECRETS for text in shown if secret in text]


def test_a_client_that_breaks_tells_no_secret(
    monkeypatch: pytest.MonkeyPatch, rogue: Callable[..., Rogue]
) -> None:
    """A84: what the mail library raises beyond its own errors doesn't get out either."""

    def broken(*_: Any) -> None:
        raise RuntimeError(ECHO)

    monkeypatch.setattr("smtplib.SMTP.sendmail", broken)
    failed = failure(plain(rogue({}).port))
    assert failed.reason == "client failure"
    assert not [secret for secret in SECRETS if secret in all_that_is_told(failed)]


def test_a_refused_message_tells_no_secret(rogue: Callable[..., Rogue]) -> None:
    """A84: an error about a message's own fields names the field and doesn't show it."""
    notifier = plain(rogue({}).port)
    wrong: list[dict[str, Any]] = [
        {"to": f"{TO},{TO}"},
        {"subject": f"{TO}\n"},
        {"body": f"{ECHO}\ud800"},
        {"channel": "sms"},
    ]
    for changes in wrong:
        with pytest.raises(ValueError, match=r"^(to|subject|body|channel): ") as refused:
            notifier.send(a_message(**changes))
        assert not [secret for secret in SECRETS if secret in all_that_is_told(refused.value)]


def test_a_first_address_that_is_silent_leaves_time_for_the_second(
    rogue: Callable[..., Rogue], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two addresses of a name the silent one takes half of the time at most."""
    server = rogue({})
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        # A listener whose queue is full drops what comes: as silent as a host that is gone.
        fill = [socket.socket() for _ in range(8)]
        for sock in fill:
            sock.setblocking(False)
            sock.connect_ex(full.getsockname())
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        addresses = [(*kind, full.getsockname()), (*kind, ("127.0.0.1", server.port))]
        monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: addresses)
        begun = real_s()
        plain(server.port, timeout_s=2).send(a_message())
        assert 0.5 < real_s() - begun < 2
        for sock in fill:
            sock.close()
