"""What ``authguard override`` changes, for whom and until when."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

import pytest

from authguard._core import calls
from authguard._core.sealed import SALT_BYTES, seal
from authguard._notes import Act, _record
from authguard.errors import Denied
from authguard.flask import signals
from authguard.ops.desk import Desk
from authguard.ops.standing import status
from tests.flask.conftest import bare_app, site, site_factory
from tests.ops.conftest import CLIENT, OTHER

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask

    from authguard import Guard
    from tests.conftest import Clock
    from tests.flask.conftest import Site
    from tests.ops.conftest import Terminal

__all__ = ["bare_app", "site", "site_factory"]

TO_8 = ("--to", "8/1h", "--for", "7d")
WEEK_MS = 7 * 86_400_000
PLANS = {
    "api": {
        "limits": [
            {"name": "hour", "by": ["account"], "fixed_window": "10/1h", "tiers": {"pro": "50/1h"}},
            {"name": "burst", "by": ["account"], "token_bucket": "5/1s", "burst": 20},
            {"name": "wait", "by": ["account"], "cooldown": ["1s"]},
            {"name": "client", "by": ["client"], "sliding_log": "20/1h"},
        ]
    }
}


def admitted(guard: Guard, most: int, **named: Any) -> int:
    """Tell how many of so many attempts at login are admitted, each from its own client."""
    count = 0
    for at in range(most):
        try:
            guard.attempt("login", **{"account": "vera", "client": f"192.0.{at}.1"} | named)
        except Denied:
            continue
        count += 1
    return count


def test_one_account_has_other_numbers(terminal: Terminal, guard: Guard) -> None:
    """The named account is admitted as often as it says, from the next attempt on; nobody else."""
    assert admitted(guard, 2) == 2
    result = terminal.run("override", "login", "account", "--account", "VERA", *TO_8)
    assert result.exit_code == 0
    assert result.stdout.startswith("login: account of account is 8/1h until ")
    assert result.stdout.endswith(", in 7 d (UTC)\n")
    assert admitted(guard, 9) == 6
    assert admitted(guard, 9, account="omar") == 5


def test_an_exempt_account_is_not_refused_by_it(
    terminal: Terminal, guard: Guard, fail: Callable[..., None]
) -> None:
    """The limit and its lock stand aside and count nothing; the others count on."""
    fail(5, client=CLIENT)
    assert admitted(guard, 1) == 0
    result = terminal.run(
        "override", "login", "account", "--account", "vera", "--exempt", "--for", "1h"
    )
    assert result.stdout.startswith("login: account is exempt from account until ")
    assert result.stdout.endswith(", in 1 h (UTC)\n")
    assert admitted(guard, 9) == 4  # the day's log has nine places
    told = terminal.told("status", "login", "vera")
    account, day = (
        next(it for it in told["limits"] if it["name"] == n) for n in ("account", "day")
    )
    assert (account["exempt"], account["used"], account["remaining"]) == (True, 5, None)
    assert (day["exempt"], day["used"], day["remaining"]) == (False, 9, 0)
    assert (told["refused_by"], told["failures"]) == (["day"], 9)


def test_a_lock_that_stands_stays(
    terminal: Terminal, guard: Guard, fail: Callable[..., None]
) -> None:
    """Higher numbers end no lock; an unlock does, and then they hold."""
    fail(5, client=CLIENT)
    assert terminal.run("override", "login", "account", "--account", "vera", *TO_8).exit_code == 0
    assert admitted(guard, 1) == 0
    assert terminal.run("unlock", "login", "--account", "vera").exit_code == 0
    assert admitted(guard, 9) == 8


def test_lower_numbers_refuse_what_is_counted_already(
    terminal: Terminal, guard: Guard, fail: Callable[..., None]
) -> None:
    """What has been counted goes on counting, also under a lower limit."""
    fail(3)
    terminal.told(
        "override", "login", "account", "--account", "vera", "--to", "2/1h", "--for", "1h"
    )
    told = terminal.told("status", "login", "vera")
    (account,) = [limit for limit in told["limits"] if limit["name"] == "account"]
    assert (account["limit"], account["used"], account["remaining"]) == (2, 3, 0)
    assert told["refused_by"] == ["account"]
    assert admitted(guard, 1) == 0


def test_it_is_taken_back(terminal: Terminal, guard: Guard, fail: Callable[..., None]) -> None:
    """A lift says so and holds at once; a second one has nothing to lift, which is status 3."""
    lift = ("override", "login", "account", "--account", "vera", "--lift")
    terminal.told("override", "login", "account", "--account", "vera", *TO_8)
    result = terminal.run(*lift)
    assert (result.exit_code, result.stdout) == (
        0,
        "login: account of account is as in the policy again\n",
    )
    assert admitted(guard, 9) == 5
    result = terminal.run(*lift)
    assert (result.exit_code, result.stdout) == (
        3,
        "nothing to lift: account has no override of account at login\n",
    )
    result = terminal.run(*lift, "--json")
    assert (result.exit_code, json.loads(result.stdout)["lifted"]) == (3, False)
    acts = terminal.told("status", "login", "vera")["acts"]
    assert [(act["to"], act["until"] is None) for act in acts] == [(None, True), ("8/1h", False)]


def test_json_has_always_the_same_fields(terminal: Terminal, guard: Guard) -> None:
    """Set, exempt and lifted are told in the same fields, with the account's pseudonym alone."""
    whom = ("override", "login", "day", "--account", "vera")
    reports = [
        terminal.told(*whom, "--to", "40/24h", "--for", "7d"),
        terminal.told(*whom, "--exempt", "--for", "1h"),
        terminal.told(*whom, "--lift"),
    ]
    ends = [report.pop("override_until") for report in reports]
    assert [end is None for end in ends] == [False, False, True]
    same = {"act": "override", "on": ["account"], "action": "login", "limit": "day"}
    same["subject"] = guard.subject("vera")
    assert reports == [
        {**same, "to": "40/24h", "lifted": False},
        {**same, "to": "exempt", "lifted": False},
        {**same, "to": None, "lifted": True},
    ]


def test_status_shows_it_until_it_ends(guard_factory: Callable[..., Guard], clock: Clock) -> None:
    """The numbers as they are and the end, to the millisecond; then the limit's own again."""
    desk = Desk(guard_factory(policies=PLANS, clock=clock))
    until_ms = desk.guard.override("api", "hour", account="vera", to="30/1h", for_ms=WEEK_MS)
    hour = status(desk, "api", account="vera").limits[0]
    assert (hour.limit, hour.override_until_ms, hour.exempt) == (30, until_ms, False)
    assert hour.as_json()["override_until"] == "2027-01-22T08:00:00.000Z"
    clock.advance(WEEK_MS - 1)
    assert status(desk, "api", account="vera").limits[0].limit == 30
    clock.advance(1)
    hour = status(desk, "api", account="vera").limits[0]
    assert (hour.limit, hour.override_until_ms) == (10, None)


def test_status_shows_the_tiers_numbers(guard_factory: Callable[..., Guard]) -> None:
    """By the guard's own function; an override goes before the tier."""
    desk = Desk(guard_factory(policies=PLANS, tier={"vera": "pro"}.get))
    shown = [status(desk, "api", account=who).limits[0].limit for who in ("vera", "omar")]
    assert shown == [50, 10]
    desk.guard.override("api", "hour", account="vera", to="7/1h", for_ms=1_000)
    assert status(desk, "api", account="vera").limits[0].limit == 7


def test_without_the_app_tiers_are_unknown_and_it_says_so(
    terminal: Terminal, tmp_path: Any
) -> None:
    """Standard error says that the numbers are those of no tier; not where no limit has one."""
    (tmp_path / "policy.toml").write_text(
        '[api]\nlimits = [{ name = "hour", by = ["account"], fixed_window = "10/1h",'
        ' tiers = { pro = "50/1h" } }, { name = "client", by = ["client"], sliding_log = "9/1h" }]'
    )
    assert "without a tier" in terminal.run("status", "api", "vera").stderr
    assert "tier" not in terminal.run("status", "login", "vera").stderr
    assert "tier" not in terminal.run("status", "api", "--client", CLIENT).stderr


def test_the_table_tells_numbers_and_end(terminal: Terminal, fail: Callable[..., None]) -> None:
    """In 80 columns: the numbers as they are, until when, who is exempt, and what was done."""
    fail(5)
    whom = ("--account", "vera", "--for", "30d", "--by", "anna")
    terminal.told("override", "login", "day", *whom, "--to", "40/24h", "--reason", "tests a lot")
    terminal.told("override", "login", "account", *whom, "--exempt")
    result = terminal.run("status", "login", "vera", "--client", OTHER, COLUMNS="80")
    assert max(map(len, result.stdout.splitlines())) <= 80
    words = " ".join(result.stdout.split())
    assert "5/40" in words
    assert "override until " in words
    assert "exempt until " in words
    assert "; the account is exempt from it" in words
    assert "What operators did last" in words
    assert "tests a lot" in words
    wide = terminal.run("status", "login", "vera", COLUMNS="140").stdout
    assert "override account for login, account: exempt, until" in wide
    assert "override account for login, day: 40/24h, until" in wide


def test_it_is_logged_by_pseudonym_alone(
    terminal: Terminal, guard: Guard, caplog: pytest.LogCaptureFixture
) -> None:
    """One line for each act: operator, limit, numbers; no account and no reason."""
    whom = ("override", "login", "day", "--account", "vera", "--by", "anna", "--reason", "q")
    terminal.told(*whom, "--to", "40/24h", "--for", "7d")
    terminal.told(*whom, "--exempt", "--for", "7d")
    terminal.told(*whom, "--lift")
    lines = [record.getMessage() for record in caplog.records if record.name == "authguard"]
    start, end = "operator anna: override of account for login, day: ", guard.subject("vera")
    assert lines == [
        f"{start}{to} (subject {end})" for to in ("40/24h", "exempt", "as in the policy")
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("login", "day"), "Missing option '--account'"),
        (
            ("login", "day", "--account", "vera", "--for", "1h"),
            "take exactly one of --to, --exempt",
        ),
        (("login", "day", "--account", "vera", "--to", "9/1h", "--lift"), "take exactly one"),
        (("login", "day", "--account", "vera", "--exempt", "--lift"), "take exactly one"),
        (("login", "day", "--account", "vera", "--exempt"), "say how long, such as --for 7d"),
        (("login", "day", "--account", "vera", "--lift", "--for", "1h"), "leave --for out"),
        (("login", "day", "--account", "vera", "--exempt", "--for", "0s"), "AG006 --for"),
        (("login", "day", "--account", "vera", "--exempt", "--for", "3651d"), "AG006 --for"),
        (("login", "day", "--account", "vera", "--to", "", "--for", "1h"), "AG005 to: ''"),
        (("login", "day", "--account", "vera", "--to", "many", "--for", "1h"), "AG005 to: 'many'"),
        (("login", "hour", "--account", "vera", "--exempt", "--for", "1h"), "AG009 [login] limit"),
        (("nothing", "day", "--account", "vera", "--lift"), "AG009 action 'nothing'"),
        (("login", "client", "--account", "vera", "--exempt", "--for", "1h"), "AG053 [login]"),
        (("login", "day", "--account", "a\x00b", "--lift"), "account: must not hold control"),
        (("login", "day", "--account", "vera", "--lift", "--by", "\n"), "the text must have 1 to"),
    ],
)
def test_wrong_use_is_status_2(terminal: Terminal, arguments: tuple[str, ...], words: str) -> None:
    """What can't be meant changes nothing, and a line says what is wrong."""
    result = terminal.run("override", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    told = terminal.told("status", "login", "vera")
    assert {limit["override_until"] for limit in told["limits"]} == {None}
    assert told["acts"] == []


def test_the_app_finds_the_account_and_is_told(site: Site) -> None:
    """At the app's desk any name will do, and each act is a signal; a lift of nothing is none."""
    heard: list[dict[str, Any]] = []

    def acted(_app: Flask, **payload: Any) -> None:
        heard.append(payload)

    def operate(*arguments: str) -> Any:
        return site.app.test_cli_runner().invoke(args=["authguard", "override", *arguments])

    whom = ("login", "account", "--account", "Vera@Example.test", "--by", "anna")
    with signals.operator_acted.connected_to(acted):
        result = operate(*whom, "--to", "7/300s", "--for", "7d", "--reason", "tests a lot")
        assert (result.exit_code, result.stderr) == (0, "")
        assert site.statuses(8) == [401] * 7 + [429]
        assert operate(*whom, "--lift").exit_code == 0
        assert operate(*whom, "--lift").exit_code == 3
    assert [(it["act"], it["action"], it["by"], it["reason"]) for it in heard] == [
        ("override", "login", "anna", "tests a lot"),
        ("override", "login", "anna", None),
    ]
    assert {it["subject"] for it in heard} == {site.guard.subject("key-1")}
    result = operate("login", "account", "--account", "ghost", "--exempt", "--for", "1h")
    assert (
        result.stderr
        == "Note: nobody has that name: it counts by its spelling; --exact takes a key as it is\n"
    )


def test_notes_of_before_can_be_read(terminal: Terminal, guard: Guard) -> None:
    """Acts that were noted without a limit are shown as ever, before one that has it."""
    known, on = guard._named("vera", None, None)
    key, secret = _record(guard._engine.pseudonyms[0], known.pseudonyms[0], on)
    old = [["block", ["account"], 1_700_000_000_000, "ben", "why", [], 1_700_000_060_000]]
    sealed = seal(secret, secrets.token_bytes(SALT_BYTES), json.dumps(old))
    guard._engine.store.run(calls.put(key, sealed, life_ms=60_000, now_ms=None))
    (act,) = guard.notes.last(account="vera")
    assert act == Act(
        "block", ("account",), 1_700_000_000_000, "ben", "why", until_ms=1_700_000_060_000
    )
    terminal.told("override", "login", "account", "--account", "vera", *TO_8)
    acts = terminal.told("status", "login", "vera")["acts"]
    assert [(it["act"], it["limit"], it["to"]) for it in acts] == [
        ("override", "account", "8/1h"),
        ("block", None, None),
    ]
