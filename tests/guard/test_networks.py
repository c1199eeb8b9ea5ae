"""What counts as one client and one network: by bits, of settable length, on several rungs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from authguard import ConfigurationError, Denied, Policy, PolicyLimit, SlidingLog, load_policies
from authguard._subjects import Claims

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard import Guard

BY_CLIENT = {"login": {"limits": [{"name": "c", "by": ["client"], "sliding_log": "5/15m"}]}}


def limits(*rungs: dict[str, Any]) -> dict[str, Any]:
    """Write a policy of limits that differ in what is given."""
    return {
        "login": {
            "limits": [
                {"name": f"l{at}", "by": ["network"], "sliding_log": "5/15m"} | rung
                for at, rung in enumerate(rungs)
            ]
        }
    }


def fail(guard: Guard, client: str, times: int = 1) -> None:
    """Make failed attempts, of a new account each."""
    for number in range(times):
        guard.attempt("login", account=f"user-{client}-{number}", client=client)


@pytest.mark.parametrize(
    ("ipv6", "other", "shared"),
    [
        (56, "2001:db8:1:2ff::1", True),
        (56, "2001:db8:1:300::1", False),
        (64, "2001:db8:1:2ff::1", False),
        (64, "2001:db8:1:200:ffff::1", True),
        (128, "2001:db8:1:200::2", False),
    ],
)
def test_the_length_of_a_clients_prefix_is_settable(
    guard_factory: Callable[..., Guard], ipv6: int, other: str, shared: bool
) -> None:
    """B036: addresses within the set length share one budget, those outside of it don't."""
    prefixes = {"client": (32, ipv6), "network": (24, min(48, ipv6))}
    guard = guard_factory(policies=BY_CLIENT, prefixes=prefixes)
    fail(guard, "2001:db8:1:200::1", 5)
    assert guard.peek("login", client=other).allowed is not shared


def test_ipv4_has_a_length_of_its_own(guard_factory: Callable[..., Guard]) -> None:
    """What is set for one family leaves the other's as it is."""
    guard = guard_factory(policies=BY_CLIENT, prefixes={"client": (28, 64)})
    fail(guard, "203.0.113.1", 5)
    assert not guard.peek("login", client="203.0.113.14").allowed
    assert guard.peek("login", client="203.0.113.16").allowed
    fail(guard, "2001:db8::1", 5)
    assert guard.peek("login", client="2001:db8:0:1::1").allowed


def test_rungs_of_one_policy_rise(guard_factory: Callable[..., Guard]) -> None:
    """A10: who leaves one /64 for the next meets the /56, and who leaves that meets the /48."""
    rungs = limits(
        {"by": ["client"], "sliding_log": "2/15m"},
        {"ipv6_prefix": 56, "sliding_log": "4/15m"},
        {"sliding_log": "6/15m"},
        {"ipv6_prefix": 32, "sliding_log": "9/15m"},
    )
    guard = guard_factory(policies=rungs)

    def refusing(client: str) -> tuple[str, ...]:
        return guard.peek("login", client=client).refused_by

    fail(guard, "2001:db8:0:1::1", 2)
    assert refusing("2001:db8:0:1::2") == ("l0",)
    fail(guard, "2001:db8:0:2::1", 2)
    assert refusing("2001:db8:0:3::1") == ("l1",)
    fail(guard, "2001:db8:0:100::1", 2)
    assert refusing("2001:db8:0:200::1") == ("l2",)
    fail(guard, "2001:db8:1::1", 2)
    fail(guard, "2001:db8:2::1", 1)
    assert refusing("2001:db8:3::1") == ("l3",)
    assert refusing("2001:db9::1") == ()


def test_a_rung_of_a_pair(guard_factory: Callable[..., Guard]) -> None:
    """A pair of account and address can have a length of its own, too."""
    guard = guard_factory(policies=limits({"by": ["account", "client"], "ipv6_prefix": 48}))
    for number in range(5):
        guard.attempt("login", account="vera", client=f"2001:db8:0:{number}::1")
    with pytest.raises(Denied):
        guard.attempt("login", account="vera", client="2001:db8:0:9::1")
    guard.attempt("login", account="vera", client="2001:db8:1::1")
    guard.attempt("login", account="omar", client="2001:db8:0:9::1")


def test_clearing_a_client_opens_all_its_rungs(guard_factory: Callable[..., Guard]) -> None:
    """B143: what is cleared by any address of a network is the network's whole log."""
    guard = guard_factory(policies=limits({"ipv6_prefix": 56}, {"by": ["client"]}))
    fail(guard, "2001:db8:1:2::1", 5)
    assert guard.clear("login", client="2001:DB8:1:2:0::99").entries == 10
    assert guard.peek("login", client="2001:db8:1:2::1").remaining == 5


@pytest.mark.parametrize(
    ("rung", "where"),
    [
        ({"ipv6_prefix": 0}, "l0).ipv6_prefix"),
        ({"ipv6_prefix": 129}, "l0).ipv6_prefix"),
        ({"ipv6_prefix": "56"}, "l0).ipv6_prefix"),
        ({"ipv6_prefix": True}, "l0).ipv6_prefix"),
        ({"ipv6_prefix": 56.0}, "l0).ipv6_prefix"),
        ({"ipv4_prefix": 33}, "l0).ipv4_prefix"),
        ({"ipv4_prefix": 24, "by": ["account"]}, "l0).ipv4_prefix"),
        ({"ipv6_prefix": 56, "by": ["client", "network"]}, "l0).ipv6_prefix"),
    ],
)
def test_a_wrong_length_stops_the_start(rung: dict[str, Any], where: str) -> None:
    """B036, AG025: no length of a prefix, or nothing to cut by it: the table and key are named."""
    with pytest.raises(ConfigurationError) as wrong:
        load_policies(limits(rung))
    assert wrong.value.code == "AG025"
    assert wrong.value.where == f"[login] limits[0] ({where}"


def test_a_limit_in_code_names_itself() -> None:
    """AG025: a limit that was made in Python is named by its name."""
    with pytest.raises(ConfigurationError, match=r"AG025 limit 'c'\.ipv6_prefix: 0 is no prefix"):
        PolicyLimit("c", ("client",), SlidingLog("5/15m"), ipv6_prefix=0)
    limit = PolicyLimit("c", ("client",), SlidingLog("5/15m"), ipv6_prefix=56)
    assert Policy("login", (limit,)).parts == {"client"}


def test_rungs_of_different_lengths_share_no_key(guard_factory: Callable[..., Guard]) -> None:
    """A /56 that begins where a /64 begins is another network, and has another key."""
    guard = guard_factory(policies=limits({"ipv6_prefix": 56}, {"ipv6_prefix": 64}, {}))
    claims = Claims(client="2001:db8::1")
    known = guard._subjects.known(guard.policy("login"), claims, partial=True)
    assert len(set(known.pseudonyms[0].values())) == len(known.subjects) == 4


@pytest.mark.parametrize(
    ("carried", "address"),
    [
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("::FFFF:CB00:7109", "203.0.113.9"),
        ("64:ff9b::203.0.113.9", "203.0.113.9"),
        ("64:ff9b::cb00:7109", "203.0.113.9"),
        ("2002:cb00:7109::1", "203.0.113.9"),
        ("2002:cb00:7109:ffff::1", "203.0.113.9"),
    ],
)
def test_an_address_that_ipv6_carries_is_itself(
    guard_factory: Callable[..., Guard], carried: str, address: str
) -> None:
    """B034: mapped, NAT64 and 6to4 share the IPv4 address's own budget, and nobody else's."""
    guard = guard_factory(policies=BY_CLIENT)
    fail(guard, carried, 5)
    assert not guard.peek("login", client=address).allowed
    assert guard.peek("login", client="203.0.113.10").allowed
    assert guard.peek("login", client="::ffff:203.0.113.10").allowed
    assert guard.peek("login", client="64:ff9b::203.0.113.10").allowed


def test_an_address_of_any_length_weighs_nothing_afterwards(
    guard_factory: Callable[..., Guard],
) -> None:
    """A zone makes an address as long as a sender likes; such texts are read and not remembered."""
    guard = guard_factory(policies=BY_CLIENT)
    before = guard._subjects._of_client.cache_info().currsize
    for number in range(3):
        assert guard.attempt("login", client=f"fe80::1%{'z' * 10_000}{number}").pending
    assert guard._subjects._of_client.cache_info().currsize == before
    assert guard.peek("login", client="fe80::1").remaining == 2
