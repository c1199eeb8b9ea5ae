"""A wrong policy stops the start, and the error names the table, the key and the mend."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from authguard import (
    ConfigurationError,
    Guard,
    PolicyLimit,
    SlidingLog,
    default_policies,
    load_policies,
)
from tests.conftest import SECRET

if TYPE_CHECKING:
    from pathlib import Path

NOWHERE = "valkey://127.0.0.1:1/0"
GOOD = 'name = "pair", by = ["account"], sliding_log = "5/15m"'


def limit(text: str) -> str:
    """Write a login table whose second limit is the one at fault."""
    return f'[login]\nlimits = [{{ name = "ok", by = ["client"], sliding_log = "9/1m" }}, {text}]'


def rate(text: str) -> str:
    """Write a login table with a limit of this rate, as TOML."""
    return limit(f'{{ name = "pair", by = ["account"], sliding_log = {text} }}')


#: What is wrong, as TOML: its code, where it is, what it is, and the mend.
WRONG = {
    "no TOML": ("[login\n", "AG002", "policy.toml", "at line 1", "correct that line"),
    "loose key": ('outage = "deny"', "AG003", "outage", "unknown key outside", "[action] tables"),
    "capital action": ("[Login]\nx = 1", "AG003", "[Login]", "no possible name", "lower-case"),
    "action with a blank": ('["log in"]\nx = 1', "AG003", "[log in]", "no possible", "lower-case"),
    "unknown key of a table": (
        f'[login]\nlimits = [{{ {GOOD} }}]\noutrage = "deny"',
        "AG003", "[login].outrage", "unknown key", "known here: limits, outage",
    ),
    "unknown key of a nested table": (
        "[otp.send]\nquota = 5", "AG003", "[otp.send].quota", "unknown key", "limits, outage",
    ),
    "unknown key of a limit": (
        limit(f"{{ {GOOD}, lockouts = '15m' }}"),
        "AG003", "[login] limits[1] (pair).lockouts", "unknown key", "lockout, forgive",
    ),
    "key of a later version": (
        limit(f"{{ {GOOD}, shadow = true }}"),
        "AG003", "[login] limits[1] (pair).shadow", "unknown key", "known here: name, by",
    ),
    "misspelt algorithm": (
        limit('{ name = "pair", by = ["account"], sliding_logs = "5/15m" }'),
        "AG003", "[login] limits[1] (pair).sliding_logs", "unknown key", "sliding_log,",
    ),
    "limit that is no table": (
        limit('"5/15m"'), "AG003", "[login] limits[1]", "'5/15m' is not a limit", "{ name =",
    ),
    "no limits": ('[login]\noutage = "deny"', "AG004", "[login] limits", "missing", "limits = [{"),
    "empty table": ("[login]", "AG004", "[login] limits", "missing or empty", "limits = [{"),
    "empty limits": ("[login]\nlimits = []", "AG004", "[login] limits", "empty", "limits = [{"),
    "limits that are no list": (
        "[login]\nlimits = 5", "AG004", "[login] limits", "5 is not a list", "limits = [{",
    ),
    "limit without a name": (
        limit('{ by = ["account"], sliding_log = "5/15m" }'),
        "AG004", "[login] limits[1].name", "missing", "lower-case letters",
    ),
    "limit with no possible name": (
        limit('{ name = "The Pair", by = ["account"], sliding_log = "5/15m" }'),
        "AG004", "[login] limits[1].name", "'The Pair' is no possible name", "lower-case letters",
    ),
    "limit with a dot in its name": (
        limit('{ name = "the.pair", by = ["account"], sliding_log = "5/15m" }'),
        "AG004", "[login] limits[1].name", "'the.pair' is no possible name", "lower-case letters",
    ),
    "limit without by": (
        limit('{ name = "pair", sliding_log = "5/15m" }'),
        "AG004", "[login] limits[1] (pair).by", "missing", "account, device",
    ),
    "by something unknown": (
        limit('{ name = "pair", by = ["acount"], sliding_log = "5/15m" }'),
        "AG005", "[login] limits[1] (pair).by", "nothing counts by 'acount'", "account, device",
    ),
    "by a list in a list": (
        limit('{ name = "pair", by = [["account"]], sliding_log = "5/15m" }'),
        "AG005", "[login] limits[1] (pair).by", "nothing counts by ['account']", "account, device",
    ),
    "by nothing": (
        limit('{ name = "pair", by = [], sliding_log = "5/15m" }'),
        "AG005", "[login] limits[1] (pair).by", "not a list of different parts", "one or more of",
    ),
    "by one part twice": (
        limit('{ name = "pair", by = ["client", "client"], sliding_log = "5/15m" }'),
        "AG005", "[login] limits[1] (pair).by", "not a list of different parts", "one or more of",
    ),
    "by a text": (
        limit('{ name = "pair", by = "account", sliding_log = "5/15m" }'),
        "AG005", "[login] limits[1] (pair).by", "'account' is not a list", "one or more of",
    ),
    "no such outage rule": (
        f'[login]\noutage = "open"\nlimits = [{{ {GOOD} }}]',
        "AG005", "[login] outage", "'open' is no outage rule", "deny or allow",
    ),
    "outage rule that is no text": (
        f"[login]\noutage = false\nlimits = [{{ {GOOD} }}]",
        "AG005", "[login] outage", "False is no outage rule", "deny or allow",
    ),
    "switch that is no switch": (
        limit(f"{{ {GOOD}, forgive = 'yes' }}"),
        "AG005", "[login] limits[1] (pair).forgive", "'yes' is no switch", "true or false",
    ),
    "number for a switch": (
        limit(f"{{ {GOOD}, count_refused = 1 }}"),
        "AG005", "[login] limits[1] (pair).count_refused", "1 is no switch", "true or false",
    ),
    "rate without a period": (
        rate('"2000"'), "AG005", "(pair).sliding_log", "'2000' is not a rate", "such as '5/15m'",
    ),
    "count beyond a log": (
        rate('"100001/1h"'), "AG005", "(pair).sliding_log", "100001 is no possible", "1 to 100000",
    ),
    "period without a unit": (
        rate('"5/300"'), "AG006", "(pair).sliding_log", "'300' is not a period", "(s, m, h, d)",
    ),
    "period beyond ten years": (
        rate('"5/3651d"'), "AG006", "(pair).sliding_log", "longer than ten years", "3650d or less",
    ),
    "lockout without a unit": (
        limit(f"{{ {GOOD}, lockout = '900' }}"),
        "AG006", "[login] limits[1] (pair).lockout", "'900' is not a period", "such as '15m'",
    ),
    "lockout that is a number": (
        limit(f"{{ {GOOD}, lockout = 900 }}"),
        "AG006", "(pair).lockout", "900 is neither a length nor a list", "a rising list",
    ),
    "lockout of numbers": (
        limit(f"{{ {GOOD}, lockout = [900] }}"),
        "AG006", "(pair).lockout", "900 is not a period", "such as '15m'",
    ),
    "empty lockout": (
        limit(f"{{ {GOOD}, lockout = [] }}"),
        "AG006", "(pair).lockout", "[] is neither a length nor a list", "a rising list",
    ),
    "falling lockout": (
        limit(f"{{ {GOOD}, lockout = ['1h', '15m'] }}"),
        "AG006", "[login] limits[1] (pair).lockout", "the lengths fall", "shortest first",
    ),
    "lockout of too many lengths": (
        limit(f"{{ {GOOD}, lockout = {['15m'] * 33} }}"),
        "AG006", "[login] limits[1] (pair).lockout", "33 lengths", "at most 32",
    ),
    "too many limits": (
        f"[login]\nlimits = [{', '.join([f'{{ {GOOD} }}'] * 101)}]",
        "AG005", "[login] limits", "101 of them", "at most 100",
    ),
    "one name twice": (
        limit('{ name = "ok", by = ["account"], sliding_log = "5/15m" }'),
        "AG007", "[login] limits[1].name", "'ok' stands twice", "its own name",
    ),
    "one action twice": (
        f'[otp.send]\nlimits = [{{ {GOOD} }}]\n["otp.send"]\nlimits = [{{ {GOOD} }}]',
        "AG007", "[otp.send]", "stands twice", "one table for an action",
    ),
    "no algorithm": (
        limit('{ name = "pair", by = ["account"] }'),
        "AG008", "[login] limits[1] (pair)", "no algorithm", "exactly one, such as sliding_log",
    ),
    "two algorithms": (
        limit(f"{{ {GOOD}, token_bucket = '5/1s' }}"),
        "AG008", "[login] limits[1] (pair)", "sliding_log, token_bucket", "exactly one",
    ),
    "cooldown whose waits fall": (
        limit('{ name = "pair", by = ["account"], cooldown = ["60s", "30s"] }'),
        "AG006", "[login] limits[1] (pair).cooldown", "the waits fall", "the shortest first",
    ),
    "cooldown without a wait": (
        limit('{ name = "pair", by = ["account"], cooldown = [] }'),
        "AG006", "[login] limits[1] (pair).cooldown", "0 waits", "write 1 to 32",
    ),
    "cooldown that is no period": (
        limit('{ name = "pair", by = ["account"], cooldown = 30 }'),
        "AG006", "[login] limits[1] (pair).cooldown", "30 is not a period", "(s, m, h, d)",
    ),
    "distinct of nothing known": (
        limit('{ name = "pair", by = ["client"], distinct = "acount", limit = "5/1h" }'),
        "AG005", "[login] limits[1] (pair).distinct", "differs by 'acount'", "account, device",
    ),
    "distinct of what it counts by": (
        limit('{ name = "pair", by = ["client"], distinct = "client", limit = "5/1h" }'),
        "AG005", "[login] limits[1] (pair).distinct", "'client' is in by", "not in by",
    ),
    "distinct of everybody": (
        limit('{ name = "pair", by = ["client"], distinct = "global", limit = "5/1h" }'),
        "AG005", "[login] limits[1] (pair).distinct", "differs by 'global'", "not in by",
    ),
    "distinct of no part": (
        limit('{ name = "pair", by = ["client"], distinct = 5, limit = "5/1h" }'),
        "AG005", "[login] limits[1] (pair).distinct", "5 is no part", "such as 'account'",
    ),
    "distinct without its limit": (
        limit('{ name = "pair", by = ["client"], distinct = "account" }'),
        "AG004", "[login] limits[1] (pair).limit", "missing", "distinct needs it",
    ),
    "distinct of too many": (
        limit('{ name = "pair", by = ["client"], distinct = "account", limit = "1001/1h" }'),
        "AG005", "[login] limits[1] (pair).limit", "1001 is no possible count", "1 to 1000",
    ),
    "distinct whose forgive is no switch": (
        limit('{name = "pair", by = ["client"], distinct = "device", limit = "9/1h", forgive = 1}'),
        "AG005", "[login] limits[1] (pair).forgive", "1 is no switch", "true or false",
    ),
    "reserve of all places": (
        limit('{ name = "pair", by = ["global"], fixed_window = "9/1h", reserve = 9 }'),
        "AG005", "[login] limits[1] (pair).reserve", "9 places of 9", "0 to 8",
    ),
    "reserve of a log": (
        limit(f"{{ {GOOD}, reserve = 3 }}"),
        "AG003", "[login] limits[1] (pair).reserve", "unknown key", "lockout, forgive",
    ),
    "conversion without a lockout": (
        limit('{ name = "pair", by = ["client"], conversion = "10/50" }'),
        "AG004", "[login] limits[1] (pair).lockout", "missing", "conversion needs it",
    ),
    "conversion of more than all": (
        limit('{ name = "pair", by = ["client"], conversion = "51/50", lockout = "24h" }'),
        "AG005", "[login] limits[1] (pair).conversion", "'51/50' is no share", "LEAST/OF",
    ),
    "conversion of a list of lockouts": (
        limit('{ name = "pair", by = ["client"], conversion = "1/5", lockout = ["1h"] }'),
        "AG006", "[login] limits[1] (pair).lockout", "is not a period", "such as '15m'",
    ),
    "no way for a message": (
        limit(f'{{ {GOOD}, channel = "fax" }}'),
        "AG005", "[login] limits[1] (pair).channel", "'fax' is no way", "sms, email",
    ),
    "recovery of a pair": (
        limit('{name = "pair", by = ["account", "client"], sliding_log = "5/1h", recovery = true}'),
        "AG005", "[login] limits[1] (pair).recovery", "own log is full", 'by = ["account"]',
    ),
    "recovery beside a lockout": (
        limit(f"{{ {GOOD}, lockout = '1h', recovery = true }}"),
        "AG005", "[login] limits[1] (pair).recovery", "own log is full", "without a lockout",
    ),
    "recovery that is no switch": (
        limit(f"{{ {GOOD}, recovery = 1 }}"),
        "AG005", "[login] limits[1] (pair).recovery", "1 is no switch", "true or false",
    ),
    "no tiers": (
        limit(f"{{ {GOOD}, tiers = {{}} }}"),
        "AG005", "[login] limits[1] (pair).tiers", "{} is no table of tiers", "write such as",
    ),
    "a list of tiers": (
        limit(f"{{ {GOOD}, tiers = [] }}"),
        "AG005", "[login] limits[1] (pair).tiers", "[] is no table of tiers", "write such as",
    ),
    "tier of another period": (
        limit(f"{{ {GOOD}, tiers = {{ pro = '5/1m' }} }}"),
        "AG006", "[login] limits[1] (pair).tiers.pro", "differs from the limit in more than its",
        "keep the limit's own period",
    ),
    "tier of another zone": (
        limit('{ name = "pair", by = ["account"], fixed_window = "5/1d", tiers = '
              '{ pro = { fixed_window = "9/1d", zone = "Europe/Oslo" } } }'),
        "AG006", "[login] limits[1] (pair).tiers.pro", "differs from the limit in more than its",
        "time zone",
    ),
    "a list of zones": (
        limit('{ name = "pair", by = ["account"], fixed_window = "5/1d", zone = ["Asia/Tokyo"] }'),
        "AG006", "[login] limits[1] (pair).zone", "no time zone ['Asia/Tokyo']", "IANA database",
    ),
    "a table for a zone": (
        limit('{ name = "pair", by = ["account"], fixed_window = "5/1d", zone = { a = 1 } }'),
        "AG006", "[login] limits[1] (pair).zone", "no time zone {'a': 1}", "IANA database",
    ),
    "the machine's zone": (
        limit('{ name = "pair", by = ["account"], fixed_window = "5/1d", zone = "localtime" }'),
        "AG006", "[login] limits[1] (pair).zone", "no time zone 'localtime'", "IANA database",
    ),
    "a month in words": (
        limit('{ name = "pair", by = ["account"], fixed_window = "5/month" }'),
        "AG006", "[login] limits[1] (pair).fixed_window", "'month' is not a period here",
        "write '1mo' for a month of the calendar, in a fixed_window",
    ),
    "a month of a log": (
        rate('"5/1mo"'), "AG006", "(pair).sliding_log", "'1mo' is not a period here",
        "in a fixed_window alone",
    ),
    "a lockout of one tier alone": (
        limit(f"{{ {GOOD}, tiers = {{ pro = {{ sliding_log = '9/15m', lockout = '1d' }} }} }}"),
        "AG005", "[login] limits[1] (pair).tiers.pro.lockout", "a lockout in some tiers alone",
        "or to none",
    ),
    "refusals that count under a load": (
        limit(f"{{ {GOOD}, count_refused = true, elastic = true }}"),
        "AG005", "[login] limits[1] (pair).elastic", "what the load refuses must not count",
        "leave it out",
    ),
    "worn of an account": (
        limit(f"{{ {GOOD}, worn = true }}"),
        "AG005", "[login] limits[1] (pair).worn", "no device wears out", 'by = ["device"]',
    ),
}  # fmt: skip


def complaint(policies: Any) -> ConfigurationError:
    """Start a guard with these policies, and give the error that stops it."""
    with pytest.raises(ConfigurationError) as caught:
        Guard(NOWHERE, secret=SECRET, policies=policies)
    return caught.value


@pytest.mark.parametrize("fault", WRONG)
def test_every_fault_is_named(fault: str, tmp_path: Path) -> None:
    """B132: whatever is wrong, the code, the place, the problem and the mend stand in the error."""
    text, code, where, problem, mend = WRONG[fault]
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    error = complaint(path)
    assert error.code == code
    assert where in error.where
    assert problem in error.problem
    assert mend in error.mend
    assert str(error) == f"{code} {error.where}: {error.problem}; {error.mend}"


@pytest.mark.parametrize("fault", [fault for fault in WRONG if fault != "no TOML"])
def test_a_mapping_is_judged_as_its_file(fault: str, tmp_path: Path) -> None:
    """The same policy as a mapping gives the same error as the file, word for word."""
    path = tmp_path / "policy.toml"
    path.write_text(WRONG[fault][0], encoding="utf-8")
    assert str(complaint(tomllib.loads(WRONG[fault][0]))) == str(complaint(str(path)))


@pytest.mark.parametrize(
    "name",
    ["", "A b", "zwölf", 'x"\r\nSet-Cookie: a=b', 'a\\"b', "a.b", 5, None, ["a"], b"a"],
    ids=ascii,
)
def test_a_limit_s_name_in_python(name: Any) -> None:
    """AG004 when the limit is made, since a name goes into header fields as it is."""
    with pytest.raises(ConfigurationError, match=r"AG004 .*\.name: .* is no possible name"):
        PolicyLimit(name, ("account",), SlidingLog("5/1m"))


def test_a_tier_without_the_limit_s_lockout() -> None:
    """An operator looks for a lock where the limit has one: AG005 also the other way about."""
    limit, tier = SlidingLog("5/1m", lockout="1h"), SlidingLog("9/1m")
    for own, other in ((limit, tier), (tier, limit)):
        with pytest.raises(ConfigurationError, match=r"AG005 .*tiers\.pro\.lockout: "):
            PolicyLimit("it", ("account",), own, tiers={"pro": other})


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """AG001: a missing file, a folder and a binary file are told apart, each by its path."""
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, reason in [
        (tmp_path / "missing.toml", "No such file"),
        (tmp_path, "Is a directory"),
        (binary, "not UTF-8"),
    ]:
        error = complaint(path)
        assert (error.code, error.where) == ("AG001", str(path))
        assert reason in error.problem


@pytest.mark.parametrize("source", [5, True, ["login"], b"policy.toml"], ids=repr)
def test_what_holds_no_policies(source: object) -> None:
    """AG001: neither a path nor a mapping is no policy, and not the default profile either."""
    assert complaint(source).code == "AG001"


def test_no_such_profile() -> None:
    """AG009: an unknown profile is named, with those there are."""
    with pytest.raises(ConfigurationError, match=r"AG009 profile: there is no 'strict'; .*default"):
        default_policies("strict")


@pytest.mark.parametrize("key", [10**5000, 5, None, ("a",)], ids=["huge", "5", "None", "tuple"])
def test_a_key_that_is_no_text_is_named(key: object) -> None:
    """AG003: a mapping's key may be anything, and the error about it comes all the same."""
    limits = [{"name": "a", "by": ["account"], "sliding_log": "5/1m"}]
    for wrong in ({key: {"limits": limits}}, {"login": {"limits": limits, key: 1}}):
        with pytest.raises(ConfigurationError, match="AG003"):
            load_policies(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["a", "a.b.c.d.e", "a.b.c.d.e.f.g"])
def test_a_table_that_holds_itself_is_refused(key: str) -> None:
    """However many dots its key has, a table without end is an error and no endless look."""
    table: dict[str, Any] = {"limits": []}
    table["otp"] = table
    with pytest.raises(ConfigurationError) as refused:
        load_policies({key: table})
    assert refused.value.code in ("AG003", "AG004")
