"""The benchmark's own judges: what it says of others, and of us, must be right."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

import pytest
import valkey

from bench.figures import percentile, ratios, spread
from bench.logins import (
    OURS,
    PING,
    SETS,
    Numbers,
    ScriptOfSets,
    is_peer,
    logins,
    plain,
    stream,
)
from bench.recorded import pieces, recorded
from bench.targets import TARGETS, Target, judge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from authguard.testing import EmbeddedValkey


def target(bounds: Sequence[float], **how: bool) -> Target:
    """Make a target that reads what was measured as it is."""
    return Target("a figure", "part", tuple(bounds), lambda it: it["figure"], **how)


@pytest.mark.parametrize(
    ("how", "numbers", "holds"),
    [
        ({}, (1.6, 2.0), True),
        ({}, (1.6, 2.01), False),
        ({"at_least": True}, (1.6, 9.0), True),
        ({"at_least": True}, (1.5, 9.0), False),
        ({"exactly": True}, (1.6, 2.0), True),
        ({"exactly": True}, (1.6, 1.0), False),
    ],
)
def test_a_miss_is_told_as_a_miss(
    how: dict[str, bool], numbers: tuple[float, float], holds: bool
) -> None:
    """A target holds only if every one of its numbers does; better than exactly is a miss too."""
    assert target((1.6, 2.0), **how).holds(numbers) is holds


def test_what_was_not_measured_is_not_judged() -> None:
    """A part that did not run has no line, rather than one that holds."""
    sizes = {OURS: [104, 1_200, 10_080]}
    assert judge({}) == []
    (line,) = judge({"memory": sizes})
    assert (line["reached"], line["holds"]) == ((104, 1_200, 10_080), False)
    assert {it.part for it in TARGETS} >= {"decision", "crowd", "cpu", "flask", "admissions"}


def test_ours_is_held_against_the_fastest_that_is_exact() -> None:
    """Neither PING nor a counter, nor a slower log, stands for the peers."""

    def row(ratio: float, *, exact: bool = True) -> dict[str, Any]:
        return {"exact": exact, "ours_to_it": (ratio, ratio, ratio)}

    rows = {
        PING: row(0.5),
        OURS: row(1.0),
        "a log": row(3.0),
        "a slow log": row(4.0),
        "no log": row(2.0, exact=False),
    }
    speeds = next(it for it in TARGETS if "8 threads" in it.what)
    assert tuple(speeds.reached({"threads": rows})) == (3.0,)
    assert [name for name in rows if is_peer(name)] == ["a log", "a slow log", "no log"]


def test_a_spread_is_the_median_and_eight_rounds_in_ten() -> None:
    """What is printed beside a ratio are the tenth and the ninetieth percentile of its rounds."""
    values = [float(number) for number in range(101)]
    assert spread(values[::-1]) == (statistics.median(values), 10.0, 90.0)
    assert (percentile([3.0], 0.99), percentile([2.0, 1.0], 0.99)) == (3.0, 2.0)
    assert ratios([2.0, 9.0], [1.0, 3.0]) == [2.0, 3.0]


def test_all_are_asked_the_same() -> None:
    """The stream is seeded: each run and each contender asks for the same people."""
    asked = list(stream(2_000))
    assert asked == list(stream(2_000))
    assert 300 < len({account for account, _ in asked}) <= 500
    assert len({client for _, client in asked}) == 100


def test_all_logs_give_the_same_answers(valkey_server: EmbeddedValkey) -> None:
    """Where one limit alone decides, what is called exact in the race answers alike, ask by ask."""
    asked = list(stream(200))
    answers = {}
    for it in logins(Numbers(account=2, client=1_000, pair=1_000), floor=False):
        with plain(valkey_server.url) as client:
            client.flushdb()
            ask = it.open(valkey_server.url)
            if it.exact:
                answers[it.name] = [ask(*who) for who in asked]
    ours = answers[OURS]
    assert 20 < sum(ours) < 180
    assert len(answers) == 4
    assert [name for name, theirs in answers.items() if theirs != ours] == []


def test_the_recipe_is_a_log(valkey_server: EmbeddedValkey) -> None:
    """The three sets we race are no straw man: the limit, not one more, and an expiry."""
    with plain(valkey_server.url) as client:
        client.flushdb()
        limit = ScriptOfSets(client, 3, 900)
        assert [limit.ask(SETS) for _ in range(5)] == [True] * 3 + [False] * 2
        assert 899_000 < client.pttl(SETS) <= 900_000


def test_calls_are_recorded_byte_for_byte(valkey_server: EmbeddedValkey) -> None:
    """What is sent again is what was sent: quotes, bytes beyond ASCII, line ends and all."""
    hostile = b'a "quoted" \\ thing\r\n\x00\xff\x1b'
    with valkey.Valkey(port=valkey_server.port) as client:
        sha = client.script_load("redis.call('GET', KEYS[1]) return ARGV[1]")
        client.evalsha(sha, 1, "before", b"not recorded")
        sent = recorded(client, lambda: client.evalsha(sha, 1, "key", hostile, 7, ""))
        assert sent == [(sha, "1", "key", hostile, "7", "")]
        assert client.evalsha(*sent[0]) == hostile
    assert pieces(b'1.5 [0 127.0.0.1:1] "PING" ""') == ("PING", "")
