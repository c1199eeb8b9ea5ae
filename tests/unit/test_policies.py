"""Policies that are right: the default profile's numbers, and what a file or a mapping says."""

from __future__ import annotations

import logging
import tomllib
from typing import TYPE_CHECKING

import pytest

from authguard import Guard, Policy, PolicyLimit, SlidingLog, default_policies, load_policies
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
    (login,) = default_policies().values()
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
        "device": (("device",), 5, 15 * MINUTE),
    }
    lockouts = {
        limit.name: limit.algorithm.lockout_ms
        for limit in login.limits
        if limit.algorithm.lockout_ms
    }
    assert lockouts == {"account": (15 * MINUTE, HOUR, DAY)}
    assert not any(limit.algorithm.count_refused for limit in login.limits)


def test_who_forgives_in_the_default_profile() -> None:
    """Only short logs by account or device forgive; never client, network, day or month."""
    (login,) = default_policies().values()
    forgiving = {limit.name for limit in login.limits if limit.algorithm.forgives(limit.by)}
    assert forgiving == {"pair", "account", "device"}


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
    assert sorted(policies) == ["login", "otp", "otp.send"]
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
