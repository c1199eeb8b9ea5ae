"""docs/algorithms.md says what the real Lua does; so does its plot."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from authguard import (
    Denied,
    Distinct,
    FixedWindow,
    Guard,
    LeakyBucket,
    Overloaded,
    SlidingWindowCounter,
    TokenBucket,
    load_policies,
)
from authguard.limits import Algorithm
from bench import algorithms
from bench.judges import JUDGES, Answer, most_within

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PAGE = algorithms.PAGE.read_text(encoding="utf-8")
SECRET = "a secret of the tests, 32 bytes or more"
NOW_MS = 1_800_000_000_000


@pytest.fixture(scope="module")
def figures() -> list[algorithms.Figures]:
    """Measure once for all tests of the page."""
    return algorithms.measure()


def test_the_measured_table_is_what_the_lua_does(figures: list[algorithms.Figures]) -> None:
    """Every number of the table is measured anew; bytes may differ a little by allocator."""
    shown = rows_of(algorithms.MEASURED.search(PAGE)[0])
    fresh = rows_of(algorithms.table(figures))
    assert len(fresh) == 7
    assert [row[:-1] for row in shown] == [row[:-1] for row in fresh]
    for was, now in zip(shown, fresh, strict=True):
        assert numbers(was[-1]) == pytest.approx(numbers(now[-1]), rel=0.05, abs=32)


def test_the_plot_shows_what_was_measured(figures: list[algorithms.Figures]) -> None:
    """docs/algorithms.svg is the plot of these figures, to the byte."""
    assert algorithms.PLOT.read_text(encoding="utf-8") == algorithms.draw(figures)


def test_the_table_of_choice_agrees_with_what_was_measured(
    figures: list[algorithms.Figures],
) -> None:
    """The promises at a boundary hold of the measured worst: the limit, less than twice it, …."""
    worst = {type(it.shown.limit).__name__: it.at_worst for it in figures}
    assert worst["SlidingLog"] == worst["Distinct"] == 10
    assert worst["FixedWindow"] == 20
    assert worst["SlidingWindowCounter"] == 19
    assert worst["TokenBucket"] == worst["LeakyBucket"] == 10 + 9
    (leaky,) = (it for it in figures if isinstance(it.shown.limit, LeakyBucket))
    assert leaky.acting_at_worst == 10
    sizes = {type(it.shown.limit).__name__: it.sizes for it in figures}
    assert {
        len(set(of)) for name, of in sizes.items() if name not in ("SlidingLog", "Distinct")
    } == {1}
    assert sizes["SlidingLog"][2] == pytest.approx(10 * 10_000, rel=0.01)
    assert sizes["Distinct"][2] == pytest.approx(22 * 1_000, rel=0.02)


def test_python_and_toml_write_the_same_limits() -> None:
    """The two lists of all algorithms give equal values, one for one."""
    scope: dict[str, Any] = {}
    *imports, listed = blocks("python")[0].partition("\n\nSlidingLog(")
    exec(imports[0], scope)
    made = [eval(line, scope) for line in ("SlidingLog(" + listed).strip().splitlines()]
    policy = load_policies(tomllib.loads(blocks("toml")[0]))["example"]
    assert [limit.algorithm for limit in policy.limits] == made
    assert len({type(each) for each in made}) == 7
    assert {type(each) for each in made} < set(Algorithm.__args__)


def test_the_limiter_example_says_what_is_printed(
    guard_factory: Callable[..., Guard], capsys: pytest.CaptureFixture[str]
) -> None:
    """Fifty tokens less three are 47, as the comment says; then the exact wait is told."""
    example = blocks("python")[1]
    scope: dict[str, Any] = {"guard": guard_factory(clock=lambda: NOW_MS)}
    scope |= {"TokenBucket": TokenBucket}
    exec(example, scope)
    assert capsys.readouterr().out == "47\n"
    limiter = scope["limiter"]
    assert limiter.peek("key-4711").remaining == 50
    for _ in range(16):
        limiter.hit("key-4711", cost=3)
    assert limiter.hit("key-4711", cost=3).retry_after_ms == 100


def test_the_leaky_bucket_example_paces(guard_factory: Callable[..., Guard]) -> None:
    """The printed lines send each message a fifth of a second after the one before."""
    slept: list[float] = []
    scope: dict[str, Any] = {
        "guard": guard_factory(clock=lambda: NOW_MS),
        "LeakyBucket": LeakyBucket,
        "time": type("time", (), {"sleep": slept.append}),
        "send": lambda: None,
    }
    for _ in range(4):
        exec(blocks("python")[2], scope)
    assert slept == [0.0, 0.2, 0.4, 0.6]
    limiter = scope["guard"].limiter(LeakyBucket("5/1s", queue=9))
    delays = [limiter.hit("costly", cost).delay_ms for cost in (3, 3, 1)]
    assert delays == [0, 600, 1200]


def test_the_worked_examples_of_the_counter(guard_factory: Callable[..., Guard]) -> None:
    """80 before, 30 now, 15 s in: 90 of 100; and after a burst at an edge nineteen by 1:54."""
    limiter = guard_factory().limiter(SlidingWindowCounter("100/1m"))
    minute = NOW_MS
    assert limiter.hit("page", 80, now_ms=minute).allowed
    assert limiter.hit("page", 30, now_ms=minute + 70_000 - 1).allowed
    later = minute + 75_000
    assert limiter.peek("page", 10, now_ms=later).remaining == 10
    assert not limiter.peek("page", 11, now_ms=later).allowed
    ten = guard_factory().limiter(SlidingWindowCounter("10/1m"))
    assert ten.hit("edge", 10, now_ms=minute + 59_999).allowed
    asked = range(minute + 60_000, minute + 114_001, 250)
    assert sum(ten.hit("edge", now_ms=at).allowed for at in asked) == 9


def test_calendar_windows_have_days_of_23_and_25_hours(
    guard_factory: Callable[..., Guard],
) -> None:
    """In Oslo the day on which the clocks go forward has 23 hours, the other one 25."""
    limiter = guard_factory().limiter(FixedWindow("10/1d", zone="Europe/Oslo"))
    from datetime import datetime
    from zoneinfo import ZoneInfo

    for date, hours in (((2027, 3, 28), 23), ((2027, 10, 31), 25), ((2027, 6, 1), 24)):
        midnight = datetime(*date, tzinfo=ZoneInfo("Europe/Oslo"))
        decision = limiter.hit(str(date), now_ms=int(midnight.timestamp() * 1000))
        assert decision.reset_after_ms == hours * 3_600_000


def test_cost_tiers_and_overrides_as_printed(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five places in rate and day and 500 in rows; a tier's numbers; an override; an exemption."""
    policy, made, changed = blocks("toml")[1], blocks("python")[3], blocks("python")[4]
    (tmp_path / "policies.toml").write_text(policy, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {
        "Guard": lambda *args, **kw: Guard(*args, **kw, deadline_ms=10_000, clock=lambda: NOW_MS),
        "store_url": valkey_url,
        "secret": SECRET,
        "plan_of": {"paula": "pro"}.get,
    }
    exec(made, scope)
    with scope["guard"] as guard:
        assert used(guard, "vera") == {"rate": 5, "day": 5, "rows": 500}
        assert limits(guard, "vera") == {"rate": 20, "day": 1_000, "rows": 100_000}
        assert limits(guard, "paula") == {"rate": 200, "day": 50_000, "rows": 100_000}
        with pytest.raises(ValueError, match="cost"):
            guard.attempt("report", account="vera", cost=21)
        first, exempting, lifting = changed.strip().splitlines()
        exec(first, scope)
        assert limits(guard, "vera")["day"] == 5_000
        exec(exempting, scope)
        for _ in range(30):
            guard.attempt("report", account="omar")
        assert used(guard, "omar") == {"rate": 0, "day": 30, "rows": 3_000}
        exec(lifting, scope)
        assert limits(guard, "vera")["day"] == 1_000


def test_load_and_lanes_as_printed(guard_factory: Callable[..., Guard]) -> None:
    """At a load of 0.2 the ordinary lane has 80 places, operators all their 100; then 503, 429."""
    policies = tomllib.loads(blocks("toml")[2])
    guard = guard_factory(policies=policies, clock=lambda: NOW_MS)
    exec(blocks("python")[5], {"guard": guard})
    refused: list[str] = []
    for number in range(200):
        try:
            guard.attempt("work", account=f"user{number}")
        except Overloaded as error:
            refused += error.decision.refused_by
    assert refused == ["ordinary"] * (200 - 79)
    for number in range(99):
        guard.attempt("work", account=f"desk{number}", priority="operator")
    with pytest.raises(Denied) as denied:
        guard.attempt("work", account="desk", priority="operator")
    assert denied.value.decision.refused_by == ("operators",)
    assert not isinstance(denied.value, Overloaded)


SETTLED = {
    "sliding_log": ({"sliding_log": "10/1h"}, 1),
    "fixed_window": ({"fixed_window": "10/1h"}, 1),
    "sliding_window_counter": ({"sliding_window_counter": "10/1h"}, 1),
    "leaky_bucket": ({"leaky_bucket": "1/1h", "queue": 9}, 0),
    "cooldown": ({"cooldown": ["30s"]}, 1),
    "distinct": ({"distinct": "client", "limit": "10/1h"}, 1),
}


@pytest.mark.parametrize("algorithm", SETTLED)
@pytest.mark.parametrize("settle", ["succeed", "release"])
def test_what_a_success_gives_back(
    guard_factory: Callable[..., Guard], algorithm: str, settle: str
) -> None:
    """A success and a release give the place back, save in a leaky bucket."""
    written, back = SETTLED[algorithm]
    limit = {"name": "one", "by": ["account"], **written}
    guard = guard_factory(policies={"try": {"limits": [limit]}}, clock=lambda: NOW_MS)
    attempt = guard.attempt("try", account="vera", client="203.0.113.9")
    assert places(guard) == 1
    getattr(attempt, settle)()
    getattr(attempt, settle)()
    assert places(guard) == 1 - back


def test_a_token_bucket_gives_back_what_was_not_refilled(
    guard_factory: Callable[..., Guard],
) -> None:
    """Three tokens at one a second, given back two seconds later, are one: as the page reckons."""
    now = [NOW_MS]
    limit = {"name": "one", "by": ["account"], "token_bucket": "1/1s", "burst": 10}
    guard = guard_factory(policies={"try": {"limits": [limit]}}, clock=lambda: now[0])
    guard.attempt("try", account="vera", client="203.0.113.9", cost=7)
    attempt = guard.attempt("try", account="vera", client="203.0.113.9", cost=3)
    now[0] += 2_000
    before = places(guard)
    attempt.succeed()
    assert before - places(guard) == 1


def test_a_distinct_value_is_always_admitted_again(guard_factory: Callable[..., Guard]) -> None:
    """One that is among them is admitted when the limit is full; another is not."""
    limiter = guard_factory().limiter(Distinct("account", "2/1h"))
    for account in ("vera", "omar", "vera"):
        assert limiter.hit("203.0.113.9", value=account).allowed
    assert not limiter.hit("203.0.113.9", value="paula").allowed


@pytest.mark.parametrize("definition", JUDGES)
def test_the_judge_tells_too_many_and_too_few(definition: str) -> None:
    """Ten at once are right, an eleventh is one too many; a refusal of the tenth is one too few."""
    burst = [answer(1_000.5 + number / 1000, admitted=True) for number in range(11)]
    judge = JUDGES[definition]
    right = judge([*burst[:10], answer(1_000.52, admitted=False)], 10, 2)
    assert (right.too_many, right.too_few) == (0, 0)
    assert judge(burst, 10, 2).too_many == 1
    assert judge([*burst[:9], answer(1_000.52, admitted=False)], 10, 2).too_few == 1
    assert most_within(burst, 2) == 11


def test_the_judge_leaves_open_what_an_edge_leaves_open() -> None:
    """An answer that could fall on either side of an edge is called right, whatever it was."""
    burst = [answer(1_000 + number / 1000, admitted=True) for number in range(10)]
    for admitted in (True, False):
        at_the_edge = Answer(1_001.999, 1_002.003, admitted)
        for definition in ("log", "fixed"):
            verdict = JUDGES[definition]([*burst, at_the_edge], 10, 2)
            assert (verdict.too_many, verdict.too_few) == (0, 0)


def answer(at: float, *, admitted: bool) -> Answer:
    """Make an answer that took a tenth of a millisecond."""
    return Answer(at, at + 0.0001, admitted)


def places(guard: Guard) -> int:
    """Count what is taken of the one limit."""
    usage = guard.usage("try", account="vera", client="203.0.113.9")
    return next(it.used for it in usage if it.name == "one")


def used(guard: Guard, account: str) -> dict[str, int]:
    """Give the places taken in each limit of the report."""
    return {it.name: it.used for it in guard.usage("report", account=account) if it.name != "block"}


def limits(guard: Guard, account: str) -> dict[str, int]:
    """Give each limit of the report as it is for an account."""
    usage = guard.usage("report", account=account)
    return {it.name: it.limit for it in usage if it.name != "block"}


def blocks(language: str) -> list[str]:
    """Give the page's code blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def rows_of(table: str) -> list[list[str]]:
    """Give the cells of a table's rows, without its head."""
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in row] for row in rows]


def numbers(cell: str) -> list[int]:
    """Give all numbers of a cell."""
    return [int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", cell)]
