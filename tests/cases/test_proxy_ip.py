"""Proxies: which address counts as the client's, and that no client can choose it."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import pytest

from authguard.flask import client_address as module

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from tests.flask.conftest import Site

PROXY = "10.0.0.1"
CLIENT = "198.51.100.7"
NEIGHBOUR = "198.51.100.8"

#: Headers that other software takes a client's address from.
OTHER_HEADERS = [
    "Forwarded",
    "X-Real-IP",
    "X-Client-IP",
    "X-Originating-IP",
    "X-Remote-IP",
    "X-Remote-Addr",
    "True-Client-IP",
    "CF-Connecting-IP",
    "X-Cluster-Client-IP",
]


@pytest.fixture
def behind(site_factory: Callable[..., Site], clock: Callable[[], int]) -> Site:
    """Give a site on set-up S behind one trusted proxy."""
    return site_factory(clock=clock, AUTHGUARD_TRUSTED_PROXIES=[PROXY])


def guess(
    site: Site, number: int, *lines: str, header: str = "X-Forwarded-For", peer: str = PROXY
) -> int:
    """Try a wrong password on the user of that number, with these lines of one header."""
    headers = [(header, line) for line in lines]
    return site.login(f"user-{number}", client=peer, headers=headers).status_code


def full(site: Site, *lines: str, peer: str = PROXY) -> bool:
    """Tell whether the client is refused that this request is counted as."""
    return guess(site, 99, *lines, peer=peer) == 429


@pytest.mark.parametrize(
    "left",
    ["192.0.2.{}", "2001:db8:{}::1", "10.0.0.{}", "nobody-{}", '"{}', "{},", "198.51.100.7:{}"],
)
def test_the_leftmost_address_is_the_clients_own_invention(behind: Site, left: str) -> None:
    """B024: whatever stands left of 198.51.100.7, 25 guesses on 25 users are evaluated 20 times."""
    answers = [guess(behind, n, f"{left.format(n)}, {CLIENT}") for n in range(25)]
    assert answers == [401] * 20 + [429] * 5
    assert len(behind.spy.checks) == 20
    assert full(behind, CLIENT)
    assert guess(behind, 25, f"{CLIENT}, {NEIGHBOUR}") == 401


@pytest.mark.parametrize("second", ["10.0.0.2", "::ffff:10.0.0.2", "10.0.0.2:8080"])
def test_own_proxies_are_passed_over(site_factory: Callable[..., Site], second: str) -> None:
    """A02: behind two own proxies the first item from the right that is none of them is the key."""
    site = site_factory(AUTHGUARD_TRUSTED_PROXIES=["10.0.0.0/30"])
    answers = [guess(site, n, f"192.0.2.{n}, {CLIENT}, {second}") for n in range(21)]
    assert answers == [401] * 20 + [429]
    assert guess(site, 21, f"{CLIENT}, {NEIGHBOUR}, {second}") == 401


@pytest.mark.parametrize(
    "header", ["X-Forwarded-For", "X-Real-IP", "Forwarded", "CF-Connecting-IP"]
)
def test_without_a_proxy_no_header_is_read(site: Site, header: str) -> None:
    """B025: reached directly, 25 guesses with 25 values of a header are evaluated 20 times."""
    value = "for=192.0.2.{}" if header == "Forwarded" else "192.0.2.{}"
    answers = [guess(site, n, value.format(n), header=header, peer=site.home) for n in range(25)]
    assert answers == [401] * 20 + [429] * 5
    assert len(site.spy.checks) == 20
    assert not full(site, peer="192.0.2.1")


@pytest.mark.parametrize("header", OTHER_HEADERS)
def test_behind_a_proxy_no_second_header_is_read(behind: Site, header: str) -> None:
    """A04: beside the declared header a rotating other one changes nothing, present or absent."""
    value = "for=192.0.2.{}" if header == "Forwarded" else "192.0.2.{}"
    for known in (CLIENT, None):
        declared = [] if known is None else [("X-Forwarded-For", known)]
        answers = [
            behind.login(
                f"user-{n}", client=PROXY, headers=[(header, value.format(n)), *declared]
            ).status_code
            for n in range(21)
        ]
        assert answers == [401] * 20 + [429]
    assert len(behind.spy.checks) == 40


def test_the_one_header_that_is_declared(site_factory: Callable[..., Site]) -> None:
    """A04: with CF-Connecting-IP declared it alone is read, whatever X-Forwarded-For says."""
    site = site_factory(
        AUTHGUARD_TRUSTED_PROXIES=[PROXY], AUTHGUARD_FORWARDED_HEADER="CF-Connecting-IP"
    )

    def ask(number: int, client: str) -> int:
        spoofed = [(name, f"192.0.2.{number}") for name in ("X-Forwarded-For", "X-Real-IP")]
        headers = [*spoofed, ("CF-Connecting-IP", client)]
        return site.login(f"user-{number}", client=PROXY, headers=headers).status_code

    assert [ask(n, CLIENT) for n in range(21)] == [401] * 20 + [429]
    assert ask(21, NEIGHBOUR) == 401


@pytest.mark.parametrize("odd", ["X_Forwarded_For", "X-Forwarded_For", "X-Forwarded-For "])
def test_an_odd_spelling_of_the_headers_name(behind: Site, odd: str) -> None:
    """A05: 'X_Forwarded_For' counts for nothing directly, and behind a proxy the rightmost wins."""
    answers = [guess(behind, n, f"192.0.2.{n}", header=odd, peer=behind.home) for n in range(21)]
    assert answers == [401] * 20 + [429]
    answers = [
        behind.login(
            f"user-{n}",
            client=PROXY,
            headers=[(odd, f"192.0.2.{n}"), ("X-Forwarded-For", CLIENT)],
        ).status_code
        for n in range(21)
    ]
    assert answers == [401] * 20 + [429]


def test_a_declared_proxy_gives_each_client_a_budget(behind: Site) -> None:
    """B026: two clients behind one declared proxy have 20 failures each."""
    for client in (CLIENT, NEIGHBOUR):
        assert [guess(behind, n, client) for n in range(21)] == [401] * 20 + [429]
    assert len(behind.spy.checks) == 40


@pytest.mark.parametrize("peer", [PROXY, "192.168.7.1", "127.0.0.1", "::1", "fd00::1"])
def test_an_undeclared_proxy_is_told_of_once(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, peer: str
) -> None:
    """B026: undeclared, all clients share the proxy's 20, and the log warns once, with the mend."""
    monkeypatch.setattr(module, "_warned", threading.Lock())  # one a process; others ran before
    clients = (CLIENT, NEIGHBOUR)
    answers = [guess(site, n, clients[n % 2], peer=peer) for n in range(22)]
    assert answers == [401] * 20 + [429] * 2
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    text = warnings[0].getMessage()
    assert "sends X-Forwarded-For" in text
    assert "list it in AUTHGUARD_TRUSTED_PROXIES" in text


def ask_without_peer(site: Site, who: str, password: str = "wrong", *, absent: bool) -> int:
    """Try to sign in over a connection without a peer address: not told, or told as empty."""
    browser = site.browser()
    if absent:
        del browser.environ_base["REMOTE_ADDR"]
    else:
        browser.environ_base["REMOTE_ADDR"] = ""
    body = {"identifier": who, "password": password}
    return browser.post("/auth/login", json=body).status_code


@pytest.mark.parametrize("absent", [True, False])
def test_no_peer_address_is_refused(
    site: Site, client: valkey.Valkey, caplog: pytest.LogCaptureFixture, absent: bool
) -> None:
    """B028: the product refuses an undeclared UNIX peer: 400 and an error log, nothing is keyed."""
    answers = [ask_without_peer(site, f"user-{n}", absent=absent) for n in range(25)]
    assert answers == [400] * 25
    assert ask_without_peer(site, "vera", "right vera", absent=absent) == 400
    assert site.spy.checks == []
    assert client.dbsize() == 0
    assert {record.levelno for record in caplog.records} == {logging.ERROR}
    assert "list 'unix:' in AUTHGUARD_TRUSTED_PROXIES" in caplog.records[0].getMessage()
    assert site.login("vera", "right vera").status_code == 200


@pytest.mark.parametrize("body", [{"identifier": "vera", "password": "wrong"}, {}])
def test_a_refusal_without_peer_address_is_one_line(
    site: Site, caplog: pytest.LogCaptureFixture, body: dict[str, str]
) -> None:
    """B028: one request refused for want of a peer address is one line of the log."""
    assert site.post(json=body, client="").status_code == 400
    assert len(caplog.records) == 1


@pytest.mark.parametrize("absent", [True, False])
def test_clients_without_peer_address_share_one_bucket(
    site_factory: Callable[..., Site], absent: bool
) -> None:
    """B028: with 'unix:' declared, 25 failures over 25 users are evaluated 20 times, none more."""
    site = site_factory(AUTHGUARD_TRUSTED_PROXIES=["unix:"])
    answers = [ask_without_peer(site, f"user-{n}", absent=absent) for n in range(25)]
    assert answers == [401] * 20 + [429] * 5
    assert len(site.spy.checks) == 20
    assert site.login("vera", "right vera").status_code == 200


def test_without_peer_address_the_accounts_limit_holds(site_factory: Callable[..., Site]) -> None:
    """B028: with 'unix:' declared, the sixth try for one user is 429, the next user's is not."""
    site = site_factory(AUTHGUARD_TRUSTED_PROXIES=["unix:"])
    answers = [ask_without_peer(site, "vera", absent=True) for _ in range(6)]
    assert answers == [401] * 5 + [429]
    assert ask_without_peer(site, "omar", "right omar", absent=True) == 200


@pytest.mark.parametrize(
    "lines",
    [
        ("192.0.2.{}", CLIENT),
        ("192.0.2.{}", f" {CLIENT} "),
        ("192.0.2.{}", "", CLIENT),
        (f"192.0.2.{{}},,{CLIENT}",),
        (f"{NEIGHBOUR}, 192.0.2.{{}}", f"{NEIGHBOUR},\t{CLIENT}"),
    ],
)
def test_several_lines_are_one_header(behind: Site, lines: tuple[str, ...]) -> None:
    """B029: lines are joined in order, and the last value of the last line is the key."""
    answers = [guess(behind, n, *(line.format(n) for line in lines)) for n in range(21)]
    assert answers == [401] * 20 + [429]
    assert full(behind, CLIENT)
    assert not full(behind, NEIGHBOUR)
    assert not full(behind)


@pytest.mark.parametrize(
    "lines",
    [
        (f"192.0.2.{{}},,{CLIENT} ,",),
        (CLIENT, ""),
        (CLIENT, "192.0.2.{}", " , "),
    ],
)
def test_an_empty_last_item_is_the_proxys_own(behind: Site, lines: tuple[str, ...]) -> None:
    """B029: the product counts an empty rightmost item as the peer, not the item beside it."""
    answers = [guess(behind, n, *(line.format(n) for line in lines)) for n in range(21)]
    assert answers == [401] * 20 + [429]
    assert full(behind)
    assert not full(behind, CLIENT)


def test_private_clients_are_clients(behind: Site) -> None:
    """B030: two intranet clients behind the proxy have 20 failures each."""
    for client in ("192.168.7.21", "192.168.7.22"):
        assert [guess(behind, n, client) for n in range(21)] == [401] * 20 + [429]
    assert len(behind.spy.checks) == 40


@pytest.mark.parametrize(
    ("header", "value", "bare"),
    [
        ("X-Forwarded-For", "203.0.113.9:{}", "203.0.113.9"),
        ("X-Forwarded-For", "[2001:db8::5]:{}", "2001:db8::5"),
        ("Forwarded", 'for="203.0.113.9:{}"', "203.0.113.9"),
        ("Forwarded", 'for="[2001:db8::5]:{}"', "2001:db8::5"),
    ],
)
def test_the_clients_port_is_no_part_of_its_key(
    site_factory: Callable[..., Site], header: str, value: str, bare: str
) -> None:
    """B031, A07: 25 guesses from 25 ports are evaluated 20 times, and the bare address is full."""
    site = site_factory(
        AUTHGUARD_TRUSTED_PROXIES=[PROXY],
        AUTHGUARD_FORWARDED_HEADER=header,
        AUTHGUARD_PREFIXES={"client": (32, 128)},
    )
    answers = [guess(site, n, value.format(49_152 + n), header=header) for n in range(25)]
    assert answers == [401] * 20 + [429] * 5
    assert len(site.spy.checks) == 20
    assert full(site, peer=bare)
    assert not full(site)
