"""Kind ``clock``: wrong clocks of web workers, frozen time, time zones, two readings in one."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from freezegun import freeze_time

from tests.cases.web_worker import workers
from tests.flask.conftest import POLICY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import valkey

    from authguard.testing import EmbeddedValkey
    from tests.cases.web_worker import Worker
    from tests.conftest import Clock
    from tests.flask.conftest import Site

# Found here by its name.
__all__ = ["workers"]

LOCK_S = 900
MINUTE_S = 60


def store_s(client: valkey.Valkey) -> float:
    """Read the clock that counts."""
    seconds, micros = client.time()
    return float(seconds + micros / 1_000_000)


@pytest.mark.parametrize(
    "offset_s",
    [10 * MINUTE_S, pytest.param(10, marks=pytest.mark.slow)],
    ids=["10 minutes", "10 seconds"],
)
def test_two_web_workers_with_wrong_clocks(
    workers: Callable[..., list[Worker]],
    client: valkey.Valkey,
    offset_s: int,
) -> None:
    """A93, B127: one clock early, one late, 10 tries in turn: 5 checked, and all waits true."""
    (early,), (late,) = (workers(1, POLICY, offset_s=skew_s) for skew_s in (-offset_s, offset_s))
    told: list[dict[str, Any]] = []
    around: list[tuple[float, float]] = []
    for each in (early, late) * 5:
        before_s = store_s(client)
        each.order("vera")
        told.append(each.told())
        around.append((before_s, store_s(client)))
    assert told[1]["s"] - told[0]["s"] > offset_s  # their clocks are as wrong as that
    assert [it["answers"][0][0] for it in told] == [401] * 5 + [429] * 5
    assert [it["checked"] for it in told] == [1] * 5 + [0] * 5
    lock_set_s = around[4]
    for refusal, (before_s, after_s) in zip(told[5:], around[5:], strict=True):
        wait_s = int(refusal["answers"][0][1])
        # Up to a second more, since it is rounded up.
        assert lock_set_s[0] + LOCK_S - after_s <= wait_s < lock_set_s[1] + LOCK_S - before_s + 1


@pytest.mark.parametrize("tick", [False, True])
def test_a_login_in_frozen_time(build: Callable[..., Site], tick: bool) -> None:
    """B129: in frozen time the 6th wrong password is 429 with a true wait, and nothing hangs."""
    site = build()
    with freeze_time("2020-01-01", tick=tick):
        assert site.statuses(5) == [401] * 5
        answer = site.login()
    assert answer.status_code == 429
    assert 1 <= int(answer.headers["Retry-After"]) <= LOCK_S


def test_the_documented_clock_of_tests(build: Callable[..., Site]) -> None:
    """B129: with the clock that the docs show, 900 s on by freezegun the right password is 200."""
    site = build(clock=lambda: int(time.time() * 1000))
    with freeze_time("2020-01-01") as frozen:
        assert site.statuses(6) == [401] * 5 + [429]
        frozen.tick(LOCK_S - 0.001)
        assert site.login("vera", "right vera").headers["Retry-After"] == "1"
        frozen.tick(0.001)
        assert site.login("vera", "right vera").status_code == 200


#: When the clocks of St John's go forward and back in 2027.
CHANGES = {
    "forward": datetime(2027, 3, 14, 5, 30, tzinfo=UTC),
    "back": datetime(2027, 11, 7, 4, 30, tzinfo=UTC),
}


@pytest.fixture
def local_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Give a way to move this process into a time zone; it goes home with the test."""

    def move(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield move
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/St_Johns", "UTC"])
def test_a_lock_across_a_change_of_clocks(
    build: Callable[..., Site],
    clock: Clock,
    local_zone: Callable[[str], None],
    zone: str,
    change: str,
) -> None:
    """B130: a lock lasts 900 s in every zone, also over a change, and status shows its true end."""
    local_zone(zone)
    begin = CHANGES[change] - timedelta(minutes=7)
    if zone == "America/St_Johns":
        after = begin + timedelta(seconds=LOCK_S)
        assert begin.astimezone().utcoffset() != after.astimezone().utcoffset()
    site = build(clock=clock)
    clock.now_ms = round(begin.timestamp() * 1000)
    assert site.statuses(4) == [401] * 4
    clock.advance(MINUTE_S * 1_000)
    assert site.statuses(2) == [401, 429]
    ends = begin + timedelta(seconds=MINUTE_S + LOCK_S)
    shown = site.app.test_cli_runner().invoke(
        args=["authguard", "status", "login", "vera", "--json"]
    )
    until = json.loads(shown.stdout)["locked_until"]
    assert datetime.fromisoformat(until).utcoffset() is not None
    assert datetime.fromisoformat(until) == ends
    clock.advance(LOCK_S * 1_000 - 1)
    assert site.login("vera", "right vera").headers["Retry-After"] == "1"
    clock.advance(1)
    assert site.login("vera", "right vera").status_code == 200


def test_without_its_clock_the_store_gives_no_verdict(
    build: Callable[..., Site], own_valkey: EmbeddedValkey, own_client: valkey.Valkey
) -> None:
    """B131: where the server's clock can't be read the answer is 503; no other clock steps in."""
    own_client.acl_setuser(
        "worker", enabled=True, passwords=["+pw"], keys=["*"], categories=["+@all"]
    )
    site = build(AUTHGUARD_STORE_URL=f"valkey://worker:pw@127.0.0.1:{own_valkey.port}/0")
    assert site.login().status_code == 401
    own_client.execute_command("ACL", "SETUSER", "worker", "-time")
    answer = site.login("vera", "right vera")
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) >= 1
    assert len(site.spy.checks) == 1
    own_client.execute_command("ACL", "SETUSER", "worker", "+time")
    assert site.used() == 1
