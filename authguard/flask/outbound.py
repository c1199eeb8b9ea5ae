"""
Messages to owners: made and sent in the background, after an answer that was everybody's.

What depends on whether there is an account, and on where its messages go, happens here, where
nobody who asked can see how long it takes or how it ends.
"""

from __future__ import annotations

import logging
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit

from werkzeug.routing import BuildError

from authguard._outgoing import Later, Outgoing
from authguard.errors import ConfigurationError, Denied, InvalidInput, StoreUnavailable
from authguard.flask import signals
from authguard.flows.otp import SECOND_FACTOR
from authguard.flows.password_reset import RESET, bound_to
from authguard.flows.unlock import UNLOCK
from authguard.identity import AccountKey, Phone, read_email, read_phone, takes_texts
from authguard.notify import Message
from authguard.one_time import Holder
from authguard.smtp import DeliveryFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask

    from authguard.accounts import Member
    from authguard.decision import Decision
    from authguard.guard import Guard
    from authguard.identity import Email
    from authguard.notify import Channel, Kind, Notifier

__all__ = ["LINK_LIFE_MS", "Outbound", "Recipient"]

_log = logging.getLogger("authguard")

#: How long links live, in milliseconds: 30 minutes. OWASP WSTG-ATHN-09 finds more than an hour
#: rarely needed.
LINK_LIFE_MS: Final = 30 * 60_000


#: What a message begins to be made after, in seconds: later than the answer of its request, which
#: would else be slower for those who have an account.
_DELAY_S: Final = 0.03


@dataclass(frozen=True, slots=True)
class Recipient:
    """
    An account's owner, as messages need it: copied, since the app's rows live with its request.

    Attributes:
        key: The account's key.
        username: What the owner is called.
        email: Where mail goes.
        phone: Where text messages go.
        subject: The account's pseudonym, for events.
        bound_to: What links die with.
    """

    key: str
    username: str
    email: str | None = field(repr=False)
    phone: str | None = field(repr=False)
    subject: str
    bound_to: tuple[str, ...] = field(repr=False)

    @classmethod
    def of(cls, account: Member, guard: Guard) -> Recipient:
        """Copy what is needed."""
        return cls(
            account.key,
            account.username,
            account.email,
            account.phone,
            guard.subject(AccountKey.of_app(account.key)),
            bound_to(account),
        )

    def address(self, channel: Channel) -> str | None:
        """Give where messages of a channel go, or None."""
        return self.phone if channel == "sms" else self.email


class Outbound:
    """
    Makes and sends one app's messages.

    Args:
        app: The app.
        guard: Its guard.
        notifier: Carries the messages.
        blueprint: The full name of the blueprint, whose routes the links lead to.
        base_url: Where the app is reached, such as ``https://example.com``; links begin with it.
        sms_countries: ISO 3166-1 codes of the countries that text messages go to; none: none do.
    """

    def __init__(
        self,
        app: Flask,
        guard: Guard,
        notifier: Notifier,
        *,
        blueprint: str,
        base_url: str,
        sms_countries: frozenset[str],
    ) -> None:
        self._app = app
        self._guard = guard
        self._notifier = notifier
        self._blueprint = blueprint
        self._base_url = base_url.rstrip("/")
        self._host = urlsplit(base_url).hostname or ""
        self._sms_countries = sms_countries
        self._outgoing = Outgoing(delay_s=_DELAY_S)

    def check_links(self) -> None:
        """
        Refuse a blueprint that is registered where no link can lead.

        Raises:
            ConfigurationError: AG045, for a prefix with a variable in it, or a subdomain.
        """
        for endpoint in ("password_reset", "unlock", "password_forgot"):
            path = None
            with suppress(BuildError):
                path = self._app.url_map.bind("").build(f"{self._blueprint}.{endpoint}")
            if path is None or not path.startswith("/"):
                raise ConfigurationError(
                    "AG045",
                    f"blueprint {self._blueprint!r}",
                    "no link can lead there: its prefix holds a variable, or it has its own host",
                    "register it once below a plain prefix, such as '/auth'",
                )

    def drain(self, timeout_s: float) -> bool:
        """Wait until all that this process has to send is sent; tell whether it is."""
        return self._outgoing.drain(timeout_s)

    def nothing(self) -> None:
        """Do in a request what a message would do in it: put work aside for later."""
        self._outgoing.put(lambda: None, spare=True)

    def code(
        self,
        to: Recipient,
        holder: Holder,
        challenge: str,
        code: str,
        *,
        device: str | None,
        life_ms: int,
    ) -> None:
        """Send a code the way its holder says; what can't be sent can't be entered either."""
        channel: Channel = "sms" if holder.channel == "sms" else "email"

        def send() -> Later | None:
            message_id = self._guard.one_time.message_id(holder, challenge, code)
            return self._send(
                "otp.send", "code", channel, to,
                unsent=lambda: self._guard.one_time.take_code(holder, challenge, code),
                template="code", device=device, message_id=message_id,
                code=code, minutes=max(1, life_ms // 60_000), host=self._host,
                second_factor=holder.purpose == SECOND_FACTOR,
            )  # fmt: skip

        self._later("otp.send", send)

    def entered(self, to: Recipient, holder: Holder, challenge: str, code: str) -> None:
        """Count a code as entered, for the range and country that it was sent to."""
        if holder.channel == "sms":
            message_id = self._guard.one_time.message_id(holder, challenge, code)
            self._later("otp.send", lambda: self._over(_read("sms", to.phone), message_id, True))

    def reset_link(self, to: Recipient) -> None:
        """Mail a link that sets a new password."""
        self._later("password.forgot", lambda: self._link(to, "password.forgot", RESET))

    def unlock_link(self, to: Recipient) -> None:
        """Mail a link that ends a lock."""
        self._later("login", lambda: self._link(to, None, UNLOCK))

    def notice(self, to: Recipient, template: str, **values: Any) -> None:
        """Tell the owner what happened: by mail, or by text message to who has none."""
        channel: Channel = "email" if to.email else "sms"
        action = None if channel == "email" else "otp.send"
        values |= {"template": template, "link": self._url("password_forgot")}
        self._later("notice", lambda: self._send(action, "notice", channel, to, **values))

    def _link(self, to: Recipient, action: str | None, purpose: str) -> Later | None:
        holder = Holder(AccountKey.of_app(to.key), known=True, purpose=purpose, channel="email")
        if to.email is None:
            return None
        links = self._guard.one_time
        token = links.issue_link(holder, bound_to=to.bound_to, life_ms=LINK_LIFE_MS)
        kind: Kind = "reset" if purpose == RESET else "unlock"
        return self._send(
            action, kind, "email", to,
            unsent=lambda: links.take_link(holder, token, bound_to=to.bound_to),
            template=kind, token=token, minutes=LINK_LIFE_MS // 60_000,
            link=self._url("password_reset" if purpose == RESET else "unlock", token=token),
        )  # fmt: skip

    def _send(
        self,
        action: str | None,
        kind: Kind,
        channel: Channel,
        to: Recipient,
        *,
        template: str,
        unsent: Callable[[], object] = lambda: None,
        device: str | None = None,
        message_id: bytes | None = None,
        **values: Any,
    ) -> Later | None:
        """
        Reserve one message and send it: now, or later if a leaky bucket gives it a turn.

        What was reserved stays, so a turn that was given is kept whatever happens meanwhile.
        ``unsent`` is called if the message is withheld, or the notifier doesn't take it.
        """
        message_id = message_id or secrets.token_bytes(5)
        destination = self._destination(action, channel, to)
        begins_s = None
        if destination is not None:
            begins_s = self._reserve(
                action, kind, to, destination, device=device, message_id=message_id
            )
        if destination is None or begins_s is None:
            unsent()
            return None
        # Made before its turn comes, which it would else miss by the time that takes.
        subject, body = self._render(template, channel, username=to.username, **values)
        message = Message(
            kind,
            channel,
            to.address(channel) or "",
            subject,
            body,
            values.get("code"),
            values.get("token"),
        )

        def deliver() -> None:
            reason = self._deliver(message)
            if reason is not None:
                self._failed(action or kind, reason)
                if action is not None:
                    self._over(destination, message_id, False)
                unsent()

        if begins_s <= self._outgoing.now_s():
            deliver()
            return None
        return Later(begins_s, self._in_app(deliver))

    def _destination(
        self, action: str | None, channel: Channel, to: Recipient
    ) -> Email | Phone | None:
        """Read where a message goes; None, and told of, if none may."""
        try:
            destination = _read(channel, to.address(channel))
        except InvalidInput:
            self._withheld(action, to, ("address",))  # there is none, or it can't be one
            return None
        if isinstance(destination, Phone) and not self._may_text(destination):
            self._withheld(action, to, ("country",))
            return None
        return destination

    def _reserve(
        self,
        action: str | None,
        kind: Kind,
        to: Recipient,
        destination: Email | Phone,
        *,
        device: str | None,
        message_id: bytes,
    ) -> float | None:
        """Reserve the message; tell when its turn is, by the queue's clock. None: withheld."""
        if action is None:
            return self._outgoing.now_s()
        try:
            attempt = self._guard.message(
                action, destination=destination, device=device, message_id=message_id
            )
        except Denied as error:
            self._tell_of_stops(error.decision)
            self._withheld(action, to, error.decision.refused_by)
            return None
        except StoreUnavailable as error:
            _log.error("%s: not sent, since the store gave no verdict: %s", action, error.reason)
            return None
        begins_s = self._outgoing.now_s() + attempt.decision.delay_ms / 1000
        self._tell_of_stops(attempt.decision)
        if kind != "code":  # nothing in it can be entered: it counts for nothing
            self._over(destination, message_id, False)
        return begins_s

    def _deliver(self, message: Message) -> str | None:
        """Hand a message over; give why it was not taken, if it wasn't."""
        try:
            self._notifier.send(message)
        except Exception as error:  # noqa: BLE001 - whatever an app's notifier raises
            # By its type alone: its text may hold the address. Ours is made of one word.
            return error.reason if isinstance(error, DeliveryFailed) else type(error).__name__
        return None

    def _over(self, destination: Email | Phone, message_id: bytes, entered: bool) -> None:
        """Tell the conversion guard what became of a message."""
        try:
            self._guard.message_over(
                "otp.send", destination=destination, message_id=message_id, entered=entered
            )
        except StoreUnavailable as error:
            _log.warning("otp.send: what became of a code is not counted: %s", error.reason)

    def _may_text(self, phone: Phone) -> bool:
        return phone.country in self._sms_countries and takes_texts(phone)

    def _render(self, template: str, channel: Channel, **values: Any) -> tuple[str, str]:
        name = f"authguard/messages/{template}.{channel}.txt"
        text = self._app.jinja_env.get_template(name).render(site=self._host, **values)
        if channel == "sms":
            return "", text.strip()
        first, _, body = text.partition("\n")
        return first.removeprefix("Subject:").strip(), body.strip() + "\n"

    def _url(self, endpoint: str, **query: str) -> str:
        # By the app's own routes and the configured base, never by what a request says of its host.
        path = self._app.url_map.bind("").build(f"{self._blueprint}.{endpoint}")
        return f"{self._base_url}{path}" + (f"?{urlencode(query)}" if query else "")

    def _later(self, action: str, job: Callable[[], object]) -> None:
        if not self._outgoing.put(self._in_app(job)):
            self._failed(action, "too many messages are waiting")

    def _in_app(self, job: Callable[[], object]) -> Callable[[], object]:
        def run() -> object:
            with self._app.app_context():
                return job()

        return run

    def _withheld(self, action: str | None, to: Recipient, reasons: tuple[str, ...]) -> None:
        _log.warning("%s: a message was withheld: %s", action or "notice", ", ".join(reasons))
        signals.send(
            signals.send_withheld, self._app, action=action, reasons=reasons, subject=to.subject
        )

    def _failed(self, action: str, reason: str) -> None:
        _log.error("%s: a message could not be sent: %s", action, reason)
        signals.send(signals.send_failed, self._app, action=action, reason=reason)

    def _tell_of_stops(self, decision: Decision) -> None:
        for verdict in decision.verdicts:
            if verdict.lock_set:
                ends_at_ms = decision.now_ms + verdict.reset_after_ms
                _log.warning("%s: sends are stopped by %s", decision.action, verdict.name)
                signals.send(
                    signals.sends_stopped,
                    self._app,
                    action=decision.action,
                    limit=verdict.name,
                    ends_at_ms=ends_at_ms,
                )


def _read(channel: Channel, address: str | None) -> Email | Phone:
    if address is None:
        raise InvalidInput("destination", "is missing")
    return read_phone(address) if channel == "sms" else read_email(address)
