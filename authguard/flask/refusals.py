"""
Refusals as exceptions that Flask knows: an app's own ``errorhandler(429)`` just works.

Each is raised with its default response. Whatever a handler makes of it, :func:`seal` sees to
it that the response keeps ``Retry-After`` and ``Cache-Control: no-store``. It also adds what a
limited view's caller is shown, to refusals and to all else that such a view answers.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Final, cast

from flask import Flask
from werkzeug.exceptions import (
    BadRequest,
    Forbidden,
    RequestEntityTooLarge,
    ServiceUnavailable,
    TooManyRequests,
    UnsupportedMediaType,
)

from authguard import http
from authguard.errors import (
    Denied,
    Denylisted,
    HashingUnavailable,
    InvalidInput,
    Overloaded,
    Unavailable,
)
from authguard.flask.fields import TooLarge, WrongMediaType
from authguard.flask.ledger import kept_ledger, ledger
from authguard.flask.responses import plain_page, respond, wants_page
from authguard.flask.state import current_app_object, current_request

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from flask import Response
    from werkzeug.exceptions import HTTPException

    from authguard.decision import Decision
    from authguard.flask.ledger import Ledger
    from authguard.flask.state import State
    from authguard.http import Answer, Quota

__all__ = [
    "REFUSALS",
    "Barred",
    "CrossOrigin",
    "Malformed",
    "NoVerdict",
    "Refused",
    "Shed",
    "as_http_errors",
    "refuse",
    "seal",
    "seal_showing_all",
]

#: The errors of authguard that refuse a request.
REFUSALS: Final = (Denied, Unavailable, InvalidInput)

#: The methods that an exception passes in Flask, from the view to the response.
_FLASKS_WAY: Final = (
    *("full_dispatch_request", "dispatch_request", "handle_user_exception"),
    *("handle_http_exception", "finalize_request", "make_response"),
)

#: Refusals that are kept, of all actions together: a login's longest short wait has 900.
_MOST_KEPT: Final = 2048

#: Seconds at random, up to which a wait is lengthened where all clients were refused at once.
_JITTER_S: Final = 5


class Refused(TooManyRequests):
    """
    A limit or lock refuses: 429.

    Attributes:
        retry_after: Whole seconds to wait.
        decision: All limits' verdicts; ``decision.refused_by`` names those that refuse. For
            operators: which one it was tells a client too much.
    """

    retry_after: int

    def __init__(self, error: Denied, retry_after: int, response: Response) -> None:
        super().__init__("Too many attempts.", response, retry_after=retry_after)
        self.decision = error.decision


class Barred(Forbidden):
    """The client's address is on the denylist: 403."""


class NoVerdict(ServiceUnavailable):
    """
    The store or the hashing gave no answer, so nothing was verified: 503.

    Attributes:
        retry_after: Whole seconds to wait.
        reason: One short word or phrase, for logs.
    """

    retry_after: int

    def __init__(self, error: Unavailable, retry_after: int, response: Response) -> None:
        super().__init__("Not possible at the moment.", response, retry_after=retry_after)
        self.reason = error.reason


class Shed(ServiceUnavailable):
    """
    The load alone refuses, and the client has done nothing wrong: 503.

    Attributes:
        retry_after: Whole seconds to wait; some at random, so that not all come back at once.
        decision: All limits' verdicts.
    """

    retry_after: int

    def __init__(self, error: Overloaded, retry_after: int, response: Response) -> None:
        super().__init__("Not possible at the moment.", response, retry_after=retry_after)
        self.decision = error.decision


class Malformed(BadRequest):
    """The input can't be used: 400."""


class Oversized(RequestEntityTooLarge):
    """The body is too long: 413."""


class UnreadableMedia(UnsupportedMediaType):
    """The body is neither a form nor JSON: 415."""


class CrossOrigin(Forbidden):
    """A page of another origin sent the request: 403."""

    def __init__(self, page: Callable[[Answer], str]) -> None:
        super().__init__("This request came from another site.", respond(http.cross_origin(), page))


class as_http_errors:  # noqa: N801 - it reads as what it is used as: a verb
    """
    Turns authguard's errors, where the block raises one, into refusals that Flask answers.

    Args:
        page: Renders the answer where a page is wanted.
        quotas: In a limited view, what its caller is shown of a refusal. Without it the view
            checks credentials, and what a refusal shows is a constant.

    Raises:
        Refused: For ``Denied``.
        Shed: For ``Overloaded``.
        Barred: For ``Denylisted``.
        NoVerdict: For ``StoreUnavailable`` and ``HashingUnavailable``.
        Malformed: For ``InvalidInput``; or its kin for 413 and 415.
    """

    __slots__ = ("_page", "_quotas")

    def __init__(
        self,
        page: Callable[[Answer], str] = plain_page,
        *,
        quotas: Callable[[Decision], tuple[Quota, ...]] | None = None,
    ) -> None:
        self._page, self._quotas = page, quotas

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, REFUSALS):
            raise _refusal(error, self._page, self._quotas) from error


def refuse(
    error: Denied | Unavailable | InvalidInput,
    view: Callable[..., object],
    page: Callable[[Answer], str] = plain_page,
    *,
    quotas: Callable[[Decision], tuple[Quota, ...]] | None = None,
) -> Response:
    """
    Raise the same refusal; or give what Flask would make of it, if nobody would see it raised.

    Of an exception that no handler takes, Flask runs the response as if it were another WSGI app.
    That takes longer than all else about a refusal, which comes in floods.

    Args:
        error: What stands against the request.
        view: What Flask called, as far as the caller knows.
        page: As for :class:`as_http_errors`.
        quotas: Likewise.

    Raises:
        HTTPException: As :class:`as_http_errors` raises it, where somebody may look for it: a
            decorator above the view, a handler, an app that has its own way with exceptions.
    """
    refusal = _refusal(error, page, quotas)
    if refusal.response is None or _is_looked_for(refusal, view):
        raise refusal from error
    return cast("Response", refusal.response)


def _is_looked_for(refusal: HTTPException, view: Callable[..., object]) -> bool:
    app, running = current_app_object(), current_request()
    if app.view_functions.get(running.endpoint or "") is not view:
        return True
    for name, handlers in tuple(app.error_handler_spec.items()):
        handled = handlers.get(refusal.code) or handlers.get(None)
        if handled and (name is None or name in running.blueprints):
            return True
    return app.trap_http_exception(refusal) or _has_its_own_way(app)


def _has_its_own_way(app: Flask) -> bool:
    """Tell whether it handles exceptions as Flask itself doesn't, by its class or by a patch."""
    if not app.__dict__.keys().isdisjoint(_FLASKS_WAY):
        return True
    kind = type(app)
    return kind is not Flask and any(
        getattr(kind, name) is not getattr(Flask, name) for name in _FLASKS_WAY
    )


def _refusal(
    error: Denied | Unavailable | InvalidInput,
    page: Callable[[Answer], str],
    quotas: Callable[[Decision], tuple[Quota, ...]] | None,
) -> HTTPException:
    record = ledger()
    record.refused = True

    def response(answer: Answer) -> Response:
        # What calls an API takes anything, and reads JSON.
        return respond(answer, page, as_json=None if quotas is None else not wants_page())

    if isinstance(error, InvalidInput):
        return _unreadable(error, response)
    if isinstance(error, Denylisted):
        return Barred(str(error), response(http.denylisted()))
    if isinstance(error, Overloaded | Unavailable):
        record.quotas.clear()  # it is not the client who has used something up
        return _unavailable(error, response)
    wait_s = record.retry_after = error.retry_after
    if quotas is None:
        record.denied = error
        answer, text = _constant(record.state, error, wait_s)
        made = respond(answer, page, text=text)
        record.sent = tuple(made.headers)
        return Refused(error, wait_s, made)
    shown = quotas(error.decision)
    record.quotas.extend(shown)
    policy = record.state.guard.policy(error.action)
    return Refused(error, wait_s, response(http.refused(error.decision, policy, shown=shown)))


def _constant(state: State, error: Denied, wait_s: int) -> tuple[Answer, str]:
    """Give an auth route's refusal, and its body as JSON: constant but for the wait."""
    made, asked = state.refusals, (error.action, wait_s)
    found = made.get(asked)
    if found is None:
        if len(made) >= _MOST_KEPT:
            made.clear()
        answer = http.refused(error.decision, state.guard.policy(error.action))
        found = made[asked] = (answer, json.dumps(answer.body))
    return found


def _unreadable(error: InvalidInput, response: Callable[[Answer], Response]) -> HTTPException:
    if isinstance(error, TooLarge):
        return Oversized(str(error), response(http.malformed(error, 413)))
    if isinstance(error, WrongMediaType):
        return UnreadableMedia(str(error), response(http.malformed(error, 415)))
    return Malformed(str(error), response(http.malformed(error)))


def _unavailable(
    error: Overloaded | Unavailable, response: Callable[[Answer], Response]
) -> HTTPException:
    jitter_s = 0 if isinstance(error, HashingUnavailable) else secrets.randbelow(_JITTER_S + 1)
    if isinstance(error, Overloaded):
        answer = http.overloaded(error.decision, jitter_s=jitter_s)
    else:
        answer = http.unavailable(error, jitter_s=jitter_s)
    wait_s = ledger().retry_after = int(answer.body["retry_after"])
    if isinstance(error, Overloaded):
        return Shed(error, wait_s, response(answer))
    return NoVerdict(error, wait_s, response(answer))


def seal(response: Response, *, x_ratelimit: bool = False) -> Response:
    """
    Keep the wait and the ban on storing, whatever the app made of a refusal, and show quotas.

    Args:
        response: What goes out.
        x_ratelimit: Whether the ``X-RateLimit-…`` fields are shown too.
    """
    record = kept_ledger()
    if record is None:
        return response
    if record.refused and (record.sent is None or tuple(response.headers) != record.sent):
        response.headers["Cache-Control"] = "no-store"
        if record.retry_after is not None:
            theirs = response.headers.get("Retry-After", "")
            wait_s = max(record.retry_after, int(theirs) if theirs.isdecimal() else 0)
            response.headers["Retry-After"] = str(wait_s)
    for name, value in _quota_fields(record, x_ratelimit=x_ratelimit):
        if record.refused or name not in response.headers:
            response.headers[name] = value
    return response


def seal_showing_all(response: Response) -> Response:
    """
    Do the same with the ``X-RateLimit-…`` fields.

    Args:
        response: What goes out.
    """
    return seal(response, x_ratelimit=True)


def _quota_fields(record: Ledger, *, x_ratelimit: bool) -> tuple[tuple[str, str], ...]:
    fields: tuple[tuple[str, str], ...] = ()
    if not record.quotas and not x_ratelimit:
        return fields
    shown = list(record.quotas)
    if record.denied is not None:
        policy = record.state.guard.policy(record.denied.action)
        advertised = http.advertised(record.denied.decision, policy)
        if advertised is not None:
            shown.append(advertised)
    if record.quotas:  # the answer of an auth route has its own already
        fields = http.ratelimit_fields(shown, retry_after=record.retry_after)
    return fields + http.x_ratelimit_fields(shown) if x_ratelimit else fields
