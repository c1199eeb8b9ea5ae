"""
Decisions and errors as HTTP answers: status, header fields, problem+json body. No framework.

Bodies follow RFC 9457 and the problem types of draft-ietf-httpapi-ratelimit-headers-11; header
fields are serialised as RFC 9651 by ``http-sf``. Nothing here tells a known account from an
unknown one: a refusal names the action, never the limit that refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import http_sf

from authguard.errors import HashingUnavailable
from authguard.limits import Conversion, Distinct, SlidingLog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from authguard.decision import Decision, Verdict
    from authguard.errors import InvalidInput, Unavailable
    from authguard.policy import Policy, PolicyLimit

__all__ = [
    "Answer",
    "Quota",
    "advertised",
    "bad_link",
    "cross_origin",
    "denylisted",
    "malformed",
    "overloaded",
    "quotas",
    "ratelimit_fields",
    "refused",
    "unauthenticated",
    "unavailable",
    "x_ratelimit_fields",
]

_TYPES: Final = "https://iana.org/assignments/http-problem-types#"
_REDUCED: Final = f"{_TYPES}temporary-reduced-capacity"
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


@dataclass(frozen=True, slots=True)
class Quota:
    """
    What a caller is shown of one limit.

    Attributes:
        name: How it is called in every field.
        limit: Places it has (``q``).
        window_s: Whole seconds for which a place stays taken (``w``), at least 1.
        remaining: Places that are left (``r``), from 0 to ``limit``.
        wait_s: Whole seconds (``t``) until it would admit the request if it refuses, else until it
            holds nothing any more.
        whole_at_s: When it holds nothing any more, in Unix seconds.
        refuses: It would not admit the request.
    """

    name: str
    limit: int
    window_s: int
    remaining: int
    wait_s: int
    whole_at_s: int
    refuses: bool


def quotas(decision: Decision, policy: Policy) -> tuple[Quota, ...]:
    """
    List what the caller of a limited view is shown: each limit that counts what is its own.

    Left out is what others use up too (``global``, ``network``, a ``client`` cut to lengths of its
    own), what counts no requests (``distinct``, ``conversion``), an operators' block, what an
    operator has exempted the caller from, and what the load has taken away altogether. A cooldown
    is a quota of one in its first wait.

    Args:
        decision: What the limits said.
        policy: The action's.
    """
    limits = ((policy.by_name.get(verdict.name), verdict) for verdict in decision.verdicts)
    return tuple(
        _quota(policy.action, verdict, decision.now_ms)
        for limit, verdict in limits
        if limit is not None and verdict.limit and not verdict.exempt and _is_callers_own(limit)
    )


def _is_callers_own(limit: PolicyLimit) -> bool:
    if isinstance(limit.algorithm, Conversion | Distinct):
        return False
    is_network = limit.ipv4_prefix is not None or limit.ipv6_prefix is not None
    own = {"account", "device"} if is_network else {"account", "device", "client"}
    return not own.isdisjoint(limit.by)


def _quota(action: str, verdict: Verdict, now_ms: int) -> Quota:
    wait_ms = verdict.retry_after_ms if verdict.refuses else verdict.reset_after_ms
    return Quota(
        f"{_policy_name(action)}-{_policy_name(verdict.name)}",
        verdict.limit,
        _seconds(verdict.window_ms),
        verdict.remaining,
        _seconds(wait_ms),
        _seconds(now_ms + verdict.reset_after_ms),
        verdict.refuses,
    )


def advertised(decision: Decision, policy: Policy) -> Quota | None:
    """
    Give what a refusal on an auth route shows: the action's own limit by client address.

    A constant but for the wait of the refusal as a whole, and never which limit refused: what the
    limits by account hold would tell what others do with an account.
    """
    shown = next(
        (
            limit.algorithm
            for limit in policy.limits
            if limit.by == ("client",) and isinstance(limit.algorithm, SlidingLog)
        ),
        None,
    )
    if shown is None:
        return None
    wait_s = max(1, decision.retry_after)
    return Quota(
        _policy_name(policy.action),
        shown.limit,
        _seconds(shown.window_ms),
        remaining=0,
        wait_s=wait_s,
        whole_at_s=_seconds(decision.now_ms) + wait_s,
        refuses=True,
    )


def ratelimit_fields(
    shown: Iterable[Quota], *, retry_after: int | None = None
) -> tuple[tuple[str, str], ...]:
    """
    Give ``RateLimit-Policy`` and ``RateLimit``, one item for each quota; nothing for none.

    Args:
        shown: The quotas.
        retry_after: The answer's ``Retry-After`` in seconds. No ``t`` goes beyond it, as the draft
            wants; "no more than r within t" is as true of a shorter time.
    """
    policies: list[str] = []
    left: list[str] = []
    for each in shown:
        wait_s = each.wait_s if retry_after is None else min(each.wait_s, retry_after)
        policies.append(_item(each.name, "q", each.limit, "w", each.window_s))
        left.append(_item(each.name, "r", each.remaining, "t", wait_s))
    if not policies:
        return ()
    return ("RateLimit-Policy", ", ".join(policies)), ("RateLimit", ", ".join(left))


@lru_cache(maxsize=1024)
def _item(name: str, first: str, one: int, second: str, two: int) -> str:
    """Serialise one member of a list; a flood is shown the same few again and again."""
    members: Any = [(name, {first: one, second: two})]
    return http_sf.ser(members)


def x_ratelimit_fields(shown: Iterable[Quota]) -> tuple[tuple[str, str], ...]:
    """
    Give the older ``X-RateLimit-Limit``, ``-Remaining`` and ``-Reset``, which know one limit.

    It is one that refuses if any does, else the one with the least left; of equals the one that is
    whole again last. ``-Reset`` is when that is, in Unix seconds.
    """
    scarcest = min(
        shown, key=lambda each: (not each.refuses, each.remaining, -each.whole_at_s), default=None
    )
    if scarcest is None:
        return ()
    return (
        ("X-RateLimit-Limit", str(scarcest.limit)),
        ("X-RateLimit-Remaining", str(scarcest.remaining)),
        ("X-RateLimit-Reset", str(scarcest.whole_at_s)),
    )


def refused(
    decision: Decision, policy: Policy, *, shown: tuple[Quota, ...] | None = None
) -> Answer:
    """
    Answer 429: the same for known, unknown, locked and disabled accounts.

    ``Retry-After`` is the longest wait of all limits that refuse.

    Args:
        decision: The refusal.
        policy: The action's.
        shown: What a limited view's caller is shown; None on an auth route: see
            :func:`advertised`.
    """
    wait_s = max(1, decision.retry_after)
    name = _policy_name(policy.action)
    violated = [name]
    if shown is None:
        constant = advertised(decision, policy)
        shown = () if constant is None else (constant,)
    else:
        violated = [each.name for each in shown if each.refuses] or violated
    fields = [_PROBLEM, _NO_STORE, ("Retry-After", str(wait_s))]
    fields += ratelimit_fields(shown, retry_after=wait_s)
    body = {
        "type": f"{_TYPES}quota-exceeded",
        "title": "Quota Exceeded",
        "status": 429,
        "detail": "Too many attempts. Wait before trying again.",
        "violated-policies": violated,
        "retry_after": wait_s,
    }
    return Answer(429, tuple(fields), body)


def overloaded(decision: Decision, *, jitter_s: int = 0) -> Answer:
    """
    Answer 503: the load alone refuses, and the client has done nothing wrong.

    It shows no quota: one that the load has shrunk would say that the client had used it up.

    Args:
        decision: The refusal.
        jitter_s: As in :func:`unavailable`.
    """
    wait_s = max(1, decision.retry_after) + jitter_s
    body = {
        "type": _REDUCED,
        "title": "Temporary Reduced Capacity",
        "status": 503,
        "detail": "There is too much to do at the moment. Wait before trying again.",
        "violated-policies": [_policy_name(decision.action)],
        "retry_after": wait_s,
    }
    return Answer(503, (_PROBLEM, _NO_STORE, ("Retry-After", str(wait_s))), body)


def _policy_name(name: str) -> str:
    return name.replace(".", "-")


def _seconds(ms: int) -> int:
    """Give whole seconds, rounded up."""
    return -(-ms // 1000)


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
            "type": _REDUCED,
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
