"""Allowlist and denylist: who skips the limits by address, and who is refused outright."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from authguard import NO_ACCOUNT, ConfigurationError, Denied, Denylisted

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from authguard import Guard

OFFICE = ["198.51.100.0/24", "2001:db8:1::/48"]
ATTACKER = ["203.0.113.0/24", "2001:db8:bad::/48", "192.0.2.66"]
POLICIES = {
    "login": {
        "limits": [
            {"name": "pair", "by": ["account", "client"], "sliding_log": "5/15m"},
            {"name": "account", "by": ["account"], "sliding_log": "8/15m", "lockout": "15m"},
            {"name": "client", "by": ["client"], "sliding_log": "6/15m"},
            {"name": "network", "by": ["network"], "sliding_log": "7/15m"},
        ]
    },
    "unlock": {"limits": [{"name": "client", "by": ["client"], "sliding_log": "2/15m"}]},
}


@pytest.fixture
def guard(guard_factory: Callable[..., Guard]) -> Guard:
    """Give a guard with both lists."""
    return guard_factory(policies=POLICIES, allowlist=OFFICE, denylist=ATTACKER)


@pytest.mark.parametrize("office", ["198.51.100.5", "::ffff:198.51.100.5", "2001:db8:1:2::5"])
def test_an_allowlisted_client_skips_limits_by_address(guard: Guard, office: str) -> None:
    """B144: many accounts' failures from an office are no reason to refuse it, in any action."""
    for number in range(20):
        guard.attempt("login", account=f"user-{number}", client=office)
        guard.attempt("login", account=NO_ACCOUNT, client=office)
        guard.attempt("unlock", account=f"user-{number}", client=office)
    assert guard.peek("login", account="vera", client=office).remaining == 5


@pytest.mark.parametrize("made_up", ["2002:c633:6405::1", "64:ff9b::198.51.100.5"])
def test_an_address_that_carries_a_listed_one_has_no_privilege(guard: Guard, made_up: str) -> None:
    """Anybody may make up a NAT64 or 6to4 address: it is counted as what it carries, not let by."""
    for number in range(6):
        guard.attempt("login", account=f"user-{number}", client=made_up)
    with pytest.raises(Denied):
        guard.attempt("login", account="another", client=made_up)
    assert guard.peek("login", account="vera", client="198.51.100.5").remaining == 5


def test_a_denylisted_clients_names_are_not_looked_up(guard_factory: Callable[..., Guard]) -> None:
    """A flood from there costs no query, and a name that is none changes nothing."""
    asked: list[str] = []
    guard = guard_factory(policies=POLICIES, denylist=ATTACKER, resolve=asked.append)
    for account in ("vera", "", "ve\u200bra"):
        with pytest.raises(Denylisted):
            guard.attempt("login", account=account, client="203.0.113.9")
    assert asked == []


def test_a_limit_by_address_and_everybody_is_one_by_address(
    guard_factory: Callable[..., Guard],
) -> None:
    """What counts by client and global counts by client: the allowlist skips it, and no budget."""
    limits = [
        {"name": "c", "by": ["client", "global"], "sliding_log": "1/15m"},
        {"name": "budget", "by": ["global"], "sliding_log": "3/15m"},
    ]
    guard = guard_factory(policies={"login": {"limits": limits}}, allowlist=OFFICE)
    for _ in range(3):
        guard.attempt("login", client="198.51.100.5")
    with pytest.raises(Denied) as denied:
        guard.attempt("login", client="198.51.100.5")
    assert denied.value.decision.refused_by == ("budget",)


def test_an_allowlisted_client_meets_the_limits_by_account(guard: Guard) -> None:
    """B144: its sixth guess at one account is refused, and eight from anywhere lock the account."""
    for _ in range(5):
        guard.attempt("login", account="vera", client="198.51.100.5")
    with pytest.raises(Denied) as denied:
        guard.attempt("login", account="vera", client="198.51.100.5")
    assert denied.value.decision.refused_by == ("pair",)
    for _ in range(3):
        guard.attempt("login", account="vera", client="198.51.100.6")
    with pytest.raises(Denied) as denied:
        guard.attempt("login", account="vera", client="198.51.100.7")
    assert denied.value.decision.refused_by == ("account",)


def test_an_allowlisted_client_charges_no_neighbour(guard: Guard) -> None:
    """What it does is in no log by address, so it uses up nothing of a network it is part of."""
    for number in range(20):
        guard.attempt("login", account=f"user-{number}", client="198.51.100.5")
    names = [verdict.name for verdict in guard.peek("login", client="198.51.101.5").verdicts]
    assert names == ["client", "network"]
    assert guard.peek("login", account="new", client="198.51.100.5").remaining == 5


def test_an_allowlisted_clients_own_logs_can_be_cleared(
    guard_factory: Callable[..., Guard], guard: Guard
) -> None:
    """What stood in its logs before it was listed can be cleared like anybody's."""
    before = guard_factory(policies=POLICIES)
    before.attempt("login", account="vera", client="198.51.100.5")
    assert guard.clear("login", client="198.51.100.5").entries == 2


@pytest.mark.parametrize(
    "denied",
    [
        *("203.0.113.9", "::ffff:203.0.113.9", "2001:db8:bad:1::9", "192.0.2.66"),
        *("2002:cb00:7109::1", "64:ff9b::203.0.113.9"),
    ],
)
def test_a_denylisted_client_is_refused(guard: Guard, client: valkey.Valkey, denied: str) -> None:
    """It is refused whatever it asks, as a refusal of its own kind, and the store isn't asked."""
    guard.peek("login", account="vera")  # the connection and the scripts are there
    client.config_resetstat()
    for account in ("vera", NO_ACCOUNT):
        with pytest.raises(Denylisted) as refused:
            guard.attempt("login", account=account, client=denied)
        assert isinstance(refused.value, Denied)
        assert refused.value.decision.refused_by == ("denylist",)
        assert refused.value.retry_after == 86_400
        assert denied not in str(refused.value)
    assert not guard.peek("login", account="vera", client=denied).allowed
    assert "cmdstat_evalsha" not in client.info("commandstats")
    assert guard.peek("login", account="vera").remaining == 8


def test_denied_wins_over_allowed(guard_factory: Callable[..., Guard]) -> None:
    """An address within both lists is refused."""
    guard = guard_factory(policies=POLICIES, allowlist=OFFICE, denylist=["198.51.100.66"])
    guard.attempt("login", account="vera", client="198.51.100.65")
    with pytest.raises(Denylisted):
        guard.attempt("login", account="vera", client="198.51.100.66")


def test_neighbours_of_the_lists_are_everybody(guard: Guard) -> None:
    """One bit beside a listed network no list applies."""
    for client in ("198.51.101.0", "203.0.114.0", "192.0.2.67", "2001:db8:2::", "2001:db8:bae::"):
        names = [
            verdict.name for verdict in guard.peek("login", account="vera", client=client).verdicts
        ]
        assert names == ["pair", "account", "client", "network"]


@pytest.mark.parametrize(
    ("networks", "code"),
    [
        ("198.51.100.0/24", "AG017"),
        (["198.51.100.0/33"], "AG017"),
        (["198.51.100.1/24"], "AG017"),
        (["office"], "AG017"),
        ([None], "AG017"),
        (["::ffff:198.51.100.0/120"], "AG017"),
        (["0.0.0.0/0"], "AG018"),
        (["::/0"], "AG018"),
        (["*"], "AG018"),
    ],
)
@pytest.mark.parametrize("name", ["allowlist", "denylist"])
def test_a_wrong_list_stops_the_start(
    guard_factory: Callable[..., Guard], name: str, networks: object, code: str
) -> None:
    """R12: what is no list of networks, or holds everybody, is refused with its name."""
    with pytest.raises(ConfigurationError, match=f"^{code} {name}: "):
        guard_factory(**{name: networks})
