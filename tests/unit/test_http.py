"""Answers: the header fields and bodies of draft -11 and RFC 9457, to the letter."""

from __future__ import annotations

import re
from typing import Any

import http_sf
import pytest

from authguard import (
    Conversion,
    Cooldown,
    Decision,
    Distinct,
    FixedWindow,
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
        name=name, limit=10, window_ms=900_000, refuses=True, locked=locked, lock_set=False,
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
        answers.overloaded(refusal(5)),
        answers.unauthenticated(),
        answers.cross_origin(),
        *(answers.malformed(InvalidInput("account", "must be text"), s) for s in (400, 413, 415)),
    ]
    for answer in all_answers:
        assert answer.body["status"] == answer.status
        assert dict(answer.headers)["Content-Type"] == "application/problem+json"
        assert dict(answer.headers)["Cache-Control"] == "no-store"


def quota(name: str = "api-key", **changes: Any) -> answers.Quota:
    """Make what a limit of 5 a minute shows when 2 are left and it is whole in 40 s."""
    numbers: dict[str, Any] = {
        "limit": 5, "window_s": 60, "remaining": 2, "wait_s": 40, "whole_at_s": 1_040,
        "refuses": False,
    }  # fmt: skip
    return answers.Quota(name, **numbers | changes)


def admitted(**changes: Any) -> Verdict:
    """Make what a limit of 5 says of the third attempt."""
    numbers: dict[str, Any] = {
        "name": "key", "limit": 5, "window_ms": 60_000, "remaining": 2, "refuses": False,
        "locked": False, "lock_set": False, "retry_after_ms": 0, "reset_after_ms": 40_001,
    }  # fmt: skip
    return Verdict(**numbers | changes)


def shown(limit: PolicyLimit, verdict: Verdict, now_ms: int = 1_000_000) -> tuple[Any, ...]:
    """List what one limit of the action ``api.v2`` shows."""
    decision = Decision("api.v2", not verdict.refuses, (verdict,), now_ms)
    return answers.quotas(decision, Policy("api.v2", (limit,)))


def test_a_quota_is_in_whole_seconds_rounded_up() -> None:
    """t, w and the time of reset never end too early; the action's dots are dashes."""
    limit = PolicyLimit("key-a", ("account",), SlidingLog("5/60s"))
    (one,) = shown(limit, admitted(name="key-a"))
    assert one == quota("api-v2-key-a", wait_s=41, whole_at_s=1_041)
    (one,) = shown(limit, admitted(name="key-a", reset_after_ms=40_000))
    assert (one.wait_s, one.whole_at_s) == (40, 1_040)


def test_what_refuses_shows_its_wait() -> None:
    """Of a limit that refuses, t is when it admits again, and reset when it is whole again."""
    limit = PolicyLimit("key", ("account",), SlidingLog("5/60s"))
    (one,) = shown(limit, admitted(refuses=True, remaining=0, retry_after_ms=7_500))
    assert (one.remaining, one.wait_s, one.whole_at_s) == (0, 8, 1_041)


@pytest.mark.parametrize(
    ("by", "options"),
    [
        (("network",), {}),
        (("global",), {}),
        (("destination",), {}),
        (("client",), {"ipv4_prefix": 24}),
        (("client",), {"ipv6_prefix": 48}),
    ],
)
def test_what_others_use_up_is_not_shown(by: tuple[str, ...], options: dict[str, int]) -> None:
    """A60: no number of a limit that strangers fill too reaches a client."""
    assert shown(PolicyLimit("key", by, SlidingLog("5/60s"), **options), admitted()) == ()


@pytest.mark.parametrize("by", [("account", "network"), ("client", "global"), ("device",)])
def test_what_names_the_caller_is_shown(by: tuple[str, ...]) -> None:
    """A limit by several parts is the caller's own if one of them is."""
    assert len(shown(PolicyLimit("key", by, SlidingLog("5/60s")), admitted())) == 1


def test_what_counts_no_requests_is_not_shown() -> None:
    """A share of entered codes, or of different names, is no quota of requests."""
    for by, other in (
        ("account", Conversion("1/5", lockout="1h")),
        ("client", Distinct("account", "5/1h")),
    ):
        assert shown(PolicyLimit("key", (by,), other), admitted()) == ()


def test_exempt_and_unknown_verdicts_are_not_shown() -> None:
    """What counts nothing shows nothing: an exemption, an operators' block."""
    limit = PolicyLimit("key", ("account",), SlidingLog("5/60s"))
    assert shown(limit, admitted(exempt=True)) == ()
    assert shown(limit, admitted(name="block", limit=0, refuses=True)) == ()


def test_a_limit_that_the_load_has_taken_away_is_not_shown() -> None:
    """A quota of nothing would say that the caller had used it up; a field says 1 at least."""
    limit = PolicyLimit("key", ("account",), FixedWindow("5/60s"), elastic=True)
    assert shown(limit, admitted(limit=0, remaining=0, window_ms=0, refuses=True)) == ()
    assert len(shown(limit, admitted(limit=1, remaining=0, refuses=True))) == 1


def test_the_window_is_that_of_this_call() -> None:
    """What a tier, an override or the load has made of a limit is shown, not what the file says."""
    limit = PolicyLimit("key", ("account",), SlidingLog("10/1h"))
    (one,) = shown(limit, admitted(window_ms=90_001))
    assert (one.limit, one.window_s) == (5, 91)


def test_a_cooldown_is_a_quota_of_one() -> None:
    """A cooldown shows q=1 in its first wait, however far it has climbed."""
    limit = PolicyLimit("key", ("account",), Cooldown("30s", "60s"))
    (one,) = shown(limit, admitted(limit=1, remaining=0, window_ms=30_000))
    assert (one.limit, one.window_s, one.remaining) == (1, 30, 0)


def test_ratelimit_fields() -> None:
    """A100: one item a quota in both fields, no t beyond Retry-After, nothing for nothing."""
    both = [quota(), quota("export-day", limit=9, remaining=0, wait_s=7)]
    assert answers.ratelimit_fields(both) == (
        ("RateLimit-Policy", '"api-key";q=5;w=60, "export-day";q=9;w=60'),
        ("RateLimit", '"api-key";r=2;t=40, "export-day";r=0;t=7'),
    )
    fields = dict(answers.ratelimit_fields(both, retry_after=12))
    assert fields["RateLimit"] == '"api-key";r=2;t=12, "export-day";r=0;t=7'
    assert answers.ratelimit_fields([]) == ()


@pytest.mark.parametrize(
    ("others", "sent"),
    [
        ([], ("5", "2", "1040")),
        ([quota(limit=9, remaining=1)], ("9", "1", "1040")),
        ([quota(limit=9, remaining=3)], ("5", "2", "1040")),
        ([quota(limit=9, whole_at_s=1_050)], ("9", "2", "1050")),
        ([quota(limit=9, remaining=4, refuses=True)], ("9", "4", "1040")),
    ],
)
def test_x_ratelimit_fields(others: list[answers.Quota], sent: tuple[str, ...]) -> None:
    """Of one limit: what refuses, else the least that is left, else the last to be whole again."""
    expected = zip(("Limit", "Remaining", "Reset"), sent, strict=True)
    fields = tuple((f"X-RateLimit-{name}", value) for name, value in expected)
    assert answers.x_ratelimit_fields([quota(), *others]) == fields
    assert answers.x_ratelimit_fields([*others, quota()]) == fields
    assert answers.x_ratelimit_fields([]) == ()


def test_a_refusal_of_a_limited_view_names_what_is_shown() -> None:
    """violated-policies are names of RateLimit-Policy; what isn't shown goes by the action's."""
    decision = refusal(9_000)
    answer = answers.refused(decision, LOGIN, shown=(quota(), quota("b", refuses=True)))
    assert answer.body["violated-policies"] == ["b"]
    assert dict(answer.headers)["RateLimit"] == '"api-key";r=2;t=9, "b";r=2;t=9'
    answer = answers.refused(decision, LOGIN, shown=())
    assert answer.body["violated-policies"] == ["login"]
    assert "RateLimit" not in dict(answer.headers)


@pytest.mark.parametrize("jitter_s", [0, 5])
def test_the_load_is_a_503_of_its_own(jitter_s: int) -> None:
    """Reduced capacity: the decision's wait and a jitter, no quota, the action's name alone."""
    decision = Decision("otp.send", False, (admitted(refuses=True, retry_after_ms=9_001),), 0)
    answer = answers.overloaded(decision, jitter_s=jitter_s)
    assert (answer.status, answer.retry_after) == (503, 10 + jitter_s)
    assert answer.body["retry_after"] == 10 + jitter_s
    assert answer.body["type"].endswith("#temporary-reduced-capacity")
    assert answer.body["violated-policies"] == ["otp-send"]
    assert [name for name, _ in answer.headers] == ["Content-Type", "Cache-Control", "Retry-After"]
