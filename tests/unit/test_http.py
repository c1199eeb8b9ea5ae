"""Answers: the header fields and bodies of draft -11 and RFC 9457, to the letter."""

from __future__ import annotations

import re

import http_sf
import pytest

from authguard import (
    Decision,
    HashingUnavailable,
    InvalidInput,
    Policy,
    PolicyLimit,
    SlidingLog,
    StoreUnavailable,
    Verdict,
    default_policies,
)
from authguard import http as answers

LOGIN = default_policies()["login"]


def refusal(wait_ms: int, name: str = "account", *, locked: bool = False) -> Decision:
    """Make a refusal by one limit."""
    verdict = Verdict(
        name=name, limit=10, refuses=True, locked=locked, lock_set=False,
        remaining=0, retry_after_ms=wait_ms, reset_after_ms=wait_ms,
    )  # fmt: skip
    return Decision("login", allowed=False, verdicts=(verdict,), now_ms=0)


def test_a_refusal_is_answered_as_the_draft_says() -> None:
    """Threats, section 5: the example of a limit reached, field for field."""
    answer = answers.refused(refusal(411_001), LOGIN)
    assert answer.status == 429
    assert dict(answer.headers) == {
        "Content-Type": "application/problem+json",
        "Cache-Control": "no-store",
        "Retry-After": "412",
        "RateLimit-Policy": '"login";q=30;w=900',
        "RateLimit": '"login";r=0;t=412',
    }
    assert answer.body == {
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Quota Exceeded",
        "status": 429,
        "detail": "Too many attempts. Wait before trying again.",
        "violated-policies": ["login"],
        "retry_after": 412,
    }


@pytest.mark.parametrize(
    ("wait_ms", "wait_s"), [(1, 1), (999, 1), (1000, 1), (1001, 2), (1900, 2), (2000, 2)]
)
def test_the_wait_is_rounded_up(wait_ms: int, wait_s: int) -> None:
    """B070: 1.9 s are 2, 0.001 s is 1, 2.000 s are 2; body and header agree (B063)."""
    answer = answers.refused(refusal(wait_ms), LOGIN)
    assert answer.retry_after == answer.body["retry_after"] == wait_s
    assert re.fullmatch("[1-9][0-9]*", dict(answer.headers)["Retry-After"])


def test_a_refusal_does_not_tell_which_limit_refused() -> None:
    """A52: a locked account, a full pair and a full client log look the same, waits apart."""
    looks = {
        str(answers.refused(refusal(5_000, name, locked=locked), LOGIN))
        for name in ("pair", "account", "client", "network")
        for locked in (False, True)
    }
    assert len(looks) == 1


def test_the_header_fields_parse() -> None:
    """A100: RateLimit and RateLimit-Policy are RFC 9651 lists."""
    fields = dict(answers.refused(refusal(5_000), LOGIN).headers)
    for name in ("RateLimit", "RateLimit-Policy"):
        (item, parameters), *rest = http_sf.parse(fields[name].encode(), tltype="list")
        assert (item, rest) == ("login", [])
        assert all(isinstance(value, int) for value in parameters.values())


def test_no_client_limit_no_ratelimit_fields() -> None:
    """What counts by account is never advertised (A60)."""
    policy = Policy("otp.send", (PolicyLimit("a", ("account",), SlidingLog("5/15m")),))
    answer = answers.refused(refusal(5_000), policy)
    assert not [name for name, _ in answer.headers if name.startswith("RateLimit")]
    assert answer.body["violated-policies"] == ["otp-send"]


@pytest.mark.parametrize("jitter_s", [0, 3, 5])
def test_a_store_that_is_away_is_a_bare_503(jitter_s: int) -> None:
    """Threats, section 5: nothing was exceeded, so no type fits; the wait is 5 s and a jitter."""
    answer = answers.unavailable(StoreUnavailable("timeout"), jitter_s=jitter_s)
    assert dict(answer.headers)["Cache-Control"] == "no-store"
    assert answer.retry_after == 5 + jitter_s
    assert answer.body == {
        "type": "about:blank",
        "title": "Service Unavailable",
        "status": 503,
        "retry_after": 5 + jitter_s,
    }


def test_full_hash_slots_are_a_503_of_their_own() -> None:
    """Threats, section 5: reduced capacity, retry after one second, without jitter."""
    answer = answers.unavailable(HashingUnavailable("hash queue full"), jitter_s=4)
    assert (answer.status, answer.retry_after) == (503, 1)
    assert answer.body["type"].endswith("#temporary-reduced-capacity")
    assert answer.body["violated-policies"] == ["hash-slots"]


def test_every_body_tells_its_own_status() -> None:
    """RFC 9457: the body's status equals the status code, and nothing may be cached (A100)."""
    all_answers = [
        answers.refused(refusal(5), LOGIN),
        answers.unavailable(StoreUnavailable("timeout")),
        answers.unauthenticated(),
        answers.cross_origin(),
        *(answers.malformed(InvalidInput("account", "must be text"), s) for s in (400, 413, 415)),
    ]
    for answer in all_answers:
        assert answer.body["status"] == answer.status
        assert dict(answer.headers)["Content-Type"] == "application/problem+json"
        assert dict(answer.headers)["Cache-Control"] == "no-store"
