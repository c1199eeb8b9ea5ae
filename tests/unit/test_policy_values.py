"""Values that mean nothing are errors at the start or at the call, never "no limit"."""

from __future__ import annotations

import math
from typing import Any

import pytest

from authguard import ConfigurationError, Guard, Policy, PolicyLimit, SlidingLog, load_policies
from tests.conftest import SECRET

NOWHERE = "valkey://127.0.0.1:1/0"
NO_RATES = [
    "6O", "6O/5m", "", "5/", "/300", "/5m", "5/5m/1h", "five", "five/5m", "5 / 5m", "5/5m\n",
    "\u0665/5m", None, True, 5, ["5/5m"],
]  # fmt: skip
NO_COUNTS = [0, -1, 1.5, "inf", "nan", 10**30, "1e3", 10**5 + 1]
NO_PERIODS = ["0s", "-5s", "0.0001s", "infs", "nans", "nan", "0m", "5ms", "5w", "3651d"]


@pytest.mark.parametrize("wrong", NO_RATES, ids=repr)
def test_no_typing_error_turns_a_limit_off(wrong: object) -> None:
    """B132: a rate that is none stops the start, naming the setting, the value and a good one."""
    limits = [{"name": "account", "by": ["account"], "sliding_log": wrong}]
    with pytest.raises(ConfigurationError) as caught:
        Guard(NOWHERE, secret=SECRET, policies={"login": {"limits": limits}})
    error = caught.value
    assert error.code in ("AG005", "AG006")
    assert error.where == "[login] limits[0] (account).sliding_log"
    assert "15m" in error.mend
    period = wrong.partition("/")[2] if isinstance(wrong, str) else None
    assert repr(wrong) in error.problem or repr(period) in error.problem


@pytest.mark.parametrize(
    "wrong",
    [
        *(f"{count}/5m" for count in NO_COUNTS),
        *(f"5/{period}" for period in NO_PERIODS),
        math.inf,
        math.nan,
    ],
    ids=str,
)
def test_no_number_means_no_limit(wrong: object) -> None:
    """B133: counts from 1 to 100,000 and periods from 1 s to ten years; all else is an error."""
    with pytest.raises(ConfigurationError, match=r"AG00[56] SlidingLog: "):
        SlidingLog(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("lockout", ["0s", "-5s", "0.5s", "inf", "3651d", math.inf, 0, "", [""]])
def test_no_lockout_is_for_ever_or_for_nothing(lockout: Any) -> None:
    """B133: a lockout is from 1 s to ten years; all else is an error."""
    with pytest.raises(ConfigurationError, match=r"AG006 SlidingLog\.lockout: "):
        SlidingLog("5/15m", lockout=lockout)


@pytest.mark.parametrize("good", ["1/1s", "100000/3650d"])
def test_the_ends_of_the_range_are_in_it(good: str) -> None:
    """B133: one in a second and 100,000 in ten years are possible."""
    assert SlidingLog(good).limit in (1, 100_000)


def test_policies_made_in_code_are_judged_too() -> None:
    """B136: a Policy object that could not have been read from a file can't be made either."""
    by_account = PolicyLimit("a", ("account",), SlidingLog("5/15m"))
    with pytest.raises(ConfigurationError, match=r"AG005 .*nothing counts by 'acount'"):
        PolicyLimit("a", ("acount",), SlidingLog("5/15m"))
    with pytest.raises(ConfigurationError, match=r"AG004 \[login\] limits: missing or empty"):
        Policy("login", ())
    with pytest.raises(ConfigurationError, match=r"AG007 \[login\] limits\[1\]\.name: 'a'"):
        Policy("login", (by_account, by_account))
    with pytest.raises(ConfigurationError, match=r"AG005 .* no outage rule"):
        Policy("login", (by_account,), outage="open")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"AG003 \[login\]: holds the policy of 'logn'"):
        load_policies({"login": Policy("logn", (by_account,))})


@pytest.mark.parametrize("action", ["logn", "Login", "", "login.", "otp"])
def test_an_action_without_a_policy_is_no_free_pass(action: str) -> None:
    """B136: an unknown action is an error that names the known ones, before anything is sent."""
    with Guard(NOWHERE, secret=SECRET) as guard:
        for ask in (guard.attempt, guard.peek, guard.clear):
            with pytest.raises(ConfigurationError, match=r"AG009 action .* has no policy; .*login"):
                ask(action, account="vera", client="203.0.113.9")


@pytest.mark.parametrize("cost", [0, -1, 1.5, 1.0, "1", True, None, 10**19], ids=repr)
def test_a_cost_that_is_none_reaches_no_script(cost: Any) -> None:
    """B135: a cost that is no whole number from 1 is an error at the call; nothing is sent."""
    with Guard(NOWHERE, secret=SECRET) as guard:
        limiter = guard.limiter(SlidingLog("5/15m"))
        for ask in (guard.attempt, guard.peek):
            with pytest.raises(ValueError, match="cost"):
                ask("login", account="vera", client="203.0.113.9", cost=cost)
        for hit in (limiter.hit, limiter.peek):
            with pytest.raises(ValueError, match="cost"):
                hit("key", cost=cost)
