"""Codes and links: from the system's randomness, kept as HMACs, one live at a time, taken once."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from authguard import Guard
from authguard.identity import AccountKey
from authguard.one_time import Holder
from tests.conftest import PATIENT_MS, SECRET

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.synchronize import Barrier

    import valkey

    from authguard.one_time import OneTime
    from tests.conftest import Clock

VERA = Holder(AccountKey("key-1"), known=True, purpose="sign-in", channel="sms")
NOBODY = replace(VERA, account=AccountKey("ghost"), known=False)
LIFE_MS = 300_000
NEW = "the new secret of the tests, made when the old one leaked"

#: Where the threads of a process of guessers meet those of the others; see meet().
together: Barrier


@pytest.fixture
def one_time(guard_factory: Callable[..., Guard], clock: Clock) -> OneTime:
    """Give what issues and takes, on a clock that a test moves."""
    return guard_factory(clock=clock).one_time


def issue(
    one_time: OneTime, holder: Holder = VERA, challenge: str | None = None
) -> tuple[str, str]:
    """Issue a code of six digits that lives five minutes."""
    return one_time.issue_code(holder, digits=6, life_ms=LIFE_MS, challenge=challenge)


def wrong(code: str) -> str:
    """Give another code of the same length."""
    return f"{(int(code) + 1) % 10 ** len(code):0{len(code)}}"


@pytest.mark.parametrize("digits", [6, 8])
def test_codes_come_from_the_systems_randomness(
    one_time: OneTime, monkeypatch: pytest.MonkeyPatch, digits: int
) -> None:
    """A85: a code is one of 10^digits equal ones from ``secrets``; its leading zeros are kept."""
    asked: list[int] = []

    def randbelow(bound: int) -> int:
        asked.append(bound)
        return 42

    monkeypatch.setattr("authguard.one_time.secrets.randbelow", randbelow)
    challenge, code = one_time.issue_code(VERA, digits=digits, life_ms=LIFE_MS)
    assert (code, asked) == ("42".rjust(digits, "0"), [10**digits])
    assert not one_time.take_code(VERA, challenge, "42")
    assert one_time.take_code(VERA, challenge, code)


def test_challenges_cant_be_guessed(one_time: OneTime) -> None:
    """A challenge's id holds 128 bits as 22 characters fit for a URL, new for each challenge."""
    made = {issue(one_time, replace(VERA, account=AccountKey(f"key-{n}")))[0] for n in range(50)}
    assert len(made) == 50
    assert {len(each) for each in made} == {22}
    assert all(each.replace("-", "").replace("_", "").isalnum() for each in made)


def test_a_code_is_taken_once(one_time: OneTime) -> None:
    """A67: the right code is right once; a wrong one before it uses nothing up."""
    challenge, code = issue(one_time)
    assert one_time.holder(challenge) == VERA
    assert not one_time.take_code(VERA, challenge, wrong(code))
    assert one_time.take_code(VERA, challenge, code)
    assert not one_time.take_code(VERA, challenge, code)
    assert one_time.live_challenge(VERA) is None


def test_only_the_newest_is_live(one_time: OneTime) -> None:
    """A70, B090: a new code ends the one before, with a new challenge and with the same."""
    first, old = issue(one_time)
    second, newer = issue(one_time)
    assert first != second
    assert not one_time.take_code(VERA, first, old)
    third, newest = issue(one_time, challenge=second)
    assert third == second == one_time.live_challenge(VERA)
    assert newer == newest or not one_time.take_code(VERA, second, newer)
    assert one_time.take_code(VERA, second, newest)


@pytest.mark.parametrize("other", ["", "x" * 22, "another's"])
def test_only_the_live_challenge_goes_on(one_time: OneTime, other: str) -> None:
    """A challenge that is not this account's live one is not continued; a new one begins."""
    if other == "another's":
        other, _ = issue(one_time, replace(VERA, account=AccountKey("key-2")))
    before, _ = issue(one_time)
    after, code = issue(one_time, challenge=other)
    assert after not in (before, other)
    assert one_time.take_code(VERA, after, code)


def test_accounts_and_purposes_are_apart(one_time: OneTime) -> None:
    """A69, B104: a code is good for its account and purpose alone, and ends no other's."""
    holders = [
        VERA,
        replace(VERA, purpose="second-factor"),
        replace(VERA, account=AccountKey("key-2")),
    ]
    issued = [issue(one_time, holder) for holder in holders]
    for mine, (challenge, code) in zip(holders, issued, strict=True):
        for theirs in holders:
            if theirs != mine:
                assert not one_time.take_code(theirs, challenge, code)
                assert not one_time.take_code(theirs, one_time.live_challenge(theirs) or "", code)
    for holder, (challenge, code) in zip(holders, issued, strict=True):
        assert one_time.holder(challenge) == holder
        assert one_time.take_code(holder, challenge, code)


def test_a_code_of_nobody_is_taken_by_nobody(one_time: OneTime) -> None:
    """B082: what was issued for a name that nobody has looks issued, and no code makes it right."""
    challenge, code = issue(one_time, NOBODY)
    assert one_time.holder(challenge) == NOBODY
    assert one_time.live_challenge(NOBODY) == challenge
    assert not one_time.take_code(NOBODY, challenge, code)
    assert not one_time.take_code(replace(NOBODY, known=True), challenge, code)
    assert issue(one_time, NOBODY, challenge)[0] == challenge


def test_nobody_costs_the_store_as_much(client: valkey.Valkey, one_time: OneTime) -> None:
    """B082: issuing, looking up and comparing are as many commands for a name that nobody has."""

    def commands(holder: Holder) -> dict[str, int]:
        client.config_resetstat()
        challenge, code = issue(one_time, holder)
        challenge, code = issue(one_time, holder, challenge)
        one_time.holder(challenge)
        one_time.take_code(holder, challenge, wrong(code))
        one_time.live_challenge(holder)
        stats: Any = client.info("commandstats")
        return {name: each["calls"] for name, each in stats.items()}

    for holder in (VERA, NOBODY):
        commands(holder)  # the scripts are known to the server from here on
    assert commands(VERA) == commands(NOBODY)


@pytest.mark.parametrize(("age_ms", "right"), [(LIFE_MS - 1, True), (LIFE_MS, False)])
def test_a_code_ends_to_the_millisecond(
    one_time: OneTime, clock: Clock, age_ms: int, right: bool
) -> None:
    """A71: a code and its challenge live exactly as long as was said, by the guard's clock."""
    challenge, code = issue(one_time)
    clock.advance(age_ms)
    assert (one_time.holder(challenge) == VERA) is right
    assert (one_time.live_challenge(VERA) == challenge) is right
    assert one_time.take_code(VERA, challenge, code) is right


def test_a_resend_gives_the_challenge_a_full_life(one_time: OneTime, clock: Clock) -> None:
    """The challenge that goes on lives as long as its newest code."""
    challenge, _ = issue(one_time)
    clock.advance(LIFE_MS - 1)
    _, code = issue(one_time, challenge=challenge)
    clock.advance(LIFE_MS - 1)
    assert one_time.holder(challenge) == VERA
    assert one_time.take_code(VERA, challenge, code)


@pytest.mark.parametrize(
    "bearer", ["", "x", "x" * 22, "x" * 129, "\0", "\ud800", "é" * 22, "' OR 1"]
)
def test_what_nobody_issued_is_nobodys(one_time: OneTime, bearer: str) -> None:
    """Any text may come back as a challenge or token; what was not issued has no holder."""
    issue(one_time)
    assert one_time.holder(bearer) is None


def test_a_link_is_bound(one_time: OneTime) -> None:
    """A link works while what it is bound to stands, once, and its token holds 256 bits."""
    holder = replace(VERA, purpose="reset", channel="email")
    token = one_time.issue_link(holder, bound_to=("hash", "a@ex.com"), life_ms=LIFE_MS)
    assert len(token) == 43
    assert one_time.holder(token) == holder
    for changed in (("other", "a@ex.com"), ("hash", "b@ex.com"), ("hash",), ()):
        assert not one_time.take_link(holder, token, bound_to=changed)
    assert one_time.take_link(holder, token, bound_to=("hash", "a@ex.com"))
    assert not one_time.take_link(holder, token, bound_to=("hash", "a@ex.com"))


def test_nothing_of_it_is_in_the_store(one_time: OneTime, client: valkey.Valkey) -> None:
    """A84: no key or value holds code, challenge, account or purpose; each has an expiry."""
    challenge, code = one_time.issue_code(VERA, digits=8, life_ms=LIFE_MS)
    dump = b""
    for key in client.scan_iter():
        life_ms: Any = client.pttl(key)
        value: Any = client.get(key)
        assert life_ms > 0
        dump += key + value
    assert len(dump) > 100
    for secret in (code, challenge, "key-1", "sign-in", "sms"):
        assert secret.encode() not in dump
        assert secret.encode().hex().encode() not in dump


def test_codes_outlive_a_change_of_secrets(guard_factory: Callable[..., Guard]) -> None:
    """A code issued before a change of secrets works after it, once, and names its message."""
    before = guard_factory().one_time
    during = guard_factory(secret=[NEW, SECRET]).one_time
    challenge, code = issue(before)
    holder = during.holder(challenge)
    assert holder == replace(VERA, issued_under=1)
    assert during.message_id(holder, challenge, code) == before.message_id(VERA, challenge, code)
    assert during.take_code(holder, challenge, code)
    assert not before.take_code(VERA, challenge, code)


def test_one_live_code_across_a_change_of_secrets(guard_factory: Callable[..., Guard]) -> None:
    """B090: a code issued under the new secret ends the one that was issued under the old."""
    before = guard_factory().one_time
    during = guard_factory(secret=[NEW, SECRET]).one_time
    challenge, code = issue(before)
    holder = during.holder(challenge)
    assert holder is not None
    issue(during)
    assert not during.take_code(holder, challenge, code)


def test_many_right_answers_have_one_winner(one_time: OneTime) -> None:
    """B083, A67: of twenty right answers at once exactly one is taken; fifty rounds."""
    barrier = threading.Barrier(20)

    def take(challenge: str, code: str) -> bool:
        barrier.wait()
        return one_time.take_code(VERA, challenge, code)

    with ThreadPoolExecutor(20) as pool:
        for _ in range(50):
            challenge, code = issue(one_time)
            won = list(pool.map(take, [challenge] * 20, [code] * 20))
            assert won.count(True) == 1


def meet(barrier: Barrier) -> None:
    """Keep, in a process of guessers, where all threads of all processes meet."""
    global together  # noqa: PLW0603 - a barrier can only be inherited
    together = barrier


def answer(url: str, issued: list[tuple[str, str]]) -> list[int]:
    """Answer each round with five threads, at once with those of the other processes."""

    def take(number: int, one_time: OneTime) -> bool:
        together.wait(60)
        return one_time.take_code(round_of(number), *issued[number])

    with Guard(url, secret=SECRET, deadline_ms=PATIENT_MS) as guard, ThreadPoolExecutor(5) as pool:
        return [
            list(pool.map(take, [number] * 5, [guard.one_time] * 5)).count(True)
            for number in range(len(issued))
        ]


def round_of(number: int) -> Holder:
    """Give the holder of one round's code."""
    return replace(VERA, account=AccountKey(f"round-{number}"))


def test_four_processes_have_one_winner(
    valkey_url: str, guard_factory: Callable[..., Guard]
) -> None:
    """B083: twenty right answers from four processes at once are one success; twenty rounds."""
    one_time = guard_factory().one_time
    issued = [issue(one_time, round_of(number)) for number in range(20)]
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(4, initializer=meet, initargs=(spawn.Barrier(20),)) as pool:
        won = pool.starmap(answer, [(valkey_url, issued)] * 4, chunksize=1)
    assert [sum(each) for each in zip(*won, strict=True)] == [1] * 20
