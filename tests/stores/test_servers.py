"""The servers that other tests break: they start whole, break as asked, and mend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import valkey

from tests.servers import sentinels, three_nodes, tls_server, wait_until

if TYPE_CHECKING:
    from tests.servers import Cluster, Node

TAGGED = [f"{{vera}}:{number}" for number in range(5)]


def _filled(cluster: Cluster) -> tuple[int, Node, Node]:
    """Put keys into one slot; give the slot, its owner and another primary."""
    slot = cluster.slot_of(TAGGED[0])
    owner = cluster.owner(slot)
    for key in TAGGED:
        owner.client.set(key, "here")
    return slot, owner, next(node for node in cluster.primaries if node is not owner)


@pytest.mark.slow
def test_three_nodes_share_the_slots() -> None:
    """A cluster is given whole: three primaries hold every slot, and nobody follows."""
    with three_nodes() as cluster:
        held = [node.sees_itself().slots for node in cluster.primaries]
        assert [len(slots) for slots in held] == [5461, 5462, 5461]
        assert set().union(*held) == set(range(16_384))
        with valkey.ValkeyCluster("127.0.0.1", cluster.nodes[0].port) as through:
            for number in range(100):
                through.set(f"key{number}", number)
        filled = [node.info("keyspace")["db0"]["keys"] for node in cluster.nodes]
        assert sum(filled) == 100
        assert min(filled) > 20


@pytest.mark.slow
def test_a_move_is_held_open() -> None:
    """While a slot moves, its owner answers with the value, ASK or TRYAGAIN, as keys are there."""
    with three_nodes() as cluster:
        slot, source, to = _filled(cluster)
        cluster.begin_move(slot, to)
        assert cluster.move_keys(slot, to, most=2) == 2
        kept = {key.decode() for key in source.client.execute_command("KEYS", "*")}
        gone = [key for key in TAGGED if key not in kept]
        assert source.client.get(min(kept)) == b"here"
        with pytest.raises(valkey.ResponseError, match=rf"^(ASK )?{slot} \S+:{to.port}$"):
            source.client.get(gone[0])
        with pytest.raises(valkey.ResponseError, match=r"^(TRYAGAIN )?Multiple keys"):
            source.client.mget(min(kept), gone[0])
        assert cluster.owner(slot) is source
        assert cluster.move_keys(slot, to) == 3
        cluster.end_move(slot, to)
        assert cluster.owner(slot) is to
        assert to.client.mget(TAGGED) == [b"here"] * 5
        with pytest.raises(valkey.ResponseError, match=rf"^(MOVED )?{slot} \S+:{to.port}$"):
            source.client.get(TAGGED[0])


@pytest.mark.slow
def test_a_cluster_fails_over() -> None:
    """A replica leads when asked, and by itself when its primary is killed; who returns follows."""
    with three_nodes(replicas=1) as cluster:
        slot, first, _ = _filled(cluster)
        second = cluster.fail_over(first)
        assert cluster.owner(slot) is second
        assert cluster.replicas_of(second) == (first,)
        second.client.wait(1, 5_000)
        cluster.kill(second)
        wait_until(lambda: slot in first.sees_itself().slots, "the replica leads")
        cluster.wait_until_ok()
        assert first.client.mget(TAGGED) == [b"here"] * 5
        cluster.restart(second)
        cluster.wait_until_ok()
        assert cluster.replicas_of(first) == (second,)
        cluster.stop(first)
        with (
            valkey.Valkey(port=first.port, socket_timeout=0.1) as hurried,
            pytest.raises(valkey.TimeoutError),
        ):
            hurried.ping()
        cluster.cont(first)
        assert first.client.ping()


@pytest.mark.slow
def test_sentinels_fail_over() -> None:
    """The sentinels' replica leads when asked, and by itself when its primary is killed."""
    with sentinels() as pair:
        first, second = pair.primary, pair.replica
        assert pair.fail_over() is second
        assert (pair.primary, pair.replica) == (second, first)
        second.client.set("key", "here")
        second.client.wait(1, 5_000)
        assert pair.kill_primary() is second
        pair.wait_for_switch(second)
        assert pair.primary is first
        assert first.client.get("key") == b"here"
        pair.restart(second)
        pair.wait_until_ok()
        assert second.info("replication")["master_port"] == first.port


def test_a_server_speaks_tls() -> None:
    """A TLS server talks to who shows the certificate it asks for and trusts the one it shows."""
    with tls_server(clients="yes") as tls:
        assert tls.server.client.ping()
        trusting = {"port": tls.server.port, "ssl": True, "ssl_ca_certs": str(tls.ca_file)}
        shown = {"ssl_certfile": str(tls.client_cert), "ssl_keyfile": str(tls.client_key)}
        for settings in (
            trusting,
            trusting | shown | {"ssl_ca_certs": str(tls.stranger_ca_file)},
            {"port": tls.server.port},
        ):
            with (
                valkey.Valkey(**settings, socket_timeout=5) as client,
                pytest.raises(valkey.ConnectionError),
            ):
                client.ping()
