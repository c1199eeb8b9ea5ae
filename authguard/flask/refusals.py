"""
Refusals as exceptions that Flask knows: an app's own ``errorhandler(429)`` just works.

Each is raised with its default response. Whatever a handler makes of it, :func:`seal` sees to
it that the response keeps ``Retry-After`` and ``Cache-Control: no-store``. It also adds what a
limited view's caller is shown, to refusals and to all else that such a view answers.
"""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

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
from authguard.flask.ledger import ledger
from authguard.flask.responses import plain_page, respond, wants_page
from authguard.flask.state import current_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flask import Response
    from werkzeug.exceptions import HTTPException

    from authguard.decision import Decision
    from authguard.flask.ledger import Ledger
    from authguard.http import Answer, Quota

__all__ = [
    "Barred",
    "CrossOrigin",
    "Malformed",
    "NoVerdict",
    "Refused",
    "Shed",
    "as_http_errors",
    "seal",
]

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

    def __init__(self, error: Denied, response: Response) -> None:
        super().__init__("Too many attempts.", response, retry_after=error.retry_after)
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


@contextmanager
def as_http_errors(
    page: Callable[[Answer], str] = plain_page,
    *,
    quotas: Callable[[Decision], tuple[Quota, ...]] | None = None,
) -> Iterator[None]:
    """
    Turn authguard's errors into refusals that Flask answers.

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
    try:
        yield
    except (Denied, Unavailable, InvalidInput) as error:
        raise _refusal(error, page, quotas) from error


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

    if isinstance(error, Denylisted):
        return Barred(str(error), response(http.denylisted()))
    if isinstance(error, Overloaded | Unavailable):
        record.quotas.clear()  # it is not the client who has used something up
        return _unavailable(error, response)
    if isinstance(error, Denied):
        policy = current_state().guard.policy(error.action)
        shown = None
        if quotas is None:
            record.advertised = http.advertised(error.decision, policy)
        else:
            shown = quotas(error.decision)
            record.quotas.extend(shown)
        record.retry_after = error.retry_after
        return Refused(error, response(http.refused(error.decision, policy, shown=shown)))
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
    record = ledger()
    if record.refused:
        response.headers["Cache-Control"] = "no-store"
        if record.retry_after is not None:
            theirs = response.headers.get("Retry-After", "")
            wait_s = max(record.retry_after, int(theirs) if theirs.isdecimal() else 0)
            response.headers["Retry-After"] = str(wait_s)
    for name, value in _quota_fields(record, x_ratelimit=x_ratelimit):
        if record.refused or name not in response.headers:
            response.headers[name] = value
    return response


def _quota_fields(record: Ledger, *, x_ratelimit: bool) -> tuple[tuple[str, str], ...]:
    shown = list(record.quotas)
    if record.advertised is not None:
        shown.append(record.advertised)
    fields: tuple[tuple[str, str], ...] = ()
    if record.quotas:  # the answer of an auth route has its own already
        fields = http.ratelimit_fields(shown, retry_after=record.retry_after)
    return fields + http.x_ratelimit_fields(shown) if x_ratelimit else fields
