"""The waits between one and the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from authguard.errors import ConfigurationError
from authguard.limits.base import Base
from authguard.limits.rates import LONGEST_LIST, parse_period_ms

__all__ = ["Cooldown"]


@dataclass(frozen=True, slots=True, init=False)
class Cooldown(Base):
    """
    A wait after each admitted attempt, longer for each one in a row.

    The n-th in a row starts the n-th wait, and the last wait repeats. After ten times the last
    wait without one it starts over. Refused tries move nothing, and what an attempt costs makes
    no wait longer.

    Args:
        waits: Periods that don't fall, such as ``"30s", "60s", "120s"``; 1 to 32 of them.
        where: The setting it stands in, for errors.

    Raises:
        ConfigurationError: AG006, naming the value and the mend.
    """

    waits_ms: tuple[int, ...]

    algorithm: ClassVar[str] = "cooldown"
    limit: ClassVar[int] = 1
    lockout_ms: ClassVar[tuple[int, ...]] = ()

    def __init__(self, *waits: str, where: str = "Cooldown") -> None:
        if not 1 <= len(waits) <= LONGEST_LIST:
            raise ConfigurationError(
                "AG006",
                where,
                f"{len(waits)} waits",
                f"write 1 to {LONGEST_LIST} of them, such as ['30s', '60s']",
            )
        waits_ms = tuple(parse_period_ms(wait, where) for wait in waits)
        if list(waits_ms) != sorted(waits_ms):
            raise ConfigurationError(
                "AG006", where, "the waits fall", "write them rising, the shortest first"
            )
        object.__setattr__(self, "waits_ms", waits_ms)

    @property
    def window_ms(self) -> int:
        """The time in which it never admits more than one: its first wait."""
        return self.waits_ms[0]

    def numbers(self) -> list[Any]:
        """Give the waits."""
        return [list(self.waits_ms)]

    def _like(self, text: str, where: str) -> Cooldown:
        return Cooldown(*(each.strip() for each in text.split(",")), where=where)
