"""The extension: one object for any number of apps; each app keeps its own state."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from flask import current_app

from authguard.devices import DeviceCookies
from authguard.errors import ConfigurationError
from authguard.flask import signals
from authguard.flask.api import Limit, is_limited, limited
from authguard.flask.attempts import report_locks, requests_client
from authguard.flask.cli import add_commands
from authguard.flask.decorators import guarded, is_guarded, unwrapped
from authguard.flask.new_password import at_least_eight
from authguard.flask.refusals import seal, seal_showing_all
from authguard.flask.settings import Settings, by_its_key
from authguard.flask.start import look_over
from authguard.flask.state import LookUp, State, current_state, state_of
from authguard.guard import Guard
from authguard.limits.rates import check_switch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from ipaddress import IPv4Address, IPv6Address

    from flask import Blueprint, Flask

    from authguard.accounts import Accounts, Member
    from authguard.identity import Email, Phone
    from authguard.notify import Channel, Notifier
    from authguard.passwords import Passwords
    from authguard.stores.base import Store

__all__ = ["AuthGuard"]

P = ParamSpec("P")
R = TypeVar("R")


class AuthGuard:
    """
    Puts a Flask app's credential checks behind limits that no request can outrun.

    Args:
        app: An app to initialise at once; or call :meth:`init_app` later.
        clock: Gives milliseconds since the epoch, for tests; the store's own clock without one.
        normalise: Gives the one spelling of an account's name; by default NFKC and casefold. See
            :class:`authguard.Guard`.
        resolve: Turns whatever was typed (username, e-mail, phone) into the account's one key, or
            gives None for what names nobody. With the blueprint its accounts do that.
        tier: Gives the tier of an account's key, such as its plan, as the limits' ``tiers`` name
            them; None for the limits' own numbers.
        x_ratelimit: Send ``X-RateLimit-Limit``, ``-Remaining`` and ``-Reset`` too: from limited
            views, and with the refusals of auth routes, there by client address alone.
        store: A store made by hand, in place of ``AUTHGUARD_STORE_URL``: such as a ``ValkeyStore``
            with certificates of your own. One for each app.
        check_at_start: Log what ``flask authguard check`` would warn of, when an app starts that is
            not under test (``TESTING``); False leaves it to you.

    Raises:
        ConfigurationError: As :meth:`init_app`; AG005, if ``x_ratelimit`` or ``check_at_start`` is
            no switch.
    """

    def __init__(
        self,
        app: Flask | None = None,
        *,
        clock: Callable[[], int] | None = None,
        normalise: Callable[[str], str] | None = None,
        resolve: Callable[[str], str | None] | None = None,
        tier: Callable[[str], str | None] | None = None,
        x_ratelimit: bool = False,
        store: Store | None = None,
        check_at_start: bool = True,
    ) -> None:
        check_switch(x_ratelimit, "AuthGuard(x_ratelimit=…)")
        check_switch(check_at_start, "AuthGuard(check_at_start=…)")
        self._clock = clock
        self._normalise = normalise
        self._resolve = resolve
        self._tier = tier
        self._x_ratelimit = x_ratelimit
        self._store = store
        self._check_at_start = check_at_start
        self._actions: set[str] = set()  # that views are protected by
        self._limits: list[Limit] = []  # that views are limited by
        self._guards: list[Guard] = []  # of the apps so far
        # What protect() and limit() were given, what tells their own work, and its name.
        self._bare_views: list[
            tuple[Callable[..., Any], Callable[[Callable[..., Any]], bool], str]
        ] = []
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """
        Read the app's settings once and put its guard into place; a second call is harmless.

        The session cookie gets ``SameSite=Lax`` unless the app has set something else. What can go
        wrong with the store and the settings is logged, by codes; it stops nothing.

        Args:
            app: The app; its ``config`` must hold ``AUTHGUARD_SECRET`` and, unless a store was
                given, ``AUTHGUARD_STORE_URL``.

        Raises:
            ConfigurationError: A setting, the policy file, or the action of a protected view is
                wrong; the message names it and the mend.
        """
        from authguard.passwords import Passwords  # noqa: PLC0415 (its argon2 takes a while)

        state = state_of(app)
        if state is None:
            settings = Settings.read(app.config, store=self._store is not None)
            look_up = LookUp(self._resolve)
            with by_its_key():
                guard = Guard(
                    self._store or settings.store_url,
                    secret=settings.secret,
                    policies=settings.policy,
                    clock=self._clock,
                    deadline_ms=settings.deadline_ms,
                    remember_refusals_ms=settings.remember_refusals_ms,
                    normalise=self._normalise,
                    resolve=look_up,
                    tier=self._tier,
                    prefixes=settings.prefixes,
                    allowlist=settings.allowlist,
                    denylist=settings.denylist,
                )
            guard.when_data_is_lost(partial(signals.send, signals.data_lost, app))
            passwords = Passwords(slots=settings.hash_slots)
            devices = DeviceCookies(settings.secret)
            state = State(settings, guard, passwords, settings.proxies(), look_up, devices, self)
            state.install(app)
            if app.config["SESSION_COOKIE_SAMESITE"] is None:
                app.config["SESSION_COOKIE_SAMESITE"] = "Lax"
            app.after_request(seal_showing_all if self._x_ratelimit else seal)
            app.teardown_request(report_locks)
            add_commands(app)
            if self._check_at_start:
                look_over(app, state)
        elif state.made_by is not self and any(
            (
                *(self._clock, self._normalise, self._resolve, self._tier),
                *(self._x_ratelimit, self._store),
            )
        ):
            raise ConfigurationError(
                "AG029",
                "AuthGuard(clock=…, normalise=…, resolve=…, tier=…, x_ratelimit=…, store=…)",
                "another AuthGuard has initialised this app, so these would count for nothing",
                "give them to the first one, or use that one",
            )
        for action in sorted(self._actions):
            state.guard.policy(action)
        for limit in self._limits:
            limit.check(state.guard)
        if state.guard not in self._guards:
            self._guards.append(state.guard)
            app.before_request(self._look_over_once)

    def protect(
        self,
        action: str,
        *,
        account: str | Callable[[], str | None],
        destination: str | Callable[[], str | Email | Phone | None] | None = None,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """
        Reserve an attempt before the view runs; without one that is admitted it doesn't run.

        The view checks the credential and calls ``current_attempt.succeed()`` if it is right. All
        else (a wrong password, an early return, an exception) stays a counted failure. Write it
        below the route: what is registered must be the protected view. Follows the view, not the
        path: every URL that leads to it is under the same limits.

        Requests of every method are reserved for, with one exception: a GET, HEAD or OPTIONS that
        names no account and has no body is free if the view takes other methods too, so that
        showing its form costs nothing. The view must not look at credentials in such a request.
        A function that names an account on a GET, such as the session's, makes every look at the
        form a failure: let it return None where nothing was sent.

        A refusal is raised as an HTTP exception, 429 :class:`Refused` or 503 :class:`NoVerdict` or
        :class:`Shed`, so an app's own error handlers may answer it; ``Retry-After`` is kept
        whatever they return. A request that names no account is answered 400 and charged to its
        client.

        Args:
            action: The policy's name, such as ``login``.
            account: The field of the form, the JSON body or the query that holds what the person
                typed; ``resolve``, or the blueprint's ``accounts.find``, turns it into the
                account's key. Bodies over 16 KiB are refused. Or a function that returns it, where
                the name can come in several fields or in the session; :class:`AccountKey` says of
                a key that it needs no more looking up.
            destination: The field with the e-mail address or phone number that a message goes to,
                or a function that returns it, such as ``read_phone(…, region="NO")``. Limits by
                destination don't apply where it returns None.

        Raises:
            ConfigurationError: AG009, there is no such action: at once if ``init_app`` was called,
                else then.
        """
        self._actions.add(action)
        for guard in self._guards:
            guard.policy(action)

        def decorate(view: Callable[P, R]) -> Callable[P, R]:
            self._bare_views.append((view, is_guarded, "protect"))
            return guarded(view, action, account, destination)

        return decorate

    def limit(
        self,
        action: str,
        *,
        by: Callable[[], str | None] | None = None,
        cost: int | Callable[[], int] = 1,
        tier: str | Callable[[], str | None] | None = None,
        priority: str | Callable[[], str | None] | None = None,
        exempt: Callable[[], bool] | None = None,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """
        Count every request of a view before it runs; one that is refused doesn't run.

        For views that check no credentials, such as an API's: nothing is given back, however the
        view ends. Write it below the route. Several can be stacked, each an action of its own,
        also with :meth:`protect`; each decides for itself, the outermost first. What is reached
        twice in one request with the same action and key counts once.

        A refusal is raised as an HTTP exception, as :meth:`protect` raises it. All answers carry
        ``RateLimit-Policy`` and ``RateLimit``, with the limits that count what is the caller's own;
        what the view has set itself stays. What the limits said is ``current_limit`` in the view.

        Args:
            action: The policy's name, such as ``api``.
            by: Gives the key that limits by ``account`` count, such as that of an API key or a
                user, once the request has proved it; a key in which letter case differs is another
                one. Where it gives None, the limits by client and the like count alone; without
                any of those such a request is answered 400.
            cost: Places that a request takes, from 1.
            tier: The caller's tier, as the limits' ``tiers`` name it.
            priority: How important a request is, as the limits' ``priority`` names it. Take it from
                what the caller has proved.
            exempt: Says of a request that it is neither counted nor limited: the store isn't asked.

        Raises:
            ConfigurationError: AG054, for what is no such argument. AG009, there is no such action;
                AG023, none of its limits could apply; AG054, none has such a tier or priority: at
                once if ``init_app`` was called, else then.
        """
        limit = Limit(action, by, cost, tier, priority, exempt)
        self._limits.append(limit)
        for guard in self._guards:
            limit.check(guard)

        def decorate(view: Callable[P, R]) -> Callable[P, R]:
            self._bare_views.append((view, is_limited, "limit"))
            return limited(view, limit)

        return decorate

    def blueprint(
        self,
        *,
        accounts: Accounts,
        notifier: Notifier | None = None,
        channels: Sequence[Channel] = ("sms",),
        second_factor_channels: Sequence[Channel] | None = None,
        sms_countries: Sequence[str] = (),
        code_life_s: int = 300,
        accept_password: Callable[[str, Member], None] = at_least_eight,
    ) -> Blueprint:
        """
        Return ready-made routes, in JSON and as pages.

        ``/login``, ``/logout`` and ``/me``; with a notifier also ``/otp/send`` and ``/otp/verify``
        (second factor, and sign-in by code), ``/password/forgot`` and ``/password/reset``,
        ``/unlock`` and ``/devices/forget``. Register it after ``init_app``, below a prefix of your
        choice.

        Args:
            accounts: Where accounts are looked up; with a notifier it has all methods of
                :class:`authguard.accounts.Members`.
            notifier: Carries the messages. Links in them begin with ``AUTHGUARD_BASE_URL``.
            channels: The ways a code to sign in by may go, ``sms`` and ``email``, as the person
                asks for.
            second_factor_channels: The ways one may go after a password: the first that the account
                has an address for, whatever is asked for. None: ``sms`` if it is one of the
                channels, else none, and then an account with a second factor can't sign in here.
                With ``email`` the mailbox, which also resets the password, opens the account alone
                (NIST SP 800-63B-4, 3.1.3.1), so say it only if that is what you want.
            sms_countries: ISO 3166-1 codes of the countries that text messages go to; none: none
                are sent.
            code_life_s: How long a code lives, in seconds, 600 at most.
            accept_password: Raises :class:`authguard.InvalidInput` for a new password that is not
                good enough, such as one on a list of known ones. By default eight characters do.

        Raises:
            ConfigurationError: AG024 or AG044; when it is registered AG019 to AG021, AG024, AG043.
        """
        from authguard.flask.blueprint import (  # noqa: PLC0415 (many apps have their own views)
            MessageOptions,
            build,
        )

        if notifier is None:
            given = (channels, second_factor_channels, sms_countries, code_life_s, accept_password)
            if given != (("sms",), None, (), 300, at_least_eight):
                raise ConfigurationError(
                    "AG044",
                    "blueprint(…)",
                    "without a notifier nothing is sent, so the other arguments count for nothing",
                    "give a notifier, or leave them out",
                )
            return build(accounts, None)
        messages = MessageOptions(
            notifier,
            channels,
            second_factor_channels,
            sms_countries,
            code_life_s,
            accept_password,
        )
        return build(accounts, messages)

    def drain_messages(self, timeout_s: float) -> bool:
        """
        Wait until this process has sent all messages of the current app; tell whether it has.

        For tests, and for a page that shows what went out. Never in a request that must not tell
        who has an account.

        Args:
            timeout_s: Longest wait, in seconds.
        """
        messaging = current_state().messaging
        return messaging is None or messaging.outbound.drain(timeout_s)

    def client_address(self) -> IPv4Address | IPv6Address:
        """
        Give the running request's client, past the trusted proxies.

        For attempts of your own, such as each of several sign-ins in one request:
        ``guard.guard.attempt("login", account=…, client=guard.client_address())``.

        Raises:
            InvalidInput: The connection has no address, and no proxy at its end was declared.
        """
        return requests_client()

    @property
    def guard(self) -> Guard:
        """The current app's guard."""
        return current_state().guard

    @property
    def passwords(self) -> Passwords:
        """The current app's password hasher; use this one, since its slots bound the process."""
        return current_state().passwords

    def _look_over_once(self) -> None:
        # Routes can be added until the first request, so this is the first moment to see them all.
        state = current_state()
        if self in state.looked_over_by:
            return
        bare_views = [(unwrapped(view), is_ours, name) for view, is_ours, name in self._bare_views]
        for endpoint, view in current_app.view_functions.items():
            layers = unwrapped(view)
            for bare, is_ours, name in bare_views:
                found = next((at for at, layer in enumerate(layers) if layer in bare), None)
                if found is not None and not any(map(is_ours, layers[:found])):
                    raise ConfigurationError(
                        "AG022",
                        f"endpoint {endpoint!r}",
                        f"is registered without its {'protection' if name == 'protect' else name}",
                        f"write @guard.{name}(…) below @app.route(…), nearest to the function",
                    )
        target = state.settings.login_redirect or "/"
        if not target.startswith(("/", ".")) and target not in current_app.view_functions:
            raise ConfigurationError(
                "AG016",
                "AUTHGUARD_LOGIN_REDIRECT",
                f"there is no endpoint {target!r}",
                f"take one of: {', '.join(sorted(current_app.view_functions))}",
            )
        if state.messaging is not None:
            state.messaging.outbound.check_links()
        state.looked_over_by.append(self)
