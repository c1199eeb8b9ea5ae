"""What ``authguard status`` tells: everything that counts, always in the same fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from authguard.ops.desk import Desk
from authguard.ops.standing import Standing, StandingLimit, status
from authguard.ops.standing_table import moment, standing_table
from authguard.testing import embedded_valkey
from tests.ops.conftest import CLIENT, OTHER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import valkey

    from authguard import Guard
    from tests.conftest import Clock
    from tests.ops.conftest import Terminal

FIELDS = {
    *("action", "account", "subject", "client", "at", "failures", "remaining", "last_failure"),
    *("locked", "locked_until", "retry_after", "refused_by", "blocked", "blocked_until", "blocks"),
    *("recovery_required", "load", "limits", "acts"),
}

#: Algorithms that are no logs of failures, with numbers as large as they can be.
ALGORITHMS = """
[api]
limits = [
  { name = "month", by = ["account"], fixed_window = "1000000000/1mo", zone = "Europe/Oslo" },
  { name = "burst", by = ["account"], token_bucket = "5/1s", burst = 20 },
  { name = "pace", by = ["account"], leaky_bucket = "2/1m", queue = 9 },
  { name = "counter", by = ["account"], sliding_window_counter = "90/1m" },
  { name = "client", by = ["client"], sliding_window_counter = "900/1m" },
]
"""


def by_name(told: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Give the limits of a report by their names."""
    return {limit["name"]: limit for limit in told["limits"]}


def test_the_fields_are_always_the_same(terminal: Terminal, fail: Callable[..., None]) -> None:
    """B142: with nothing, one failure, a lock and a block the report has the same fields."""
    reports = [terminal.told("status", "login", "vera")]
    fail(1)
    reports.append(terminal.told("status", "login", "vera"))
    fail(4, client=CLIENT)
    reports.append(terminal.told("status", "login", "vera"))
    terminal.told("block", "--account", "vera")
    reports.append(terminal.told("status", "login", "vera"))
    assert all(report.keys() == FIELDS for report in reports)
    for part in ("limits", "blocks", "acts"):
        assert len({tuple(each) for report in reports for each in report[part]}) <= 1
    seen = [
        [report[field] for field in ("failures", "remaining", "locked", "blocked")]
        for report in reports
    ]
    assert seen == [
        [0, 5, False, False],
        [1, 4, False, False],
        [5, 0, True, False],
        [5, 0, True, True],
    ]
    assert [report["last_failure"] is None for report in reports] == [True, False, False, False]
    assert [report["locked_until"] is None for report in reports] == [True, True, False, False]
    assert [report["retry_after"] is None for report in reports] == [True, True, False, True]
    assert 7_100 < reports[2]["retry_after"] <= 7_200


def test_every_limit_of_an_account_at_a_client(
    terminal: Terminal, fail: Callable[..., None]
) -> None:
    """With KEY and --client all six limits are shown, the pair and the spray among them."""
    fail(3)
    fail(1, account="omar")
    limits = by_name(terminal.told("status", "login", "Vera ", "--client", OTHER))
    used = {name: (limit["used"], limit["remaining"]) for name, limit in limits.items()}
    assert used == {
        "pair": (3, 2),
        "account": (3, 2),
        "day": (3, 6),
        "client": (4, 16),
        "network": (4, 36),
        "spray": (2, 18),
    }
    assert all(limit["frees_at"].endswith("Z") for limit in limits.values())


def test_a_client_alone_is_shown_with_its_network(
    terminal: Terminal, fail: Callable[..., None]
) -> None:
    """By any spelling of its address; the accounts it tried are counted, and not told."""
    fail(2, client="2001:db8:1:2::1")
    told = terminal.told("status", "login", "--client", "2001:DB8:1:2:0::99")
    used = {name: limit["used"] for name, limit in by_name(told).items()}
    assert used == {"client": 2, "network": 2, "spray": 1}
    assert (told["failures"], told["remaining"]) == (2, 18)
    assert (told["account"], told["subject"]) == (None, None)
    assert told["client"] == "2001:db8:1:2::99"


def test_names_are_literal(terminal: Terminal, fail: Callable[..., None]) -> None:
    """A name like an address is an account, and one with a star is no pattern."""
    fail(2, account=CLIENT)
    assert terminal.told("status", "login", CLIENT)["failures"] == 2
    assert terminal.told("status", "login", "--client", CLIENT)["failures"] == 0
    for pattern in ("203*", "*", "%", "203.0.113.?"):
        assert terminal.told("status", "login", pattern)["failures"] == 0
    fail(1, account="--json")
    assert terminal.told("status", "login", "--", "--json")["failures"] == 1


def test_the_subject_is_that_of_the_logs(terminal: Terminal, guard: Guard) -> None:
    """What the report calls the account is what events and logs call it."""
    assert terminal.told("status", "login", "VERA")["subject"] == guard.subject("vera")


def test_a_lock_leaves_no_place(
    terminal: Terminal, guard: Guard, fail: Callable[..., None]
) -> None:
    """Where a success gave a place of a locked log back, none is left all the same."""
    attempt = guard.attempt("login", account="vera", client=CLIENT)
    fail(4)
    attempt.succeed()
    told = terminal.told("status", "login", "vera")
    assert (told["failures"], told["remaining"], told["locked"]) == (4, 0, True)


def test_looking_changes_nothing(
    terminal: Terminal, fail: Callable[..., None], client: valkey.Valkey
) -> None:
    """A status writes no key and touches none."""
    fail(5)
    before = {key: client.dump(key) for key in client.scan_iter()}
    terminal.told("status", "login", "vera", "--client", OTHER)
    assert {key: client.dump(key) for key in client.scan_iter()} == before


def test_a_destination_has_limits_of_its_own(
    terminal: Terminal, guard_factory: Callable[..., Guard]
) -> None:
    """What was sent to a number is shown by the number, in any spelling."""
    guard = guard_factory(secret=terminal.env["AUTHGUARD_SECRET"])
    guard.attempt("otp.send", account="vera", client=OTHER, destination="+14155550101", purpose="x")
    told = terminal.told("status", "otp.send", "--destination", "+1 415 555 0101")
    limits = by_name(told)
    assert limits["destination-hour"]["used"] == limits["range"]["used"] == 1
    assert limits["range-conversion"]["remaining"] is None
    assert told["failures"] == 1


def test_a_block_without_end_has_no_wait(terminal: Terminal) -> None:
    """Blocked, no end, no wait: null is told rather than a number that would be a lie."""
    terminal.told("block", "--account", "vera", "--for", "1h")
    told = terminal.told("status", "login", "vera")
    assert told["blocked"] is True
    assert told["refused_by"] == ["block"]
    assert 3_590 < told["retry_after"] <= 3_600
    assert told["blocked_until"] == told["blocks"][0]["until"] != None  # noqa: E711 (chained)
    terminal.told("block", "--account", "vera")
    told = terminal.told("status", "login", "vera")
    assert told["blocked"] is True
    assert (told["blocked_until"], told["retry_after"]) == (None, None)


def test_the_table_fits_80_columns_and_shows_what_it_holds(
    terminal: Terminal, fail: Callable[..., None]
) -> None:
    """Lock, block, every limit and the last acts, as plain text; foreign text appears as it is."""
    fail(5)
    reason = "[bold]rang[/bold] " + "r" * 150
    terminal.told("block", "--account", "vera", "--reason", reason, "--by", "[red]anna")
    result = terminal.run("status", "login", "vera", "--client", OTHER, COLUMNS="80")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in result.stdout
    for words in (
        "refused by pair, account",
        "by account until ",
        "(episode 1)",
        "by an operator, without end (account)",
        "spray",
        "5/20",
        "UTC",
        "in 2 h",
        "What operators did last",
        "block account",
        "[red]anna",
        "[bold]rang[/bold]",
    ):
        assert words in result.stdout


def test_names_count_as_spelt_and_it_says_so(terminal: Terminal) -> None:
    """Without an app nobody can look names up, and standard error says so; not for addresses."""
    assert "use flask authguard" in terminal.run("status", "login", "vera").stderr
    assert terminal.run("status", "login", "--client", CLIENT).stderr == ""


@pytest.mark.parametrize("command", [("status", "login", "vera"), ("unlock", "--account", "vera")])
def test_a_store_that_is_away_is_status_1(terminal: Terminal, command: tuple[str, ...]) -> None:
    """B140: one line on standard error, no traceback, and never the store's password."""
    with embedded_valkey() as server:
        port = server.port
    url = f"valkey://someone:tell-nobody@127.0.0.1:{port}/0"
    result = terminal.run(*command, AUTHGUARD_STORE_URL=url)
    assert (result.exit_code, result.stdout) == (1, "")
    error = result.stderr.splitlines()[-1]
    assert error.startswith(f"Error: the store at 127.0.0.1:{port} gave no clear answer")
    assert "Traceback" not in result.stderr
    assert "tell-nobody" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "env", "words"),
    [
        (("status",), {}, "Missing argument 'ACTION'"),
        (("status", "nothing", "vera"), {}, "AG009 action 'nothing'"),
        (("status", "login"), {}, "name somebody: KEY, --client or --destination"),
        (("status", "login", " "), {}, "account: must not be empty"),
        (("status", "login", "a\u200bb"), {}, "account: must not hold"),
        (("status", "login", "--client", "203.0.113.0/24"), {}, "is no IP address"),
        (("status", "login", "--client", "gate"), {}, "gate is no IP address"),
        (("status", "otp.verify", "--destination", "x"), {}, "destination: "),
        (("status", "login", "vera", "--policy", "none.toml"), {}, "AG001 none.toml"),
        (("status", "login", "vera"), {"AUTHGUARD_SECRET": None}, "AG011 AUTHGUARD_SECRET"),
        (("status", "login", "vera"), {"AUTHGUARD_SECRET": "short"}, "AG011 AUTHGUARD_SECRET: "),
        (
            ("status", "login", "vera"),
            {"AUTHGUARD_SECRET": "a secret with blanks, of 32 bytes"},
            "AG011 AUTHGUARD_SECRET[0]: is missing or shorter than 32 bytes (blanks separate",
        ),
        (
            ("status", "login", "vera"),
            {"AUTHGUARD_STORE_URL": "valkey://h/x"},
            "AG010 AUTHGUARD_STORE_URL, or --store-url: its database is no number",
        ),
        (("status", "login", "vera"), {"AUTHGUARD_STORE_URL": None}, "AG010 --store-url"),
        (("status", "login", "vera"), {"AUTHGUARD_STORE_URL": "http://x"}, "AG010 "),
    ],
)
def test_wrong_use_is_status_2(
    terminal: Terminal, arguments: tuple[str, ...], env: dict[str, str | None], words: str
) -> None:
    """What can't be meant is refused with a line that says what and how to mend it."""
    result = terminal.run(*arguments, **env)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def a_limit(name: str, used: int, limit: int, **more: Any) -> StandingLimit:
    """Make one limit of a report."""
    fields = {"by": ("account",), "algorithm": "sliding_log", "window_ms": 900_000, **more}
    return StandingLimit(
        name=name,
        used=used,
        limit=limit,
        remaining=limit - used,
        newest_ms=None,
        frees_at_ms=None,
        locked_until_ms=None,
        episode=0,
        **fields,
    )


@pytest.mark.parametrize(
    ("limits", "chosen"),
    [
        ((a_limit("ten", 0, 10), a_limit("five", 0, 5)), "five"),
        ((a_limit("ten", 8, 10), a_limit("five", 0, 5)), "ten"),
        ((a_limit("ten", 0, 10), a_limit("day", 4, 5, window_ms=86_400_000)), "ten"),
        ((a_limit("day", 4, 5, window_ms=86_400_000),), "day"),
        ((a_limit("ten", 0, 10), a_limit("client", 4, 5, by=("client",))), "ten"),
        ((a_limit("wait", 1, 1, algorithm="cooldown"), a_limit("ten", 0, 10)), "ten"),
        ((a_limit("wait", 1, 1, algorithm="cooldown"),), "wait"),
        ((a_limit("client", 4, 5, by=("client",)),), "client"),
        ((), None),
    ],
)
def test_failures_are_told_of_the_strictest_short_log(
    limits: tuple[StandingLimit, ...], chosen: str | None
) -> None:
    """The log by the account, of an hour or less, with the fewest places left; else the nearest."""
    standing = Standing(
        action="login",
        account="vera",
        subject="",
        client=None,
        now_ms=0,
        limits=limits,
        blocks=(),
        recovery_required=None,
        refused_by=(),
        retry_after_s=None,
        acts=(),
    )
    assert (standing.strictest and standing.strictest.name) == chosen
    assert (standing.as_json()["failures"] is None) is (chosen is None)


@pytest.mark.parametrize(
    ("after_ms", "told"),
    [
        (3_600_000, "23:59:59, in 1 h"),
        (3_600_001, "2027-01-16 00:00, in 2 h"),
        (3_661_001, "2027-01-16 00:02, in 2 h"),
        (32 * 86_400_000, "2027-02-16 23:00, in 32 d"),
        (-22 * 3_600_000, "00:59:59, 22 h ago"),
        (-23 * 3_600_000, "2027-01-14 23:59, 23 h ago"),
    ],
)
def test_what_is_not_today_has_its_date(after_ms: int, told: str) -> None:
    """A time of tomorrow or yesterday is told with its date, and none is told too early."""
    now_ms = 1_800_053_999_000  # 22:59:59 on 15 January 2027
    assert moment(now_ms + after_ms, now_ms) == told


def test_every_algorithm_is_told(
    terminal: Terminal, tmp_path: Path, guard_factory: Callable[..., Guard], clock: Clock
) -> None:
    """Places taken and left, and when the next is free, whatever counts; in 80 columns."""
    (tmp_path / "policy.toml").write_text(ALGORITHMS)
    guard = guard_factory(policies=tmp_path / "policy.toml", clock=clock)
    for _ in range(4):
        guard.attempt("api", account="vera", client=CLIENT)
    standing = status(Desk(guard), "api", account="vera")
    told = {
        limit["name"]: (limit["used"], limit["remaining"], limit["frees_at"], limit["newest"])
        for limit in standing.as_json()["limits"]
    }
    assert told == {
        "month": (4, 999_999_996, "2027-01-31T23:00:00.000Z", None),
        "burst": (4, 16, "2027-01-15T08:00:00.200Z", None),
        "pace": (4, 6, "2027-01-15T08:00:30.000Z", None),
        "counter": (4, 86, "2027-01-15T08:01:15.000Z", None),
    }
    terminal.told("override", "api", "month", "--account", "vera", "--exempt", "--for", "30d")
    lines = terminal.run("status", "api", "vera", COLUMNS="80").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    console = Console(width=120)
    with console.capture() as printed:
        console.print(standing_table(standing))
    for words in ("4/1,000,000,000", "2027-01-31 23:00, in 17 d", "4/20", "08:00:30, in 30 s"):
        assert words in printed.get()


def test_what_counts_by_purpose_is_told_and_freed(terminal: Terminal, guard: Guard) -> None:
    """B142: a cooldown for each purpose of a code is shown by its name, and an unlock ends both."""
    for purpose in ("sign-in", "second-factor"):
        guard.attempt("otp.send", account="vera", client="198.51.100.7", purpose=purpose)
    told = terminal.told("status", "otp.send", "vera")
    used = {limit["name"]: limit["used"] for limit in told["limits"]}
    assert (used["cooldown (sign-in)"], used["cooldown (second-factor)"]) == (1, 1)
    assert told["refused_by"] == ["cooldown"]
    assert 1 <= told["retry_after"] <= 30
    assert terminal.run("unlock", "otp.send", "--account", "vera").exit_code == 0
    assert terminal.told("status", "otp.send", "vera")["retry_after"] is None
