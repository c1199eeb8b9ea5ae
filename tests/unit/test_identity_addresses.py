"""Addresses: one spelling each, and the network that counts as one."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authguard import InvalidInput
from authguard.identity.addresses import (
    DEFAULT_PREFIXES,
    AddressSet,
    client_address_of,
    counted_address,
    read_address,
)


@pytest.mark.parametrize(
    ("address", "client", "network"),
    [
        ("203.0.113.9", "203.0.113.9/32", "203.0.113.0/24"),
        ("::ffff:203.0.113.9", "203.0.113.9/32", "203.0.113.0/24"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64", "2001:db8:1::/48"),
        ("2001:DB8:1:2:0::99", "2001:db8:1:2::/64", "2001:db8:1::/48"),
        ("fe80::1%eth0", "fe80::/64", "fe80::/48"),
    ],
)
def test_an_address_counts_as_its_client_and_network(
    address: str, client: str, network: str
) -> None:
    """A09, A11: IPv4 /32 and /24, IPv6 /64 and /48, mapped addresses folded, zones stripped."""
    ip = client_address_of(address)
    assert DEFAULT_PREFIXES["client"].of(ip) == client
    assert DEFAULT_PREFIXES["network"].of(ip) == network


@pytest.mark.parametrize(
    "address", [None, "", "None", "unknown", "203.0.113.9:443", 5, b"\x7f", "::g"]
)
def test_what_is_no_address_is_refused(address: object) -> None:
    """A client without a usable address is refused, never keyed by what it says."""
    with pytest.raises(InvalidInput) as refused:
        client_address_of(address)
    assert refused.value.field == "client"


@pytest.mark.parametrize(
    ("spelling", "address"),
    [
        ("2001:DB8::1", "2001:db8::1"),
        ("2001:db8:0:0:0:0:0:1", "2001:db8::1"),
        ("2001:0db8::0001", "2001:db8::1"),
        ("2001:db8::1%eth0", "2001:db8::1"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("::ffff:cb00:7109%eth0", "203.0.113.9"),
        ("0:0:0:0:0:FFFF:CB00:7109", "203.0.113.9"),
        ("::203.0.113.9", "::cb00:7109"),
        ("64:ff9b::203.0.113.9", "64:ff9b::cb00:7109"),
    ],
)
def test_an_address_is_read_by_its_bits(spelling: str, address: str) -> None:
    """B034, B035: one host has one address, whatever the spelling."""
    assert str(read_address(spelling)) == address


@pytest.mark.parametrize(
    ("spelling", "counted"),
    [
        ("64:ff9b::203.0.113.9", "203.0.113.9"),
        ("64:FF9B:0:0:0:0:cb00:7109", "203.0.113.9"),
        ("64:ff9b:1::203.0.113.9", "64:ff9b:1::cb00:7109"),  # RFC 8215: where, only its owner knows
        ("64:ff9b::1:cb00:7109", "64:ff9b::1:cb00:7109"),
        ("2002:cb00:7109::", "203.0.113.9"),
        ("2002:cb00:7109:1:2:3:4:5", "203.0.113.9"),
        ("2003:cb00:7109::", "2003:cb00:7109::"),
        ("2001:db8::1", "2001:db8::1"),
        ("203.0.113.9", "203.0.113.9"),
    ],
)
def test_what_carries_an_ipv4_address_counts_as_that(spelling: str, counted: str) -> None:
    """B034: NAT64 and 6to4 use the budget of the address they carry, found by its bits."""
    assert str(counted_address(read_address(spelling))) == counted


@pytest.mark.parametrize(
    "text", ["", "203.0.113.9%eth0", "203.0.113.09", "::1%", "1.2.3", "::g", "\uff11.2.3.4", " ::1"]
)
def test_what_is_no_address_is_none(text: str) -> None:
    """Nothing is guessed: what the standard library takes for no address is none."""
    with pytest.raises(ValueError, match="does not appear to be an IPv4 or IPv6 address"):
        read_address(text)


@given(
    networks=st.lists(st.ip_addresses(v=4).map(int) | st.ip_addresses(v=6).map(int), max_size=8),
    data=st.data(),
)
def test_a_set_of_networks_holds_what_they_hold(networks: list[int], data: st.DataObject) -> None:
    """Looking up by length gives just what asking every network would."""
    drawn = [
        ip_network((number, data.draw(st.integers(1, 32 if number < 2**32 else 128))), strict=False)
        for number in networks
    ]
    asked = data.draw(st.ip_addresses(v=4) | st.ip_addresses(v=6))
    if drawn and data.draw(st.booleans()):
        inside = data.draw(st.sampled_from(drawn))
        last = int(inside.broadcast_address)
        asked = type(inside.network_address)(min(data.draw(st.integers(0, 1)) + last, last))
    assert (asked in AddressSet(tuple(drawn))) is any(asked in network for network in drawn)
