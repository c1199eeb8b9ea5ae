"""
Decisions and errors as HTTP answers: status, header fields, problem+json body. No framework.

Bodies follow RFC 9457 and the problem types of draft-ietf-httpapi-ratelimit-headers-11; header
fields are serialised as RFC 9651 by ``http-sf``. Nothing here tells a known account from an
unknown one: a refusal names the action, never the limit that refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import http_sf

from authguard.errors import HashingUnavailable
from authguard.limits import SlidingLog

if TYPE_CHECKING:
    from authguard.decision import Decision
    from authguard.errors import InvalidInput, Unavailable
    from authguard.policy import Policy

__all__ = [
    "Answer",
    "bad_link",
    "cross_origin",
    "denylisted",
    "malformed",
    "refused",
    "unauthenticated",
    "unavailable",
]

_TYPES: Final = "https://iana.org/assignments/http-problem-types#"
_NO_STORE: Final = ("Cache-Control", "no-store")
_PROBLEM: Final = ("Content-Type", "application/problem+json")

_MALFORMED_TITLES: Final = {
    400: "Bad Request",
    413: "Content Too Large",
    415: "Unsupported Media Type",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """
    One HTTP answer.

    Attributes:
        status: The status code.
        headers: Header fields, in order.
        body: The problem document; its ``status`` equals the status code.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: dict[str, Any]

    @property
    def retry_after(self) -> int | None:
        """Whole seconds of its ``Retry-After``, if it has one."""
        return next((int(value) for name, value in self.headers if name == "Retry-After"), None)


def refused(decision: Decision, policy: Policy) -> Answer:
    """
    Answer 429: the same for known, unknown, locked and disabled accounts.

    ``Retry-After`` is the longest wait of all limits that refuse. ``RateLimit-Policy`` shows the
    action's own limit by client address, a constant, and never which limit refused.
    """
    wait_s = max(1, decision.retry_after)
    fields = [_PROBLEM, _NO_STORE, ("Retry-After", str(wait_s))]
    name = policy.action.replace(".", "-")
    by_client = [limit.algorithm for limit in policy.limits if limit.by == ("client",)]
    shown = next((each for each in by_client if isinstance(each, SlidingLog)), None)
    if shown is not None:
        window_s = -(-shown.window_ms // 1000)
        advertised: Any = [(name, {"q": shown.limit, "w": window_s})]
        left: Any = [(name, {"r": 0, "t": wait_s})]
        fields += [
            ("RateLimit-Policy", http_sf.ser(advertised)),
            ("RateLimit", http_sf.ser(left)),
        ]
    body = {
        "type": f"{_TYPES}quota-exceeded",
        "title": "Quota Exceeded",
        "status": 429,
        "detail": "Too many attempts. Wait before trying again.",
        "violated-policies": [name],
        "retry_after": wait_s,
    }
    return Answer(429, tuple(fields), body)


def unavailable(error: Unavailable, *, jitter_s: int = 0) -> Answer:
    """
    Answer 503: no verdict, so nothing was verified and nothing sent.

    Args:
        error: What is away.
        jitter_s: 0 to 5 seconds, random, so that clients don't come back all at once.
    """
    if isinstance(error, HashingUnavailable):
        wait_s = error.retry_after_s
        body: dict[str, Any] = {
            "type": f"{_TYPES}temporary-reduced-capacity",
            "title": "Temporary Reduced Capacity",
            "status": 503,
            "violated-policies": ["hash-slots"],
        }
    else:
        wait_s = error.retry_after_s + jitter_s
        body = {"type": "about:blank", "title": "Service Unavailable", "status": 503}
    body["retry_after"] = wait_s
    return Answer(503, (_PROBLEM, _NO_STORE, ("Retry-After", str(wait_s))), body)


def unauthenticated(detail: str = "Wrong name or password.") -> Answer:
    """Answer 401: one constant body, whatever the cause."""
    body = {"type": "about:blank", "title": "Unauthorized", "status": 401, "detail": detail}
    return Answer(401, (_PROBLEM, _NO_STORE), body)


def bad_link() -> Answer:
    """Answer 400: the link's token is wrong, used, replaced or too old; one body for all."""
    body = {
        "type": "about:blank",
        "title": "Bad Request",
        "status": 400,
        "detail": "This link is not valid, or not any more.",
    }
    return Answer(400, (_PROBLEM, _NO_STORE), body)


def malformed(error: InvalidInput, status: int = 400) -> Answer:
    """Answer 400 (or 413, 415): the input can't be used; names the field, never the value."""
    body = {
        "type": "about:blank",
        "title": _MALFORMED_TITLES[status],
        "status": status,
        "detail": str(error),
    }
    return Answer(status, (_PROBLEM, _NO_STORE), body)


def cross_origin() -> Answer:
    """Answer 403: another site's page sent this form."""
    return _forbidden("This request came from another site.")


def denylisted() -> Answer:
    """Answer 403: the client's address is on the denylist. No wait would change that."""
    return _forbidden("This is not possible from your address.")


def _forbidden(detail: str) -> Answer:
    body = {"type": "about:blank", "title": "Forbidden", "status": 403, "detail": detail}
    return Answer(403, (_PROBLEM, _NO_STORE), body)
