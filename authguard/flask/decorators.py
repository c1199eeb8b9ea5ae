"""``protect``: an attempt is reserved before a view of the app's own runs."""

from __future__ import annotations

from functools import wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from weakref import WeakSet

from flask import current_app

from authguard.errors import HashingUnavailable, InvalidInput
from authguard.flask.attempts import charge_client, release_all, reserve
from authguard.flask.fields import has_body, in_query, read_text
from authguard.flask.origin import SAFE_METHODS
from authguard.flask.refusals import REFUSALS, refuse
from authguard.flask.state import current_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Request

    from authguard.identity import Email, Phone

__all__ = ["guarded", "is_guarded", "unwrapped"]

#: Every function that :func:`guarded` made, as long as somebody holds it.
_guarded: WeakSet[Callable[..., Any]] = WeakSet()

P = ParamSpec("P")
R = TypeVar("R")


def guarded(
    view: Callable[P, R],
    action: str,
    account: str | Callable[[], str | None],
    destination: str | Callable[[], str | Email | Phone | None] | None = None,
) -> Callable[P, R]:
    """Wrap a view; see :meth:`authguard.flask.AuthGuard.protect`."""
    is_async = iscoroutinefunction(view)

    @wraps(view)
    def reserve_first(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            _reserve(action, account, destination)
            try:
                # An async view is awaited here, inside the attempt.
                run = current_app.ensure_sync(view) if is_async else view
                return run(*args, **kwargs)
            except HashingUnavailable:
                release_all(action)
                raise
        except REFUSALS as error:
            return refuse(error, reserve_first)

    _guarded.add(reserve_first)
    return reserve_first


def is_guarded(view: Callable[..., Any]) -> bool:
    """Tell whether the function reserves before it calls the one that it wraps."""
    return view in _guarded


def unwrapped(view: Callable[..., Any]) -> list[Callable[..., Any]]:
    """List a view and all functions below its decorators, as far as they name what they wrap."""
    layers = [view]
    while (below := getattr(layers[-1], "__wrapped__", None)) is not None and below not in layers:
        layers.append(below)
    return layers


def _reserve(
    action: str,
    account: str | Callable[[], str | None],
    destination: str | Callable[[], str | Email | Phone | None] | None,
) -> None:
    try:
        running = current_request()
        key = account() if callable(account) else _typed(running, account)
        if key is not None or not _merely_shows_the_form(running):
            reserve(action, _required(key), _destination(running, destination))
    except InvalidInput:
        charge_client(action)
        raise


def _destination(
    running: Request,
    given: str | Callable[[], str | Email | Phone | None] | None,
) -> str | Email | Phone | None:
    if given is None:
        return None
    return given() if callable(given) else read_text(running, given)


def _typed(running: Request, field: str) -> str | None:
    if _carries_nothing(running) and not in_query(running, field):
        return None
    return read_text(running, field)


def _required(key: object) -> str:
    if not isinstance(key, str):
        raise InvalidInput("account", "is missing")
    return key


def _merely_shows_the_form(running: Request) -> bool:
    methods = (running.url_rule and running.url_rule.methods) or set()
    return _carries_nothing(running) and bool(methods - SAFE_METHODS)


def _carries_nothing(running: Request) -> bool:
    # A GET can have a body, and a view can read it: such a request is an attempt. Over HTTP/2 no
    # header need tell of it.
    return (
        running.method in SAFE_METHODS
        and not running.content_length
        and "Transfer-Encoding" not in running.headers
        and not has_body(running)
    )
