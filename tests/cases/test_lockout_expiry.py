"""Cases of the kind lockout expiry, over the ready-made routes and all that tells of a lock."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from authguard.flask import signals
from tests.flask.conftest import ALL_OF_S

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from tests.conftest import Clock
    from tests.flask.conftest import Site

OTHER = "198.51.100.7"


@pytest.fixture
def post_site(site_factory: Callable[..., Site], clock: Callable[[], int]) -> Site:
    """Give a site that sends, on set-up S."""
    return site_factory(clock=clock, messages={}, AUTHGUARD_POLICY=ALL_OF_S)


def status(site: Site) -> dict[str, Any]:
    """Give what ``flask authguard status`` tells of vera's sign-in."""
    arguments = ["authguard", "status", "--json", "login", "vera"]
    result = site.app.test_cli_runner().invoke(args=arguments)
    assert result.exit_code == 0, result.output
    told: dict[str, Any] = json.loads(result.stdout)
    return told


def token(site: Site, kind: str) -> str:
    """Give the newest token of a kind."""
    return str(site.messages(kind)[0].token)


def test_tries_do_not_extend_a_lock(post_site: Site, clock: Clock) -> None:
    """B105: at 100, 500, 899 s: 429 with 800, 400, 1, right passwords too; 200 at 900 s."""
    post_site.statuses(5)
    waits = []
    for at_s in (100, 500, 899):
        clock.now_ms = 1_800_000_000_000 + at_s * 1000
        for password in ("wrong", "right vera"):
            answer = post_site.login("vera", password)
            assert answer.status_code == 429
            waits.append(answer.headers["Retry-After"])
    assert waits == ["800", "800", "400", "400", "1", "1"]
    clock.advance(1000)
    assert post_site.login("vera", "right vera").status_code == 200


def test_tries_do_not_extend_the_lock_of_the_codes(post_site: Site, clock: Clock) -> None:
    """B105: five wrong codes lock for 900 s, and no further code moves that end."""
    challenge = (post_site.send_code().json or {})["challenge"]
    assert [post_site.verify(challenge, "0" * 8).status_code for _ in range(5)] == [401] * 5
    for at_s, wait in ((100, "800"), (500, "400"), (899, "1")):
        clock.now_ms = 1_800_000_000_000 + at_s * 1000
        assert post_site.send_code(client=OTHER).headers["Retry-After"] == wait
    clock.advance(1000)
    fresh = (post_site.send_code(client=OTHER).json or {})["challenge"]
    code = str(post_site.messages("code")[0].code)
    assert post_site.verify(fresh, code, client=OTHER).status_code == 200


def test_after_the_lock_the_count_is_one(post_site: Site, clock: Clock) -> None:
    """B106: a wrong try after the lock is 401, the status counts 1 and leaves 4."""
    post_site.statuses(5)
    clock.advance(900_100)
    assert post_site.login().status_code == 401
    told = status(post_site)
    assert (told["locked"], told["failures"], told["remaining"]) == (False, 1, 4)
    assert post_site.statuses(5) == [401] * 4 + [429]


def run_all(site: Site) -> None:
    """Use every route that writes to the store."""
    site.statuses(5)
    site.login("omar", "right omar")
    site.login("ghost")
    challenge = (site.send_code().json or {}).get("challenge", "x")
    site.verify(challenge, "00000000")
    for who in ("vera", "ghost"):
        site.post("/auth/password/forgot", json={"identifier": who})
    site.messages()
    site.post("/auth/password/reset", json={"token": "x", "password": "long enough"})
    site.post("/auth/unlock", json={"token": "x"})


@pytest.mark.parametrize("policy", [None, ALL_OF_S], ids=["default", "S"])
def test_every_key_has_an_end(
    site_factory: Callable[..., Site], client: valkey.Valkey, policy: dict[str, Any] | None
) -> None:
    """B108: each key that any route writes expires by the store's own clock, at all times."""
    site = site_factory(messages={}, AUTHGUARD_POLICY=policy)
    for _ in range(2):
        run_all(site)
        keys = list(client.scan_iter())
        assert len(keys) > 15
        assert [key for key in keys if client.pttl(key) == -1] == []


def test_a_key_robbed_of_its_end_frees_its_subject(
    site_factory: Callable[..., Site], client: valkey.Valkey, clock: Clock
) -> None:
    """B108: with every key persisted by hand the lock still ends when it was to end."""
    site = site_factory(clock=clock, messages={}, AUTHGUARD_POLICY=ALL_OF_S)
    site.statuses(5)
    for key in client.scan_iter():
        client.persist(key)
    assert site.login().status_code == 429
    clock.advance(900_000)
    assert site.login("vera", "right vera").status_code == 200
    for key in client.scan_iter():
        if client.pttl(key) == -1:
            client.delete(key)  # what no call has touched since: other keys of vera's


def test_no_entry_counts_longer_than_its_window(
    site_factory: Callable[..., Site], clock: Clock
) -> None:
    """B109: hammered without pause, each window of 10 s admits its five, never fewer or more."""
    limits = [{"name": "account", "by": ["account"], "sliding_log": "5/10s"}]
    site = site_factory(clock=clock, limits=limits)
    begun, admitted = clock.now_ms, []
    for _ in range(400):
        if site.login().status_code == 401:
            admitted.append(clock.now_ms - begun)
        clock.advance(500)
    assert len(admitted) == 20 * 5
    for first, sixth in zip(admitted, admitted[5:], strict=False):
        assert sixth - first == 10_000


def test_each_policy_has_its_own_lock_time(site_factory: Callable[..., Site], clock: Clock) -> None:
    """B110: sign-in locked for 120 s and codes for 300 s, each to the second, in one app."""
    login = {"name": "account", "by": ["account"], "sliding_log": "2/60s", "lockout": "120s"}
    verify = {"name": "account", "by": ["account"], "sliding_log": "2/60s", "lockout": "300s"}
    client = {"name": "client", "by": ["client"], "sliding_log": "90/60s"}
    policy = {
        "login": {"limits": [login, client]},
        "otp": {"send": {"limits": [client]}, "verify": {"limits": [verify, client]}},
    }
    site = site_factory(clock=clock, messages={}, AUTHGUARD_POLICY=policy)
    challenge = (site.send_code().json or {})["challenge"]
    for _ in range(2):
        assert site.login().status_code == 401
        assert site.verify(challenge, "00000000").status_code == 401
    for at_s, in_, verified in ((119, 429, 429), (120, 200, 429), (299, 200, 429), (300, 200, 401)):
        clock.now_ms = 1_800_000_000_000 + at_s * 1000
        assert site.login("vera", "right vera").status_code == in_
        sent = site.send_code()
        assert sent.status_code == (202 if verified == 401 else 429)
    challenge = (site.send_code().json or {})["challenge"]
    assert site.verify(challenge, "00000000").status_code == 401


@pytest.mark.parametrize(("at_ms", "locked"), [(899_999, True), (900_000, False), (900_100, False)])
def test_everybody_agrees_on_the_end(
    post_site: Site, clock: Clock, at_ms: int, locked: bool
) -> None:
    """B111: sign-in, peek, usage, status, sign-in after a code and after a reset: one predicate."""
    post_site.statuses(5)
    vera = post_site.guard.account_key("vera")
    unlock = token(post_site, "unlock")
    clock.advance(at_ms)
    usage = {each.name: each for each in post_site.guard.usage("login", account=vera)}
    told = status(post_site)
    decision = post_site.guard.peek("login", account=vera)
    code = (post_site.send_code().json or {})["challenge"]
    by_code = post_site.verify(code, str(post_site.messages("code")[0].code)).status_code
    page = post_site.post("/auth/login", data={"identifier": "vera", "password": "wrong"})
    views = [
        not decision.allowed,
        any(verdict.locked for verdict in decision.verdicts),
        usage["account"].locked_until_ms is not None,
        told["locked"],
        told["retry_after"] is not None,
        page.status_code == 429,
        post_site.login("vera", "right vera").status_code == 429,
    ]
    assert views == [locked] * 7
    assert by_code == 200  # the lock is the password's alone
    heard = []

    def note(_app: object, **payload: Any) -> None:
        heard.append(payload["cause"])

    with signals.account_unlocked.connected_to(note):
        answer = post_site.post("/auth/unlock", json={"token": unlock})
    assert answer.status_code == 200
    assert heard == (["link"] if locked else [])
    assert post_site.login("vera", "right vera").status_code == 200


CLEARS = ["success", "guard", "command", "reset", "link"]


@pytest.mark.parametrize("way", CLEARS)
def test_a_cleared_record_leaves_no_timer(
    site_factory: Callable[..., Site], clock: Clock, way: str
) -> None:
    """B112: three failures at 0, cleared at 4 s, two at 5 s: 2 count at 10.5 s, none at 15.1 s."""
    limits = [
        {"name": "account", "by": ["account"], "sliding_log": "3/10s", "lockout": "9s"},
        {"name": "client", "by": ["client"], "sliding_log": "90/10s"},
    ]
    if way == "success":
        limits[0]["sliding_log"] = "5/10s"
    site = site_factory(clock=clock, messages={}, limits=limits)
    password = "right vera"
    site.statuses(3)
    if way == "reset":
        site.post("/auth/password/forgot", json={"identifier": "vera"})
    links = {kind: site.messages(kind) for kind in ("unlock", "reset")}
    clock.advance(4_000)
    if way == "success":
        assert site.login("vera", password).status_code == 200
    elif way == "guard":
        site.guard.clear("login", account=site.guard.account_key("vera"))
    elif way == "command":
        arguments = ["authguard", "unlock", "login", "--account", "vera"]
        assert site.app.test_cli_runner().invoke(args=arguments).exit_code == 0
    elif way == "reset":
        password = "a new password"
        body = {"token": links["reset"][0].token, "password": password}
        assert site.post("/auth/password/reset", json=body).status_code == 200
    else:
        body = {"token": links["unlock"][0].token}
        assert site.post("/auth/unlock", json=body).status_code == 200
    assert site.used() == 0
    clock.advance(1_000)
    assert site.statuses(2) == [401] * 2
    clock.advance(5_500)
    assert site.used() == 2
    clock.advance(4_499)
    assert site.used() == 2
    clock.advance(1)
    assert site.used() == 0
    assert site.login("vera", password).status_code == 200


@pytest.mark.parametrize("who", ["vera", "ghost", "dora", "tess", "nora"])
def test_a_lock_looks_the_same_for_everybody(post_site: Site, clock: Clock, who: str) -> None:
    """A52, A53, A55: with codes and links in place: five hashes, then 429s without one, alike."""
    faces = []
    for name in (who, "somebody"):
        before = len(post_site.spy.checks)
        answers = [post_site.login(name, client=OTHER) for _ in range(6)]
        answers.append(post_site.login(name, f"right {name}", client=OTHER))
        assert len(post_site.spy.checks) - before == 5
        faces.append([(each.status_code, each.data, list(each.headers)) for each in answers])
    assert faces[0] == faces[1]
    assert [status for status, _, _ in faces[0]] == [401] * 5 + [429] * 2
