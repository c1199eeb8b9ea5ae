"""Policies that are right: the default profile's numbers, and what a file or a mapping says."""

from __future__ import annotations

import logging
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from authguard import Guard, Policy, PolicyLimit, SlidingLog, default_policies, load_policies
from authguard._core.keys import Shape
from authguard._core.plan import decode
from authguard.limits import Conversion, Cooldown, Distinct, FixedWindow
from tests.conftest import SECRET

if TYPE_CHECKING:
    from pathlib import Path

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
NOWHERE = "valkey://127.0.0.1:1/0"
FILE = """
[login]
outage = "allow"
limits = [
  { name = "account", by = ["account"], sliding_log = "3/90s", lockout = ["30s", "2h"] },
  { name = "client", by = ["client"], sliding_log = "9/90s", count_refused = true },
  { name = "spread", by = ["client", "account"], sliding_log = "7/2d", forgive = true },
]

[otp.send]
limits = [{ name = "hour", by = ["account"], sliding_log = "5/1h" }]

[otp]
limits = [{ name = "global", by = ["global"], sliding_log = "100/1h" }]
"""


def test_the_numbers_of_the_default_profile() -> None:
    """The default profile is the table of defaults for login: 5, 10, 20, 100; 30, 150; 120; 5."""
    login = default_policies()["login"]
    assert (login.action, login.outage, login.warnings) == ("login", "deny", ())
    numbers = {
        limit.name: (limit.by, limit.algorithm.limit, limit.algorithm.window_ms)
        for limit in login.limits
    }
    assert numbers == {
        "pair": (("account", "client"), 5, 15 * MINUTE),
        "account": (("account",), 10, 15 * MINUTE),
        "day": (("account",), 20, DAY),
        "month": (("account",), 100, 30 * DAY),
        "client": (("client",), 30, 15 * MINUTE),
        "client-day": (("client",), 150, DAY),
        "network": (("network",), 120, 15 * MINUTE),
        "spray": (("client",), 20, HOUR),
        "device": (("device",), 5, 15 * MINUTE),
        "device-worn": (("device",), 50, 365 * DAY),
    }
    lockouts = {
        limit.name: limit.algorithm.lockout_ms
        for limit in login.limits
        if limit.algorithm.lockout_ms
    }
    assert lockouts == {"account": (15 * MINUTE, HOUR, DAY)}
    logs = [each.algorithm for each in login.limits if isinstance(each.algorithm, SlidingLog)]
    assert not any(log.count_refused for log in logs)
    assert [limit.name for limit in login.limits if limit.recovery] == ["month"]
    assert [limit.name for limit in login.limits if limit.worn] == ["device-worn"]


def test_the_numbers_of_the_other_actions() -> None:
    """The default profile's tables for codes, resets and unlocking are those of its sources."""
    policies = default_policies()
    waits = (30_000, 60_000, 120_000, 240_000)
    assert {
        action: {limit.name: numbers(limit) for limit in policy.limits}
        for action, policy in policies.items()
        if action != "login"
    } == {
        "otp.send": {
            "cooldown": ("account purpose", waits),
            "hour": ("account", 5, HOUR),
            "day": ("account", 10, DAY),
            "device-cooldown": ("device", waits),
            "device-hour": ("device", 5, HOUR),
            "device-day": ("device", 10, DAY),
            "destination-hour": ("destination", 5, HOUR),
            "destination-day": ("destination", 10, DAY),
            "client": ("client", 10, HOUR),
            "client-day": ("client", 30, DAY),
            "network": ("network", 40, HOUR),
            "range": ("number_range", 30, HOUR),
            "range-conversion": ("number_range", 10, 50, DAY, 10 * MINUTE),
            "country-conversion": ("country", 10, 50, DAY, 10 * MINUTE),
            "budget-hour": ("global", 200, HOUR, 20),
            "budget": ("global", 1000, DAY, 100),
        },
        "otp.verify": {
            "challenge": ("challenge", 5, 10 * MINUTE),
            "day": ("account", 10, DAY),
            "month": ("account", 30, 30 * DAY),
            "client": ("client", 20, 15 * MINUTE),
            "client-day": ("client", 100, DAY),
            "network": ("network", 80, 15 * MINUTE),
        },
        "password.forgot": {
            "cooldown": ("account", (60_000,)),
            "hour": ("account", 3, HOUR),
            "day": ("account", 5, DAY),
            "destination": ("destination", 5, DAY),
            "client": ("client", 5, 15 * MINUTE),
            "client-day": ("client", 20, DAY),
            "network": ("network", 20, 15 * MINUTE),
        },
        "password.reset": {
            "client": ("client", 10, 15 * MINUTE),
            "network": ("network", 40, 15 * MINUTE),
        },
        "unlock": {
            "client": ("client", 10, 15 * MINUTE),
            "network": ("network", 40, 15 * MINUTE),
        },
    }
    assert not any(policy.warnings for policy in policies.values())
    assert {policy.outage for policy in policies.values()} == {"deny"}
    sends, verifies = policies["otp.send"].limits, policies["otp.verify"].limits
    assert {limit.name for limit in sends if limit.channel == "sms"} == {"budget-hour", "budget"}
    assert [limit.name for limit in verifies if limit.recovery] == ["month"]


def numbers(limit: PolicyLimit) -> tuple[Any, ...]:
    """Give what a limit counts by, and its numbers."""
    by, algorithm = " ".join(limit.by), limit.algorithm
    if isinstance(algorithm, Cooldown):
        return by, algorithm.waits_ms
    if isinstance(algorithm, Conversion):
        own = (algorithm.least, algorithm.limit, *algorithm.lockout_ms, algorithm.life_ms)
        return by, *own
    if isinstance(algorithm, FixedWindow):
        return by, algorithm.limit, algorithm.window_ms, algorithm.reserve
    return by, algorithm.limit, algorithm.window_ms


def test_who_forgives_in_the_default_profile() -> None:
    """Only short logs by account or device forgive, and a spray's value that was opened."""
    forgiving = {
        limit.name
        for limit in default_policies()["login"].limits
        if isinstance(limit.algorithm, SlidingLog | Distinct) and limit.algorithm.forgives(limit.by)
    }
    assert forgiving == {"pair", "account", "device", "spray"}


@pytest.mark.parametrize(
    ("by", "rate", "forgives"),
    [
        (("account",), "5/1h", True),
        (("account",), "5/60m", True),
        (("account",), "5/3601s", False),
        (("account", "client"), "5/15m", True),
        (("device",), "5/1h", True),
        (("client",), "5/1s", False),
        (("network",), "5/1s", False),
        (("global",), "5/1s", False),
        (("destination",), "5/1s", False),
    ],
)
def test_who_forgives_unless_told(by: tuple[str, ...], rate: str, forgives: bool) -> None:
    """A log forgives by default if it counts by account or device, and for an hour or less."""
    assert SlidingLog(rate).forgives(by) is forgives
    assert SlidingLog(rate, forgive=True).forgives(by) is True
    assert SlidingLog(rate, forgive=False).forgives(by) is False


def test_a_file_and_its_mapping_are_one(tmp_path: Path) -> None:
    """A path, its text, and the mapping that it holds give equal policies."""
    path = tmp_path / "policy.toml"
    path.write_text(FILE, encoding="utf-8")
    policies = load_policies(path)
    assert policies == load_policies(str(path)) == load_policies(tomllib.loads(FILE))
    assert policies["login"] == Policy(
        "login",
        (
            PolicyLimit("account", ("account",), SlidingLog("3/90s", lockout=["30s", "2h"])),
            PolicyLimit("client", ("client",), SlidingLog("9/90s", count_refused=True)),
            PolicyLimit("spread", ("account", "client"), SlidingLog("7/2d", forgive=True)),
        ),
        "allow",
    )


def test_dotted_actions() -> None:
    """[otp.send] is the action otp.send, beside [otp]; written with quotes it is the same."""
    policies = load_policies(tomllib.loads(FILE))
    assert sorted(policies) == sorted({*default_policies(), "login", "otp", "otp.send"})
    assert policies["otp.send"].limits[0].algorithm.limit == 5
    assert policies["otp"].limits[0].by == ("global",)
    quoted = FILE.replace("[otp.send]", '["otp.send"]')
    assert load_policies(tomllib.loads(quoted)) == policies


def test_a_table_replaces_the_defaults_whole() -> None:
    """A table leaves nothing of the default for its action; an action without one keeps it."""
    limits = [{"name": "account", "by": ["account"], "sliding_log": "3/1m"}]
    (only,) = load_policies({"login": {"limits": limits}})["login"].limits
    assert (only.name, only.algorithm.limit) == ("account", 3)
    assert load_policies({"unlock": {"limits": limits}})["login"] == default_policies()["login"]
    assert load_policies({}) == load_policies(None) == default_policies()


def test_the_order_of_by_means_nothing() -> None:
    """`by` is a set: the order in which its parts are written makes no other limit, or key."""
    rate = SlidingLog("5/15m")
    one, other = (
        PolicyLimit("pair", ("account", "client"), rate),
        PolicyLimit("pair", ("client", "account"), rate),
    )
    assert one == other


def test_a_policy_object_is_as_good_as_its_table() -> None:
    """A mapping may hold Policy objects instead of tables."""
    policy = load_policies(tomllib.loads(FILE))["login"]
    assert load_policies({"login": policy})["login"] == policy
    assert load_policies({"otp": {"send": Policy("otp.send", policy.limits)}})["otp.send"]


def test_what_looks_wrong_is_said_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    """An action without an account or a client limit is a warning with a code, not an error."""
    for by, warning in [("client", "AG040 login: no limit counts by account"),
                        ("account", "AG041 login: no limit counts by client")]:  # fmt: skip
        caplog.clear()
        limits = [{"name": "one", "by": [by], "sliding_log": "3/1m"}]
        with caplog.at_level(logging.WARNING, "authguard"):
            Guard(NOWHERE, secret=SECRET, policies={"login": {"limits": limits}}).close()
        assert [record.getMessage()[: len(warning)] for record in caplog.records] == [warning]


@pytest.mark.parametrize(
    ("by", "codes"),
    [
        ([["account", "client"]], ["AG040", "AG041"]),
        ([["account", "device"], ["client"]], ["AG040"]),
        ([["account", "destination"], ["network"]], ["AG040"]),
        ([["account", "client"], ["account"]], ["AG041"]),
        ([["account", "global"], ["client", "global"]], []),
        ([["account"], ["network"]], []),
        ([["account"], ["client"], ["account", "client"]], []),
    ],
)
def test_a_limit_bounds_a_part_alone(by: list[list[str]], codes: list[str]) -> None:
    """AG040, AG041: together with another part a limit bounds neither, and that is warned of."""
    limits = [
        {"name": f"l{at}", "by": parts, "sliding_log": "5/15m"} for at, parts in enumerate(by)
    ]
    warnings = load_policies({"login": {"limits": limits}})["login"].warnings
    assert [warning.split()[0] for warning in warnings] == codes


@pytest.mark.parametrize(
    ("table", "algorithm"),
    [
        ({"cooldown": ["30s", "60s"]}, Cooldown("30s", "60s")),
        ({"cooldown": "60s"}, Cooldown("60s")),
        ({"fixed_window": "1000/24h"}, FixedWindow("1000/24h")),
        ({"fixed_window": "1000/24h", "reserve": 999}, FixedWindow("1000/24h", reserve=999)),
        ({"distinct": "client", "limit": "20/1h"}, Distinct("client", "20/1h")),
        (
            {"distinct": "client", "limit": "9/2h", "forgive": True},
            Distinct("client", "9/2h", forgive=True),
        ),
        ({"conversion": "10/50", "lockout": "24h"}, Conversion("10/50", lockout="24h")),
        (
            {"conversion": "1/200", "lockout": "1h", "life": "5m"},
            Conversion("1/200", lockout="1h", life="5m"),
        ),
    ],
    ids=str,
)
def test_every_algorithm_is_written_as_it_is_made(table: dict[str, Any], algorithm: Any) -> None:
    """A table's limit and its Python name are one value."""
    limits = [{"name": "l", "by": ["account"], **table}]
    (limit,) = load_policies({"send": {"limits": limits}})["send"].limits
    assert limit.algorithm == algorithm


def test_what_must_be_known_for_a_limit_to_apply() -> None:
    """A limit needs what it counts by, the part it tells apart, and its message's channel."""
    spray = PolicyLimit("spray", ("client",), Distinct("account", "20/1h"))
    budget = PolicyLimit("budget", ("global",), FixedWindow("9/1h"), channel="sms")
    assert spray.needs == {"client", "account"}
    assert budget.needs == {"global", "sms"}
    policy = Policy("send", (spray, budget))
    assert policy.parts == {"client", "account", "global"}

    def applying(*subjects: str, **options: Any) -> list[str]:
        shape = Shape.of(policy, frozenset(subjects), **options)
        return [limit.name for limit in shape.limits]

    assert applying("client") == []
    assert applying("client", members=False) == ["spray"]
    assert applying("client", "account") == ["spray"]
    assert applying("global", "email") == []
    assert applying("global", "sms", "client", "account") == ["spray", "budget"]


def test_the_halves_of_a_message() -> None:
    """What only the true destination tells is left to the message; a typed destination counts."""
    send = default_policies()["otp.send"]
    known = frozenset({"account", "client", "network", "purpose", "destination", "number_range",
                       "country", "sms", "global"})  # fmt: skip
    request, message, whole = (
        {limit.name for limit in Shape.of(send, known, part=part).limits}
        for part in ("request", "message", "all")
    )
    destinations = {"destination-hour", "destination-day"}
    assert request & message == destinations
    assert request | message == whole
    assert message - destinations == {
        "range", "range-conversion", "country-conversion", "budget-hour", "budget",
    }  # fmt: skip
    assert {limit.name for limit in send.limits if limit.by_message} == message


def test_the_reserve_is_for_known_devices() -> None:
    """Without a known device a budget ends where its reserve begins."""
    send = default_policies()["otp.send"]
    for device, most in ((set(), 180), ({"device"}, 200)):
        shape = Shape.of(send, frozenset({"global", "sms", *device}))
        budget = next(limit for limit in shape.limits if limit.name == "budget-hour")
        own = [own for *_, own in decode(shape.plan).specs]
        assert own[shape.limits.index(budget)] == [200, HOUR, 200 - most, 0, []]
        assert budget.algorithm.largest_cost(reserved=shape.reserved) == most


@pytest.mark.parametrize("action", ["password.reset", "unlock", "login"])
def test_a_token_names_no_account_until_it_is_proved(action: str) -> None:
    """AG040 is not warned of where no account can be counted yet; elsewhere it is."""
    limits = [{"name": "client", "by": ["client"], "sliding_log": "5/15m"}]
    warnings = load_policies({action: {"limits": limits}})[action].warnings
    assert [warning.split()[0] for warning in warnings] == (["AG040"] if action == "login" else [])


def test_what_counts_no_attempts_bounds_nothing() -> None:
    """AG040, AG041: no distinct, breaker or limit of one channel bounds an account or a client."""
    limits = [
        {"name": "a", "by": ["account"], "distinct": "client", "limit": "9/1h"},
        {"name": "b", "by": ["account"], "conversion": "1/5", "lockout": "1h"},
        {"name": "c", "by": ["client"], "sliding_log": "5/15m", "channel": "sms"},
    ]
    warnings = load_policies({"login": {"limits": limits}})["login"].warnings
    assert [warning.split()[0] for warning in warnings] == ["AG040", "AG041"]
