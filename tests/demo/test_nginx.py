"""docs/deploy/nginx.conf in a real nginx, two hops before the demo: no header moves a budget."""

from __future__ import annotations

import http.client
import itertools
import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.demo.conftest import END_S, START_S, Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.demo.conftest import Demo

DEPLOY = Path(__file__).parents[2] / "docs" / "deploy"

#: Debian's nginx; its folder is not on everybody's path.
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")

#: Where the two hops listen and connect from: all that the demo trusts.
EDGE, INNER = "127.0.0.21", "127.0.0.22"

POLICY = """
[login]
limits = [
  { name = "client",  by = ["client"],  sliding_log = "5/15m" },
  { name = "account", by = ["account"], sliding_log = "1000/15m" },
]
"""
#: What a client's tries come to under this policy, two of them too many.
ONE_BUDGET = [401] * 5 + [429] * 2

#: What Debian has around a file in conf.d, with nothing outside of the test's own folder. One
#: process, so that its end is the end of all of nginx.
AROUND = """
daemon off;
master_process off;
pid nginx.pid;
error_log stderr;
events {}
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    include site.conf;
}
"""

FORWARDED_FOR = "X-Forwarded-For"


@dataclass(frozen=True)
class Client:
    """Somebody with an address of their own, in front of the edge."""

    edge: tuple[str, int]
    address: str

    def connect(self) -> closing[http.client.HTTPConnection]:
        """Make a connection from this address; it is closed at the end of its block."""
        return closing(
            http.client.HTTPConnection(*self.edge, timeout=30, source_address=(self.address, 0))
        )

    def ask(self, method: str, path: str, body: bytes = b"", *lines: tuple[str, str]) -> Reply:
        """Send a request with header lines as they are given, doubled or broken."""
        with self.connect() as connection:
            connection.putrequest(method, path)
            for name, value in lines:
                connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            return reply_on(connection)

    def login(self, identifier: str, password: str, *lines: tuple[str, str]) -> Reply:
        """Try to sign in as a script."""
        body = json.dumps({"identifier": identifier, "password": password}).encode()
        return self.ask("POST", "/auth/login", body, ("Content-Type", "application/json"), *lines)

    def guess(self, *lines: tuple[str, str]) -> int:
        """Try to sign in as nobody, and give the status."""
        return self.login("ghost", "a guess", *lines).status

    def post_form(self, *lines: tuple[str, str]) -> Reply:
        """Sign vera in as a browser's form does."""
        fields = {"identifier": "vera", "password": "correct horse vera"}
        kind = ("Content-Type", "application/x-www-form-urlencoded")
        body = urllib.parse.urlencode(fields).encode()
        return self.ask("POST", "/auth/login", body, ("Accept", "text/html"), kind, *lines)


@dataclass(frozen=True)
class Edge:
    """The hop that clients see."""

    port: int
    port_ipv6: int
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def url(self) -> str:
        """What a browser shows."""
        return f"http://{EDGE}:{self.port}"

    def newcomer(self) -> Client:
        """Somebody whose address nobody has had before."""
        return Client((EDGE, self.port), f"127.0.7.{next(self._numbers)}")

    def ipv6(self) -> Client:
        """The one client with an IPv6 address."""
        return Client(("::1", self.port_ipv6), "::1")


def reply_on(connection: http.client.HTTPConnection) -> Reply:
    """Read the answer."""
    response = connection.getresponse()
    return Reply(response.status, response.headers, response.read().decode())


def free_port(address: str) -> int:
    """Find a port that nobody listens on."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]


def documented_site(edge: Edge, app: str) -> str:
    """Give the documented file, with addresses of the test's own and nothing else of it changed."""
    inner = f"{INNER}:{free_port(INNER)}"
    text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    for documented, own in (
        # proxy_bind: as from a machine of its own.
        ("    listen 80;\n", f"    listen {EDGE}:{edge.port};\n    proxy_bind {EDGE};\n"),
        ("    listen [::]:80;\n", f"    listen [::1]:{edge.port_ipv6};\n"),
        ("    server 127.0.0.1:8080;\n", f"    server {inner};\n"),
        ("    listen 127.0.0.1:8080;\n", f"    listen {inner};\n    proxy_bind {INNER};\n"),
        ("    server 127.0.0.1:5000;", f"    server {app};"),
    ):
        assert text.count(documented) == 1, f"nginx.conf has changed its shape: {documented!r}"
        text = text.replace(documented, own)
    return text


@contextmanager
def running_nginx(folder: Path, edge: Edge) -> Iterator[None]:
    """Run nginx in a folder until the block ends."""
    log = folder / "log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [NGINX, "-p", f"{folder}/", "-c", "nginx.conf"],
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
        )
    try:
        give_up = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection((EDGE, edge.port), timeout=1).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > give_up:
                    pytest.fail(f"nginx did not come up: {log.read_text()}")
                time.sleep(0.02)
        yield
        process.terminate()
        assert process.wait(timeout=END_S) == 0
    finally:
        process.kill()  # of no effect on one that has ended
        process.wait()


@pytest.fixture(scope="module")
def edge(
    start_demo: Callable[..., Demo], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Edge]:
    """Two hops before a demo that trusts these two alone, or a loud skip."""
    if NGINX is None:
        pytest.skip("NO NGINX ON THIS MACHINE: docs/deploy/nginx.conf was NOT tried")
    folder = tmp_path_factory.mktemp("nginx")
    policy = folder / "policy.toml"
    policy.write_text(POLICY)
    hops = [flag for hop in (EDGE, INNER) for flag in ("--trusted-proxy", f"{hop}/32")]
    demo = start_demo("--policy", str(policy), *hops)
    edge = Edge(free_port(EDGE), free_port("::1"))
    app = urllib.parse.urlsplit(demo.url).netloc
    (folder / "site.conf").write_text(documented_site(edge, app), encoding="utf-8")
    (folder / "nginx.conf").write_text(AROUND)
    with running_nginx(folder, edge):
        yield edge


@pytest.fixture(scope="module")
def spent(edge: Edge) -> Client:
    """A client without any tries left."""
    client = edge.newcomer()
    assert [client.guess() for _ in ONE_BUDGET] == ONE_BUDGET
    return client


class TestHeaders:
    """What a client may write, and what it gains: nothing."""

    @pytest.mark.parametrize(
        "claim",
        [
            "198.51.100.{0}",
            "198.51.100.{0}, 203.0.113.{0}",
            pytest.param(f"198.51.100.{{0}}, {EDGE}, {INNER}", id="as if through our hops"),
        ],
    )
    def test_made_up_addresses_give_no_budget(self, edge: Edge, claim: str) -> None:
        """A02, B024: with new addresses in the header for each try, a client has its five tries."""
        client = edge.newcomer()
        lines = [(FORWARDED_FOR, claim.format(number)) for number, _ in enumerate(ONE_BUDGET)]
        assert [client.guess(line) for line in lines] == ONE_BUDGET

    def test_doubled_header_gives_no_budget(self, edge: Edge) -> None:
        """A03, B029: two lines of the header, new for each try, are of one client all the same."""
        client = edge.newcomer()
        lasts = ["203.0.113.1", "203.0.113.2", "unknown", "", EDGE, INNER, "203.0.113.3"]
        tries = [
            client.guess((FORWARDED_FOR, f"198.51.100.{number}"), (FORWARDED_FOR, last))
            for number, last in enumerate(lasts)
        ]
        assert tries == ONE_BUDGET

    def test_ipv6_client_has_one_budget(self, edge: Edge) -> None:
        """A02: a client that comes by IPv6 is told by its own address, whatever it claims."""
        client = edge.ipv6()
        lines = [(FORWARDED_FOR, f"2001:db8:{number}::1") for number, _ in enumerate(ONE_BUDGET)]
        assert [client.guess(line) for line in lines] == ONE_BUDGET

    @pytest.mark.parametrize(
        "value",
        [
            "",
            ",",
            " , ,, ",
            "198.51.100.1,",
            '"',
            '"198.51.100.1',
            '"198.51.100.1"',
            "unknown",
            "_hidden",
            "198.51.100.1:443",
            "[2001:db8::1]:443",
            "fe80::1%eth0",
            "999.999.999.999",
            "for=198.51.100.1",
            "\xff\xfe\t;",
            pytest.param("x" * 4096, id="4 KiB of junk"),
            pytest.param("," * 4096, id="4 KiB of commas"),
            pytest.param('"\\' * 2048, id="4 KiB of quotes"),
        ],
    )
    def test_broken_header_gives_no_budget(self, spent: Client, value: str) -> None:
        """A02, A07, A11: a client without tries stays refused, whatever is broken in the header."""
        assert spent.guess((FORWARDED_FOR, value)) == 429

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("X_Forwarded_For", "198.51.100.1"),
            ("Forwarded", "for=198.51.100.1"),
            ("Forwarded", 'for="[2001:db8::1'),
            ("X-Real-IP", "198.51.100.1"),
            ("X-Client-IP", "198.51.100.1"),
            ("True-Client-IP", "198.51.100.1"),
            ("CF-Connecting-IP", "198.51.100.1"),
            ("X-Forwarded-Host", "198.51.100.1"),
        ],
    )
    def test_another_header_gives_no_budget(self, spent: Client, name: str, value: str) -> None:
        """A04, A05: no other header is believed, nor one that only WSGI takes for ours."""
        assert spent.guess((name, value)) == 429

    @pytest.mark.parametrize(
        "lines",
        [
            pytest.param([("X-Forwarded-For ", "198.51.100.1")], id="blank before the colon"),
            pytest.param([(FORWARDED_FOR, "198.51.100.1\x00")], id="NUL"),
            pytest.param([(FORWARDED_FOR, "x" * 8150)], id="too long for the app's server"),
            pytest.param([(FORWARDED_FOR, "x" * 5000)] * 2, id="too long once joined"),
            pytest.param([(FORWARDED_FOR, "x" * 9000)], id="too long for the edge"),
        ],
    )
    def test_unreadable_header_is_turned_away(
        self, edge: Edge, lines: list[tuple[str, str]]
    ) -> None:
        """A05: what a hop can't read it refuses, whatever the password, and nobody pays for it."""
        client = edge.newcomer()
        statuses = {client.login("vera", "correct horse vera", *lines).status for _ in range(6)}
        assert statuses <= {400, 431}
        assert client.login("vera", "correct horse vera").status == 200


class TestBudgets:
    """Whose budget a try is charged to, behind the hops."""

    def test_two_clients_have_two_budgets(self, edge: Edge) -> None:
        """B026: once a client is refused, another one behind the same hops has all its tries."""
        for client in (edge.newcomer(), edge.newcomer()):
            assert [client.guess() for _ in ONE_BUDGET] == ONE_BUDGET

    def test_spoofing_burns_nobody(self, edge: Edge) -> None:
        """A13: tries under a victim's address are charged to their sender; the victim signs in."""
        victim, sender = edge.newcomer(), edge.newcomer()
        tries = [sender.guess((FORWARDED_FOR, victim.address)) for _ in ONE_BUDGET]
        assert tries == ONE_BUDGET
        assert victim.login("vera", "correct horse vera").status == 200

    def test_refusals_pass_as_they_are(self, spent: Client) -> None:
        """The app's own 429 reaches scripts and people whole, with its wait of minutes."""
        reply = spent.login("vera", "correct horse vera")
        assert (reply.status, reply.json["title"]) == (429, "Quota Exceeded")
        assert reply.headers["Content-Type"] == "application/problem+json"
        assert int(reply.headers["Retry-After"]) == reply.json["retry_after"] > 60
        page = spent.post_form()
        assert f'data-retry-after="{page.headers["Retry-After"]}"' in page.body

    @pytest.mark.skipif(shutil.which("curl") is None, reason="no curl to run the line with")
    def test_documented_check_shows_the_refusal(self, edge: Edge) -> None:
        """B149: the curl line of the README, run as it stands, ends in 429."""
        readme = (DEPLOY / "README.md").read_text(encoding="utf-8")
        line = re.search(r"^for i in .*?; done", readme, re.DOTALL | re.MULTILINE)[0]
        assert "https://your.app/" in line
        shown = subprocess.run(
            ["bash", "-c", line.replace("https://your.app", edge.url)],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout.split()
        assert shown == ["401"] * 5 + ["429"] * 26


class TestSite:
    """What the hops must leave as it is, and what the outer layer refuses by itself."""

    def test_form_signs_in(self, edge: Edge) -> None:
        """A browser's form on the edge's own page signs in, and the session holds."""
        person = edge.newcomer()
        reply = person.post_form(("Origin", edge.url))
        assert (reply.status, reply.headers["Location"]) == (303, "/auth/me")
        cookies = reply.headers.get_all("Set-Cookie")
        cookie = next(it.partition(";")[0] for it in cookies if it.startswith("session="))
        assert "vera" in person.ask("GET", "/auth/me", b"", ("Cookie", cookie)).body

    @pytest.mark.parametrize(
        "origin", ["http://evil.test", f"http://{EDGE}", f"http://{INNER}", "null"]
    )
    def test_form_of_another_site_is_refused(self, edge: Edge, origin: str) -> None:
        """A form that another site makes a browser send is 403; another port is another site."""
        assert edge.newcomer().post_form(("Origin", origin)).status == 403

    def test_flood_meets_the_outer_layer(self, edge: Edge) -> None:
        """A flood from one address gets nginx's own 429, whose wait is true; others are served."""
        flooder, other = edge.newcomer(), edge.newcomer()
        with ExitStack() as stack:
            connections = [stack.enter_context(flooder.connect()) for _ in range(150)]
            for connection in connections:
                connection.request("GET", "/auth/login")
            assert other.ask("GET", "/auth/login").status == 200
            replies = [reply_on(connection) for connection in connections]
        assert {reply.status for reply in replies} == {200, 429}
        refused = [reply for reply in replies if reply.status == 429]
        for reply in refused:
            assert reply.headers["Content-Type"] == "application/problem+json"
            assert reply.headers["Cache-Control"] == "no-store"
            assert int(reply.headers["Retry-After"]) == reply.json["retry_after"] >= 1
            assert reply.json["status"] == 429
        time.sleep(refused[0].json["retry_after"])
        assert flooder.ask("GET", "/auth/login").status == 200

    def test_long_body_meets_the_outer_layer(self, edge: Edge) -> None:
        """A body longer than authguard reads is nginx's own 413, as problem+json."""
        reply = edge.newcomer().login("vera", "x" * 16 * 1024)
        assert (reply.status, reply.json["status"]) == (413, 413)
        assert reply.headers["Content-Type"] == "application/problem+json"
        assert reply.headers["Cache-Control"] == "no-store"
