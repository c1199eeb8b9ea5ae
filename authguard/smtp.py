"""
Mail through an SMTP server: one recipient, plain text, one deadline for the whole conversation.

What the server says may repeat an address or a whole message, so nothing of it gets out: a failure
is one word and the number of the server's reply. Nothing is sent twice.
"""

from __future__ import annotations

import logging
import smtplib
import socket
import ssl
import threading
import time
import unicodedata
from contextlib import closing, suppress
from datetime import UTC, datetime
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import make_msgid
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, Literal

from authguard.checks import is_unicode, is_whole, shown
from authguard.errors import AuthguardError, ConfigurationError, InvalidInput
from authguard.identity.destinations import read_email

if TYPE_CHECKING:
    from typing import TypeAlias

    from authguard.notify import Message, Notifier

__all__ = ["DeliveryFailed", "SmtpNotifier"]

Tls: TypeAlias = Literal["starttls", "implicit", "none"]

_TLS: Final[tuple[Tls, ...]] = ("starttls", "implicit", "none")
_LAST_PORT: Final = 65_535
_LONGEST_S: Final = 600

#: What a server may answer; smtplib makes -1 of anything else.
_STATUSES: Final = range(200, 600)

#: Bodies go as seven-bit text, which every server takes.
_POLICY: Final = SMTP.clone(cte_type="7bit")

#: The word for each kind of failure, most special first.
_REASONS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (smtplib.SMTPAuthenticationError, "authentication"),
    (smtplib.SMTPRecipientsRefused, "recipient refused"),
    (smtplib.SMTPSenderRefused, "sender refused"),
    (smtplib.SMTPDataError, "message refused"),
    (smtplib.SMTPNotSupportedError, "not supported"),
    (smtplib.SMTPServerDisconnected, "connection"),
    (smtplib.SMTPException, "server error"),
    (ssl.SSLError, "tls"),
    (OSError, "connection"),
)

_log = logging.getLogger("authguard")


class DeliveryFailed(AuthguardError):
    """
    The message was not taken, or nobody knows; don't send it again.

    Attributes:
        reason: ``connection``, ``tls``, ``authentication``, ``timeout``, ``not supported`` (by the
            server: STARTTLS, a way to sign in, or an address that isn't ASCII), ``sender refused``,
            ``recipient refused``, ``message refused``, ``server error`` or ``client failure``.
        status: The number of the server's reply, where it gave one: at 4xx it may think otherwise
            later, at 5xx it won't.
    """

    def __init__(self, reason: str, status: int | None = None) -> None:
        self.reason = reason
        self.status = status
        super().__init__(reason if status is None else f"{reason} ({status})")


class SmtpNotifier:
    """
    Sends each message in a conversation of its own; may be shared by threads and forked.

    Args:
        host: The server's name or address. With TLS, its certificate must be for it.
        port: The server's port: 587 for ``starttls``, 465 for ``implicit``.
        sender: Whom messages are from: ``no-reply@example.org`` or ``Example <no-reply@…>``.
            The server is greeted with its domain.
        username: Who signs in at the server, in ASCII; None sends without.
        password: The password that goes with it, in ASCII.
        tls: ``starttls`` and ``implicit`` send nothing over a connection that isn't encrypted and
            certified (by the system's authorities, or those of ``SSL_CERT_FILE``). ``none`` is
            for a relay on this host.
        timeout_s: Longest time of a conversation in all, in seconds, however slowly the server
            drips. A name is looked up outside of it, so give an address where the resolver can
            hang.
        sms: Who carries text messages.

    Raises:
        ConfigurationError: AG050, naming the argument and the mend.
    """

    def __init__(
        self,
        host: str,
        port: int = 587,
        *,
        sender: str,
        username: str | None = None,
        password: str | None = None,
        tls: Tls = "starttls",
        timeout_s: float = 10.0,
        sms: Notifier | None = None,
    ) -> None:
        _check_server(host, port, tls, timeout_s)
        if (port, tls) in ((465, "starttls"), (587, "implicit")):
            other = "implicit" if tls == "starttls" else "starttls"
            raise _wrong("tls", f"{tls} is not spoken at port {port}", f"take {other!r} there")
        _check_credentials(username, password)
        if sms is not None and not callable(getattr(sms, "send", None)):
            raise _wrong("sms", f"a {type(sms).__name__} can't send", "give a notifier, or None")
        self._host = host
        self._port = port
        self._sender = _read_sender(sender)
        self._username = username
        self._password = password
        self._tls = tls
        self._timeout_s = float(timeout_s)
        self._sms = sms
        self._context = None if tls == "none" else _context()

    @property
    def sends_texts(self) -> bool:
        """Whether somebody carries text messages for it."""
        return self._sms is not None

    def send(self, message: Message) -> None:
        """
        Send it; return when the server has taken it.

        Args:
            message: What to send.

        Raises:
            InvalidInput: It is no mail, and there is nobody to carry it; or its recipient is not
                exactly one address, or its subject not one line. Nothing was sent.
            DeliveryFailed: The server didn't take it, or didn't say so in time.
        """
        if message.channel == "sms" and self._sms is not None:
            self._sms.send(message)
            return
        if message.channel != "email":
            raise InvalidInput("channel", "has nobody to carry it: give SmtpNotifier its sms")
        failure = self._try(self._compose(message))
        if failure is not None:  # raised here, since the error that said so may hold the address
            _log.warning("the mail server did not take a message: %s", failure)
            raise failure

    def _compose(self, message: Message) -> EmailMessage:
        if not is_unicode(message.body):
            raise InvalidInput("body", "is not valid Unicode text")
        if not _is_one_line(message.subject):
            raise InvalidInput("subject", "must be one line of text")
        mail = EmailMessage(_POLICY)
        mail["From"] = self._sender
        mail["To"] = _read_recipient(message.to)
        mail["Subject"] = message.subject
        mail["Date"] = datetime.now(UTC)
        mail["Message-ID"] = make_msgid(domain=self._sender.domain)
        mail["Auto-Submitted"] = "auto-generated"
        mail["X-Auto-Response-Suppress"] = "All"
        mail.set_content(message.body)
        return mail

    def _try(self, mail: EmailMessage) -> DeliveryFailed | None:
        """Send the mail; give, and keep nothing else of, what went wrong."""
        _deadline.ends_s = _monotonic_s() + self._timeout_s
        try:
            self._converse(mail)
        except Exception as error:  # noqa: BLE001 - whatever it is, its text may hold the mail
            return _told(error)
        finally:
            _deadline.ends_s = _NEVER
        return None

    def _converse(self, mail: EmailMessage) -> None:
        implicit = self._context if self._tls == "implicit" else None
        server = _Conversation(self._host, self._port, self._sender.domain, implicit)
        with closing(server):
            if self._tls == "starttls":
                server.starttls(context=self._context)  # raises where the server has none
            if self._username is not None and self._password is not None:
                server.login(self._username, self._password)
            _hand_over(server, mail)
            # It was taken: how the server says goodbye doesn't change that.
            with suppress(smtplib.SMTPException, OSError):
                server.quit()


class _Conversation(smtplib.SMTP):
    """A conversation with a server, over a socket that knows this thread's deadline."""

    def __init__(self, host: str, port: int, name: str, implicit: ssl.SSLContext | None) -> None:
        self._implicit = implicit  # first, since the rest connects
        # With a name, smtplib doesn't ask the resolver who this host is, nor tells it to the world.
        super().__init__(host, port, local_hostname=name)

    def _get_socket(self, host: str, port: int, _: object) -> socket.socket:
        sock = _connected(host, port)
        if self._implicit is None:
            return sock
        with closing(sock):  # nothing is left in it once it was wrapped
            return self._implicit.wrap_socket(sock, server_hostname=host)


def _context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.sslsocket_class = _TlsSocket
    return context


def _hand_over(server: smtplib.SMTP, mail: EmailMessage) -> None:
    """Send as smtplib's ``send_message`` does, which would make ">From" of a line's "From"."""
    (sender,), (recipient,) = mail["From"].addresses, mail["To"].addresses
    addresses = (sender.addr_spec, recipient.addr_spec)
    if all(address.isascii() for address in addresses):
        server.sendmail(*addresses, mail.as_bytes())
        return
    server.ehlo_or_helo_if_needed()
    if not server.has_extn("smtputf8"):
        raise smtplib.SMTPNotSupportedError
    international = mail.as_bytes(policy=_POLICY.clone(utf8=True))
    server.sendmail(*addresses, international, ["SMTPUTF8", "BODY=8BITMIME"])


class _Deadline(threading.local):
    """When the running conversation of this thread must be over; otherwise, never."""

    ends_s: float = float("inf")

    def bound(self, sock: socket.socket, share: float = 1.0) -> None:
        """Let the socket's next step take what is left, or a share of it."""
        left_s = self.ends_s - _monotonic_s()
        if left_s <= 0:
            raise TimeoutError
        sock.settimeout(left_s * share)


_NEVER: Final = float("inf")
_deadline = _Deadline()


def _monotonic_s() -> float:
    # Not time.monotonic: freezegun stops that one, and a deadline must pass in frozen tests too.
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class _PlainSocket(socket.socket):
    """A socket whose every send and receive ends by the deadline."""

    def recv_into(self, *args: Any, **settings: Any) -> int:
        _deadline.bound(self)
        return super().recv_into(*args, **settings)

    def sendall(self, *args: Any) -> None:
        _deadline.bound(self)
        super().sendall(*args)


class _TlsSocket(ssl.SSLSocket):
    """The same, encrypted; its ``sendall`` sends piece by piece."""

    def do_handshake(self, *args: Any, **settings: Any) -> None:
        _deadline.bound(self)
        super().do_handshake(*args, **settings)

    def recv_into(self, *args: Any, **settings: Any) -> int:
        _deadline.bound(self)
        return super().recv_into(*args, **settings)

    def send(self, *args: Any, **settings: Any) -> int:
        _deadline.bound(self)
        return super().send(*args, **settings)


def _connected(host: str, port: int) -> _PlainSocket:
    """Connect to the first address that answers; none may use up the time of those after it."""
    failure = OSError()
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for tried, (family, kind, protocol, _, address) in enumerate(addresses):
        sock = _PlainSocket(family, kind, protocol)
        try:
            _deadline.bound(sock, 1 / (len(addresses) - tried))
            sock.connect(address)
        except OSError as error:
            sock.close()
            failure = error
        else:
            return sock
    raise failure


def _told(error: Exception) -> DeliveryFailed:
    """Say what went wrong, with nothing of the text."""
    status = None
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        status = next((code for code, _ in error.recipients.values()), None)
    elif isinstance(error, smtplib.SMTPResponseException):
        status = error.smtp_code
    # smtplib says "disconnected" of a connection that it closed after a timeout.
    if isinstance(error, TimeoutError) or isinstance(error.__context__, TimeoutError):
        reason = "timeout"
    else:
        reason = next(
            (word for kind, word in _REASONS if isinstance(error, kind)), "client failure"
        )
    return DeliveryFailed(reason, status if status in _STATUSES else None)


def _is_one_line(text: object) -> bool:
    """Tell whether it is text without line breaks and other controls."""
    return isinstance(text, str) and not any(
        unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in text
    )


def _read_recipient(to: object) -> Address:
    address = _one_address(to)
    if address is None:
        raise InvalidInput("to", "must be exactly one e-mail address")
    return address


def _one_address(text: object, display_name: str = "") -> Address | None:
    if not _is_one_line(text):
        return None
    try:
        spelt = read_email(text, fold=False).address
    except InvalidInput:
        return None
    name, _, domain = spelt.rpartition("@")
    return Address(display_name, name, domain)


def _read_sender(sender: object) -> Address:
    """Read ``name@domain`` or ``Display Name <name@domain>``."""
    if isinstance(sender, str) and _is_one_line(sender):
        mail = EmailMessage()
        with suppress(MessageError, ValueError, IndexError):
            mail["From"] = sender
            (found,) = mail["From"].addresses
            address = _one_address(found.addr_spec, found.display_name)
            if address is not None:
                return address
    raise _wrong(
        "sender",
        f"{shown(sender)} is not exactly one e-mail address",
        "write no-reply@example.org, or Example <no-reply@example.org>",
    )


def _check_server(host: str, port: int, tls: str, timeout_s: float) -> None:
    if not _is_host(host):
        raise _wrong(
            "host", f"{shown(host)} is no host", "give a name or an address, and port apart"
        )
    if not is_whole(port, 1) or port > _LAST_PORT:
        raise _wrong("port", f"{shown(port)} is no port", "take 587, or 465 for implicit TLS")
    if tls not in _TLS:
        raise _wrong("tls", f"{shown(tls)} is none of {', '.join(_TLS)}", "take starttls")
    if tls == "none" and not _is_loopback(host):
        raise _wrong("tls", "none would send codes in the clear to another host", "take starttls")
    is_number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool)
    # `not 0 < x` also catches NaN.
    if not is_number or not 0 < timeout_s <= _LONGEST_S:
        raise _wrong("timeout_s", f"{shown(timeout_s)} is out of range", "take 10.0, at most 600")


def _is_host(host: object) -> bool:
    if not isinstance(host, str) or not host or not _is_one_line(host) or set(host) & set(" @/[]"):
        return False
    with suppress(ValueError):  # what no resolver can look up must fail here
        host.encode("idna")
        return ":" not in host or ip_address(host).version == 6  # noqa: PLR2004 (a name holds none)
    return False


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def _check_credentials(username: object, password: object) -> None:
    """Refuse what smtplib can't send: its error would hold the password."""
    if (username is None) != (password is None):
        raise _wrong("username", "goes with password", "give both, or neither")
    for name, value in (("username", username), ("password", password)):
        if value is not None and not (isinstance(value, str) and value and value.isascii()):
            raise _wrong(
                name, "must be ASCII text, and not empty", "take the one the server gave out"
            )


def _wrong(argument: str, problem: str, mend: str) -> ConfigurationError:
    return ConfigurationError("AG050", f"smtp.{argument}", problem, mend)
