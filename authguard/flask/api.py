"""``limit``: a request of any view is counted before the view runs; refused, it doesn't run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast
from weakref import WeakSet

from flask import current_app
from werkzeug.local import LocalProxy

from authguard import http
from authguard.checks import is_whole, shown
from authguard.decision import Decision
from authguard.errors import ConfigurationError, InvalidInput, TooDear
from authguard.flask.attempts import count
from authguard.flask.ledger import kept_ledger, ledger
from authguard.flask.refusals import REFUSALS, refuse
from authguard.identity import AccountKey
from authguard.policy import NORMAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Response

    from authguard.guard import Guard
    from authguard.policy import Policy

__all__ = ["Limit", "current_limit", "is_limited", "limited"]

#: Every function that :func:`limited` made, as long as somebody holds it.
_limited: WeakSet[Callable[..., Any]] = WeakSet()

#: What is known of every request.
_KNOWN: Final = frozenset({"client", "network", "global"})

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Limit:
    """
    What a view is limited by; the attributes are the arguments of ``AuthGuard.limit``.

    Raises:
        ConfigurationError: AG054, naming the argument and the mend.
    """

    action: str
    by: Callable[[], str | None] | None = None
    cost: int | Callable[[], int] = 1
    tier: str | Callable[[], str | None] | None = None
    priority: str | Callable[[], str | None] | None = None
    exempt: Callable[[], bool] | None = None

    def __post_init__(self) -> None:
        for name in ("by", "cost", "tier", "priority", "exempt"):
            value = getattr(self, name)
            if iscoroutinefunction(value):
                raise _unfit(name, "is async", "give a plain function")
            if name == "cost":
                if not callable(value) and not is_whole(value, 1):
                    raise _unfit(
                        name,
                        f"{shown(value)} is no possible cost",
                        "give a whole number from 1, or a function that returns one",
                    )
            elif value is None or callable(value):
                continue
            elif name in ("by", "exempt") or not isinstance(value, str):
                raise _unfit(name, f"{shown(value)} is no function", "give one without arguments")

    def check(self, guard: Guard) -> None:
        """
        Check it against an app's policies.

        Raises:
            ConfigurationError: AG009, AG023 or AG054, naming what is wrong and the mend.
        """
        policy = guard.policy(self.action)
        named = {"tier": policy.tiers, "priority": policy.priorities | {NORMAL}}
        for argument, names in named.items():
            given = getattr(self, argument)
            if isinstance(given, str) and given not in names:
                raise _unfit(
                    argument,
                    f"no limit of [{self.action}] has a {argument} {shown(given)}",
                    f"take one of: {', '.join(sorted(names)) or '(none)'}; or leave it out",
                )
        priorities = {None, *policy.priorities} if callable(self.priority) else {self.priority}
        keyed = self.by is not None
        if not any(_applies(policy, each, keyed=keyed) for each in priorities):
            raise _nothing_applies(self.action, keyed=keyed)

    def key(self) -> AccountKey | None:
        """
        Give the key that limits by account count; None if the request has none.

        Raises:
            InvalidInput: It is unfit, as only a client can have made it.
            ConfigurationError: AG026, if it is no text.
        """
        key: object = None if self.by is None else self.by()
        if key is None:
            return None
        if not isinstance(key, str):
            return AccountKey.of_app(key)  # says what is wrong
        try:
            return AccountKey(key)
        except InvalidInput as error:
            raise InvalidInput("key", error.problem) from None

    def is_exempt(self) -> bool:
        """
        Tell whether this request is neither counted nor limited.

        Raises:
            ConfigurationError: AG055, if the function gives neither True nor False: nobody is
                exempt by accident.
        """
        if self.exempt is None:
            return False
        exempt: object = self.exempt()
        if not isinstance(exempt, bool):
            raise _unfit("exempt", f"gave {type(exempt).__name__}", "return bool(…)", code="AG055")
        return exempt

    def places(self) -> int:
        """
        Give the request's cost.

        Raises:
            ConfigurationError: AG055, if the function gives no whole number from 1.
        """
        if not callable(self.cost):
            return self.cost
        cost = self.cost()
        if not is_whole(cost, 1):
            raise _unfit(
                "cost",
                f"gave {shown(cost)}",
                "return a whole number from 1; what costs nothing is exempt",
                code="AG055",
            )
        return cost


def limited(view: Callable[P, R], limit: Limit) -> Callable[P, R]:
    """Wrap a view; see :meth:`authguard.flask.AuthGuard.limit`."""
    is_async = iscoroutinefunction(view)

    @wraps(view)
    def count_first(*args: P.args, **kwargs: P.kwargs) -> Any:
        refused = _count(limit, count_first)
        if refused is not None:
            return refused
        run = current_app.ensure_sync(view) if is_async else view
        return run(*args, **kwargs)

    _limited.add(count_first)
    return count_first


def is_limited(view: Callable[..., Any]) -> bool:
    """Tell whether the function counts before it calls the one that it wraps."""
    return view in _limited


def _count(limit: Limit, view: Callable[..., Any]) -> Response | None:
    """Count the request; give what the view answers if it is refused, or raise it."""
    record = ledger()
    if limit.is_exempt():
        record.limit = Decision(limit.action, allowed=True, verdicts=(), now_ms=0)
        return None
    key, unfit = None, None
    try:
        key = limit.key()
    except InvalidInput as error:
        unfit = error
    policy = record.state.guard.policy(limit.action)
    tier = None if key is None else _given(limit.tier)
    priority = _given(limit.priority)
    quotas = partial(http.quotas, policy=policy)
    try:
        # Without a key it counts by what else there is, such as the client; one that is unfit
        # costs its sender no less.
        if key is not None or _applies(policy, priority, keyed=False):
            before = len(record.limits)
            record.limit = _charge(limit, key, tier=tier, priority=priority)
            if len(record.limits) > before:
                record.quotas.extend(quotas(record.limit))
        elif limit.by is None:
            raise _nothing_applies(limit.action, keyed=False)
        else:
            unfit = unfit or InvalidInput("key", "is missing")
        if unfit is not None:
            raise unfit
    except REFUSALS as error:
        return refuse(error, view, quotas=quotas)
    return None


def _charge(
    limit: Limit, key: AccountKey | None, *, tier: str | None, priority: str | None
) -> Decision:
    try:
        return count(limit.action, key, cost=limit.places(), tier=tier, priority=priority)
    except TooDear as error:
        if not callable(limit.cost):
            raise
        # The request's own cost: too much is asked for at once.
        raise InvalidInput("cost", "is more than could ever be admitted") from error


def _given(value: str | Callable[[], str | None] | None) -> str | None:
    return value() if callable(value) else value


def _applies(policy: Policy, priority: str | None, *, keyed: bool) -> bool:
    """Tell whether at least one limit counts such requests."""
    known = _KNOWN | {"account"} if keyed else _KNOWN
    return any(
        known.issuperset(limit.by)
        and limit.member_part in (None, *known)
        and limit.channel is None
        and limit.priority in (None, priority or NORMAL)
        for limit in policy.limits
    )


def _nothing_applies(action: str, *, keyed: bool) -> ConfigurationError:
    return ConfigurationError(
        "AG023",
        f"[{action}] limits",
        "none applies to such a request",
        "add a limit by account or client" if keyed else "add a limit by client, or give by=…",
    )


def _unfit(argument: str, problem: str, mend: str, *, code: str = "AG054") -> ConfigurationError:
    return ConfigurationError(code, f"limit({argument}=…)", problem, mend)


def _current_limit() -> Decision:
    record = kept_ledger()
    if record is None or record.limit is None:
        raise RuntimeError("this request was counted for no limit; decorate its view with limit()")
    return record.limit


#: What the limits of the running request's view said: ``current_limit.remaining``, and
#: ``current_limit.delay_ms`` of a leaky bucket. With several, the one that was reached last. Of an
#: exempt request, and of one that an outage let through, it has no verdicts, and its delay is 0.
current_limit = cast("Decision", LocalProxy(_current_limit))
