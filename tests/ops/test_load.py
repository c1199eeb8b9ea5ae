"""What ``authguard load`` shows and sets, and which limits follow it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from authguard.ops.desk import Desk
from authguard.ops.standing import status
from authguard.ops.terms import current_load, set_load
from tests.flask.conftest import bare_app, site, site_factory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from authguard import Guard
    from tests.conftest import Clock
    from tests.flask.conftest import Site
    from tests.ops.conftest import Terminal

__all__ = ["bare_app", "site", "site_factory"]

ELASTIC = """
[api]
limits = [
  { name = "hour", by = ["account"], fixed_window = "1000/1h", elastic = true },
  { name = "burst", by = ["account"], token_bucket = "5/1s", burst = 20, elastic = true },
  { name = "day", by = ["account"], fixed_window = "9000/1d" },
  { name = "client", by = ["client"], sliding_window_counter = "900/1m", elastic = true },
]
"""
HUNDRED = {"fixed_window": "100/1h", "elastic": True}
FOLLOWED = "followed by api: hour, burst, client\n"


@pytest.fixture
def elastic(terminal: Terminal, tmp_path: Path) -> Terminal:
    """Give a terminal whose policy has limits that follow the load."""
    (tmp_path / "policy.toml").write_text(ELASTIC)
    return terminal


def limits_of(told: dict[str, Any]) -> dict[str, int]:
    """Give the limits of a report by their names."""
    return {limit["name"]: limit["limit"] for limit in told["limits"]}


def test_it_is_shown_set_and_ended(elastic: Terminal) -> None:
    """1 where nobody has said anything; a share and its end; 1 again at once."""
    assert elastic.run("load").stdout == f"load 1\n{FOLLOWED}"
    result = elastic.run("load", "0.2")
    assert (result.exit_code, result.stderr) == (0, "")
    first, second = result.stdout.splitlines(keepends=True)
    assert first.startswith("load 0.2 until ")
    assert first.endswith(", in 10 min (UTC)\n")
    assert second == FOLLOWED
    shown = elastic.run("load").stdout.splitlines(keepends=True)
    assert shown[0].startswith("load 0.2 until ")
    assert shown[1] == FOLLOWED
    assert elastic.run("load", "0.5", "--for", "2h").stdout.splitlines()[0].endswith("in 2 h (UTC)")
    assert elastic.run("load", "1").stdout == f"load 1\n{FOLLOWED}"
    assert elastic.run("load").stdout == f"load 1\n{FOLLOWED}"


def test_json_has_always_the_same_fields(elastic: Terminal) -> None:
    """Shown, set and ended are told alike; the end is null where it is not known, or none."""
    reports = [elastic.told("load"), elastic.told("load", ".125"), elastic.told("load", "1.0")]
    assert [report.pop("until") is None for report in reports] == [True, False, True]
    assert all(report.pop("at").endswith("Z") for report in reports)
    followed = {"api": ["hour", "burst", "client"]}
    assert reports == [{"load": share, "elastic": followed} for share in (1, 0.125, 1)]


def test_it_holds_until_its_end(guard_factory: Callable[..., Guard], clock: Clock) -> None:
    """In every guard on the store, to the millisecond that was told."""
    policies = {"api": {"limits": [{"name": "all", "by": ["global"], **HUNDRED}]}}
    desk, other = (Desk(guard_factory(policies=policies, clock=clock)) for _ in range(2))
    done = set_load(desk, 0.2, for_ms=600_000, by="anna")
    assert done.until_ms == clock.now_ms + 600_000
    clock.advance(599_999)
    assert current_load(other).share == 0.2
    assert other.guard.peek("api").verdicts[0].limit == 20
    clock.advance(1)
    assert current_load(other).share == 1
    assert other.guard.peek("api").verdicts[0].limit == 100


def test_status_shows_the_scaled_numbers(elastic: Terminal) -> None:
    """Limits that follow the load are shown as they are now, and the load above; others whole."""
    told = elastic.told("status", "api", "vera")
    assert told["load"] == 1
    assert limits_of(told) == {"hour": 1000, "burst": 20, "day": 9000}
    assert "Load" not in elastic.run("status", "api", "vera").stdout
    elastic.told("load", "0.2")
    told = elastic.told("status", "api", "vera")
    assert told["load"] == 0.2
    assert limits_of(told) == {"hour": 200, "burst": 4, "day": 9000}
    assert [limit["elastic"] for limit in told["limits"]] == [True, True, False]
    words = " ".join(elastic.run("status", "api", "vera").stdout.split())
    assert "Load 0.2 of their numbers: hour, burst" in words
    assert elastic.told("status", "login", "vera")["load"] is None
    assert "Load" not in elastic.run("status", "login", "vera").stdout


def test_nothing_is_admitted_at_0_and_status_says_why(elastic: Terminal) -> None:
    """At 0 the limits that follow refuse, until the load's end."""
    elastic.told("load", "0", "--for", "30m")
    told = elastic.told("status", "api", "vera")
    assert told["refused_by"] == ["hour", "burst"]
    assert 1_790 < told["retry_after"] <= 1_800
    words = " ".join(elastic.run("status", "api", "vera").stdout.split())
    assert "refused by hour, burst; admitted again in 30 min" in words
    assert "Load 0 of their numbers: hour, burst" in words


def test_an_override_follows_the_load(elastic: Terminal) -> None:
    """One account's own numbers are scaled as the limit's are."""
    elastic.told("override", "api", "hour", "--account", "vera", "--to", "5000/1h", "--for", "1h")
    elastic.told("load", "0.2")
    assert limits_of(elastic.told("status", "api", "vera"))["hour"] == 1000
    assert limits_of(elastic.told("status", "api", "omar"))["hour"] == 200


def test_it_says_where_nothing_follows(terminal: Terminal) -> None:
    """Without an elastic limit it is set all the same, and standard error says so."""
    result = terminal.run("load", "0.2")
    assert result.exit_code == 0
    assert result.stderr == "Note: no limit of the policy is elastic, so none follows the load\n"


def test_the_log_tells_of_it(elastic: Terminal, caplog: pytest.LogCaptureFixture) -> None:
    """Who, what, until when and why; to look at it is no act, and nobody's notes have it."""
    until = elastic.told("load", "0.2", "--by", "anna", "--reason", "db slow")["until"]
    elastic.told("load", "1", "--by", "ben")
    elastic.told("load")
    lines = [record.getMessage() for record in caplog.records if record.name == "authguard"]
    assert lines == [f"operator anna: load 0.2 until {until} (db slow)", "operator ben: load 1"]
    assert elastic.told("status", "api", "vera")["acts"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("1.001",), "1.001 is no share; write a number from 0 to 1"),
        (("20",), "20 is no share"),
        (("0.1234",), "with three decimals at most"),
        (("nan",), "nan is no share"),
        (("1e-1",), "1e-1 is no share"),
        (("",), "is no share"),
        (("--for", "1m"), "name the SHARE"),
        (("--reason", "why"), "name the SHARE"),
        (("1", "--for", "1m"), "a SHARE of 1 ends the load; leave --for out"),
        (("0.2", "--for", "soon"), "AG006 --for: 'soon' is not a period"),
        (("0.2", "--reason", "a\x00b"), "the text must not hold control"),
    ],
)
def test_wrong_use_is_status_2(elastic: Terminal, arguments: tuple[str, ...], words: str) -> None:
    """What can't be meant sets nothing, and a line says what is wrong."""
    result = elastic.run("load", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert elastic.told("load")["load"] == 1


def test_the_apps_guard_follows_it(site_factory: Callable[..., Site]) -> None:
    """At the app's desk its own store is told, and its own limits are named."""
    site = site_factory(
        limits=[
            {"name": "account", "by": ["account"], "sliding_log": "10/1h", "elastic": True},
            {"name": "client", "by": ["client"], "sliding_log": "20/1h"},
        ]
    )
    run = site.app.test_cli_runner().invoke
    result = run(args=["authguard", "load", "0.25"])
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.endswith("\nfollowed by login: account\n")
    desk = Desk(site.guard)
    assert status(desk, "login", account="key-1").limits[0].limit == 3  # rounded up
    assert run(args=["authguard", "load", "1"]).exit_code == 0
    assert status(desk, "login", account="key-1").limits[0].limit == 10
