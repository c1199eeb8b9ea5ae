"""The exact ones: what they count they keep, one entry each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from authguard.checks import shown
from authguard.errors import ConfigurationError
from authguard.limits.base import Base
from authguard.limits.rates import SHORT_MS, check_switch, parse_lockout, parse_rate

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Distinct", "SlidingLog", "heeds_pardon"]

#: A log is exact and costs 10 bytes an attempt; beyond this a counter is the right tool.
LARGEST_LOG: Final = 100_000

#: Different values that a log of them holds; each attempt looks through all.
LARGEST_DISTINCT: Final = 1_000


def heeds_pardon(by: Sequence[str]) -> bool:
    """
    Tell whether a sliding log by these parts is one of many of an account, one for each client.

    Nobody knows them all, so an operator's unlock leaves a mark that they heed (``pardon.lua``).
    """
    return "account" in by and not {"client", "network"}.isdisjoint(by)


@dataclass(frozen=True, slots=True, init=False)
class SlidingLog(Base):
    """
    At most ``limit`` admitted attempts in any window of that length, to the millisecond.

    An attempt made at ``t`` counts while ``now < t + window``; at exactly ``t + window`` its
    place is free. A success gives its place back. At most ``limit`` entries of 10 bytes are
    kept, whatever is thrown at it.

    Args:
        rate: ``"COUNT/PERIOD"``, such as ``"5/15m"``; COUNT from 1 to 100,000.
        lockout: The reservation that fills the log locks it for this long; refused tries don't
            move the end, and when it has passed the log is empty. A rising list climbs from one
            lockout to the next and starts over after a quiet time: the longest of the list, or
            the window if that is longer.
        forgive: A success erases its own client's earlier failures. ``None``: where the limit
            counts by account or device and its window is an hour or less.
        count_refused: Count refused attempts too, so that a hammering client stays out until it
            stops. The log still holds at most ``limit`` entries.
        where: The setting it stands in, for errors.

    Raises:
        ConfigurationError: AG005 or AG006, naming the value and the mend.
    """

    limit: int
    window_ms: int
    lockout_ms: tuple[int, ...]
    forgive: bool | None
    count_refused: bool

    algorithm: ClassVar[str] = "sliding_log"
    can_scale: ClassVar[bool] = True

    def __init__(
        self,
        rate: str,
        *,
        lockout: str | Sequence[str] | None = None,
        forgive: bool | None = None,
        count_refused: bool = False,
        where: str = "SlidingLog",
    ) -> None:
        limit, window_ms = parse_rate(rate, where, LARGEST_LOG)
        beside = where.removesuffix(f".{self.algorithm}")
        if forgive is not None:
            check_switch(forgive, f"{beside}.forgive")
        check_switch(count_refused, f"{beside}.count_refused")
        set_once = object.__setattr__
        set_once(self, "limit", limit)
        set_once(self, "window_ms", window_ms)
        set_once(self, "lockout_ms", parse_lockout(lockout, beside))
        set_once(self, "forgive", forgive)
        set_once(self, "count_refused", count_refused)

    def forgives(self, by: Sequence[str]) -> bool:
        """Tell whether a success erases its client's failures when the limit counts ``by`` this."""
        if self.forgive is not None:
            return self.forgive
        owned = "account" in by or "device" in by
        return owned and self.window_ms <= SHORT_MS

    def largest_cost(self, *, reserved: bool = False) -> int | None:  # noqa: ARG002 (as others)
        """Give the limit: an attempt can't take more places than there are."""
        return self.limit

    def numbers(self) -> list[Any]:
        """Give limit and window."""
        return [self.limit, self.window_ms]

    def spec(
        self,
        by: Sequence[str],
        *,
        forgiving: bool = True,
        reserved: bool = False,  # noqa: ARG002 (every algorithm is asked alike)
    ) -> list[Any]:
        """Describe the limit to its Lua (the header of ``sliding_log.lua``)."""
        flags = int(self.count_refused) + 2 * int(forgiving and self.forgives(by))
        flags += 4 * int(heeds_pardon(by))
        return [*self.numbers(), flags, list(self.lockout_ms)]

    def same_kind(self) -> object:
        """Give the window: a shorter one would forget what a longer one must remember."""
        return self.window_ms

    def _like(self, text: str, where: str) -> SlidingLog:
        return SlidingLog(text, where=where)


@dataclass(frozen=True, slots=True, init=False)
class Distinct(Base):
    """
    At most ``limit`` different values of a part in any window: how many accounts a client tries.

    A value counts from its latest attempt, for one window; one that counts already is always
    admitted. At most ``limit`` entries of 21 bytes are kept.

    Args:
        of: The part whose values are told apart, such as ``"account"``; not one it counts by.
        rate: ``"COUNT/PERIOD"``, such as ``"20/1h"``; COUNT from 1 to 1,000.
        forgive: A success takes its value out: an account that its client has opened is not one
            that it fails at. ``None``: where the window is an hour or less.
        where: The setting it stands in, for errors.

    Raises:
        ConfigurationError: AG005 or AG006, naming the value and the mend.
    """

    of: str
    limit: int
    window_ms: int
    forgive: bool | None

    algorithm: ClassVar[str] = "distinct"
    lockout_ms: ClassVar[tuple[int, ...]] = ()

    def __init__(
        self, of: str, rate: str, *, forgive: bool | None = None, where: str = "Distinct"
    ) -> None:
        beside = where.removesuffix(f".{self.algorithm}")
        if not isinstance(of, str):
            raise ConfigurationError(
                "AG005", where, f"{shown(of)} is no part", "name one, such as 'account'"
            )
        limit, window_ms = parse_rate(rate, f"{beside}.limit", LARGEST_DISTINCT)
        if forgive is not None:
            check_switch(forgive, f"{beside}.forgive")
        set_once = object.__setattr__
        set_once(self, "of", of)
        set_once(self, "limit", limit)
        set_once(self, "window_ms", window_ms)
        set_once(self, "forgive", forgive)

    def forgives(self, by: Sequence[str]) -> bool:  # noqa: ARG002 (asked as a sliding log is)
        """Tell whether a success takes its value out altogether."""
        return self.window_ms <= SHORT_MS if self.forgive is None else self.forgive

    def numbers(self) -> list[Any]:
        """Give limit and window."""
        return [self.limit, self.window_ms]

    def spec(
        self,
        by: Sequence[str],
        *,
        forgiving: bool = True,
        reserved: bool = False,  # noqa: ARG002 (every algorithm is asked alike)
    ) -> list[Any]:
        """Describe the limit to its Lua (the header of ``distinct.lua``)."""
        return [*self.numbers(), int(forgiving and self.forgives(by))]

    def _like(self, text: str, where: str) -> Distinct:
        return Distinct(self.of, text, where=where)

    def same_kind(self) -> object:
        """Give the part it tells apart, and the window."""
        return self.of, self.window_ms
