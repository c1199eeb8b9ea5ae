"""A login on a cluster: one call a group, the client's first; nobody is admitted too often."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from authguard import AsyncGuard, Denied, StoreUnavailable
from tests.cluster.conftest import POLICY, Map, Recording, errors, forget_counts, ran
from tests.conftest import PATIENT_MS, SECRET
from tests.stores.wire import Wire, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from authguard import Guard
    from tests.servers import Cluster
    from tests.stores.wire import Step, Talk

    Guards = Callable[..., Guard]

pytestmark = pytest.mark.slow

BOB = {"account": "bob", "client": "192.0.2.7"}


def at_once(jobs: list[Callable[[], object]]) -> list[object]:
    """Run all at the same moment, each in its thread; give what they return or raise."""
    barrier = threading.Barrier(len(jobs))
    done: list[object] = [None] * len(jobs)

    def run(number: int) -> None:
        barrier.wait()
        try:
            done[number] = jobs[number]()
        except (Denied, StoreUnavailable) as error:
            done[number] = error

    threads = [threading.Thread(target=run, args=[number]) for number in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done


def test_a_login_takes_two_round_trips(where: Map) -> None:
    """A failure is two calls, a success four, each at its group's node; the client's is first."""
    first, second, _ = where.cluster.nodes
    who = where.apart(client_on=second, account_on=first)
    where.guard.attempt("login", **who).succeed()
    forget_counts(where.cluster)
    attempt = where.guard.attempt("login", **who)
    one_each = {str(first): 1, str(second): 1}
    assert {node: of["evalsha"] for node, of in ran(where.cluster).items() if of} == one_each
    attempt.succeed()
    two_each = {node: 2 * calls for node, calls in one_each.items()}
    assert {node: of["evalsha"] for node, of in ran(where.cluster).items() if of} == two_each
    assert attempt.settled
    assert errors(where.cluster) == {}


def test_a_group_knows_only_its_own_keys(cluster: Cluster, guard_factory: Guards) -> None:
    """B119: the client's call names the client's keys, the account's the account's alone."""
    store = Recording(cluster.url, deadline_ms=PATIENT_MS)
    guard = guard_factory(store=store)
    guard.attempt("login", **BOB)
    client, account = Map(cluster, guard).groups(**BOB)
    assert [call.keys for call in store.calls] == [client, account]
    assert [len(call.args) for call in store.calls] == [5, 5]


def test_the_client_refused_charges_no_account(where: Map) -> None:
    """A full client asks the account's group, and takes no place there."""
    for number in range(20):
        where.guard.attempt("login", account=f"user{number}", client=BOB["client"])
    with pytest.raises(Denied) as refused:
        where.guard.attempt("login", **BOB)
    assert refused.value.decision.refused_by == ("client",)
    assert {verdict.remaining for verdict in refused.value.decision.verdicts} == {0, 5}
    assert where.used("account", **BOB) == 0


def test_the_account_refused_gives_the_clients_place_back(where: Map) -> None:
    """A locked account leaves no trace at the client, however often it is tried."""
    for _ in range(5):
        where.guard.attempt("login", account="bob", client="192.0.2.99")
    for _ in range(30):
        with pytest.raises(Denied) as refused:
            where.guard.attempt("login", **BOB)
        assert refused.value.decision.refused_by == ("account",)
        assert refused.value.decision.verdicts[1].remaining == 20
    assert where.used("client", **BOB) == 0
    assert where.used("account", **BOB) == 5


def test_the_wait_is_the_longest_of_all_groups(where: Map) -> None:
    """Full at both: both are named, and the wait is that of the account's lock."""
    for number in range(15):
        where.guard.attempt("login", account=f"user{number}", client=BOB["client"])
    for _ in range(5):
        where.guard.attempt("login", **BOB)
    with pytest.raises(Denied) as refused:
        where.guard.attempt("login", **BOB)
    decision = refused.value.decision
    assert set(decision.refused_by) == {"account", "client"}
    assert decision.retry_after_ms == max(it.retry_after_ms for it in decision.verdicts) > 3_500_000


def test_a_silent_node_admits_nobody_of_its_own(where: Map, guard_factory: Guards) -> None:
    """A86: the account's node is silent: 503, the client's place is back; others go on quickly."""
    first, second, third = where.cluster.nodes
    hurried = guard_factory(deadline_ms=300)
    lost = where.apart(client_on=second, account_on=first)
    well = where.apart(client_on=second, account_on=third)
    for who in (lost, well):
        hurried.attempt("login", **who).release()
    first.stop()
    try:
        begun = time.monotonic()
        with pytest.raises(StoreUnavailable, match="timeout"):
            hurried.attempt("login", **lost)
        took_s = time.monotonic() - begun
        assert [hurried.attempt("login", **well) is not None for _ in range(3)] == [True] * 3
        assert hurried.usage("login", client=lost["client"])[0].used == 3  # those three alone
    finally:
        first.cont()
    assert took_s < 3
    assert 0 <= where.used("account", **lost) <= 1  # it may have run when the node went on


def test_fifty_at_once_and_five_a_head(where: Map) -> None:
    """Fifty threads at ten accounts on all nodes, limit 5: five each are admitted, never six."""
    names = [f"user{number}" for number in range(10)]
    for name in names:
        where.guard.peek("login", account=name, client="192.0.2.7")
    jobs = [
        lambda number=number, round_=round_: where.guard.attempt(
            "login", account=names[number % 10], client=f"10.0.{round_}.{number}"
        )
        for round_ in range(2)
        for number in range(50)
    ]
    done = at_once(jobs[:50]) + at_once(jobs[50:])
    admitted = Counter(it.account for it in done if not isinstance(it, Exception))  # type: ignore[attr-defined]
    assert admitted == dict.fromkeys(names, 5)
    assert sum(isinstance(it, Denied) for it in done) == 50


def test_a_client_is_never_above_its_limit(where: Map) -> None:
    """Fifty threads of one client at full and free accounts: 20 at most, and all 20 in time."""
    full = [f"full{number}" for number in range(5)]
    for name in full:
        for number in range(5):
            where.guard.attempt("login", account=name, client=f"10.1.{number}.1")
    names = [*full * 5, *(f"free{number}" for number in range(25))]
    done = at_once(
        [
            lambda name=name: where.guard.attempt("login", account=name, client=BOB["client"])
            for name in names
        ]
    )
    admitted = sum(not isinstance(it, Exception) for it in done)
    assert 1 <= admitted <= 20
    assert where.used("client", **BOB) == admitted  # all that was taken for the refused is back
    for number in range(20 - admitted):
        where.guard.attempt("login", account=f"later{number}", client=BOB["client"])
    with pytest.raises(Denied):
        where.guard.attempt("login", **BOB)
    assert {where.used("account", account=name, client=BOB["client"]) for name in full} == {5}


def test_accounts_are_spread_over_all_nodes(where: Map) -> None:
    """A thousand accounts lie on all three nodes, each with a fifth to a half of them."""
    for number in range(1_000):
        client = f"10.{number // 250}.{number % 250}.1"
        where.guard.attempt("login", account=f"user{number}", client=client)
    slots = [where.slots(f"user{number}", "192.0.2.7")[1] for number in range(1_000)]
    share = Counter(str(where.node(slot)) for slot in slots)
    assert len(share) == 3
    assert all(200 <= accounts <= 500 for accounts in share.values())
    assert all(400 <= node.client.dbsize() <= 1_000 for node in where.cluster.nodes)


def test_a_node_that_lost_its_scripts_counts_once(where: Map) -> None:
    """B122: SCRIPT FLUSH on one node, three failures for each of thirty: each has exactly three."""
    names = [f"user{number}" for number in range(30)]
    for round_ in range(3):
        where.cluster.nodes[round_ % 2].client.script_flush()
        for number, name in enumerate(names):
            if number % 10 == 5:
                where.cluster.nodes[0].client.script_flush()
            where.guard.attempt("login", account=name, client=f"10.3.0.{number}")
    assert {where.used("account", account=name, client="192.0.2.7") for name in names} == {3}
    clients = [f"10.3.0.{number}" for number in range(30)]
    assert {where.used("client", account="bob", client=client) for client in clients} == {3}
    assert sum(of["eval"] for of in ran(where.cluster).values()) >= 4


def test_one_node_of_the_address_is_enough(cluster: Cluster, guard_factory: Guards) -> None:
    """Where most nodes of the address are gone for good, one that is alive tells of the others."""
    gone = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    guard = guard_factory(store=f"valkey+cluster://{gone},{cluster.nodes[2]}")
    for number in range(30):
        guard.attempt("login", account=f"user{number}", client=f"10.4.0.{number}")
    assert len(guard.store.nodes()) == 3
    assert all(node.client.dbsize() > 0 for node in cluster.nodes)


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        (b"*0\r\n", "cluster down"),
        (b"-CLUSTERDOWN The cluster is down\r\n", "cluster down"),
        (b"-ERR This instance has cluster support disabled\r\n", "no cluster"),
        (b"+OK\r\n", "client failure"),
        (b"*1\r\n*3\r\n:0\r\n:16383\r\n$4\r\nhost\r\n", "client failure"),
    ],
)
def test_a_map_that_says_nothing_is_an_outage(
    guard_factory: Guards, says: bytes, reason: str
) -> None:
    """No slots, no cluster, or nonsense for a map: 503 with a reason, and no charge anywhere."""

    def answer(talk: Talk, command: list[bytes]) -> Iterator[Step]:
        yield says

    with Wire(answer) as wire:
        guard = guard_factory(store=f"valkey+cluster://127.0.0.1:{wire.port}", deadline_ms=1_000)
        with pytest.raises(StoreUnavailable) as away:
            guard.attempt("login", **BOB)
        assert away.value.reason == reason
        assert wire.verbs() == ["CLUSTER"]


def test_the_same_awaited(cluster: Cluster) -> None:
    """B122: AsyncGuard: of fifty at once five are admitted; refusals give back; counts stay."""

    async def story() -> None:
        guard = AsyncGuard(cluster.url, secret=SECRET, policies=POLICY, deadline_ms=PATIENT_MS)

        async def admitted(account: str, client: str) -> bool:
            try:
                await guard.attempt("login", account=account, client=client)
            except Denied:
                return False
            return True

        async with guard:
            names = [f"user{number}" for number in range(10)]
            asked = [
                admitted(names[number % 10], f"10.5.{number // 10}.1") for number in range(100)
            ]
            assert sum(await asyncio.gather(*asked)) == 50
            cluster.nodes[1].client.script_flush()
            assert not await admitted(names[0], BOB["client"])
            async with guard.attempt("login", **BOB) as attempt:
                await attempt.succeed()
            assert attempt.settled
            usages = await guard.usage("login", account=names[0], client=BOB["client"])
            assert [usage.used for usage in usages if usage.name != "block"] == [5, 0]
            assert len(await guard.store.nodes()) == 3  # type: ignore[attr-defined]

    asyncio.run(story())
    assert errors(cluster).keys() <= {"NOSCRIPT"}
