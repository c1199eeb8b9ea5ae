"""A replay: the log's tries through the real Lua on a real Valkey, by the log's own clock."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from datetime import date
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from authguard import ConfigurationError, StoreUnavailable, load_policies
from authguard.ops.replay import replay
from authguard.ops.sshd_log import parse_sshd_log, read_sshd_log
from authguard.testing import embedded_valkey

if TYPE_CHECKING:
    import valkey

    from authguard.ops.replay import Report
    from authguard.ops.sshd_log import SshdLog

REAL_LOG = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "openssh_2k.log"
needs_the_real_log = pytest.mark.skipif(
    not REAL_LOG.is_file(),
    reason=f"THE REAL SSHD LOG IS NOT HERE ({REAL_LOG}): its replay was NOT checked",
)

PAIR = {"name": "pair", "by": ["account", "client"], "sliding_log": "3/10m"}
ACCOUNT = {"name": "account", "by": ["account"], "sliding_log": "4/10m"}
CLIENT = {"name": "client", "by": ["client"], "sliding_log": "5/10m"}


def log_of(*tries: str) -> SshdLog:
    """Make a log; a try reads ``06:00:00 name@192.0.2.1``, and ends in ``!`` if it was right."""
    lines = []
    for one in tries:
        clock, _, who = one.partition(" ")
        name, _, client = who.removesuffix("!").rpartition("@")
        result = "Accepted" if who.endswith("!") else "Failed"
        lines.append(
            f"Dec 10 {clock} gate sshd[1]: {result} password for {name} from {client} port 4"
        )
    log = parse_sshd_log(lines, latest=date(2026, 7, 1))
    assert len(log.sign_ins) == len(tries)
    return log


def run(log: SshdLog, url: str, *limits: dict[str, Any], outage: str = "deny", **kw: Any) -> Report:
    """Replay a log under a login policy of these limits."""
    policies = load_policies({"login": {"limits": list(limits), "outage": outage}})
    return replay(log, url, policies=policies, policy_name="test", **kw)


def rows(tallies: Any) -> list[tuple[str, int, int, int]]:
    """Give tallies as plain rows."""
    return [(one.key, one.attempts, one.admitted, one.refused) for one in tallies]


def test_tries_beyond_a_limit_are_refused_and_named(valkey_url: str) -> None:
    """Three guesses pass a limit of three; the rest are refused, and the report says whose."""
    tries = [f"06:00:0{second} vera@192.0.2.1" for second in range(5)]
    report = run(log_of(*tries, "06:00:09 omar@192.0.2.1"), valkey_url, PAIR)
    assert (report.attempts, report.admitted, report.refused) == (6, 4, 2)
    assert (report.failures, report.successes, report.malformed) == (6, 0, 0)
    assert report.by_limit == {"pair": 2}
    assert rows(report.clients) == [("192.0.2.1", 6, 4, 2)]
    assert rows(report.accounts) == [("vera", 5, 3, 2)]
    assert report.policy == "test"


def test_the_logs_own_clock_frees_places(valkey_url: str) -> None:
    """A try ten minutes after the first is admitted, one second earlier it is not."""
    first = [f"06:00:0{second} vera@192.0.2.1" for second in range(3)]
    assert run(log_of(*first, "06:09:59 vera@192.0.2.1"), valkey_url, PAIR).refused == 1
    assert run(log_of(*first, "06:10:00 vera@192.0.2.1"), valkey_url, PAIR).refused == 0


def test_lines_out_of_order_are_tried_in_order_of_time(valkey_url: str) -> None:
    """Who is refused follows from when a try was, not from where its line stands."""
    log = log_of(
        "06:00:09 late@192.0.2.1", *(f"06:00:0{second} a{second}@192.0.2.1" for second in range(5))
    )
    assert rows(run(log, valkey_url, CLIENT).accounts) == [("late", 1, 0, 1)]


def test_every_refusing_limit_counts(valkey_url: str) -> None:
    """A try that two limits refuse is one refusal, and stands under both names."""
    report = run(
        log_of(*(f"06:00:0{second} vera@192.0.2.1" for second in range(6))),
        valkey_url,
        PAIR,
        {**ACCOUNT, "sliding_log": "3/10m"},
        CLIENT,
    )
    assert report.refused == 3
    assert report.by_limit == {"pair": 3, "account": 3}


def test_a_repeated_line_is_as_many_tries(valkey_url: str) -> None:
    """A line "message repeated 5 times" spends five places, all at its own moment."""
    failed = "Failed password for a from 192.0.2.1 port 4 ssh2"
    log = parse_sshd_log(
        [f"Dec 10 06:00:00 g sshd[1]: message repeated 5 times: [ {failed}]"],
        latest=date(2026, 7, 1),
    )
    report = run(log, valkey_url, PAIR)
    assert (report.attempts, report.admitted, report.refused) == (5, 3, 2)


def test_a_success_gives_back_and_forgives(valkey_url: str) -> None:
    """A right password frees its client's places, so the owner's next typing errors pass."""
    report = run(
        log_of(
            "06:00:00 vera@192.0.2.1",
            "06:00:01 vera@192.0.2.1",
            "06:00:02 vera@192.0.2.1!",
            *(f"06:00:0{second} vera@192.0.2.1" for second in range(3, 7)),
        ),
        valkey_url,
        PAIR,
    )
    assert (report.admitted, report.refused) == (6, 1)
    assert (report.failures, report.successes, report.successes_refused) == (6, 1, 0)


def test_a_right_password_that_comes_too_late_is_told(valkey_url: str) -> None:
    """A success behind a full log is refused and counted as a person kept out."""
    tries = [f"06:00:0{second} vera@192.0.2.1" for second in range(3)]
    report = run(log_of(*tries, "06:00:05 vera@192.0.2.1!"), valkey_url, PAIR)
    assert (report.refused, report.successes, report.successes_refused) == (1, 1, 1)


@pytest.mark.parametrize("name", ["", "   ", "x\u200by", "n" * 255])
def test_a_name_that_cannot_be_used_costs_its_client_alone(valkey_url: str, name: str) -> None:
    """Malformed names fill their client's log, share no account, and are counted."""
    tries = [f"06:00:0{second} {name}@192.0.2.1" for second in range(6)]
    report = run(log_of(*tries, "06:00:07 vera@192.0.2.9"), valkey_url, PAIR, ACCOUNT, CLIENT)
    assert (report.malformed, report.refused) == (6, 1)
    assert report.by_limit == {"client": 1}
    assert rows(report.accounts) == [(name, 6, 5, 1)]


def test_a_malformed_name_under_a_policy_by_account_alone_is_admitted(valkey_url: str) -> None:
    """Where nothing applies to it, no limit refuses it; the report still counts it."""
    report = run(
        log_of(*(f"06:00:0{second} @192.0.2.1" for second in range(6))), valkey_url, ACCOUNT
    )
    assert (report.attempts, report.admitted, report.malformed) == (6, 6, 6)


def test_kept_out_is_the_union_of_the_waits(valkey_url: str) -> None:
    """Waits that overlap count once, separate ones add up, and admitted tries add nothing."""
    log = log_of(
        "06:00:00 vera@192.0.2.1",
        "06:01:00 vera@192.0.2.1",
        "06:02:00 vera@192.0.2.1",
        "06:03:00 vera@192.0.2.1",  # refused until 06:10: 7 minutes
        "06:04:00 vera@192.0.2.1",  # refused until 06:10: covered
        "06:10:30 vera@192.0.2.1",
        "06:10:45 vera@192.0.2.1",  # refused until 06:11: 15 seconds
        "06:12:00 vera@192.0.2.1",
        "06:00:30 omar@192.0.2.2",
    )
    worst = run(log, valkey_url, PAIR).worst_offender
    assert worst is not None
    assert (worst.key, worst.refused, worst.kept_out_ms) == ("192.0.2.1", 3, 7 * 60_000 + 15_000)


def test_without_a_refusal_there_is_no_offender(valkey_url: str) -> None:
    """A quiet log gives empty tables, not people who did nothing."""
    report = run(log_of("06:00:00 vera@192.0.2.1"), valkey_url, PAIR)
    assert (report.clients, report.accounts, report.by_limit) == ((), (), {})
    assert report.worst_offender is None


def test_a_log_without_tries_is_an_empty_report(valkey_url: str) -> None:
    """An sshd log in which nobody typed a password is no error."""
    log = parse_sshd_log(["Dec 10 06:00:00 g sshd[1]: Connection closed"], latest=date(2026, 7, 1))
    report = run(log, valkey_url, PAIR)
    assert (report.lines, report.other_lines, report.attempts) == (1, 1, 0)
    assert report.as_json()["first_at"] is None


def test_ten_are_named_the_most_refused_first(valkey_url: str) -> None:
    """Of twelve refused clients ten are named; equals stand by how busy, then by key."""
    tries = []
    for number in range(12):
        last = 6 if number == 11 else 5
        tries += [f"06:00:{second:02} a@192.0.2.{number + 10}" for second in range(last)]
    report = run(log_of(*tries), valkey_url, {**PAIR, "sliding_log": "4/10m"})
    assert [one.key for one in report.clients] == [
        "192.0.2.21",
        *(f"192.0.2.{number}" for number in range(10, 19)),
    ]


def test_ipv6_clients_are_shown_canonically(valkey_url: str) -> None:
    """One address in two spellings is one client; its /64 shares the limit."""
    spellings = ["2001:DB8::0:1", "2001:db8:0:0:0:0:0:1", "2001:db8::1", "2001:db8::2"]
    log = log_of(*(f"06:00:0{at} vera@{client}" for at, client in enumerate(spellings)))
    report = run(log, valkey_url, PAIR)
    assert rows(report.clients) == [("2001:db8::2", 1, 0, 1)]


def test_a_replay_takes_its_keys_away_and_no_others(valkey_url: str, client: valkey.Valkey) -> None:
    """After a replay the store holds what it held before, also where locks have climbed."""
    client.set("somebody's", "own")
    tries = [f"06:00:0{second} vera@192.0.2.1" for second in range(9)]
    seen: list[int] = []
    report = run(
        log_of(*tries),
        valkey_url,
        {**ACCOUNT, "lockout": ["15m", "1h"]},
        progress=lambda _: seen.append(client.dbsize()),
    )
    assert report.refused == 5
    assert max(seen) > 1
    assert report.keys_left == 0
    assert client.keys() == [b"somebody's"]


def test_an_interrupted_replay_takes_its_keys_away(valkey_url: str, client: valkey.Valkey) -> None:
    """Ctrl-C leaves nothing behind either."""

    def interrupt(_: int) -> None:
        assert client.dbsize() > 0
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(log_of("06:00:00 vera@192.0.2.1"), valkey_url, PAIR, progress=interrupt)
    assert client.dbsize() == 0


def test_replays_at_one_time_never_meet(valkey_url: str) -> None:
    """A replay inside a replay of the same log finds empty logs: each has a secret of its own."""
    log = log_of(*(f"06:00:0{second} vera@192.0.2.1" for second in range(5)))
    inner: list[int] = []
    outer = run(
        log,
        valkey_url,
        PAIR,
        progress=lambda _: inner.append(run(log, valkey_url, PAIR).admitted),
    )
    assert inner == [3] * 5
    assert outer.admitted == 3


def test_a_store_that_is_away_stops_the_replay() -> None:
    """No figures are made up where nothing was counted."""
    with embedded_valkey() as server:
        url = server.url
    with pytest.raises(StoreUnavailable):
        run(log_of("06:00:00 vera@192.0.2.1"), url, PAIR)


@pytest.mark.parametrize("right", ["", "!"])
@pytest.mark.parametrize("outage", ["deny", "allow"])
def test_a_store_that_dies_on_the_way_stops_the_replay(outage: str, right: str) -> None:
    """Not even under outage = "allow" are uncounted tries reported as admitted."""
    tries = [f"06:00:0{second} vera@192.0.2.1{right}" for second in range(3)]
    done: list[int] = []
    with embedded_valkey() as server:

        def kill(tries: int) -> None:
            done.append(tries)
            os.kill(server.pid, signal.SIGKILL)

        with pytest.raises(StoreUnavailable):
            run(log_of(*tries), server.url, PAIR, outage=outage, progress=kill)
    assert done == [1]


def test_a_policy_that_counts_by_nothing_in_a_log_is_refused(valkey_url: str) -> None:
    """A policy under which every try would pass uncounted is an error, not a clean report."""
    device = {"name": "device", "by": ["device"], "sliding_log": "3/10m"}
    with pytest.raises(ConfigurationError, match=r"AG023 \[login\] limits"):
        run(log_of("06:00:00 vera@192.0.2.1"), valkey_url, device)


def test_the_report_is_plain_json(valkey_url: str) -> None:
    """Everything in the report survives JSON, with the contract's fields at least."""
    tries = [f"06:00:0{second} vera@192.0.2.1" for second in range(4)]
    told = json.loads(json.dumps(run(log_of(*tries), valkey_url, PAIR).as_json()))
    assert {"attempts", "admitted", "refused", "by_limit", "clients", "accounts"} <= set(told)
    assert told["clients"] == [{"key": "192.0.2.1", "attempts": 4, "admitted": 3, "refused": 1}]
    assert told["accounts"] == [{"key": "vera", "attempts": 4, "admitted": 3, "refused": 1}]
    assert (told["first_at"], told["last_at"]) == ("2025-12-10T06:00:00Z", "2025-12-10T06:00:03Z")


def model(log: SshdLog, limits: list[tuple[str, tuple[str, ...], int, int]]) -> Counter[str]:
    """Count what plain sliding logs (name, by, limit, minutes) without forgiving would do."""
    logs: dict[tuple[str, ...], list[int]] = {}
    told: Counter[str] = Counter()
    for one in log.sign_ins:
        net = str(ip_network(f"{one.client}/24", strict=False))  # the log has IPv4 alone
        parts = {
            "account": one.account.strip().casefold(),
            "client": str(one.client),
            "network": net,
        }
        for _ in range(one.times):
            refusing = []
            entries = []
            for name, by, limit, minutes in limits:
                own = logs.setdefault((name, *(parts[part] for part in by)), [])
                entries.append(own)
                if sum(at > one.at_ms - minutes * 60_000 for at in own) >= limit:
                    refusing.append(name)
            told.update(refusing)
            told["refused" if refusing else "admitted"] += 1
            if not refusing and not one.succeeded:
                for own in entries:
                    own.append(one.at_ms)
    return told


@needs_the_real_log
def test_the_real_log_through_the_default_policy(valkey_url: str) -> None:
    """Its 528 failures and 1 success are all tried; the one legitimate user gets in."""
    report = replay(read_sshd_log(REAL_LOG), valkey_url)
    assert (report.attempts, report.failures, report.successes) == (529, 528, 1)
    assert report.admitted + report.refused == 529
    assert (report.successes_refused, report.malformed) == (0, 0)
    assert (report.lines, report.other_lines, report.damaged_lines) == (2000, 1479, 0)
    assert report.clients[0].key == "183.62.140.253"
    assert report.clients[0].attempts == 286
    assert report.accounts[0].key == "root"
    assert report.accounts[0].attempts == 378
    assert sum(report.by_limit.values()) >= report.refused > 0


@needs_the_real_log
def test_the_real_log_agrees_with_a_model(valkey_url: str) -> None:
    """Lua and a ten-line model of sliding logs refuse the same number of tries, limit by limit."""
    limits = [
        ("pair", ("account", "client"), 5, 15),
        ("account", ("account",), 10, 15),
        ("client", ("client",), 30, 15),
        ("day", ("account",), 60, 24 * 60),
        ("network", ("network",), 45, 60),
    ]
    policy = [
        {"name": name, "by": list(by), "sliding_log": f"{limit}/{minutes}m", "forgive": False}
        for name, by, limit, minutes in limits
    ]
    log = read_sshd_log(REAL_LOG)
    report = run(log, valkey_url, *policy)
    expected = model(log, limits)
    assert (report.admitted, report.refused) == (expected["admitted"], expected["refused"])
    names = [name for name, *_ in limits]
    assert {name: report.by_limit.get(name, 0) for name in names} == {
        name: expected[name] for name in names
    }
    assert sum(expected[name] > 0 for name in names) >= 3
