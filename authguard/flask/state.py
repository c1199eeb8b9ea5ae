"""What the extension keeps for one app, in ``app.extensions``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from flask import current_app, request

from authguard.checks import check_function
from authguard.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask, Request

    from authguard.accounts import Accounts, Member, Members
    from authguard.devices import DeviceCookies
    from authguard.flask.client_address import Proxies
    from authguard.flask.outbound import Outbound
    from authguard.flask.settings import Settings
    from authguard.guard import Guard
    from authguard.http import Answer
    from authguard.notify import Channel
    from authguard.passwords import Passwords

__all__ = [
    "LookUp",
    "Messaging",
    "State",
    "current_app_object",
    "current_request",
    "current_state",
    "state_of",
]

_KEY: Final = "authguard"


@dataclass(slots=True)
class LookUp:
    """
    Turns what was typed into an account's key, by whichever way the app has given.

    Attributes:
        resolve: A function of the app's.
        accounts: The blueprint's accounts; None without the blueprint.
    """

    resolve: Callable[[str], str | None] | None
    accounts: Accounts | None = None

    def __post_init__(self) -> None:
        if self.resolve is not None:
            check_function(self.resolve, "resolve")

    def __call__(self, typed: str) -> str | None:
        """Give the account's key; None for what names nobody, or where there is no way to tell."""
        if self.accounts is not None:
            account = self.accounts.find(typed)
            return None if account is None else account.key
        return None if self.resolve is None else self.resolve(typed)


@dataclass(frozen=True, slots=True)
class Messaging:
    """
    What the blueprint needs to send codes and links.

    Attributes:
        members: The app's accounts.
        outbound: Makes and sends the messages.
        channels: The ways a code may go: ``sms``, ``email``.
        second_factor_channels: The ways one may go after a password, the first that the account
            has an address for.
        code_life_ms: How long a code lives, in milliseconds.
        accept_password: Raises ``InvalidInput`` for a new password that is not good enough.
    """

    members: Members
    outbound: Outbound
    channels: tuple[Channel, ...]
    second_factor_channels: tuple[Channel, ...]
    code_life_ms: int
    accept_password: Callable[[str, Member], None]


@dataclass(slots=True)
class State:
    """
    One app's guard and what goes with it.

    Attributes:
        settings: As read at the start.
        guard: Decides.
        passwords: Hashes; one object, since its slots bound the whole process.
        proxies: Whose word on the client's address is taken.
        look_up: Turns names into keys.
        devices: Makes and reads device cookies.
        made_by: The extension that made it.
        messaging: Sends codes and links; None without a notifier.
        message_options: What the blueprint was made with; a second one must be made alike.
        looked_over_by: The extensions that have looked over the app's views.
        refusals: What auth routes answer that refuse, by action and wait in seconds, and the same
            as JSON: so few that a flood need not have each made anew.
    """

    settings: Settings
    guard: Guard
    passwords: Passwords
    proxies: Proxies
    look_up: LookUp
    devices: DeviceCookies
    made_by: object
    messaging: Messaging | None = None
    message_options: object = None
    looked_over_by: list[object] = field(default_factory=list)
    refusals: dict[tuple[str, int], tuple[Answer, str]] = field(default_factory=dict)

    def install(self, app: Flask) -> None:
        """Keep it in the app."""
        app.extensions[_KEY] = self


def state_of(app: Flask) -> State | None:
    """Return the app's state, if ``init_app`` was called."""
    return app.extensions.get(_KEY)


def current_request() -> Request:
    """Return the running request: itself, where it is asked more than one thing."""
    return cast("Any", request)._get_current_object()  # type: ignore[no-any-return]  # noqa: SLF001 - werkzeug's documented way


def current_app_object() -> Flask:
    """Return the app that handles the request: itself, as signals want it."""
    return cast("Any", current_app)._get_current_object()  # type: ignore[no-any-return]  # noqa: SLF001 - as Flask documents


def current_state() -> State:
    """
    Return the state of the app that handles the request.

    Raises:
        ConfigurationError: AG019, if ``init_app`` was not called.
    """
    state = state_of(current_app_object())
    if state is None:
        raise ConfigurationError(
            "AG019", "AuthGuard", "this app has not been initialised", "call init_app(app) first"
        )
    return state
