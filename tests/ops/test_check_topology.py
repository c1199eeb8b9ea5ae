"""What ``check`` says of clusters and sentinels, on real ones; and what permissions they take."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
import valkey
from valkey.exceptions import NoPermissionError

from authguard import Guard, SlidingLog, StoreUnavailable
from authguard.ops.check import check
from authguard.stores.valkey import ValkeyStore
from tests.conftest import PATIENT_MS
from tests.ops.test_check import DRAWN, KEPT, looked, terminal_on
from tests.ops.test_check_access import PASSWORD, allow, commands, do_everything, documented
from tests.servers import sentinels, three_nodes, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from authguard.ops.check import CheckReport, Finding
    from tests.ops.conftest import Terminal
    from tests.servers import Cluster

__all__ = ["terminal_on"]

pytestmark = pytest.mark.slow

#: Servers that lose nothing they have answered, beside what makes those of the tests quick.
WELL_KEPT: Final = {"appendonly": "yes"}


@contextmanager
def guarded(store: Any, **settings: Any) -> Iterator[Guard]:
    """Give a patient guard."""
    with Guard(store, secret=DRAWN, **{"deadline_ms": PATIENT_MS} | settings) as guard:
        yield guard


def by_code(report: CheckReport) -> dict[str, list[Finding]]:
    """Sort what was found."""
    found: dict[str, list[Finding]] = {}
    for finding in report.findings:
        found.setdefault(finding.code, []).append(finding)
    return found


def to_mend(report: CheckReport) -> list[Finding]:
    """Give the warnings and errors."""
    return [finding for finding in report.findings if finding.level != "ok"]


def as_user(url: str) -> str:
    """Give the address for the documented user."""
    return url.replace("://", f"://authguard:{PASSWORD}@")


def allow_everywhere(cluster: Cluster, *lines: list[str]) -> None:
    """Type lines of the page at every node."""
    for node in cluster.nodes:
        allow(node.client, *lines)


def test_a_cluster_that_is_whole_is_ok_and_each_node_is_asked() -> None:
    """What all nodes say alike is said once; what one says is said with its address."""
    with three_nodes(replicas=1, **WELL_KEPT) as cluster, guarded(cluster.url) as guard:
        report = check(guard)
        assert to_mend(report) == []
        assert report.count("ok") == len(by_code(report))
        whole, replicas = by_code(report)["AG071"][0], by_code(report)["AG072"][0]
        assert whole.seen == "a primary of a cluster, and sees all its 16,384 slots served"
        assert replicas.seen.startswith("a replica is connected: the last moment's counts can")
        one, *others = cluster.primaries
        one.client.config_set("maxmemory-policy", "allkeys-lru")
        (finding,) = to_mend(check(guard))
        assert (finding.code, finding.level) == ("AG064", "warning")
        assert finding.seen.startswith(f"{one}: maxmemory-policy allkeys-lru")
        (ok,) = (each for each in by_code(check(guard))["AG064"] if each.level == "ok")
        assert set(ok.seen.partition(": m")[0].split(", ")) == {str(node) for node in others}
        one.client.config_set("maxmemory-policy", "noeviction")
        (replica,) = cluster.replicas_of(one)
        replica.kill()
        wait_until(lambda: one.client.info("replication")["connected_slaves"] == 0, "it is noticed")
        (finding,) = to_mend(check(guard))
        assert (finding.code, finding.level) == ("AG072", "warning")
        assert finding.seen.startswith(f"{one}: no replica is connected")
        assert all(node.client.dbsize() == 0 for node in cluster.living)


def test_a_node_that_is_away_is_an_error_and_the_others_are_asked() -> None:
    """A96: killed or out of slots: by its address, then by what the others see; all away: none."""
    with three_nodes(**WELL_KEPT) as cluster, guarded(cluster.url) as guard:
        assert {finding.code for finding in to_mend(check(guard))} == {"AG072"}
        first, second, third = cluster.nodes
        check(guard)
        third.kill()
        away = by_code(check(guard))["AG071"][0]
        assert away.level == "error"
        assert away.seen.startswith(f"{third}: gave no clear answer (connection)")
        wait_until(lambda: "cluster_state:fail" in first.ask("INFO"), "the others give it up")
        wait_until(lambda: "cluster_state:fail" in second.ask("INFO"), "the others give it up")
        seen = [finding.seen for finding in by_code(check(guard))["AG071"]]
        assert "5,461 of the cluster's slots are of a node that failed" in seen
        assert "cluster_state is fail: attempts are refused" in seen
        first.kill()
        second.kill()
        with pytest.raises(StoreUnavailable):
            check(guard)


def test_slots_that_nobody_serves_are_an_error() -> None:
    """A slot that was taken from its node is counted."""
    with three_nodes() as cluster, guarded(cluster.url) as guard:
        for node in cluster.nodes:
            node.ask("DELSLOTS", 0)
        found = by_code(check(guard))["AG071"]
    assert "1 of the cluster's 16,384 slots are nobody's" in [finding.seen for finding in found]
    assert all("--cluster fix" in str(finding.mend) for finding in found)


def test_one_node_of_a_cluster_is_no_server() -> None:
    """The address of a single node, written as a server's: an error with the one to write."""
    with three_nodes(**WELL_KEPT) as cluster, guarded(f"valkey://{cluster.nodes[0]}") as guard:
        (finding,) = by_code(check(guard))["AG071"]
    assert (finding.level, finding.mend) == (
        "error",
        "write valkey+cluster:// in the store's address",
    )


def test_the_permissions_of_a_cluster_are_as_documented() -> None:
    """The page's lines are enough, a slot's move included; each command taken away is named."""
    decisions, _, looking, cluster_line, cluster_look, *_ = documented()
    every = (decisions, looking, cluster_line, cluster_look)
    with three_nodes(replicas=1, **WELL_KEPT) as cluster:
        allow_everywhere(cluster, decisions, cluster_line)
        with guarded(as_user(cluster.url)) as guard:
            do_everything(guard)
            # A call for one key: several that are not all there can't be followed half-way.
            limiter = guard.limiter(SlidingLog("5/15m"), name="moves")
            before = {key for node in cluster.primaries for key in node.client.scan_iter()}
            limiter.hit("vera")
            after = {key for node in cluster.primaries for key in node.client.scan_iter()}
            slot = cluster.slot_of((after - before).pop())
            to = next(node for node in cluster.primaries if node is not cluster.owner(slot))
            cluster.begin_move(slot, to)
            cluster.move_keys(slot, to)
            assert limiter.hit("vera").remaining == 3
            cluster.end_move(slot, to)
            allow_everywhere(cluster, looking, cluster_look)
            assert to_mend(check(guard)) == []
        assert [node.client.execute_command("ACL", "LOG") for node in cluster.nodes] == [[]] * 6
        for command in commands(*every):
            allow_everywhere(cluster, *every, [f"-{command}"])
            with guarded(as_user(cluster.url)) as guard:
                told = to_mend(check(guard))
            assert told
            for finding in told:
                assert command.upper().replace("|", " ") in finding.seen
                assert f"+{command}" in str(finding.mend)
        allow_everywhere(cluster, *every)
        allow(cluster.primaries[1].client, ["-set"])
        with guarded(as_user(cluster.url)) as guard:
            (finding,) = to_mend(check(guard))
        assert finding.seen.startswith(f"{cluster.primaries[1]}: the store's user may not run SET")


def test_the_permissions_of_sentinels_are_as_documented() -> None:
    """The page's lines for the servers and the sentinels are enough, and each command is named."""
    decisions, _, looking, _, _, role, watching = documented()
    with sentinels(**WELL_KEPT) as pair:
        for server in pair.servers:
            server.client.config_set("min-replicas-to-write", 1)
            allow(server.client, decisions, role, looking)
        for sentinel in pair.sentinels:
            allow(sentinel.client, watching)
            sentinel.client.execute_command("ACL", "SETUSER", "default", "off")
        known = {"sentinel_username": "authguard", "sentinel_password": PASSWORD}
        store = ValkeyStore(as_user(pair.url), deadline_ms=PATIENT_MS, **known)
        with guarded(store) as guard:
            do_everything(guard)
            report = check(guard)
            assert to_mend(report) == []
            assert by_code(report)["AG071"][0].seen == "the sentinels' primary"
            for server in pair.servers:
                allow(server.client, ["-role"])
            (finding,) = to_mend(check(guard))
            assert (finding.code, finding.level) == ("AG068", "warning")
            assert "may not run ROLE" in finding.seen
            for sentinel in pair.sentinels:
                with valkey.Valkey(
                    port=sentinel.port, username="authguard", password=PASSWORD
                ) as client:
                    with pytest.raises(NoPermissionError):
                        client.execute_command("SENTINEL", "MASTERS")
                    client.connection_pool.disconnect()


def test_a_sentinel_that_is_not_there_is_a_warning() -> None:
    """One that doesn't answer would be missed when the others fail; one may know another name."""
    with sentinels(**WELL_KEPT, min_replicas_to_write="1") as pair, guarded(pair.url) as guard:
        pair.sentinels[1].kill()
        (finding,) = to_mend(check(guard))
        assert (finding.code, finding.level) == ("AG071", "warning")
        assert finding.seen == f"sentinel {pair.sentinels[1]} gave no clear answer (connection)"
        assert str(finding.mend).startswith("see that it runs")


def test_a_name_or_a_sentinel_that_is_none_is_told(terminal_on: Callable[..., Terminal]) -> None:
    """No sentinel knows the NAME: status 1 and where it stands; a server among them: a warning."""
    terminal = terminal_on()
    with sentinels(**WELL_KEPT, min_replicas_to_write="1") as pair:
        wrong = pair.url.replace(f"/{pair.NAME}", "/another")
        result = terminal.run("check", AUTHGUARD_STORE_URL=wrong)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "gave no clear answer (unknown name); the sentinels know nobody" in result.stderr
        with guarded(pair.url.replace(str(pair.sentinels[2]), str(pair.primary))) as guard:
            (finding,) = to_mend(check(guard))
        assert finding.seen == f"sentinel {pair.primary} gave no clear answer (no sentinel)"
        assert "who answers is no sentinel" in str(finding.mend)


def test_a_primary_that_could_count_alone_is_a_warning(
    terminal_on: Callable[..., Terminal],
) -> None:
    """A95: what is lost with a primary is told, and how to bound it; of a lone server nothing."""
    assert "AG072" not in looked(terminal_on(**KEPT))[1]
    with sentinels(**WELL_KEPT) as pair, guarded(pair.url) as guard:
        (told,) = by_code(check(guard))["AG072"]
        assert (told.level, "min-replicas-to-write is 0" in told.seen) == ("warning", True)
        pair.primary.client.config_set("min-replicas-to-write", 1)
        (told,) = by_code(check(guard))["AG072"]
        assert (told.level, "min-replicas-to-write" in told.seen) == ("ok", False)
        pair.primary.client.config_set("min-replicas-to-write", 0)
        pair.replica.kill()
        wait_until(
            lambda: pair.primary.client.info("replication")["connected_slaves"] == 0, "it is seen"
        )
        (told,) = by_code(check(guard))["AG072"]
        assert (told.level, told.seen[:27]) == ("warning", "no replica is connected: wh")
