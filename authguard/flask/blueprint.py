"""Ready-made routes: sign-in, codes, password reset, unlock, each as JSON or as a page."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from flask import Blueprint, request
from flask.sessions import SecureCookieSessionInterface

from authguard.checks import is_whole, shown
from authguard.errors import ConfigurationError
from authguard.flask.arrival import tell_owners
from authguard.flask.codes import otp_send, otp_verify
from authguard.flask.links import password_forgot, password_reset, unlock
from authguard.flask.origin import is_cross_origin
from authguard.flask.outbound import Outbound
from authguard.flask.pages import error_page
from authguard.flask.refusals import CrossOrigin
from authguard.flask.sign_in import forget_devices, login, logout, me
from authguard.flask.state import Messaging, state_of
from authguard.smtp import SmtpNotifier

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flask import Flask, Response
    from flask.blueprints import BlueprintSetupState

    from authguard.accounts import Accounts, Member, Members
    from authguard.flask.state import State
    from authguard.notify import Channel, Notifier

__all__ = ["MessageOptions", "build"]

_log = logging.getLogger("authguard")

_ACCOUNTS: Final = ("find", "get", "replace_password_hash")
_MEMBERS: Final = ("set_password", "forget_devices", "require_recovery", "lift_recovery")
_CHANNELS: Final = ("sms", "email")

#: Longest life of a code in seconds (ASVS 5.0, 6.5.5; NIST SP 800-63B-4, 3.1.3.2: 10 minutes).
_LONGEST_CODE_LIFE_S: Final = 600


@dataclass(frozen=True, slots=True)
class MessageOptions:
    """
    What codes and links are sent by, as :meth:`authguard.flask.AuthGuard.blueprint` takes it.

    Raises:
        ConfigurationError: AG024 or AG044, naming the argument and the mend.
    """

    notifier: Notifier
    channels: Sequence[Channel]
    second_factor_channels: Sequence[Channel] | None
    sms_countries: Sequence[str]
    code_life_s: int
    accept_password: Callable[[str, Member], None]

    def __post_init__(self) -> None:
        notifier: object = self.notifier
        if isinstance(notifier, type) or not callable(getattr(notifier, "send", None)):
            raise ConfigurationError(
                "AG024",
                "blueprint(notifier=…)",
                "is no object with a method send",
                "pass one that has the method of authguard.notify.Notifier",
            )
        _check_channels(self.channels, "channels")
        second = self.second_factor_channels
        if second is None:
            second = tuple(each for each in self.channels if each == "sms")
        elif second:
            _check_channels(second, "second_factor_channels")
        _check_countries(self.sms_countries)
        # In one form, so that a second blueprint that is made alike is seen to be.
        for name, value in (
            ("channels", tuple(self.channels)),
            ("second_factor_channels", tuple(second)),
            ("sms_countries", tuple(sorted(self.sms_countries))),
        ):
            object.__setattr__(self, name, value)
        if (
            "sms" in self.all_channels
            and isinstance(self.notifier, SmtpNotifier)
            and not self.notifier.sends_texts
        ):
            _fail(
                "channels" if "sms" in self.channels else "second_factor_channels",
                "sms is one of them, and the notifier sends mail alone",
                "list email alone, or give the notifier something that sends text messages: sms=…",
            )
        if not is_whole(self.code_life_s, 1) or self.code_life_s > _LONGEST_CODE_LIFE_S:
            _fail(
                "code_life_s",
                f"{shown(self.code_life_s)} is no possible life of a code in seconds",
                f"take a whole number from 1 to {_LONGEST_CODE_LIFE_S}",
            )
        accept: object = self.accept_password
        if not callable(accept):
            _fail(
                "accept_password",
                f"{shown(accept)} is no function",
                "give one that takes a password and an account, and raises InvalidInput",
            )

    @property
    def all_channels(self) -> tuple[Channel, ...]:
        """All ways a code may go."""
        return (*self.channels, *(self.second_factor_channels or ()))


def _check_channels(channels: object, argument: str) -> None:
    if (
        not isinstance(channels, list | tuple)
        or not channels
        or any(each not in _CHANNELS for each in channels)
        or len(set(channels)) != len(channels)
    ):
        _fail(
            argument,
            f"{shown(channels)} is no list of different channels",
            f"list one or both of: {', '.join(_CHANNELS)}",
        )


def _check_countries(countries: object) -> None:
    problem = f"{shown(countries)} is no list of countries"
    mend = "list ISO 3166-1 codes in capitals, such as ('NO', 'SE'); none: no text messages"
    if not isinstance(countries, list | tuple | set | frozenset):
        _fail("sms_countries", problem, mend)
    elif countries:
        import phonenumbers  # noqa: PLC0415 - only for those who have phone numbers

        regions = phonenumbers.SUPPORTED_REGIONS
        unknown = [each for each in countries if not isinstance(each, str) or each not in regions]
        if unknown:
            _fail("sms_countries", f"{shown(unknown[0])} is no country's code", mend)


def build(accounts: Accounts, messages: MessageOptions | None) -> Blueprint:
    """
    Make the blueprint for one set of accounts; it can be nested, renamed, registered twice.

    Args:
        accounts: Where accounts are looked up.
        messages: What codes and links are sent by; None: sign-in by password alone.
    """
    # A path of its own: without a prefix the app's own /static would hide it.
    blueprint = Blueprint(
        "authguard",
        __name__,
        template_folder="templates",
        static_folder="static",
        static_url_path="/authguard-static",
    )
    blueprint.record(partial(_attach, accounts, messages))
    blueprint.before_request(_refuse_cross_origin)
    blueprint.after_request(_finish)
    both = ["GET", "POST"]
    blueprint.add_url_rule("/login", view_func=login, methods=both)
    blueprint.add_url_rule("/logout", view_func=logout, methods=both)
    blueprint.add_url_rule("/me", view_func=me)
    if messages is not None:
        blueprint.add_url_rule("/otp/send", view_func=otp_send, methods=both)
        blueprint.add_url_rule("/otp/verify", view_func=otp_verify, methods=both)
        blueprint.add_url_rule("/password/forgot", view_func=password_forgot, methods=both)
        blueprint.add_url_rule("/password/reset", view_func=password_reset, methods=both)
        blueprint.add_url_rule("/unlock", view_func=unlock, methods=both)
        blueprint.add_url_rule("/devices/forget", view_func=forget_devices, methods=["POST"])
    return blueprint


def _attach(
    accounts: Accounts, messages: MessageOptions | None, setup: BlueprintSetupState
) -> None:
    app = cast("Flask", setup.app)  # annotated as the base it shares with Quart
    state = state_of(app)
    if state is None:
        raise ConfigurationError(
            "AG019", "AuthGuard", "this app has not been initialised", "call init_app(app) first"
        )
    if state.look_up.accounts is not None and state.look_up.accounts is not accounts:
        raise ConfigurationError(
            "AG020",
            "blueprint(accounts=…)",
            "the app has a blueprint with other accounts, and their keys would share limits",
            "pass the same accounts object, or use one app for each",
        )
    if state.look_up.resolve is not None:
        raise ConfigurationError(
            "AG020",
            "blueprint(accounts=…)",
            "the app looks names up by resolve already, and the two could differ",
            "leave resolve out: the blueprint's accounts do what it does",
        )
    for method in _ACCOUNTS if messages is None else (*_ACCOUNTS, *_MEMBERS):
        if not callable(getattr(accounts, method, None)):
            protocol = "Accounts" if messages is None else "Members"
            raise ConfigurationError(
                "AG024",
                "blueprint(accounts=…)",
                f"the object has no method {method}",
                f"pass one that has the methods of authguard.accounts.{protocol}",
            )
    if state.look_up.accounts is not None and messages != state.message_options:
        raise ConfigurationError(
            "AG020",
            "blueprint(notifier=…)",
            "the app has a blueprint that sends in another way, or not at all",
            "make the blueprint once and register it twice",
        )
    cookies = isinstance(app.session_interface, SecureCookieSessionInterface)
    if cookies and not app.secret_key:
        raise ConfigurationError(
            "AG021", "SECRET_KEY", "is missing, so no session can start", "set it in app.config"
        )
    state.look_up.accounts = accounts
    state.message_options = messages
    if messages is not None:
        name = f"{setup.name_prefix}.{setup.name}".strip(".")
        _attach_messages(app, state, name, cast("Members", accounts), messages)


def _attach_messages(
    app: Flask, state: State, name: str, members: Members, messages: MessageOptions
) -> None:
    base_url = state.settings.base_url
    if base_url is None:
        raise ConfigurationError(
            "AG043",
            "AUTHGUARD_BASE_URL",
            "is missing, and links in messages must not be made from what a request says of its"
            " host",
            "set it to where the app is reached: 'https://example.com'",
        )
    if base_url.startswith("https:"):
        app.config["SESSION_COOKIE_SECURE"] = True
    if state.messaging is None:
        outbound = Outbound(
            app,
            state.guard,
            messages.notifier,
            blueprint=name,
            base_url=base_url,
            sms_countries=frozenset(messages.sms_countries),
        )
        if "sms" in messages.all_channels and not messages.sms_countries:
            _log.warning(
                "blueprint(sms_countries=…): no country is listed, so no text message will be sent"
            )
        state.messaging = Messaging(
            members,
            outbound,
            tuple(messages.channels),
            tuple(messages.second_factor_channels or ()),
            messages.code_life_s * 1000,
            messages.accept_password,
        )
        app.teardown_request(tell_owners)


def _fail(argument: str, problem: str, mend: str) -> None:
    raise ConfigurationError("AG044", f"blueprint({argument}=…)", problem, mend)


def _refuse_cross_origin() -> None:
    if is_cross_origin(request):
        raise CrossOrigin(error_page)


def _finish(response: Response) -> Response:
    response.headers["X-Content-Type-Options"] = "nosniff"
    if request.endpoint != f"{request.blueprint}.static":
        response.headers["Cache-Control"] = "no-store"
        response.headers.setdefault("Referrer-Policy", "same-origin")
    return response
