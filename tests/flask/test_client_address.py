"""The client's address: the peer's, or what a trusted proxy says of it."""

from __future__ import annotations

from ipaddress import ip_network
from typing import TYPE_CHECKING

import pytest

from authguard.errors import InvalidInput
from authguard.flask.client_address import client_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.flask.conftest import Site

PROXY = "10.0.0.1"
TRUSTED = (ip_network("10.0.0.0/30"), ip_network("2001:db8:ffff::/64"))


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
        ("10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("198.51.100.7:443", "198.51.100.7"),
        ("[2001:db8::1]:443", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ('"[2001:db8::1]"', "2001:db8::1"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("::ffff:198.51.100.7", "198.51.100.7"),
        ("198.51.100.7, ::ffff:10.0.0.2", "198.51.100.7"),
        ("[198.51.100.7, x", PROXY),
        ("[]", PROXY),
        ("None", PROXY),
    ],
)
def test_behind_a_trusted_proxy(header: str | None, expected: str) -> None:
    """A02, A07, A11: the first item from the right that is no trusted proxy, in one spelling."""
    assert client_address(PROXY, header, TRUSTED) == expected


@pytest.mark.parametrize("peer", ["203.0.113.9", "10.0.0.4", "::1", "::ffff:203.0.113.9"])
def test_nobody_else_is_believed(peer: str) -> None:
    """A01, A13: a header from a peer that is no trusted proxy is not read."""
    expected = peer.removeprefix("::ffff:")
    assert client_address(peer, "198.51.100.7", TRUSTED) == expected
    assert client_address(peer, "198.51.100.7", ()) == expected


def test_mapped_proxy_is_the_proxy() -> None:
    """A proxy that a dual-stack socket shows as ::ffff:10.0.0.1 is trusted as 10.0.0.1."""
    assert client_address("::ffff:10.0.0.1", "198.51.100.7", TRUSTED) == "198.51.100.7"


@pytest.mark.parametrize("peer", [None, "", "None", "unix:", "localhost"])
def test_no_peer_address(peer: str | None) -> None:
    """Without a peer address there is no key, and the error names the mend."""
    with pytest.raises(InvalidInput, match="serve the app over TCP"):
        client_address(peer, "198.51.100.7", TRUSTED)


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
