"""
The policy file: the same TOML for :class:`authguard.Guard`, the demo and the command line.

A table replaces the default profile's table for that action whole. A wrong file stops the start
with the table and the key at fault, and the mend.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from authguard.checks import shown
from authguard.errors import ConfigurationError
from authguard.limits import (
    Conversion,
    Cooldown,
    Distinct,
    FixedWindow,
    LeakyBucket,
    SlidingLog,
    SlidingWindowCounter,
    TokenBucket,
)
from authguard.policy import Policy, PolicyLimit, check_by, is_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from authguard.limits import Algorithm

__all__ = ["default_policies", "load_policies"]

_ACTION = re.compile(r"[a-z][a-z0-9_-]{0,31}(\.[a-z][a-z0-9_-]{0,31}){0,3}", re.ASCII)

#: Keys that any limit can have.
_LIMIT_KEYS: Final = (
    "name",
    "by",
    "ipv4_prefix",
    "ipv6_prefix",
    "channel",
    "recovery",
    "worn",
    "cost",
    "tiers",
    "elastic",
    "priority",
)
#: Those of each algorithm: its own name, what it can't be without, and its options.
_OPTIONS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "sliding_log": ((), ("lockout", "forgive", "count_refused")),
    "cooldown": ((), ()),
    "distinct": (("limit",), ("forgive",)),
    "fixed_window": ((), ("reserve", "zone")),
    "sliding_window_counter": ((), ()),
    "token_bucket": (("burst",), ()),
    "leaky_bucket": (("queue",), ()),
    "conversion": (("lockout",), ("life",)),
}
_ANY_OPTION: Final = tuple(
    dict.fromkeys(key for keys in _OPTIONS.values() for each in keys for key in each)
)
#: Parts of an action's name; see _ACTION.
_MOST_PARTS: Final = 4

# The default profile. Sources:
# - login: OWASP WSTG-ATHN-03 (lock after 3 to 5 typical tries, unlock after 10 to 15 minutes); NIST
#   SP 800-63B-4 section 3.2.2 (at most 100 failures for an account, made here a 30-day log that no
#   success refills, and recovery when it is full); an office of 600 sign-ins in 15 minutes with 5 %
#   typing errors behind one address makes 30 failures; networks get four times a client's; one
#   client that fails at 20 accounts in an hour is a spray; 50 failures wear a device out.
# - otp.send: Twilio stops at 5 sends in 10 minutes (60203), Auth0 backs off; ranges as numbers in
#   sequence are pumped; the budget is 1,000 messages a day, a fifth of it in an hour, with a tenth
#   kept for known devices; a range or country where fewer than 20 % of codes are entered is pumped.
# - otp.verify: 5 guesses for a code (Twilio 60202); 10 a day and 30 in 30 days give a guesser of
#   6 digits 1 in 100,000 a day and 1 in 2,500 a year; NIST's ceiling of 100 in all is higher.
# - password.forgot: three mails an hour reach an owner and bury no inbox.
# - password.reset, unlock: a token of 256 bits needs no more; this bounds the work.
_DEFAULT_PROFILE: Final = """
[login]
outage = "deny"
limits = [
  { name = "pair", by = ["account", "client"], sliding_log = "5/15m" },
  { name = "account", by = ["account"], sliding_log = "10/15m", lockout = ["15m", "1h", "24h"] },
  { name = "day", by = ["account"], sliding_log = "20/24h" },
  { name = "month", by = ["account"], sliding_log = "100/30d", recovery = true },
  { name = "client", by = ["client"], sliding_log = "30/15m" },
  { name = "client-day", by = ["client"], sliding_log = "150/24h" },
  { name = "network", by = ["network"], sliding_log = "120/15m" },
  { name = "spray", by = ["client"], distinct = "account", limit = "20/1h" },
  { name = "device", by = ["device"], sliding_log = "5/15m" },
  { name = "device-worn", by = ["device"], sliding_log = "50/365d", worn = true },
]

[otp.send]
outage = "deny"
limits = [
  { name = "cooldown", by = ["account", "purpose"], cooldown = ["30s", "60s", "120s", "240s"] },
  { name = "hour", by = ["account"], sliding_log = "5/1h" },
  { name = "day", by = ["account"], sliding_log = "10/24h" },
  { name = "device-cooldown", by = ["device"], cooldown = ["30s", "60s", "120s", "240s"] },
  { name = "device-hour", by = ["device"], sliding_log = "5/1h" },
  { name = "device-day", by = ["device"], sliding_log = "10/24h" },
  { name = "destination-hour", by = ["destination"], sliding_log = "5/1h" },
  { name = "destination-day", by = ["destination"], sliding_log = "10/24h" },
  { name = "client", by = ["client"], sliding_log = "10/1h" },
  { name = "client-day", by = ["client"], sliding_log = "30/24h" },
  { name = "network", by = ["network"], sliding_log = "40/1h" },
  { name = "range", by = ["number_range"], sliding_log = "30/1h" },
  { name = "range-conversion", by = ["number_range"], conversion = "10/50", lockout = "24h" },
  { name = "country-conversion", by = ["country"], conversion = "10/50", lockout = "24h" },
  { name = "budget-hour", by = ["global"], channel = "sms", fixed_window = "200/1h", reserve = 20 },
  { name = "budget", by = ["global"], channel = "sms", fixed_window = "1000/24h", reserve = 100 },
]

[otp.verify]
outage = "deny"
limits = [
  { name = "challenge",  by = ["challenge"], sliding_log = "5/10m" },
  { name = "day",        by = ["account"], sliding_log = "10/24h" },
  { name = "month",      by = ["account"], sliding_log = "30/30d", recovery = true },
  { name = "client",     by = ["client"], sliding_log = "20/15m" },
  { name = "client-day", by = ["client"], sliding_log = "100/24h" },
  { name = "network",    by = ["network"], sliding_log = "80/15m" },
]

[password.forgot]
outage = "deny"
limits = [
  { name = "cooldown",    by = ["account"], cooldown = ["60s"] },
  { name = "hour",        by = ["account"], sliding_log = "3/1h" },
  { name = "day",         by = ["account"], sliding_log = "5/24h" },
  { name = "destination", by = ["destination"], sliding_log = "5/24h" },
  { name = "client",      by = ["client"], sliding_log = "5/15m" },
  { name = "client-day",  by = ["client"], sliding_log = "20/24h" },
  { name = "network",     by = ["network"], sliding_log = "20/15m" },
]

[password.reset]
outage = "deny"
limits = [
  { name = "client",  by = ["client"], sliding_log = "10/15m" },
  { name = "network", by = ["network"], sliding_log = "40/15m" },
]

[unlock]
outage = "deny"
limits = [
  { name = "client",  by = ["client"], sliding_log = "10/15m" },
  { name = "network", by = ["network"], sliding_log = "40/15m" },
]
"""

#: Profiles by name, each as the TOML that a policy file would hold.
PROFILES: Final[Mapping[str, str]] = {"default": _DEFAULT_PROFILE}


def default_policies(profile: str = "default") -> dict[str, Policy]:
    """
    Give the policies of a named profile.

    Raises:
        ConfigurationError: AG009, if there is no such profile.
    """
    if profile not in PROFILES:
        raise ConfigurationError(
            "AG009",
            "profile",
            f"there is no {shown(profile)}",
            f"take one of: {', '.join(PROFILES)}",
        )
    return _read(_toml(PROFILES[profile]))


def load_policies(
    source: str | Path | Mapping[str, Any] | None = None, *, profile: str = "default"
) -> dict[str, Policy]:
    """
    Read policies over those of a profile; a table replaces its action's whole.

    Args:
        source: A TOML file's path, the same as a mapping, or ``None`` for the profile alone.
            Values of a mapping may be :class:`Policy` objects.
        profile: The profile below.

    Raises:
        ConfigurationError: AG001 to AG009, naming the table, the key and the mend.
    """
    policies = default_policies(profile)
    if source is None:
        return policies
    if isinstance(source, str | os.PathLike):
        source = _parse(source)
    if not isinstance(source, Mapping):
        raise ConfigurationError(
            "AG001",
            "policies",
            f"{shown(source)} holds none",
            "name a TOML file, or give a mapping",
        )
    policies.update(_read(source))
    return policies


def _parse(given: str | os.PathLike[str]) -> Mapping[str, Any]:
    from pathlib import Path  # noqa: PLC0415 (only if there is a file)

    path = Path(given)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not UTF-8"
        raise ConfigurationError(
            "AG001", str(path), f"the policy file can't be read: {reason}", "name a TOML file"
        ) from error
    try:
        return _toml(text)
    except (ValueError, RecursionError) as error:  # a number of too many digits is a ValueError
        raise ConfigurationError(
            "AG002", str(path), f"not valid TOML: {error}", "correct that line"
        ) from error


def _toml(text: str) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 (when a guard is made, not when it is imported)

    return tomllib.loads(text)


def _read(tables: Mapping[str, Any]) -> dict[str, Policy]:
    policies: dict[str, Policy] = {}
    for action, table in _flatten(tables, ""):
        if not _ACTION.fullmatch(action):
            raise ConfigurationError(
                "AG003",
                f"[{action}]",
                "no possible name of an action",
                "use lower-case letters, digits, '_' and '-', parts joined by dots",
            )
        if action in policies:
            raise ConfigurationError(
                "AG007", f"[{action}]", "stands twice", "write one table for an action"
            )
        policy = table if isinstance(table, Policy) else _policy(action, table)
        if policy.action != action:
            raise ConfigurationError(
                "AG003",
                f"[{action}]",
                f"holds the policy of {shown(policy.action)}",
                "use one name for both",
            )
        policies[action] = policy
    return policies


def _flatten(tables: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    """Turn the nested tables of ``[otp.send]`` into actions; a table with limits is an action."""
    actions: list[tuple[str, Any]] = []
    for key, value in tables.items():
        where = prefix + _named(key) or "the empty key"
        if isinstance(value, Policy):
            actions.append((where, value))
            continue
        if not isinstance(value, dict):
            raise ConfigurationError(
                "AG003", where, "unknown key outside of an action's table", "write [action] tables"
            )
        if prefix.count(".") >= _MOST_PARTS:
            raise ConfigurationError(
                "AG003", f"[{where}]", "tables in tables in tables", f"nest {_MOST_PARTS} at most"
            )
        own = {k: v for k, v in value.items() if not isinstance(v, dict | Policy)}
        nested = {k: v for k, v in value.items() if isinstance(v, dict | Policy)}
        if own or not nested:
            actions.append((where, own))
        actions.extend(_flatten(nested, f"{where}."))
    return actions


def _policy(action: str, table: Mapping[str, Any]) -> Policy:
    _known(table, ("limits", "outage"), f"[{action}]")
    limits = table.get("limits", ())
    if not isinstance(limits, list | tuple):
        raise ConfigurationError(
            "AG004",
            f"[{action}] limits",
            f"{shown(limits)} is not a list",
            'write limits = [{ name = "…", by = ["account"], sliding_log = "5/15m" }]',
        )
    bound = tuple(
        _limit(entry, f"[{action}] limits[{index}]") for index, entry in enumerate(limits)
    )
    return Policy(action, bound, table.get("outage", "deny"))


def _limit(entry: object, where: str) -> PolicyLimit:
    if not isinstance(entry, dict):
        raise ConfigurationError(
            "AG003",
            where,
            f"{shown(entry)} is not a limit",
            'write { name = "account", by = ["account"], sliding_log = "5/15m" }',
        )
    name = entry.get("name")
    if not is_name(name):
        raise ConfigurationError(
            "AG004",
            f"{where}.name",
            "missing" if name is None else f"{shown(name)} is no possible name",
            "use lower-case letters, digits, '_' and '-'",
        )
    where = f"{where} ({name})"
    chosen = [key for key in _ALGORITHMS if key in entry]
    if not chosen:
        # A misspelt algorithm is named as such.
        _known(entry, (*_LIMIT_KEYS, *_ALGORITHMS, *_ANY_OPTION), where)
    if len(chosen) != 1:
        raise ConfigurationError(
            "AG008",
            where,
            "no algorithm" if not chosen else f"more than one algorithm: {', '.join(chosen)}",
            'write exactly one, such as sliding_log = "5/15m"',
        )
    by = check_by(entry.get("by"), where)
    return PolicyLimit(
        name,
        by,
        _algorithm(chosen[0], entry, where),
        entry.get("ipv4_prefix"),
        entry.get("ipv6_prefix"),
        where,
        channel=entry.get("channel"),
        recovery=entry.get("recovery", False),
        worn=entry.get("worn", False),
        cost=entry.get("cost", 1),
        tiers=_tiers(chosen[0], entry, f"{where}.tiers"),
        elastic=entry.get("elastic", False),
        priority=entry.get("priority"),
    )


def _tiers(algorithm: str, entry: Mapping[str, Any], where: str) -> dict[str, Algorithm]:
    """Read each tier: the algorithm's own value, or a table of that and of its options."""
    if "tiers" not in entry:
        return {}
    tiers = entry["tiers"]
    if not isinstance(tiers, dict) or not tiers:
        raise ConfigurationError(
            "AG005",
            where,
            f"{shown(tiers)} is no table of tiers",
            'write such as { free = "1000/1h", pro = "10000/1h" }',
        )
    required, options = _OPTIONS[algorithm]
    # What is counted is the value that a distinct tells apart; its numbers are its limit.
    value = "limit" if algorithm == "distinct" else algorithm
    read: dict[str, Algorithm] = {}
    for tier, given in tiers.items():
        own = given if isinstance(given, dict) else {value: given}
        here = f"{where}.{_named(tier)}"
        _known(own, (algorithm, *required, *options), here)
        kept = {key: entry[key] for key in (algorithm, *required, *options) if key in entry}
        read[tier] = _algorithm(algorithm, kept | own, here)
    return read


def _algorithm(name: str, entry: Mapping[str, Any], where: str) -> Algorithm:
    required, options = _OPTIONS[name]
    _known(entry, (*_LIMIT_KEYS, name, *required, *options), where)
    for key in required:
        if key not in entry:
            raise ConfigurationError(
                "AG004", f"{where}.{key}", "missing", f"{name} needs it beside its own value"
            )
    given = {key: entry[key] for key in (*required, *options) if key in entry}
    return _ALGORITHMS[name](entry[name], where=f"{where}.{name}", **given)


def _cooldown(waits: object, *, where: str) -> Cooldown:
    return Cooldown(*(waits if isinstance(waits, list | tuple) else [waits]), where=where)


def _distinct(of: Any, *, where: str, limit: Any, forgive: Any = None) -> Distinct:
    return Distinct(of, limit, forgive=forgive, where=where)


def _known(table: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
    for key in table:
        if key not in keys:
            raise ConfigurationError(
                "AG003", f"{where}.{_named(key)}", "unknown key", f"known here: {', '.join(keys)}"
            )


def _named(key: object) -> str:
    """Give a key as errors name it; in a mapping from code it need be no text."""
    return key if isinstance(key, str) else shown(key)


#: The key that names an algorithm, and what reads its value and options.
_ALGORITHMS: Final[Mapping[str, Callable[..., Algorithm]]] = {
    "sliding_log": SlidingLog,
    "cooldown": _cooldown,
    "distinct": _distinct,
    "fixed_window": FixedWindow,
    "sliding_window_counter": SlidingWindowCounter,
    "token_bucket": TokenBucket,
    "leaky_bucket": LeakyBucket,
    "conversion": Conversion,
}
