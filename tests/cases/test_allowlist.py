"""The allowlist: no limit by address, in any flow; every limit by account, in all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.cases.conftest import add_door

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cases.conftest import Door
    from tests.flask.conftest import Site

OFFICE = "198.51.100.5"
ACTIONS = ["login", "password.forgot", "password.reset", "otp.send", "otp.verify", "unlock"]


def limit(name: str, *by: str, log: str) -> dict[str, Any]:
    """Give a limit."""
    return {"name": name, "by": list(by), "sliding_log": log}


BY_ADDRESS = [
    limit("client", "client", log="20/300s"),
    limit("network", "network", log="20/300s"),
    limit("rung", "client", log="20/300s") | {"ipv4_prefix": 28, "ipv6_prefix": 56},
]


@pytest.fixture
def doors(build: Callable[..., Site]) -> Callable[..., dict[str, Door]]:
    """Give a view for each action, all with the same limits."""

    def make(*limits: dict[str, Any], **config: Any) -> dict[str, Door]:
        policy = {action: {"limits": list(limits)} for action in ACTIONS}
        lists = {"AUTHGUARD_ALLOWLIST": ["198.51.100.0/24", "2001:db8:1::/48"]} | config
        site = build(blueprint=False, AUTHGUARD_POLICY=policy, **lists)
        return {action: add_door(site, f"/{action}", action) for action in ACTIONS}

    return make


@pytest.mark.parametrize(
    ("action", "office"),
    [
        *((action, OFFICE) for action in ACTIONS),
        ("login", "::ffff:198.51.100.5"),
        ("login", "2001:db8:1:2::5"),
    ],
)
def test_no_limit_by_address_holds_in_any_flow(
    doors: Callable[..., dict[str, Door]], action: str, office: str
) -> None:
    """B144: 25 failures over 25 users are evaluated from a listed client, 20 from another."""
    door = doors(limit("account", "account", log="5/300s"), *BY_ADDRESS)[action]
    answers = [door.knock(f"user-{n}", client=office) for n in range(25)]
    assert answers == [401] * 25
    answers = [door.knock(f"user-{n}", client="192.0.2.5") for n in range(21)]
    assert answers == [401] * 20 + [429]


@pytest.mark.parametrize("action", ACTIONS)
def test_limits_by_account_hold_in_every_flow(
    doors: Callable[..., dict[str, Door]], action: str
) -> None:
    """B144: the sixth wrong try for one user from a listed client is 429, the lock holds there."""
    lock = limit("account", "account", log="5/300s") | {"lockout": "900s"}
    door = doors(lock, *BY_ADDRESS)[action]
    assert [door.knock("vera", client=OFFICE) for _ in range(6)] == [401] * 5 + [429]
    assert door.knock("vera", "right vera", client=OFFICE) == 429
    assert door.knock("vera", "right vera", client="192.0.2.5") == 429
    assert door.knock("omar", "right omar", client=OFFICE) == 200


def test_the_pair_of_account_and_client_holds(doors: Callable[..., dict[str, Door]]) -> None:
    """B144: a limit by account and client counts a listed client too, each user apart."""
    door = doors(limit("pair", "account", "client", log="5/300s"), *BY_ADDRESS)["login"]
    for name in ("vera", "omar"):
        assert [door.knock(name, client=OFFICE) for _ in range(6)] == [401] * 5 + [429]


def test_a_listed_client_is_as_its_proxy_says(doors: Callable[..., dict[str, Door]]) -> None:
    """B144: behind a proxy the forwarded client is looked up, and nobody can claim to be listed."""
    config = {"AUTHGUARD_TRUSTED_PROXIES": ["10.0.0.1"]}
    door = doors(limit("account", "account", log="5/300s"), *BY_ADDRESS, **config)["login"]

    def ask(number: int, forwarded: str, peer: str) -> int:
        body = {"username": f"user-{number}", "password": "wrong"}
        headers = {"X-Forwarded-For": forwarded}
        return door.site.post("/login", json=body, client=peer, headers=headers).status_code

    assert [ask(n, OFFICE, "10.0.0.1") for n in range(25)] == [401] * 25
    answers = [ask(n, f"{OFFICE}, 192.0.2.5", "10.0.0.1") for n in range(21)]
    assert answers == [401] * 20 + [429]
    assert [ask(n, OFFICE, "203.0.113.9") for n in range(21)] == [401] * 20 + [429]
