"""IPv6: what is one client, however it is spelt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from authguard import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Clock
    from tests.flask.conftest import Site

PROXY = "10.0.0.1"
CLIENT_LIMIT = {"name": "client", "by": ["client"], "sliding_log": "20/300s"}


def guess(site: Site, number: int, client: str) -> int:
    """Try a wrong password on the user of that number."""
    return site.login(f"user-{number}", client=client).status_code


def guess_behind(site: Site, number: int, client: str) -> int:
    """Try the same, as a proxy passes it on."""
    headers = {"X-Forwarded-For": client}
    return site.login(f"user-{number}", client=PROXY, headers=headers).status_code


@pytest.mark.parametrize("ask", [guess, guess_behind])
def test_one_host_walks_through_its_network(
    site_factory: Callable[..., Site], ask: Callable[[Site, int, str], int]
) -> None:
    """B032, A09: 25 addresses of one /64 have 20 guesses in all; the next /64 is untouched."""
    site = site_factory(AUTHGUARD_TRUSTED_PROXIES=[PROXY])
    answers = [ask(site, n, f"2001:db8:1:2::{n:x}") for n in range(1, 25)]
    answers.append(ask(site, 25, "2001:db8:1:2:ffff:ffff:ffff:ffff"))
    assert answers == [401] * 20 + [429] * 5
    assert len(site.spy.checks) == 20
    assert ask(site, 26, "2001:db8:1:3::1") == 401


def test_many_networks_of_one_provider(site_factory: Callable[..., Site]) -> None:
    """A10: 121 /64s of one /48: the default profile's network limit refuses the 121st guess."""
    site = site_factory(AUTHGUARD_POLICY=None)
    answers = [guess(site, n % 31, f"2001:db8:7:{n:x}::1") for n in range(121)]
    assert answers == [401] * 120 + [429]
    assert guess(site, 31, "2001:db8:8::1") == 401


@pytest.mark.parametrize("ask", [guess, guess_behind])
@pytest.mark.parametrize("written", ["::ffff:{}", "::FFFF:{}", "0:0:0:0:0:ffff:{}"])
def test_ipv4_clients_of_a_dual_stack_server(
    site_factory: Callable[..., Site], ask: Callable[[Site, int, str], int], written: str
) -> None:
    """B034: ::ffff:192.0.2.1 is 192.0.2.1, and another IPv4 client has its own budget."""
    site = site_factory(AUTHGUARD_TRUSTED_PROXIES=[PROXY])
    first, second = written.format("192.0.2.1"), written.format("192.0.2.9")
    assert [ask(site, n, first) for n in range(21)] == [401] * 20 + [429]
    assert ask(site, 21, "192.0.2.1") == 429
    assert ask(site, 21, second) == 401


def test_a_proxy_of_a_dual_stack_server_is_the_proxy(site_factory: Callable[..., Site]) -> None:
    """B034: a proxy that the socket shows as ::ffff:10.0.0.1 is believed as 10.0.0.1 is."""
    site = site_factory(AUTHGUARD_TRUSTED_PROXIES=[PROXY])

    def ask(number: int, client: str) -> int:
        headers = {"X-Forwarded-For": client}
        peer = f"::ffff:{PROXY}"
        return site.login(f"user-{number}", client=peer, headers=headers).status_code

    assert [ask(n, "198.51.100.7") for n in range(21)] == [401] * 20 + [429]
    assert ask(21, "198.51.100.8") == 401


SPELLINGS = [
    "2001:DB8::1",
    "2001:db8:0:0:0:0:0:1",
    "2001:0db8::0001",
    "[2001:db8::1]",
    "[2001:db8::1]:8443",
    "2001:db8::1%eth0",
    '"[2001:db8::1]"',
    "2001:DB8:0:0::1",
]


@pytest.fixture
def strict(site_factory: Callable[..., Site]) -> Site:
    """Give a site behind a proxy that counts each address by itself, so that no prefix helps."""
    return site_factory(AUTHGUARD_TRUSTED_PROXIES=[PROXY], AUTHGUARD_PREFIXES={"client": (32, 128)})


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_is_the_one_key(strict: Site, spelling: str) -> None:
    """B035, A07: 20 failures under any spelling fill the bucket of 2001:db8::1, no neighbour's."""
    assert [guess_behind(strict, n, spelling) for n in range(21)] == [401] * 20 + [429]
    assert guess(strict, 21, "2001:db8::1") == 429
    assert guess(strict, 21, "2001:db8::2") == 401


def test_mixed_spellings_are_one_client(strict: Site) -> None:
    """B035: 25 guesses that mix the spellings of one address are evaluated 20 times."""
    answers = [guess_behind(strict, n, SPELLINGS[n % len(SPELLINGS)]) for n in range(25)]
    assert answers == [401] * 20 + [429] * 5
    assert len(strict.spy.checks) == 20


def test_the_zone_is_no_part_of_a_peer(strict: Site) -> None:
    """A11: fe80::1%eth0 and fe80::1%eth1 are one client."""
    answers = [guess(strict, n, f"fe80::1%eth{n % 2}") for n in range(21)]
    assert answers == [401] * 20 + [429]
    assert guess(strict, 21, "fe80::2%eth0") == 401


@pytest.mark.parametrize("how", ["setting", "limit"])
@pytest.mark.parametrize(
    ("length", "clients", "last"),
    [
        (48, ("2001:db8:1:200::1", "2001:db8:1:300::1"), 429),
        (56, ("2001:db8:1:200::1", "2001:db8:1:2ff::1"), 429),
        (56, ("2001:db8:1:2ff::1", "2001:db8:1:300::1"), 401),
        (64, ("2001:db8:1:200::1", "2001:db8:1:2ff::1"), 401),
        (64, ("2001:db8:1:200::1", "2001:db8:1:200::2"), 429),
        (128, ("2001:db8:1:200::1", "2001:db8:1:200::2"), 401),
        (128, ("2001:db8:1:200::1", "2001:db8:1:200:0::1"), 429),
    ],
)
def test_the_prefix_is_as_long_as_was_said(
    site_factory: Callable[..., Site], how: str, length: int, clients: tuple[str, str], last: int
) -> None:
    """B036: 10 + 11 failures end at the 21st in one network, by AUTHGUARD_PREFIXES or by limit."""
    own = {"ipv6_prefix": length} if how == "limit" else {}
    config: dict[str, Any] = {"limits": [CLIENT_LIMIT | own]}
    if how == "setting":
        config["AUTHGUARD_PREFIXES"] = {"client": (32, length)}
    site = site_factory(**config)
    answers = [guess(site, n, clients[n >= 10]) for n in range(21)]
    assert answers == [401] * 20 + [last]


def test_a_ladder_of_prefixes(site_factory: Callable[..., Site]) -> None:
    """B036: one policy can bound a /64 and, higher, its /56; each refuses at its own number."""
    rung = {"name": "site", "by": ["client"], "sliding_log": "30/300s", "ipv6_prefix": 56}
    site = site_factory(limits=[CLIENT_LIMIT, rung])
    assert [guess(site, n, "2001:db8:1:200::1") for n in range(21)] == [401] * 20 + [429]
    assert [guess(site, n, "2001:db8:1:201::1") for n in range(11)] == [401] * 10 + [429]
    assert guess(site, 0, "2001:db8:1:300::1") == 401


@pytest.mark.parametrize(
    ("used_up", "cleared", "other"),
    [
        ("2001:db8:1:2::1", "2001:DB8:1:2:0::99", "2001:db8:1:3::1"),
        ("203.0.113.7", "::ffff:203.0.113.7", "203.0.113.8"),
        ("::ffff:203.0.113.7", "203.0.113.7", "::ffff:203.0.113.8"),
        ("fe80::1%eth0", "fe80::99", "fe80:0:0:1::1"),
    ],
)
def test_clearing_a_client_leaves_nothing_of_it(
    site: Site, clock: Clock, used_up: str, cleared: str, other: str
) -> None:
    """B143: cleared under another spelling or address, a client has its 20 again; others don't."""
    for client in (used_up, other):
        guess(site, 0, client)
        clock.advance(100_000)  # entries of several ages
        assert [guess(site, n, client) for n in range(20)] == [401] * 19 + [429]
    assert site.guard.clear("login", client=cleared).entries == 20
    assert [guess(site, n, used_up) for n in range(20, 41)] == [401] * 20 + [429]
    assert guess(site, 20, other) == 429


def test_clearing_a_client_clears_its_networks_too(site_factory: Callable[..., Site]) -> None:
    """B143: logs by the client's rung and by its network go with its own, none keeps refusing."""
    rung = CLIENT_LIMIT | {"name": "rung", "ipv6_prefix": 56}
    network = CLIENT_LIMIT | {"name": "network", "by": ["network"]}
    site = site_factory(limits=[CLIENT_LIMIT, rung, network])
    answers = [guess(site, n, f"2001:db8:1:2::{n:x}") for n in range(21)]
    assert answers == [401] * 20 + [429]
    assert site.guard.clear("login", client="2001:DB8:1:2:0::99").entries == 60
    answers = [guess(site, n, f"2001:db8:1:2::{n:x}") for n in range(21)]
    assert answers == [401] * 20 + [429]


@pytest.mark.parametrize("junk", ["", "vera", "203.0.113.7:443", "2001:db8::/64", "1.2.3", "::g"])
def test_junk_is_no_client_to_clear(site: Site, junk: str) -> None:
    """B143: what is no address is wrong use, and clears nothing."""
    guess(site, 0, site.home)
    with pytest.raises(InvalidInput, match="client: must be an IPv4 or IPv6 address"):
        site.guard.clear("login", client=junk)
    assert site.used("client") == 1
