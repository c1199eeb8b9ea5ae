"""Addresses: one spelling each, and the network that counts as one."""

from __future__ import annotations

import pytest

from authguard import InvalidInput
from authguard.identity.addresses import DEFAULT_PREFIXES, client_address_of


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
