"""The same story, told by both guards, ends the same on a real server."""

from __future__ import annotations

import inspect
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from authguard import (
    Denied,
    Distinct,
    Guard,
    HashingUnavailable,
    InvalidInput,
    LeakyBucket,
    SlidingLog,
    StoreUnavailable,
    TokenBucket,
)
from authguard._notes import Act
from authguard.identity import AccountKey, StandIn, read_email, read_phone
from authguard.one_time import Holder
from tests.conftest import PATIENT_MS, SECRET
from tests.stores.wire import CLOSE, Wire, free_port, honest

from .conftest import VERA, a_guard, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    import valkey

    from authguard.testing import EmbeddedValkey
    from tests.conftest import Clock
    from tests.stores.wire import Step, Talk

MINUTE_MS = 60_000
HOLDER = Holder(AccountKey("key-1"), known=True, purpose="sign-in", channel="sms")
POLICIES = {
    "api": {
        "limits": [
            {"name": "quota", "by": ["account"], "sliding_log": "10/1h", "elastic": True},
            {"name": "client", "by": ["client"], "sliding_log": "30/15m"},
        ]
    },
    "newsletter": {
        "outage": "allow",
        "limits": [
            {"name": "account", "by": ["account"], "sliding_log": "2/15m"},
            {"name": "client", "by": ["client"], "sliding_log": "30/15m"},
        ],
    },
}


async def told(answer: Any) -> Any:
    """Give what a call gave, or would give if it were awaited."""
    return await answer if inspect.isawaitable(answer) else answer


async def refusal(answer: Callable[[], Any]) -> Any:
    """Give the decision that refuses; None if nothing does."""
    try:
        await told(answer())
    except Denied as denied:
        return denied.decision
    return None


@asynccontextmanager
async def entered(made: Any) -> AsyncIterator[Any]:
    """Enter an attempt in its own colour."""
    if hasattr(made, "__aenter__"):
        async with made as attempt:
            yield attempt
    else:
        with made as attempt:
            yield attempt


async def a_guess_too_many(guard: Any, clock: Clock) -> list[Any]:
    """Guess until it is refused; wait, and go on."""
    facts = []
    for _ in range(5):
        async with entered(guard.attempt("login", **VERA)) as attempt:
            facts += [attempt.decision, attempt.account, attempt.pending]
    refused = await refusal(lambda: guard.attempt("login", **VERA))
    assert refused.refused_by == ("pair",)
    clock.advance(refused.retry_after_ms)
    return [*facts, refused, (await told(guard.attempt("login", **VERA))).decision]


async def a_success_forgives(guard: Any, clock: Clock) -> list[Any]:
    """Fail twice, succeed: twice, for it is the same."""
    for _ in range(2):
        await told(guard.attempt("login", **VERA))
    attempt = await told(guard.attempt("login", **VERA))
    await told(attempt.succeed())
    await told(attempt.succeed())
    await told(attempt.release())
    after = await told(guard.peek("login", **VERA))
    assert after.verdicts[0].remaining == 5
    return [attempt.settled, attempt.succeeded, attempt.unlocked, attempt.pending, after]


async def a_release_gives_back_its_own_place(guard: Any, clock: Clock) -> list[Any]:
    """Fail once, release once by hand, once since no hash could be computed."""
    await told(guard.attempt("login", **VERA))
    attempt = await told(guard.attempt("login", **VERA))
    await told(attempt.release())
    with suppress(HashingUnavailable):
        async with entered(guard.attempt("login", **VERA)):
            raise HashingUnavailable("busy")
    with suppress(KeyError):
        async with entered(guard.attempt("login", **VERA)):
            raise KeyError
    after = await told(guard.peek("login", **VERA))
    assert after.verdicts[0].remaining == 3
    return [attempt.settled, attempt.succeeded, after]


async def a_lock_set_and_lifted(guard: Any, clock: Clock) -> list[Any]:
    """Lock an account from two addresses; look, recover, look."""
    for number in range(10):
        await told(guard.attempt("login", account="vera", client=f"192.0.2.{number % 5}"))
    shut = await refusal(lambda: guard.attempt("login", account="vera", client="192.0.2.9"))
    usage = await told(guard.usage("login", account="vera", client="192.0.2.0"))
    recovered = await told(guard.recover("login", account="vera", client="192.0.2.9"))
    return [shut, usage, recovered, await told(guard.peek("login", **VERA))]


async def what_operators_clear(guard: Any, clock: Clock) -> list[Any]:
    """Fail, clear the account, pardon it, and clear the client."""
    for _ in range(5):
        await told(guard.attempt("login", **VERA))
    facts = [await told(guard.clear("login", account="vera"))]
    facts.append(await refusal(lambda: guard.attempt("login", **VERA)))
    facts.append(await told(guard.pardon("login", account="vera")))
    facts.append(await told(guard.peek("login", **VERA)))
    facts.append(await told(guard.clear("login", client="192.0.2.7", only="client")))
    return [*facts, await told(guard.peek("login", **VERA))]


async def blocks(guard: Any, clock: Clock) -> list[Any]:
    """Block for a minute, see it, lift it, and lift nothing."""
    facts = [await told(guard.block(account="vera", for_ms=MINUTE_MS))]
    facts.append(await refusal(lambda: guard.attempt("login", **VERA)))
    facts += [await told(guard.unblock(account="vera")) for _ in range(2)]
    assert facts[2:] == [True, False]
    return [*facts, await refusal(lambda: guard.attempt("login", **VERA))]


async def overrides_and_load(guard: Any, clock: Clock) -> list[Any]:
    """Give an account more, take a part away from all, and take the override back."""
    facts = [
        await told(guard.override("api", "quota", account="vera", to="20/1h", for_ms=MINUTE_MS)),
        await told(guard.current_load()),
        await told(guard.load(0.25, for_ms=MINUTE_MS)),
        await told(guard.current_load()),
        await told(guard.load_until_ms()),
        await told(guard.now_ms()),
    ]
    facts.append((await told(guard.peek("api", **VERA))).verdicts)
    facts += [await told(guard.lift_override("api", "quota", account="vera")) for _ in range(2)]
    assert facts[-2:] == [True, False]
    return [*facts, (await told(guard.attempt("api", **VERA, cost=2))).decision.verdicts]


async def limiters(guard: Any, clock: Clock) -> list[Any]:
    """Hit, look, and start afresh, by algorithms of all sorts."""
    facts = []
    for limit in (SlidingLog("2/1s"), TokenBucket("2/1s", burst=2), LeakyBucket("2/1s", queue=2)):
        limiter = guard.limiter(limit)
        facts += [await told(limiter.hit("vera")) for _ in range(3)]
        facts += [await told(limiter.peek("vera", 2)), await told(limiter.reset("vera"))]
        facts.append(await told(limiter.peek("vera")))
    values = guard.limiter(Distinct("account", "2/1s"), name="values")
    facts += [await told(values.hit("vera", value=value)) for value in "aabc"]
    assert [each.allowed for each in facts[-4:]] == [True, True, True, False]
    with pytest.raises(InvalidInput):
        await told(values.hit("vera"))
    return facts


async def codes_and_links(guard: Any, clock: Clock) -> list[Any]:
    """Issue, find, miss, take, and take again; then links."""
    one = guard.one_time
    challenge, code = await told(one.issue_code(HOLDER, digits=6, life_ms=MINUTE_MS))
    wrong = f"{(int(code) + 1) % 10**6:06}"
    holder = await told(one.holder(challenge))
    again = await told(one.issue_code(HOLDER, digits=6, life_ms=MINUTE_MS, challenge=challenge))
    facts = [
        replace(holder, nonce=""),
        again[0] == challenge,
        await told(one.live_challenge(HOLDER)) == challenge,
        await told(one.take_code(holder, challenge, wrong)) and code != again[1],
        await told(one.take_code(holder, *again)),
        await told(one.take_code(holder, *again)),
        await told(one.live_challenge(HOLDER)),
        await told(one.holder("nobody's")),
        len(one.message_id(holder, *again)),
    ]
    token = await told(one.issue_link(HOLDER, bound_to=("hash",), life_ms=MINUTE_MS))
    holder = await told(one.holder(token))
    facts += [
        await told(one.is_live(holder, token, bound_to=("hash",))),
        await told(one.is_live(holder, token, bound_to=("another",))),
        await told(one.take_link(holder, token, bound_to=("hash",))),
        await told(one.take_link(holder, token, bound_to=("hash",))),
    ]
    assert facts[-4:] == [True, False, True, False]
    return facts


async def notes(guard: Any, clock: Clock) -> list[Any]:
    """Keep what an operator did."""
    act = Act("unlock", ("account",), clock.now_ms, "omar", "called back", ("login",))
    await told(guard.notes.add(act, account="vera"))
    kept = await told(guard.notes.last(account="vera"))
    assert kept == (act,)
    return [kept, await told(guard.notes.last(account="omar")), guard.notes.subject(account="vera")]


async def messages(guard: Any, clock: Clock) -> list[Any]:
    """Ask for a code and send it, until too many were sent to one address."""
    to, number = read_email("vera@example.test"), read_phone("+14155550101")
    asked = await told(
        guard.attempt("otp.send", **VERA, purpose="sign-in", destination=StandIn("mail"))
    )
    facts = [asked.decision]
    sent = await told(guard.message("otp.send", destination=number, message_id=b"12345"))
    facts.append(sent.decision)
    for is_entered in (True, False):
        over = {"destination": number, "message_id": b"12345", "entered": is_entered}
        facts.append(await told(guard.message_over("otp.send", **over)))
    for _ in range(6):
        clock.advance(MINUTE_MS)
        facts.append(await refusal(lambda: guard.message("otp.send", destination=to)))
    assert facts[-1] is not None
    return facts


STORIES = [
    a_guess_too_many,
    a_success_forgives,
    a_release_gives_back_its_own_place,
    a_lock_set_and_lifted,
    what_operators_clear,
    blocks,
    overrides_and_load,
    limiters,
    codes_and_links,
    notes,
    messages,
]


@pytest.mark.parametrize("story", STORIES)
def test_both_guards_tell_the_same(
    valkey_url: str, client: valkey.Valkey, clock: Clock, story: Callable[..., Awaitable[list[Any]]]
) -> None:
    """Decision by decision, what is called and what is awaited are one."""
    begun_ms = clock.now_ms

    async def waiting() -> list[Any]:
        with Guard(
            valkey_url, secret=SECRET, policies=POLICIES, deadline_ms=PATIENT_MS, clock=clock
        ) as guard:
            return await story(guard, clock)

    async def awaiting() -> list[Any]:
        async with a_guard(valkey_url, policies=POLICIES, clock=clock) as guard:
            return await story(guard, clock)

    first = run(waiting())
    client.flushall()
    clock.now_ms = begun_ms
    assert run(awaiting()) == first
    assert len(first) > 1


@pytest.mark.parametrize("make", [a_guard, Guard])
def test_an_outage_follows_the_rule(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Without a server one action is admitted uncounted, and says so; the others are refused."""

    async def story() -> None:
        guard = make(
            f"valkey://127.0.0.1:{free_port()}",
            secret=SECRET,
            policies=POLICIES,
            deadline_ms=PATIENT_MS,
        )
        async with entered(guard.attempt("newsletter", **VERA)) as attempt:
            assert attempt.decision.degraded
            await told(attempt.succeed())
            assert (attempt.succeeded, attempt.settled) == (True, False)
        for refused in (guard.attempt, guard.peek):
            with pytest.raises(StoreUnavailable, match=r"^connection$"):
                await told(refused("login", **VERA))
        await told(guard.close())

    run(story())
    said = [message for message in caplog.messages if message.startswith("newsletter")]
    assert said[0] == "newsletter: the store is away; admitted uncounted (outage = allow)"


@pytest.mark.parametrize("make", [a_guard, Guard])
def test_a_success_stands_where_it_cannot_be_settled(
    make: Any, valkey_server: EmbeddedValkey, valkey_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """B050: succeed() raises nothing when the store goes, says so, and the entry stays."""

    def hang_up(talk: Talk, command: list[bytes]) -> Iterator[Step]:
        yield CLOSE

    async def story() -> None:
        with Wire(honest, valkey_server.port) as wire:
            guard = make(wire.url, secret=SECRET, deadline_ms=PATIENT_MS)
            attempt = await told(guard.attempt("login", **VERA))
            wire.answer = hang_up
            await told(attempt.succeed())
            await told(attempt.succeed())
            assert (attempt.succeeded, attempt.settled) == (True, False)
            wire.answer = honest
            assert (await told(guard.peek("login", **VERA))).verdicts[0].remaining == 4
            await told(guard.close())

    run(story())
    assert caplog.messages == ["login: settle failed (connection); the entry stays"]
