"""Addresses: one spelling each, the network that counts as one client, and sets of networks."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from authguard.checks import is_whole, shown
from authguard.errors import ConfigurationError, InvalidInput

__all__ = [
    "DEFAULT_PREFIXES",
    "INTERNAL",
    "Address",
    "AddressSet",
    "Network",
    "Prefixes",
    "check_prefix",
    "client_address_of",
    "counted_address",
    "read_address",
    "read_networks",
    "read_prefixes",
]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class AddressSet:
    """
    A set of networks that tells in one look for each of their lengths whether it holds an address.

    Args:
        networks: Its networks.
    """

    def __init__(self, networks: tuple[Network, ...] = ()) -> None:
        self.networks = networks
        #: (bits of the address, bits right of the prefix): the prefixes.
        self._prefixes: dict[tuple[int, int], set[int]] = {}
        for network in networks:
            host_bits = network.max_prefixlen - network.prefixlen
            prefixes = self._prefixes.setdefault((network.max_prefixlen, host_bits), set())
            prefixes.add(int(network.network_address) >> host_bits)

    def __contains__(self, ip: Address) -> bool:
        number, bits = int(ip), ip.max_prefixlen
        return any(
            bits == of and number >> host_bits in prefixes
            for (of, host_bits), prefixes in self._prefixes.items()
        )


#: Addresses inside of somebody's own walls: private, loopback, link-local, and a provider's own
#: (RFC 6890).
INTERNAL: Final = AddressSet(
    tuple(
        ipaddress.ip_network(text)
        for text in (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
            *("172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7", "fe80::/10"),
        )
    )
)

#: How a dual-stack socket shows IPv4 (RFC 4291, 2.5.5.2).
_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")

#: Networks of IPv6 that carry an IPv4 address, and how many bits stand right of it: NAT64's
#: well-known prefix (RFC 6052, 2.1), 6to4 (RFC 3056).
_CARRIERS: Final = (
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),
    (ipaddress.IPv6Network("2002::/16"), 80),
)


def read_address(text: str) -> Address:
    """
    Read one IP address: its zone dropped, IPv4 that a dual-stack socket shows as IPv6 as IPv4.

    Raises:
        ValueError: If it is none.
    """
    ip = ipaddress.ip_address(text)
    if isinstance(ip, ipaddress.IPv4Address):
        return ip
    return ip.ipv4_mapped or ipaddress.IPv6Address(int(ip))


def counted_address(ip: Address) -> Address:
    """
    Give the address whose budget is used: the IPv4 address that NAT64 or 6to4 carry, by its bits.

    As IPv6 all clients of a NAT64 would share one network, and one owner of a 6to4 address would
    have 65,536. For counting alone: an address that anybody may have made up gets no privilege
    of the one that it carries.
    """
    if isinstance(ip, ipaddress.IPv6Address):
        for network, right in _CARRIERS:
            if ip in network:
                return ipaddress.IPv4Address(int(ip) >> right & 0xFFFF_FFFF)
    return ip


def client_address_of(address: object) -> Address:
    """
    Read a client's address as an app gives it.

    Raises:
        InvalidInput: If it is no IP address.
    """
    if isinstance(address, str | Address):
        try:
            return read_address(str(address))
        except ValueError:
            pass
    raise InvalidInput("client", "must be an IPv4 or IPv6 address")


@dataclass(frozen=True, slots=True)
class Prefixes:
    """
    How many leading bits of an address count as one.

    Attributes:
        ipv4: Bits of an IPv4 address, 1 to 32.
        ipv6: Bits of an IPv6 address, 1 to 128.
    """

    ipv4: int
    ipv6: int

    def of(self, ip: Address) -> str:
        """Give the network that an address counts as."""
        length = self.ipv4 if ip.version == 4 else self.ipv6  # noqa: PLR2004
        host_bits = ip.max_prefixlen - length
        return f"{type(ip)(int(ip) >> host_bits << host_bits)}/{length}"


#: What counts as one client and as one network: an IPv4 address and its /24; in IPv6 the /64 that
#: one host owns whole, and the /48 that a provider gives one customer at most (RFC 6177).
DEFAULT_PREFIXES: Final = {"client": Prefixes(32, 64), "network": Prefixes(24, 48)}


def check_prefix(value: object, longest: int, where: str) -> None:
    """
    Refuse what is no length of a prefix.

    Raises:
        ConfigurationError: AG025, if it is no whole number from 1 to ``longest``.
    """
    if not is_whole(value, 1) or value > longest:
        raise ConfigurationError(
            "AG025", where, f"{shown(value)} is no prefix length", f"write 1 to {longest}"
        )


def read_prefixes(given: object, where: str) -> dict[str, Prefixes]:
    """
    Read how long the prefixes of a client and of a network are.

    Args:
        given: Such as ``{"client": (32, 56)}``: bits of IPv4 and of IPv6; what is left out has
            its default.
        where: The setting, for errors.

    Raises:
        ConfigurationError: AG025, if one is no length, or a network smaller than a client.
    """
    lengths = dict(DEFAULT_PREFIXES)
    if given is None:
        return lengths
    mend = "write a mapping such as {'client': (32, 56), 'network': (24, 48)}"
    if not isinstance(given, Mapping):
        raise ConfigurationError("AG025", where, f"{shown(given)} is no mapping", mend)
    for part, pair in given.items():
        if part not in lengths:
            raise ConfigurationError("AG025", where, f"{shown(part)} has no prefix", mend)
        if not isinstance(pair, list | tuple) or len(pair) != 2:  # noqa: PLR2004
            raise ConfigurationError(
                "AG025", f"{where}[{shown(part)}]", f"{shown(pair)} is no pair", mend
            )
        check_prefix(pair[0], 32, f"{where}[{shown(part)}][0]")
        check_prefix(pair[1], 128, f"{where}[{shown(part)}][1]")
        lengths[part] = Prefixes(*pair)
    client, network = lengths["client"], lengths["network"]
    if network.ipv4 > client.ipv4 or network.ipv6 > client.ipv6:
        raise ConfigurationError(
            "AG025", where, "a network would be smaller than a client", "give it fewer bits"
        )
    return lengths


def read_networks(items: object, where: str) -> AddressSet:
    """
    Read a list of networks, as CIDR or single addresses.

    Raises:
        ConfigurationError: AG017, if it is no list of networks; AG018, if one holds everybody.
    """
    mend = "list networks, such as ['10.0.0.1/32', '2001:db8::/48']"
    if not isinstance(items, list | tuple):
        raise ConfigurationError("AG017", where, f"{shown(items)} is no list", mend)
    return AddressSet(tuple(_network(item, where, mend) for item in items))


def _network(item: object, where: str, mend: str) -> Network:
    if not isinstance(item, str | Network):
        raise ConfigurationError("AG017", where, f"{shown(item)} is no text", mend)
    text = str(item).strip()
    try:
        network = ipaddress.ip_network("::/0" if text == "*" else text)
    except ValueError as error:
        raise ConfigurationError(
            "AG017", where, f"{shown(item)} is no network: {error}", mend
        ) from None
    if network.prefixlen == 0:
        raise ConfigurationError("AG018", where, f"{shown(item)} is everybody", mend)
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(_MAPPED):
        raise ConfigurationError(
            "AG017", where, f"{shown(item)} holds IPv4 addresses", "write them as an IPv4 network"
        )
    return network
