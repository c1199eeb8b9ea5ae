"""Every flow once on a cluster: no call's keys are on two nodes, by the guard and by Flask."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from authguard import AsyncGuard, limits
from authguard._notes import Act
from tests.cases.test_script_keys import POLICY as EVERY_ALGORITHM
from tests.cases.test_script_keys import SCENES
from tests.cluster.conftest import Recording, errors
from tests.conftest import PATIENT_MS, SECRET
from tests.flask.conftest import bare_app, post_site, site_factory  # noqa: F401 (fixtures)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from authguard import Guard
    from tests.flask.conftest import Site
    from tests.servers import Cluster

    Guards = Callable[..., Guard]

pytestmark = pytest.mark.slow

#: Two groups more than a login has, and a limit that cuts networks its own way.
SEND = [
    {"name": "account", "by": ["account"], "sliding_log": "5/1h"},
    {"name": "where", "by": ["destination"], "sliding_log": "5/1h"},
    {"name": "range", "by": ["number_range"], "sliding_log": "30/1h"},
    {"name": "wide", "by": ["network"], "sliding_log": "99/1h", "ipv4_prefix": 16},
    {"name": "client", "by": ["client"], "sliding_log": "20/1h"},
    {"name": "all", "by": ["global"], "token_bucket": "99/1s", "burst": 99, "elastic": True},
]


class AllNodes:
    """Looks at the keys of all nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def scan_iter(self) -> Iterator[bytes]:
        """Name every key."""
        for node in self.cluster.nodes:
            yield from node.client.scan_iter()

    def pttl(self, key: bytes) -> int:
        """Tell how long a key lives."""
        return int(self.cluster.owner(self.cluster.slot_of(key)).client.pttl(key))


@pytest.fixture
def valkey_url(cluster: Cluster) -> str:
    """Give the cluster's address to the sites of the Flask tests."""
    return cluster.url


@pytest.fixture
def client(cluster: Cluster) -> AllNodes:
    """Let them look at its keys."""
    return AllNodes(cluster)


@pytest.fixture
def recorded(cluster: Cluster, guard_factory: Guards) -> Iterator[Callable[..., Guard]]:
    """Make guards whose calls are looked at in the end: each has its keys in one slot."""
    stores: list[Recording] = []

    def make(**settings: Any) -> Guard:
        stores.append(Recording(cluster.url, deadline_ms=PATIENT_MS))
        return guard_factory(store=stores[-1], **settings)

    yield make
    calls = [call for store in stores for call in store.calls]
    assert calls
    node = cluster.nodes[0].client
    slot_of = {
        key: node.execute_command("CLUSTER", "KEYSLOT", key) for call in calls for key in call.keys
    }
    assert [call for call in calls if len({slot_of[key] for key in call.keys}) > 1] == []
    assert errors(cluster).keys() <= {"MOVED", "NOSCRIPT"}


@pytest.mark.parametrize("secrets", [1, 2])
@pytest.mark.parametrize("scene", SCENES)
def test_every_verb_names_keys_of_one_slot(
    recorded: Guards, client: AllNodes, scene: str, secrets: int
) -> None:
    """B118, B119: by CLUSTER KEYSLOT the keys of a call are in one slot; no CROSSSLOT ever."""
    act, _ = SCENES[scene]
    act(recorded(policies=EVERY_ALGORITHM, secret=[SECRET, SECRET[::-1]][:secrets]))
    assert [key for key in client.scan_iter() if client.pttl(key) == -1] == []


@pytest.mark.parametrize("secrets", [1, 2])
def test_many_groups_a_load_and_notes(recorded: Guards, secrets: int) -> None:
    """B119: six groups under two secrets: all take a place, the load counts, notes are kept."""
    guard = recorded(
        policies={"otp": {"send": {"limits": SEND}}}, secret=[SECRET, SECRET[::-1]][:secrets]
    )
    who = {"account": "vera", "client": "192.0.2.7"}
    for places in (4, 3, 2):
        decision = guard.attempt("otp.send", **who, destination="+14155550101").decision
        assert decision.verdicts[0].remaining == decision.verdicts[1].remaining == places
    assert [verdict.name for verdict in decision.verdicts] == [limit["name"] for limit in SEND]
    guard.load(0.1)
    assert guard.current_load() == 0.1
    assert guard.peek("otp.send", **who, destination="+14155550101").verdicts[-1].limit == 10
    act = Act("block", ("account",), guard.now_ms(), "ann", reason="a test")
    guard.notes.add(act, account="vera")
    assert guard.notes.last(account="vera") == (act,)
    assert guard.now_ms() > 1_700_000_000_000


def test_a_limiter_by_itself(recorded: Guards) -> None:
    """A bare limiter of each kind counts on a cluster as on one server."""
    for limit in (
        limits.SlidingLog("3/1h"),
        limits.TokenBucket("1/1h", burst=3),
        limits.FixedWindow("3/365d"),
        limits.Distinct("account", "3/1h"),
    ):
        limiter = recorded().limiter(limit)
        told = {"value": "x"} if isinstance(limit, limits.Distinct) else {}
        for key in ("one", "two", "three"):
            assert [limiter.hit(key, **told).allowed for _ in range(3)] == [True] * 3
            assert limiter.hit(key, **told).allowed is bool(told)
        assert limiter.reset("one").entries > 0


def test_every_flow_of_the_blueprint(post_site: Site, cluster: Cluster) -> None:  # noqa: F811
    """B119: sign-in, lock, unlock, reset and codes by Flask: no CROSSSLOT, no 500, no 503."""
    site = post_site
    assert site.statuses(2) == [401, 401]
    assert site.login(password="right vera").status_code == 200
    assert site.statuses(6, "omar") == [401] * 5 + [429]
    token = site.messages("unlock")[0].token
    assert site.post("/auth/unlock", json={"token": token}).status_code == 200
    assert site.login("omar", "right omar").status_code == 200
    asked = site.post("/auth/password/forgot", json={"identifier": "vera"})
    assert asked.status_code == 202
    token = site.messages("reset")[0].token
    body = {"token": token, "password": "a new password"}
    assert site.post("/auth/password/reset", json=body).status_code == 200
    assert site.post("/auth/password/reset", json=body).status_code == 400
    assert site.login(password="a new password").status_code == 200
    sent = site.send_code("omar")
    assert sent.status_code == 202
    assert sent.json is not None
    code = site.messages("code")[0].code
    challenge = sent.json["challenge"]
    assert code is not None
    assert site.verify(challenge, f"{(int(code) + 1) % 10**8:08}").status_code == 401
    assert site.verify(challenge, code).status_code == 200
    assert errors(cluster).keys() <= {"MOVED", "NOSCRIPT"}


def test_both_colours_share_their_counts(cluster: Cluster, guard_factory: Guards) -> None:
    """What one counted the other finds: the keys are the same, group by group."""
    who = {"account": "vera", "client": "192.0.2.7"}
    blocking = guard_factory()
    for _ in range(2):
        blocking.attempt("login", **who)

    async def two_more() -> None:
        policies = {"login": blocking.policy("login")}
        async with AsyncGuard(
            cluster.url, secret=SECRET, policies=policies, deadline_ms=PATIENT_MS
        ) as guard:
            for _ in range(2):
                await guard.attempt("login", **who)

    asyncio.run(two_more())
    assert [it.remaining for it in blocking.peek("login", **who).verdicts] == [1, 16]
