"""The client's address: the peer's, or what a trusted proxy says of it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from werkzeug.datastructures import Headers

from authguard.errors import ConfigurationError, InvalidInput
from authguard.flask import client_address as module
from authguard.flask.client_address import UNIX, Proxies, client_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.flask.conftest import Site

PROXY = "10.0.0.1"
OURS = ("10.0.0.0/30", "2001:db8:ffff::/64")


def proxies(*trusted: str, header: str = "X-Forwarded-For") -> Proxies:
    """Declare proxies, ours if none are named."""
    return Proxies.of(trusted or OURS, header, "trusted")


def address(peer: str | None, *values: str, of: Proxies | None = None) -> str:
    """Read the address of a request whose forwarding header has these lines."""
    of = of or proxies()
    headers = Headers([(of.header, ", ".join(values))] if values else [])
    return str(client_address(peer, headers, of))


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, PROXY),
        ("", PROXY),
        ("198.51.100.7", "198.51.100.7"),
        ("6.6.6.6, 198.51.100.7", "198.51.100.7"),
        ("6.6.6.6,198.51.100.7", "198.51.100.7"),
        ("6.6.6.6, 198.51.100.7, 10.0.0.2", "198.51.100.7"),
        ("198.51.100.7, 2001:db8:ffff::1, ::ffff:10.0.0.2", "198.51.100.7"),
        ("6.6.6.6, ", PROXY),
        ("6.6.6.6,,10.0.0.2", PROXY),
        ("6.6.6.6, unknown", PROXY),
        ("6.6.6.6, _hidden, 10.0.0.2", PROXY),
        ("6.6.6.6, 198.51.100.999", PROXY),
        ("6.6.6.6, 198.051.100.007", PROXY),
        ("6.6.6.6, 198.51.100.7 198.51.100.8", PROXY),
        ("10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("198.51.100.7:443", "198.51.100.7"),
        ("198.51.100.7:_hidden", "198.51.100.7"),
        ("198.51.100.7:", PROXY),
        ("198.51.100.7:123456", PROXY),
        ("[2001:db8::1]:443", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[198.51.100.7]", PROXY),
        ('"[2001:db8::1]"', "2001:db8::1"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("[fe80::1%eth0]:443", "fe80::1"),
        ("::ffff:198.51.100.7", "198.51.100.7"),
        ("64:ff9b::c633:6407", "64:ff9b::c633:6407"),  # counted as 198.51.100.7 by the guard
        ("2002:c633:6407::1", "2002:c633:6407::1"),
        ("198.51.100.7, ::ffff:10.0.0.2", "198.51.100.7"),
        ("6.6.6.6, 2002:a00:2::1", "2002:a00:2::1"),
        ("6.6.6.6, 64:ff9b::10.0.0.2", "64:ff9b::a00:2"),
        ("[198.51.100.7, x", PROXY),
        ("[]", PROXY),
        ("None", PROXY),
    ],
)
def test_behind_a_trusted_proxy(header: str | None, expected: str) -> None:
    """A02, A07, A11: the first item from the right that is no trusted proxy, in one spelling."""
    assert address(PROXY, *([] if header is None else [header])) == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("for=198.51.100.7", "198.51.100.7"),
        ("For=198.51.100.7;Proto=https;By=10.0.0.1", "198.51.100.7"),
        ("proto=https ; for=198.51.100.7", "198.51.100.7"),
        ("for=6.6.6.6, for=198.51.100.7", "198.51.100.7"),
        ("for=6.6.6.6, for=198.51.100.7, for=10.0.0.2", "198.51.100.7"),
        ("for=10.0.0.3, for=10.0.0.2", "10.0.0.3"),
        ('for="198.51.100.7:4711"', "198.51.100.7"),
        ('for="198.51.100.7:_hidden"', "198.51.100.7"),
        ('for="[2001:db8:cafe::17]:4711"', "2001:db8:cafe::17"),
        ('for="[2001:db8:cafe::17]"', "2001:db8:cafe::17"),
        ('for="\\198.51.100.7"', "198.51.100.7"),
        ('for=198.51.100.7;host="a, for=6.6.6.6"', "198.51.100.7"),
        ('for=198.51.100.7;host="a\\", for=6.6.6.6"', "198.51.100.7"),
        # A quote that the client opens can't swallow what our proxy wrote.
        ('for="6.6.6.6, for=198.51.100.7', "198.51.100.7"),
        ('for="6.6.6.6, for="[2001:db8::9]"', "2001:db8::9"),
        ('for="\\, for=198.51.100.7', "198.51.100.7"),
        ("for=unknown", PROXY),
        ("for=_hidden", PROXY),
        ("for=6.6.6.6, for=_hidden", PROXY),
        ("for=6.6.6.6, proto=https", PROXY),
        ("for=6.6.6.6, ", PROXY),
        ("for=6.6.6.6, for=7.7.7.7;for=8.8.8.8", PROXY),
        ("6.6.6.6", PROXY),
        ("for = 6.6.6.6", PROXY),
        ("for=[2001:db8::1]", PROXY),
        ("for=198.51.100.7;host=" + "x" * 8000, "198.51.100.7"),
        ("for=6.6.6.6;" + "x=y;" * 200 + "!", PROXY),
        ('for="' + "6.6.6.6, " * 2000, PROXY),
        ("", PROXY),
    ],
)
def test_the_standard_header(header: str, expected: str) -> None:
    """RFC 7239: read from the right, quotes and ports taken off, anything else is the peer's."""
    assert address(PROXY, header, of=proxies(header="Forwarded")) == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("198.51.100.7", "198.51.100.7"),
        (" 2001:DB8::7 ", "2001:db8::7"),
        ("6.6.6.6, 198.51.100.7", PROXY),
        ("nobody", PROXY),
        ("", PROXY),
    ],
)
def test_a_header_of_one_address(header: str, expected: str) -> None:
    """A04: a named header such as CF-Connecting-IP holds one address; two of them are none."""
    assert address(PROXY, header, of=proxies(header="CF-Connecting-IP")) == expected


def test_only_the_declared_header_is_read() -> None:
    """A04: there is no second header to fall back on, whatever else a request carries."""
    others = ["X-Forwarded-For", "X-Real-IP", "Forwarded", "True-Client-IP", "X-Client-IP"]
    headers = Headers([(name, "6.6.6.6") for name in others])
    only = proxies(header="CF-Connecting-IP")
    assert str(client_address(PROXY, headers, only)) == PROXY
    headers.add("cf-connecting-ip", "198.51.100.7")
    assert str(client_address(PROXY, headers, only)) == "198.51.100.7"


@pytest.mark.parametrize("peer", ["203.0.113.9", "10.0.0.4", "::1", "::ffff:203.0.113.9"])
def test_nobody_else_is_believed(peer: str) -> None:
    """A01, A13: a header from a peer that is no trusted proxy is not read."""
    expected = peer.removeprefix("::ffff:")
    assert address(peer, "198.51.100.7") == expected
    assert address(peer, "198.51.100.7", of=Proxies.of((), "X-Forwarded-For", "")) == expected


def test_mapped_proxy_is_the_proxy() -> None:
    """A proxy that a dual-stack socket shows as ::ffff:10.0.0.1 is trusted as 10.0.0.1."""
    assert address("::ffff:10.0.0.1", "198.51.100.7") == "198.51.100.7"


@pytest.mark.parametrize("peer", ["203.0.113.9:80", "somewhere", "None", "10.0.0"])
def test_a_peer_that_cannot_be_read_is_no_unix_socket(peer: str) -> None:
    """With 'unix:' declared, only a peer without an address is taken for the proxy there."""
    with pytest.raises(InvalidInput, match="no peer address"):
        address(peer, "198.51.100.7", of=proxies(UNIX))


@pytest.mark.parametrize("peer", [None, "", "None", "unix:", "localhost"])
def test_no_peer_address(peer: str | None, caplog: pytest.LogCaptureFixture) -> None:
    """Without a peer address there is no key, and the log names both mends."""
    with pytest.raises(InvalidInput, match="no peer address"):
        address(peer, "198.51.100.7")
    assert "serve the app over TCP, or list 'unix:'" in caplog.text


@pytest.mark.parametrize("peer", [None, "", "<local>", "localhost", "unix:"])
def test_a_declared_unix_socket(peer: str | None) -> None:
    """With 'unix:' declared, what the proxy at its other end says counts, or one shared bucket."""
    of = proxies(UNIX, "10.0.0.2/32")
    assert address(peer, "6.6.6.6, 198.51.100.7", of=of) == "198.51.100.7"
    assert address(peer, "6.6.6.6, 198.51.100.7, 10.0.0.2", of=of) == "198.51.100.7"
    assert address(peer, of=of) == address(peer, "nobody", of=of) == "0.0.0.0"
    assert address("203.0.113.9", "198.51.100.7", of=of) == "203.0.113.9"


@pytest.mark.parametrize("path", ["unix", "unix:/run/app.sock"])
def test_a_unix_socket_is_not_listed_by_its_path(path: str) -> None:
    """AG017: the mend is told to who writes where the socket is."""
    with pytest.raises(ConfigurationError, match=r"AG017 trusted: .*write 'unix:' alone"):
        proxies(path)


@pytest.fixture
def unwarned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget that this process has warned already."""
    monkeypatch.setattr(module, "_warned", threading.Lock())


@pytest.mark.parametrize(
    ("peer", "header", "warns"),
    [
        ("10.9.9.9", "X-Forwarded-For", True),
        ("127.0.0.1", "Forwarded", True),
        ("::1", "CF-Connecting-IP", True),
        ("fd00::1", "X-Real-IP", True),
        (PROXY, "X-Real-IP", True),  # declared, but with another header
        (PROXY, "X-Forwarded-For", False),
        ("203.0.113.9", "X-Forwarded-For", False),
        ("2001:db8::1", "Forwarded", False),
        ("10.9.9.9", "Accept", False),
    ],
)
@pytest.mark.usefixtures("unwarned")
def test_an_undeclared_proxy_is_told_of_once(
    caplog: pytest.LogCaptureFixture, peer: str, header: str, warns: bool
) -> None:
    """B026: one warning a process for a private peer with a header nobody declared; no trust."""
    headers = Headers([(header, "198.51.100.7")])
    for _ in range(3):
        seen = str(client_address(peer, headers, proxies()))
        assert seen == (peer if (peer, header) != (PROXY, "X-Forwarded-For") else "198.51.100.7")
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == int(warns)
    setting = "AUTHGUARD_FORWARDED_HEADER" if peer == PROXY else "AUTHGUARD_TRUSTED_PROXIES"
    assert all(header in text and setting in text for text in warnings)
    assert all("198.51" not in text and peer not in text for text in warnings)


@pytest.mark.usefixtures("unwarned")
def test_a_middleware_that_took_the_header_is_no_undeclared_proxy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Behind werkzeug's ProxyFix the peer is the client already: nothing to warn of."""
    headers = Headers([("X-Forwarded-For", "192.168.7.21")])
    client_address("192.168.7.21", headers, proxies(), rewritten=True)
    assert caplog.records == []


def test_no_peer_address_over_http(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """A request without a peer address is refused loudly, and nothing is checked or keyed."""
    answer = site.login("vera", "right vera", environ_overrides={"REMOTE_ADDR": ""})
    assert answer.status_code == 400
    assert site.spy.checks == []
    assert "serve the app over TCP" in caplog.text


def test_spoofed_header_gives_no_budget(site_factory: Callable[..., Site]) -> None:
    """A01, A04: 31 tries with a new forwarding header each are one client's 31 tries."""
    site = site_factory(AUTHGUARD_POLICY=None)
    answers = []
    for number in range(31):
        spoofed = f"198.51.100.{number}"
        names = ("X-Forwarded-For", "Forwarded", "X-Real-IP", "CF-Connecting-IP", "X-Client-IP")
        headers = dict.fromkeys(names, spoofed)
        answers.append(site.login(f"user-{number // 4}", headers=headers).status_code)
    assert answers == [401] * 30 + [429]


def test_two_header_lines_are_one(site_factory: Callable[..., Site]) -> None:
    """A02, A03: behind the proxy the rightmost item counts, in one line or in several."""
    site = site_factory(AUTHGUARD_TRUSTED_PROXIES=["10.0.0.1/32"])
    for number in range(20):
        lines = [("X-Forwarded-For", f"6.6.6.{number}"), ("X-Forwarded-For", "198.51.100.7")]
        headers = lines if number % 2 else [("X-Forwarded-For", f"7.7.7.7, {lines[1][1]}")]
        assert site.login(f"user-{number}", client=PROXY, headers=headers).status_code == 401
    one_more = {"X-Forwarded-For": "198.51.100.7"}
    assert site.login("omar", client=PROXY, headers=one_more).status_code == 429
    another = {"X-Forwarded-For": "198.51.100.8"}
    assert site.login("omar", "right omar", client=PROXY, headers=another).status_code == 200


def test_spoofing_burns_nobody(site_factory: Callable[..., Site]) -> None:
    """A13: tries that claim a victim's address leave the victim's budget alone."""
    site = site_factory(AUTHGUARD_TRUSTED_PROXIES=["10.0.0.1/32"])
    victim = "198.51.100.7"
    for number in range(21):
        site.login(f"user-{number}", headers={"X-Forwarded-For": victim})
    answer = site.login("vera", "right vera", client=PROXY, headers={"X-Forwarded-For": victim})
    assert answer.status_code == 200


def test_one_network_is_one_client(site_factory: Callable[..., Site]) -> None:
    """A09: 31 addresses of one /64 are one client."""
    site = site_factory(AUTHGUARD_POLICY=None)
    answers = [
        site.login(f"user-{number // 4}", client=f"2001:db8::{number:x}").status_code
        for number in range(1, 32)
    ]
    assert answers == [401] * 30 + [429]
