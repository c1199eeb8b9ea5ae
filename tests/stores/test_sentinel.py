"""The primary that sentinels name: found, followed when it changes, and asked what it is."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from authguard import AsyncGuard, StoreUnavailable
from authguard.stores.valkey import ValkeyStore
from tests.conftest import PATIENT_MS, SECRET
from tests.servers import sentinels
from tests.stores.conftest import VERA
from tests.stores.wire import CLOSE, Wire, free_port, honest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import valkey

    from authguard import Guard
    from authguard.testing import EmbeddedValkey
    from tests.servers import Sentinels
    from tests.stores.wire import Step, Talk

    Guards = Callable[..., Guard]
    Answer = Callable[[Talk, list[bytes]], Iterator[Step]]

pytestmark = pytest.mark.slow

WITHIN_S = 5.0


@pytest.fixture(scope="module")
def watched() -> Iterator[Sentinels]:
    """Run a pair that three sentinels watch, for tests that let the primary be."""
    with sentinels() as pair:
        yield pair


@pytest.fixture
def pair(watched: Sentinels) -> Sentinels:
    """Give the pair, emptied."""
    watched.primary.client.flushall()
    return watched


@pytest.fixture
def fresh_pair() -> Iterator[Sentinels]:
    """Run a pair whose primary may change."""
    with sentinels() as fresh:
        yield fresh


def remaining(guard: Guard) -> int:
    """Attempt, and give what is left by account."""
    return guard.attempt("login", **VERA).decision.verdicts[0].remaining


def names(port: int, *, says: bytes = b"") -> Answer:
    """Answer as a sentinel that names a server on this machine, or says something else."""
    named = b"*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%d\r\n" % (len(str(port)), port)

    def answer(talk: Talk, command: list[bytes]) -> Iterator[Step]:
        yield b"+OK\r\n" if command[0] == b"AUTH" else says or named

    return answer


def test_the_primary_is_asked(pair: Sentinels, guard_factory: Guards) -> None:
    """Sentinels are asked once, then the primary alone: by one round trip, in its database."""
    guard = guard_factory(store=f"{pair.url}/3")
    assert [remaining(guard) for _ in range(3)] == [4, 3, 2]
    store = guard.store
    assert isinstance(store, ValkeyStore)
    assert (store.kind, store.spread) == ("sentinel", False)
    assert [str(node) for node in store.nodes()] == [str(pair.primary)]
    assert pair.primary.client.info("keyspace").keys() == {"db3"}
    before = pair.primary.client.info("commandstats")["cmdstat_evalsha"]["calls"]
    asked = sum(
        sentinel.client.info("stats")["total_connections_received"] for sentinel in pair.sentinels
    )
    remaining(guard)
    after = pair.primary.client.info("commandstats")["cmdstat_evalsha"]["calls"]
    again = sum(
        sentinel.client.info("stats")["total_connections_received"] for sentinel in pair.sentinels
    )
    assert (after - before, again - asked) == (1, 0)


def test_an_unknown_name_is_an_outage(pair: Sentinels, guard_factory: Guards) -> None:
    """A name that no sentinel knows: 503 with a reason of its own, whichever is asked."""
    guard = guard_factory(store=pair.url.replace(f"/{pair.NAME}", "/another"))
    with pytest.raises(StoreUnavailable, match=r"^unknown name$"):
        guard.attempt("login", **VERA)


def test_a_name_is_unknown_only_if_all_say_so(pair: Sentinels, guard_factory: Guards) -> None:
    """Where another sentinel is away, or names one who doesn't lead, that is told instead."""

    def nobody(talk: Talk, command: list[bytes]) -> Iterator[Step]:
        yield b"*-1\r\n"

    with Wire(nobody) as first, Wire(names(pair.replica.port)) as second:
        for other, reason in ((free_port(), "connection"), (second.port, "no primary")):
            hosts = f"127.0.0.1:{first.port},127.0.0.1:{other}"
            guard = guard_factory(store=f"valkey+sentinel://{hosts}/main")
            with pytest.raises(StoreUnavailable, match=f"^{reason}$"):
                guard.attempt("login", **VERA)


def test_a_server_is_no_sentinel(pair: Sentinels, guard_factory: Guards) -> None:
    """The servers' own ports in place of the sentinels': 503 with a reason of its own."""
    guard = guard_factory(store=f"valkey+sentinel://{pair.primary}/{pair.NAME}")
    with pytest.raises(StoreUnavailable, match=r"^no sentinel$"):
        guard.attempt("login", **VERA)


def test_a_silent_sentinel_is_passed_over(pair: Sentinels, guard_factory: Guards) -> None:
    """The first of three is stopped in its tracks: the next is asked, and from then on first."""
    guard = guard_factory(store=pair.url, deadline_ms=800)
    pair.sentinels[0].stop()
    try:
        begun = time.monotonic()
        assert remaining(guard) == 4
        assert time.monotonic() - begun < WITHIN_S
        begun = time.monotonic()
        guard.store.nodes()  # type: ignore[attr-defined]  # asks sentinels afresh
        assert time.monotonic() - begun < 1
    finally:
        pair.sentinels[0].cont()


def test_sentinels_that_are_gone_are_passed_over(pair: Sentinels, guard_factory: Guards) -> None:
    """Of an address with two closed ports and a living sentinel, the living one is asked."""
    gone = ",".join(f"127.0.0.1:{free_port()}" for _ in range(2))
    guard = guard_factory(store=f"valkey+sentinel://{gone},{pair.sentinels[2]}/{pair.NAME}")
    assert remaining(guard) == 4


def test_without_sentinels_a_known_primary_goes_on(
    valkey_server: EmbeddedValkey, client: valkey.Valkey, guard_factory: Guards
) -> None:
    """Once found, the primary needs no sentinel; who has not found it is 503 at once."""
    with Wire(names(valkey_server.port)) as wire:
        address = f"valkey+sentinel://127.0.0.1:{wire.port}/main"
        guard = guard_factory(store=address)
        assert remaining(guard) == 4
    assert [remaining(guard) for _ in range(2)] == [3, 2]
    late = guard_factory(store=address)
    with pytest.raises(StoreUnavailable, match=r"^connection$"):
        late.attempt("login", **VERA)


def test_a_replica_is_not_believed(pair: Sentinels, guard_factory: Guards) -> None:
    """B054: a sentinel that still names what is a replica is passed over for one that knows."""
    with Wire(names(pair.replica.port)) as behind, Wire(names(pair.primary.port)) as knows:
        first = f"127.0.0.1:{behind.port}"
        guard = guard_factory(store=f"valkey+sentinel://{first},127.0.0.1:{knows.port}/main")
        assert remaining(guard) == 4
        assert [str(node) for node in guard.store.nodes()] == [  # type: ignore[attr-defined]
            str(pair.primary)
        ]
        alone = guard_factory(store=f"valkey+sentinel://{first}/main")
        with pytest.raises(StoreUnavailable, match=r"^no primary$"):
            alone.attempt("login", **VERA)


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        (b"*-1\r\n", "unknown name"),
        (b"$-1\r\n", "unknown name"),
        (b"*0\r\n", "no primary"),
        (b":1\r\n", "no primary"),
        (b"-ERR unknown command\r\n", "error reply"),
        (b"-ERR unknown command `SENTINEL`, with args beginning with: `x`\r\n", "no sentinel"),
        (b"-NOAUTH Authentication required.\r\n", "authentication"),
        (b"*2\r\n$1\r\nx\r\n$3\r\none\r\n", "client failure"),
    ],
)
def test_what_is_no_sentinels_answer_is_an_outage(
    guard_factory: Guards, says: bytes, reason: str
) -> None:
    """Nobody is admitted on what a sentinel does not say."""
    with Wire(names(0, says=says)) as wire:
        guard = guard_factory(
            store=f"valkey+sentinel://127.0.0.1:{wire.port}/main", deadline_ms=2_000
        )
        with pytest.raises(StoreUnavailable) as away:
            guard.attempt("login", **VERA)
        assert away.value.reason == reason


def test_sentinels_have_a_login_of_their_own(
    valkey_server: EmbeddedValkey, client: valkey.Valkey, guard_factory: Guards
) -> None:
    """The server's user goes to the server, the sentinels' to the sentinels; neither to both."""
    client.acl_setuser(
        "worker", enabled=True, passwords=["+pw-of-server"], keys=["*"], commands=["+@all"]
    )
    try:
        with Wire(names(0)) as wire, Wire(honest, valkey_server.port) as server:
            wire.answer = names(server.port)
            store = ValkeyStore(
                f"valkey+sentinel://worker:pw-of-server@127.0.0.1:{wire.port}/main",
                deadline_ms=PATIENT_MS,
                sentinel_username="watcher",
                sentinel_password="pw-of-sentinels",
            )
            assert remaining(guard_factory(store=store)) == 4
            assert wire.commands[0] == [b"AUTH", b"watcher", b"pw-of-sentinels"]
            assert server.commands[0] == [b"AUTH", b"worker", b"pw-of-server"]
            assert len([it for it in wire.commands + server.commands if it[0] == b"AUTH"]) == 2
    finally:
        client.acl_deluser("worker")


def test_real_sentinels_ask_for_a_password(pair: Sentinels, guard_factory: Guards) -> None:
    """A user that the sentinels know is let in; with a wrong password it is 503."""
    for sentinel in pair.sentinels:
        sentinel.client.execute_command(
            "ACL", "SETUSER", "watcher", "on", ">right", "~*", "&*", "+@all"
        )
    for password, reason in (("right", None), ("wrong", "authentication")):
        store = ValkeyStore(
            pair.url,
            deadline_ms=PATIENT_MS,
            sentinel_username="watcher",
            sentinel_password=password,
        )
        guard = guard_factory(store=store)
        if reason is None:
            assert remaining(guard) == 4
        else:
            with pytest.raises(StoreUnavailable, match=f"^{reason}$"):
                guard.attempt("login", **VERA)


def test_a_primary_that_hangs_up_is_looked_for_again(
    valkey_server: EmbeddedValkey, client: valkey.Valkey, guard_factory: Guards
) -> None:
    """After any failure the sentinels are asked anew; what failed is not sent to the new one."""

    def hang_up(talk: Talk, command: list[bytes]) -> Iterator[Step]:
        if command[0] == b"ROLE":
            yield b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"
        else:
            yield CLOSE

    with Wire(hang_up) as old, Wire(names(old.port)) as wire:
        guard = guard_factory(store=f"valkey+sentinel://127.0.0.1:{wire.port}/main")
        with pytest.raises(StoreUnavailable, match=r"^connection$"):
            guard.attempt("login", **VERA)
        wire.answer = names(valkey_server.port)
        assert remaining(guard) == 4
        assert old.verbs() == ["ROLE", "EVALSHA"]


def test_the_same_awaited(pair: Sentinels) -> None:
    """AsyncGuard finds the primary by the sentinels, in its database, with a login of theirs."""

    async def story() -> list[int]:
        async with AsyncGuard(f"{pair.url}/2", secret=SECRET, deadline_ms=PATIENT_MS) as guard:
            found = [
                (await guard.attempt("login", **VERA)).decision.verdicts[0].remaining
                for _ in range(3)
            ]
            assert [str(node) for node in await guard.store.nodes()] == [  # type: ignore[attr-defined]
                str(pair.primary)
            ]
        return found

    assert asyncio.run(story()) == [4, 3, 2]
    assert pair.primary.client.info("keyspace").keys() == {"db2"}


def _first_admission(guard: Guard, account: str) -> tuple[float, int]:
    begun = time.monotonic()
    while True:
        try:
            decision = guard.attempt("login", account=account, client="192.0.2.9").decision
        except StoreUnavailable:
            assert time.monotonic() - begun < 30
            time.sleep(0.01)
        else:
            return time.monotonic() - begun, decision.verdicts[0].remaining


@pytest.mark.slow
def test_a_failover_is_followed(fresh_pair: Sentinels, guard_factory: Guards) -> None:
    """B054: after SENTINEL FAILOVER it is right within 5 s, without a restart, counts intact."""
    guard = guard_factory(store=fresh_pair.url, deadline_ms=200)
    assert [remaining(guard) for _ in range(2)] == [4, 3]
    first = fresh_pair.primary
    for heir in (fresh_pair.replica, first):  # and back again
        assert fresh_pair.primary.client.wait(1, 5_000) == 1  # what it has acknowledged stands
        assert fresh_pair.fail_over() is heir
        took_s, left = _first_admission(guard, f"to {heir.port}")
        assert took_s < WITHIN_S
        assert left == 4
        assert [str(node) for node in guard.store.nodes()] == [str(heir)]  # type: ignore[attr-defined]
    assert remaining(guard) == 2


@pytest.mark.slow
def test_a_killed_primary_is_followed(fresh_pair: Sentinels, guard_factory: Guards) -> None:
    """B054, A95: after SIGKILL 503, then the replica, with what it had; the old one may return."""
    guard = guard_factory(store=fresh_pair.url, deadline_ms=200)
    assert [remaining(guard) for _ in range(2)] == [4, 3]
    assert fresh_pair.primary.client.wait(1, 5_000) == 1
    former = fresh_pair.kill_primary()
    took_s, _ = _first_admission(guard, "omar")
    print(f"SIGKILL of a sentinels' primary: admitted again after {took_s:.1f} s")  # noqa: T201
    fresh_pair.wait_for_switch(former)
    assert remaining(guard) == 2
    fresh_pair.restart(former)
    fresh_pair.wait_until_ok()
    assert remaining(guard) == 1
    assert [str(node) for node in guard.store.nodes()] == [  # type: ignore[attr-defined]
        str(fresh_pair.primary)
    ]


@pytest.mark.slow
def test_a_killed_primary_is_followed_awaited(fresh_pair: Sentinels) -> None:
    """B054: AsyncGuard the same, without a restart."""

    async def story() -> None:
        async with AsyncGuard(fresh_pair.url, secret=SECRET, deadline_ms=200) as guard:
            await guard.attempt("login", **VERA)
            assert fresh_pair.primary.client.wait(1, 5_000) == 1
            former = fresh_pair.kill_primary()
            begun = time.monotonic()
            while True:
                try:
                    attempt = await guard.attempt("login", **VERA)
                except StoreUnavailable:
                    assert time.monotonic() - begun < 30
                    await asyncio.sleep(0.01)
                else:
                    break
            assert attempt.decision.verdicts[0].remaining == 3
            assert str((await guard.store.nodes())[0]) != str(former)  # type: ignore[attr-defined]

    asyncio.run(story())
