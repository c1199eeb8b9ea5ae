"""What a look found: findings, and all of them together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CheckReport", "Finding", "Level"]

Level: TypeAlias = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """
    One thing that was looked at.

    Attributes:
        code: A stable code (``AG0xx``), listed in ``docs/errors.md``.
        level: ``ok``; ``warning``, for what can go wrong; ``error``, for what is wrong now.
        seen: What was seen, in one line.
        mend: What to do about it; None if it is ok.
    """

    code: str
    level: Level
    seen: str
    mend: str | None = None

    def as_json(self) -> dict[str, str | None]:
        """Give it in the words of ``check --json``."""
        return {"code": self.code, "level": self.level, "seen": self.seen, "mend": self.mend}


@dataclass(frozen=True, slots=True)
class CheckReport:
    """
    All that was found.

    Attributes:
        findings: In the order in which the questions were asked.
        quotas: The limits that count for a day or longer, by action.
    """

    findings: tuple[Finding, ...]
    quotas: Mapping[str, tuple[str, ...]]

    @property
    def ok(self) -> bool:
        """Whether there is nothing to mend."""
        return all(finding.level == "ok" for finding in self.findings)

    def count(self, level: Level) -> int:
        """Count the findings of a level."""
        return sum(finding.level == level for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """Give it in the words of ``check --json``."""
        return {
            "ok": self.ok,
            "warnings": self.count("warning"),
            "errors": self.count("error"),
            "quotas": {action: list(names) for action, names in self.quotas.items()},
            "findings": [finding.as_json() for finding in self.findings],
        }
