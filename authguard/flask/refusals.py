"""
Refusals as exceptions that Flask knows: an app's own ``errorhandler(429)`` just works.

Each is raised with its default response. Whatever a handler makes of it, :func:`seal` sees to
it that the response keeps ``Retry-After`` and ``Cache-Control: no-store``.
"""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING

from werkzeug.exceptions import (
    BadRequest,
    Forbidden,
    RequestEntityTooLarge,
    ServiceUnavailable,
    TooManyRequests,
    UnsupportedMediaType,
)

from authguard import http
from authguard.errors import Denied, Denylisted, HashingUnavailable, InvalidInput, Unavailable
from authguard.flask.fields import TooLarge, WrongMediaType
from authguard.flask.ledger import ledger
from authguard.flask.responses import plain_page, respond
from authguard.flask.state import current_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flask import Response
    from werkzeug.exceptions import HTTPException

    from authguard.http import Answer

__all__ = ["Barred", "CrossOrigin", "Malformed", "NoVerdict", "Refused", "as_http_errors", "seal"]


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
def as_http_errors(page: Callable[[Answer], str] = plain_page) -> Iterator[None]:
    """
    Turn authguard's errors into refusals that Flask answers.

    Args:
        page: Renders the answer where a page is wanted.

    Raises:
        Refused: For ``Denied``.
        Barred: For ``Denylisted``.
        NoVerdict: For ``StoreUnavailable`` and ``HashingUnavailable``.
        Malformed: For ``InvalidInput``; or its kin for 413 and 415.
    """
    try:
        yield
    except (Denied, Unavailable, InvalidInput) as error:
        raise _refusal(error, page) from error


def _refusal(
    error: Denied | Unavailable | InvalidInput, page: Callable[[Answer], str]
) -> HTTPException:
    record = ledger()
    record.refused = True
    if isinstance(error, Denylisted):
        return Barred(str(error), respond(http.denylisted(), page))
    if isinstance(error, Denied):
        answer = http.refused(error.decision, current_state().guard.policy(error.action))
        record.retry_after = error.retry_after
        return Refused(error, respond(answer, page))
    if isinstance(error, Unavailable):
        jitter_s = 0 if isinstance(error, HashingUnavailable) else secrets.randbelow(6)
        answer = http.unavailable(error, jitter_s=jitter_s)
        record.retry_after = answer.retry_after
        return NoVerdict(error, answer.retry_after or error.retry_after_s, respond(answer, page))
    if isinstance(error, TooLarge):
        return Oversized(str(error), respond(http.malformed(error, 413), page))
    if isinstance(error, WrongMediaType):
        return UnreadableMedia(str(error), respond(http.malformed(error, 415), page))
    return Malformed(str(error), respond(http.malformed(error), page))


def seal(response: Response) -> Response:
    """Keep the wait and the ban on storing, whatever the app made of a refusal."""
    record = ledger()
    if not record.refused:
        return response
    response.headers["Cache-Control"] = "no-store"
    if record.retry_after is not None:
        theirs = response.headers.get("Retry-After", "")
        wait_s = max(record.retry_after, int(theirs) if theirs.isdecimal() else 0)
        response.headers["Retry-After"] = str(wait_s)
    return response
