"""Mail arrives whole, at one recipient, over an encrypted connection or not at all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from aiosmtpd.smtp import AuthResult, LoginPassword

from authguard import ConfigurationError, InvalidInput
from authguard.smtp import DeliveryFailed, SmtpNotifier

from .conftest import CODE, SENDER, TO, TOKEN, a_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard.notify import Message

    from .conftest import Certificate, Inbox, Rogue

PASSWORD = "of the mail server"
#: Every line break and control that a header could be ended by.
BREAKS = ["\r\n", "\n", "\r", "\x00", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"]


def plain(server: Inbox | Rogue, **settings: Any) -> SmtpNotifier:
    """Make a notifier for a server on this host."""
    return SmtpNotifier("127.0.0.1", server.port, tls="none", **{"sender": SENDER} | settings)


def authenticator(
    server: Any, session: Any, envelope: Any, mechanism: str, data: Any
) -> AuthResult:
    """Let one user in."""
    assert isinstance(data, LoginPassword)
    known = (data.login, data.password) == (b"app", PASSWORD.encode())
    return AuthResult(success=known, handled=False)


def test_a_mail_arrives_whole_at_one_recipient(serve: Callable[..., Inbox]) -> None:
    """The mail has its headers, its text, an own id, and exactly one recipient."""
    inbox = serve()
    notifier = plain(inbox)
    notifier.send(a_message())
    notifier.send(a_message(to="mo@example.test"))
    assert [envelope.rcpt_tos for envelope in inbox.envelopes] == [[TO], ["mo@example.test"]]
    assert {envelope.mail_from for envelope in inbox.envelopes} == {"no-reply@example.org"}
    mail, other = inbox.mails
    assert mail.get_content().splitlines() == a_message().body.splitlines()
    assert mail.get_content_type() == "text/plain"
    sent = {name: str(mail[name]) for name in ("From", "To", "Subject")}
    assert sent == {"From": SENDER, "To": TO, "Subject": "Your code"}
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail["X-Auto-Response-Suppress"] == "All"
    assert str(mail["Message-ID"]).endswith("@example.org>")
    assert mail["Message-ID"] != other["Message-ID"]
    assert abs(mail["Date"].datetime - datetime.now(UTC)) < timedelta(minutes=5)
    assert len(mail.items()) == len({name.lower() for name, _ in mail.items()})


def test_the_server_is_greeted_with_the_senders_domain(serve: Callable[..., Inbox]) -> None:
    """The name of the host that the app runs on is looked up nowhere and told to nobody."""
    inbox = serve()
    plain(inbox).send(a_message())
    assert inbox.greeted == ["example.org"]


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        ("Твой код: 验证码 🔑", "Grüße, Vera!\n\n验证码 🔑\n"),
        ("x" * 300, "y" * 5000 + "\n"),
        ("é" * 300, "é" * 5000 + "\n"),
        ("", ""),
        ("=?utf-8?q?no_code?=", ".\n..\nFrom here\n.\nQUIT\n"),
    ],
)
def test_any_text_arrives_as_it_was(serve: Callable[..., Inbox], subject: str, body: str) -> None:
    """UTF-8, long lines, lone dots and empty texts arrive unchanged, and fit any server."""
    inbox = serve()
    plain(inbox).send(a_message(subject=subject, body=body))
    (mail,) = inbox.mails
    if not subject.startswith("=?"):
        assert mail["Subject"] == subject
    assert mail.get_content().splitlines() == (body.splitlines() or [""])
    raw = bytes(inbox.envelopes[0].original_content or b"")
    assert raw.isascii()
    assert max(map(len, raw.split(b"\r\n"))) <= 998


def test_a_long_address_stays_one_address(serve: Callable[..., Inbox]) -> None:
    """The longest address there can be is neither cut nor encoded, in envelope and header."""
    inbox = serve()
    to = f"{'v' * 64}@{'.'.join(['d' * 60] * 3)}.test"
    plain(inbox).send(a_message(to=to))
    assert inbox.envelopes[0].rcpt_tos == [to]
    assert inbox.mails[0]["To"].addresses[0].addr_spec == to


def test_an_international_address_is_sent_where_the_server_can(
    serve: Callable[..., Inbox],
) -> None:
    """A name that isn't ASCII goes by SMTPUTF8, its domain as ASCII; without that it's refused."""
    able, unable = serve(enable_SMTPUTF8=True), serve(enable_SMTPUTF8=False)
    message = a_message(to="józef@bücher.example")
    plain(able).send(message)
    assert able.envelopes[0].rcpt_tos == ["józef@xn--bcher-kva.example"]
    raw = bytes(able.envelopes[0].original_content or b"")
    assert "To: józef@xn--bcher-kva.example\r\n".encode() in raw
    assert able.mails[0].get_content().startswith("Your code is")
    with pytest.raises(DeliveryFailed, match=r"^not supported$"):
        plain(unable).send(message)
    assert unable.envelopes == []


@pytest.mark.parametrize(
    "to",
    [
        *(f"{TO}{end}Bcc: mallory@evil.example" for end in BREAKS),
        *(f"{TO}{end}" for end in BREAKS),
        f"{TO}, mallory@evil.example",
        f"{TO};mallory@evil.example",
        f"{TO} mallory@evil.example",
        f"{TO},",
        f"Vera <{TO}>",
        f"<{TO}>",
        f"friends: {TO};",
        f"{TO}> NOTIFY=SUCCESS",
        '"vera,mallory"@example.test',
        "vera@[127.0.0.1]",
        "vera\ud800@example.test",
        "vera",
        "",
        None,
        [TO, "mallory@evil.example"],
    ],
)
def test_anything_but_one_recipient_is_refused_before_connecting(
    rogue: Callable[..., Rogue], to: Any
) -> None:
    """A76: line breaks, several addresses and no address are refused, and nobody is called."""
    server = rogue({})
    with pytest.raises(InvalidInput) as refused:
        plain(server).send(a_message(to=to))
    assert refused.value.field == "to"
    assert str(refused.value) == "to: must be exactly one e-mail address"
    assert server.talks == 0


@pytest.mark.parametrize("end", BREAKS)
def test_a_subject_of_more_than_one_line_is_refused(rogue: Callable[..., Rogue], end: str) -> None:
    """A76: nothing can be added to the headers through the subject."""
    server = rogue({})
    with pytest.raises(InvalidInput, match=r"^subject: must be one line of text$"):
        plain(server).send(a_message(subject=f"Hi{end}Bcc: mallory@evil.example"))
    assert server.talks == 0


def test_a_body_can_neither_add_headers_nor_commands(serve: Callable[..., Inbox]) -> None:
    """A76: a body with lines like headers and commands is one body of one mail."""
    inbox = serve()
    body = "Bcc: mallory@evil.example\n\n.\r\nMAIL FROM:<x@evil.example>\n"
    plain(inbox).send(a_message(body=body))
    assert [envelope.rcpt_tos for envelope in inbox.envelopes] == [[TO]]
    assert inbox.mails[0]["Bcc"] is None
    assert inbox.mails[0].get_content().splitlines() == body.splitlines()
    with pytest.raises(InvalidInput, match=r"^body: "):
        plain(inbox).send(a_message(body="\ud800"))


def test_text_messages_go_to_their_own_carrier(rogue: Callable[..., Rogue]) -> None:
    """An SMS goes to the notifier given for them, whole; without one it's refused."""

    class Carrier:
        def send(self, message: Message) -> None:
            sent.append(message)

    sent: list[Message] = []
    server = rogue({})
    message = a_message(channel="sms", to="+14155550101", subject="")
    plain(server, sms=Carrier()).send(message)
    assert sent == [message]
    for channel in ("sms", "pigeon"):
        with pytest.raises(InvalidInput, match=r"^channel: has nobody to carry it"):
            plain(server).send(a_message(channel=channel, to="+14155550101"))
    assert server.talks == 0


def test_starttls_and_a_password(serve: Callable[..., Inbox], trusted: Certificate) -> None:
    """A mail goes over STARTTLS to a server that is who it says it is, after signing in."""
    inbox = serve(
        tls_context=trusted.server_context,
        require_starttls=True,
        authenticator=authenticator,
        auth_required=True,
    )
    settings: dict[str, Any] = {"sender": SENDER, "username": "app"}
    SmtpNotifier("127.0.0.1", inbox.port, password=PASSWORD, **settings).send(a_message())
    assert inbox.mails[0].get_content().startswith(f"Your code is {CODE}.")
    assert TOKEN in inbox.mails[0].get_content()
    assert inbox.signed_in == [True]
    with pytest.raises(DeliveryFailed, match=r"^authentication \(535\)$"):
        SmtpNotifier("127.0.0.1", inbox.port, password="wrong", **settings).send(a_message())
    assert len(inbox.envelopes) == 1


def test_implicit_tls(serve: Callable[..., Inbox], trusted: Certificate) -> None:
    """A mail goes over a connection that is encrypted from its first byte."""
    inbox = serve(ssl_context=trusted.server_context)
    SmtpNotifier("127.0.0.1", inbox.port, sender=SENDER, tls="implicit").send(a_message())
    assert inbox.envelopes[0].rcpt_tos == [TO]


@pytest.mark.parametrize("tls", ["starttls", "implicit"])
def test_a_server_that_nobody_vouches_for_gets_nothing(
    serve: Callable[..., Inbox], certificate: Certificate, monkeypatch: pytest.MonkeyPatch, tls: Any
) -> None:
    """An unknown certificate, or one for another name, ends it before password and mail."""
    context = certificate.server_context
    inbox = serve(**{"ssl_context" if tls == "implicit" else "tls_context": context})
    settings: dict[str, Any] = {"username": "app", "password": PASSWORD, "tls": tls}
    with pytest.raises(DeliveryFailed, match=r"^tls$"):
        SmtpNotifier("127.0.0.1", inbox.port, sender=SENDER, **settings).send(a_message())
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.path))
    with pytest.raises(DeliveryFailed, match=r"^tls$"):
        SmtpNotifier("localhost", inbox.port, sender=SENDER, **settings).send(a_message())
    assert inbox.envelopes == []


def test_a_server_without_tls_is_told_nothing(rogue: Callable[..., Rogue]) -> None:
    """Where STARTTLS is missing, by fault or by attack, neither password nor mail is sent."""
    server = rogue({}, extensions="AUTH PLAIN")
    notifier = SmtpNotifier(
        "127.0.0.1", server.port, sender=SENDER, username="app", password=PASSWORD
    )
    with pytest.raises(DeliveryFailed, match=r"^not supported$"):
        notifier.send(a_message())
    assert server.heard in (["ehlo example.org"], ["ehlo example.org", "QUIT"])


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        *(("host", value) for value in ("", "a b", "a:25", "[::1]", "a\n", "x" * 70, None, 5)),
        *(("port", value) for value in (0, -1, 65_536, 25.0, "25", True)),
        *(("tls", value) for value in ("ssl", "", None, True)),
        *(("timeout_s", value) for value in (0, -1, float("nan"), float("inf"), "10", True, None)),
        *(("sender", value) for value in ("", "Example", "a@b.org, c@d.org", "a@b.org\n", None)),
        ("sender", "Example\r\nBcc: x@evil.example <a@b.org>"),
        ("sender", "team: a@b.org, c@d.org;"),
        ("username", "app"),
        ("password", "alone"),
        ("sms", "carrier"),
    ],
)
def test_a_wrong_setting_is_named_at_the_start(argument: str, value: Any) -> None:
    """AG050 names the argument that is of no use."""
    settings = {"host": "mail.example.org", "sender": SENDER, argument: value}
    with pytest.raises(ConfigurationError) as refused:
        SmtpNotifier(**settings)
    assert refused.value.code == "AG050"
    assert refused.value.where == f"smtp.{'username' if argument == 'password' else argument}"


@pytest.mark.parametrize("wrong", ["pässword", "", 5])
def test_a_password_that_cannot_be_sent_is_refused_and_not_shown(wrong: Any) -> None:
    """What the protocol can't carry is refused at the start, and the error doesn't hold it."""
    with pytest.raises(ConfigurationError, match=r"^AG050 smtp.password: must be ASCII") as refused:
        SmtpNotifier("mail.example.org", sender=SENDER, username="app", password=wrong)
    assert not wrong or str(wrong) not in str(refused.value).replace("AG050", "")


@pytest.mark.parametrize("host", ["mail.example.org", "192.0.2.1", "localhost.example.org", "::2"])
def test_codes_go_in_the_clear_to_this_host_alone(host: str) -> None:
    """Without TLS only a loopback address is taken."""
    with pytest.raises(ConfigurationError, match=r"^AG050 smtp.tls: none would send"):
        SmtpNotifier(host, 25, sender=SENDER, tls="none")
    for loopback in ("localhost", "127.0.0.1", "127.8.8.8", "::1"):
        SmtpNotifier(loopback, 25, sender=SENDER, tls="none")
