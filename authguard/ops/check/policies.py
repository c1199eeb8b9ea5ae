"""Questions to the policies: which limits are quotas, and what they warn of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from authguard.limits import Cooldown
from authguard.ops.check.report import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from authguard.limits import Algorithm
    from authguard.policy import Policy

__all__ = ["Quotas", "listed", "of_policies", "quotas"]

#: The limits that are quotas, by action.
Quotas: TypeAlias = "Mapping[str, tuple[str, ...]]"

#: A limit that counts for this long or longer is a quota: it must survive a restart.
QUOTA_MS: Final = 86_400_000

_MENDS: Final = {
    "AG040": "add a limit by account alone",
    "AG041": "add a limit by client alone, or by network",
    "AG042": 'write outage = "deny"',
}


def quotas(policies: Mapping[str, Policy]) -> Quotas:
    """Name the limits that count or lock for a day or longer, by action; without those of none."""
    named = {
        action: tuple(
            limit.name
            for limit in policy.limits
            if any(
                max(numbers.window_ms, *numbers.lockout_ms, *_waits_ms(numbers)) >= QUOTA_MS
                for numbers in (limit.algorithm, *limit.tiers.values())
            )
        )
        for action, policy in policies.items()
    }
    return {action: names for action, names in named.items() if names}


def _waits_ms(algorithm: Algorithm) -> tuple[int, ...]:
    return algorithm.waits_ms if isinstance(algorithm, Cooldown) else (0,)


def listed(kept: Quotas) -> str:
    """Give quotas in one line."""
    return "; ".join(f"{action}: {', '.join(names)}" for action, names in kept.items())


def of_policies(policies: Mapping[str, Policy]) -> Iterator[Finding]:
    """Tell what the policies warn of themselves."""
    for policy in policies.values():
        for warning in policy.warnings:
            code, _, seen = warning.partition(" ")
            yield Finding(code, "warning", seen, _MENDS.get(code, "see docs/errors.md"))
