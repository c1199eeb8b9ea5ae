"""Keys: no text that somebody types can reach another's budget."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from valkey.crc import key_slot

from tests.cases.conftest import add_door

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from tests.cases.conftest import Door
    from tests.flask.conftest import Site

SECOND = "the second app's secret: 0123456789abcdef"
OTHER = "198.51.100.1"
SEPARATORS = [":", "|", "/", "%3A", ".", " ", "\u241f", "::", "!"]


def by(*parts: str, log: str = "5/300s") -> dict[str, Any]:
    """Give a limit by these parts."""
    return {"name": "-".join(parts), "by": list(parts), "sliding_log": log}


@pytest.mark.parametrize("separator", SEPARATORS)
def test_no_two_pairs_of_action_and_name_meet(build: Callable[..., Site], separator: str) -> None:
    """B043: five failures of 'otp:vera' at login leave 'vera' at login.otp its five; both ways."""
    limits = {"limits": [by("account")]}
    site = build(blueprint=False, AUTHGUARD_POLICY={"login": limits, "login.otp": limits})
    login, otp = add_door(site, "/login"), add_door(site, "/login.otp", "login.otp")
    pairs = [(login, f"otp{separator}vera"), (otp, "vera"), (login, "vera"), (login, "otp")]
    pairs += [(otp, f"otp{separator}vera"), (login, f"login{separator}otp{separator}vera")]
    for door, name in pairs:
        assert [door.knock(name) for _ in range(6)] == [401] * 5 + [429]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("a", "2001:db8:1:2::9"), ("a:2001", "db8:1:2::9")),
        (("a1", "1.2.3.4"), ("a", "11.2.3.4")),
        (("a:b", "203.0.113.9"), ("a", "203.0.113.9")),
        (("a|203.0.113.9", "198.51.100.1"), ("a", "203.0.113.9")),
        (("a%3A203.0.113.9", "203.0.113.9"), ("a:203.0.113.9", "203.0.113.9")),
    ],
)
def test_no_two_pairs_of_name_and_address_meet(
    site_factory: Callable[..., Site], first: tuple[str, str], second: tuple[str, str]
) -> None:
    """B043: in a limit by account and client, ('a:b', 'c') filled leaves ('a', 'b:c') all five."""
    site = site_factory(limits=[by("account", "client")])
    for name, client in (first, second):
        assert site.statuses(6, name, client=client) == [401] * 5 + [429]


def test_nul_separates_nothing(door: Door) -> None:
    """B043: a name with NUL is refused, and takes none of the five of the names at its sides."""
    assert [door.knock("vera\0omar") for _ in range(5)] == [400] * 5
    for name in ("vera", "omar"):
        assert [door.knock(name) for _ in range(6)] == [401] * 5 + [429]


@pytest.mark.parametrize("name", ["203.0.113.9", "203.0.113.9/32", "client", "client:203.0.113.9"])
def test_a_user_called_like_an_address(site: Site, name: str) -> None:
    """B044: five failures for user 203.0.113.9 from elsewhere leave that address 20 of 20."""
    assert site.statuses(6, name, client=OTHER) == [401] * 5 + [429]
    assert site.used("client", client="203.0.113.9") == 0
    assert site.login("omar", "right omar", client="203.0.113.9").status_code == 200
    answers = [site.login(f"user-{n}", client="203.0.113.9").status_code for n in range(21)]
    assert answers == [401] * 20 + [429]


@pytest.mark.parametrize("name", ["203.0.113.9", "203.0.113.9/32", "2001:db8:1:2::/64"])
def test_an_address_called_like_a_user(site: Site, name: str) -> None:
    """B044: 20 failures from an address leave the user who is called so five of five."""
    client = name.partition("/")[0]
    answers = [site.login(f"user-{n}", client=client).status_code for n in range(21)]
    assert answers == [401] * 20 + [429]
    assert site.statuses(6, name, client=OTHER) == [401] * 5 + [429]


def test_empty_names_lock_nobody_out(site: Site) -> None:
    """B045, A25: 30 posts without a usable name charge their address alone, and no account."""
    bodies: list[dict[str, str]] = [{"identifier": ""}, {"identifier": "   "}, {}]
    answers = [
        site.post(json=body | {"password": "wrong"}).status_code
        for _ in range(10)
        for body in bodies
    ]
    assert answers == [400] * 20 + [429] * 10
    assert site.spy.checks == []
    for client in (OTHER, site.home):
        assert site.browser(client).get("/auth/login").status_code == 200
    assert site.login("vera", "right vera", client=OTHER).status_code == 200
    assert site.post(json={"password": "wrong"}, client=OTHER).status_code == 400
    assert site.statuses(6, "ghost", client=OTHER) == [401] * 5 + [429]


@pytest.mark.parametrize("name", ["", "   ", "\u3000", "\ufeff"])
def test_an_empty_name_from_a_function_is_nobodys(build: Callable[..., Site], name: str) -> None:
    """B045: where a function of the app names the account, an empty name is no key either."""
    site = build(blueprint=False)
    door = add_door(site, "/door", account=lambda: name)
    assert [door.knock("vera") for _ in range(21)] == [400] * 20 + [429]
    assert door.evaluated == 0


def test_two_apps_on_one_store_are_apart(build: Callable[..., Site]) -> None:
    """B047: the product parts guards by their secret: filling or clearing one leaves the other."""
    shop, forum = build(), build(AUTHGUARD_SECRET=SECOND)
    assert shop.statuses(6) == [401] * 5 + [429]
    assert forum.statuses(5) == [401] * 5
    assert forum.guard.clear("login", account="vera").entries == 5
    assert shop.login("vera", "right vera").status_code == 429
    assert forum.statuses(6) == [401] * 5 + [429]
    assert shop.guard.clear("login", account="vera").entries == 5
    assert [shop.login().status_code, forum.login().status_code] == [401, 429]


def test_two_workers_of_one_app_are_together(build: Callable[..., Site]) -> None:
    """B047: guards of one secret on one store count as one: five failures in all."""
    workers = [build(), build()]
    assert [workers[n % 2].login().status_code for n in range(6)] == [401] * 5 + [429]


def test_two_actions_of_one_app_are_apart(build: Callable[..., Site]) -> None:
    """B047: the product parts limits by the action's name: 'shop' full leaves 'forum' its five."""
    limits = {"limits": [by("account"), by("client", log="20/300s")]}
    site = build(blueprint=False, AUTHGUARD_POLICY={"shop": limits, "forum": limits})
    shop, forum = (add_door(site, f"/{name}", name) for name in ("shop", "forum"))
    assert [shop.knock("vera") for _ in range(6)] == [401] * 5 + [429]
    assert [forum.knock("vera") for _ in range(5)] == [401] * 5
    site.guard.clear("shop", account="vera")
    assert [shop.knock("vera"), forum.knock("vera")] == [401, 429]


INJECTIONS = [
    "alice:ip",
    "a}{b",
    "*",
    "login:ip:203.0.113.9",
    "{",
    "?",
    "[a-z]",
    "rl:v1:*",
    "alice!",
]
INJECTIONS += ["\" 'x", "-1", "a\\nSET x", "0", "nil", "EVAL"]


@pytest.mark.parametrize("name", INJECTIONS)
def test_a_name_is_data(site_factory: Callable[..., Site], name: str) -> None:
    """A30: whatever a name holds, it has its own five tries, and takes nobody else's."""
    site = site_factory()
    assert site.login("alice").status_code == 401
    assert site.statuses(6, name) == [401] * 5 + [429]
    assert site.used("client") == 6
    assert site.statuses(5, "alice") == [401] * 4 + [429]
    assert site.login("vera", "right vera", client=OTHER).status_code == 200
    site.guard.clear("login", account=name)
    assert [site.login(name).status_code, site.login("alice").status_code] == [401, 429]


@pytest.mark.parametrize("name", ["a\nSET x", "a\r\nSET x 1\r\n.", "a\0b"])
def test_a_line_break_inside_a_name_is_400(site: Site, name: str) -> None:
    """A30: control characters never reach a key: 400, charged to the client."""
    assert site.login(name).status_code == 400
    assert [site.used("client"), site.spy.checks] == [1, []]


def stored(client: valkey.Valkey) -> dict[bytes, bytes]:
    """Give every key of the store with all that it holds."""
    return {key: client.dump(key) or b"" for key in client.scan_iter()}


def test_nothing_typed_is_stored(site_factory: Callable[..., Site], client: valkey.Valkey) -> None:
    """A30, R11: keys have one length and one form, and no name, address or password is in them."""
    site = site_factory(AUTHGUARD_POLICY=None)
    names = ["zebedee", "zebedee@example.test", "z" * 254, *INJECTIONS]
    for name in names:
        site.login(name, "hunter-two")
    kept = stored(client)
    assert len(kept) > 4 * len(names)
    form = re.compile(rb"rl:v1:\{[\w-]{8}\}[\w-]{22}[!~]?", re.ASCII)
    assert all(form.fullmatch(key) for key in kept)
    everything = b"".join(kept) + b"".join(kept.values())
    typed = ["zebedee", "example.test", "zzz", "login:ip", "203.0.113", "hunter", "alice"]
    assert [text for text in typed if text.encode() in everything] == []


def test_one_accounts_keys_share_a_slot(
    site_factory: Callable[..., Site], client: valkey.Valkey
) -> None:
    """A30: on a cluster an account's keys share a slot, its client's another, braces or not."""
    site = site_factory(AUTHGUARD_POLICY=None)
    slots = []
    for name in ("a}{b", "{203.0.113.9}", "{}"):
        client.flushall()
        site.login(name)
        slots.append({key_slot(key) for key in client.scan_iter()})
    # The account's; the network's, with its client's.
    assert [len(each) for each in slots] == [2] * 3
    assert len(set.union(*slots)) == 4
    assert len(set.intersection(*slots)) == 1
