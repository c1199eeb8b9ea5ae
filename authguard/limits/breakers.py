"""Those that count no attempts: a breaker on messages with codes, and what operators block."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from authguard.checks import shown
from authguard.errors import ConfigurationError
from authguard.limits.base import Base
from authguard.limits.rates import parse_period_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Block", "Conversion"]

#: Codes that a share is reckoned from.
LARGEST_SAMPLE: Final = 200

_SHARE: Final = re.compile(r"([0-9]{1,4})/([0-9]{1,4})", re.ASCII)


@dataclass(frozen=True, slots=True, init=False)
class Conversion(Base):
    """
    A breaker on messages with codes: locks if too few of the last codes were entered.

    A code is finished when it was entered or when its life is over. The attempt that finds fewer
    than ``least`` of the last ``limit`` finished ones entered is admitted and sets the lock; with
    the lock's end it starts afresh. As many codes under way as it looks back on are followed;
    while there are more, it judges by that sample.

    Args:
        share: ``"LEAST/OF"``, such as ``"10/50"``; OF from 1 to 200.
        lockout: How long it locks: one period.
        life: How long a code is good.
        where: The setting it stands in, for errors.

    Raises:
        ConfigurationError: AG005 or AG006, naming the value and the mend.
    """

    least: int
    limit: int
    lockout_ms: tuple[int, ...]
    life_ms: int

    algorithm: ClassVar[str] = "conversion"

    def __init__(
        self, share: str, *, lockout: str, life: str = "10m", where: str = "Conversion"
    ) -> None:
        match = _SHARE.fullmatch(share) if isinstance(share, str) else None
        if match is None or not 1 <= int(match[1]) <= int(match[2]) <= LARGEST_SAMPLE:
            raise ConfigurationError(
                "AG005",
                where,
                f"{shown(share)} is no share",
                f"write LEAST/OF, such as '10/50', with OF up to {LARGEST_SAMPLE}",
            )
        beside = where.removesuffix(f".{self.algorithm}")
        set_once = object.__setattr__
        set_once(self, "least", int(match[1]))
        set_once(self, "limit", int(match[2]))
        set_once(self, "lockout_ms", (parse_period_ms(lockout, f"{beside}.lockout"),))
        set_once(self, "life_ms", parse_period_ms(life, f"{beside}.life"))

    @property
    def window_ms(self) -> int:
        """The time for which it locks."""
        return self.lockout_ms[0]

    def spec(
        self,
        by: Sequence[str],  # noqa: ARG002 (every algorithm is asked alike)
        *,
        forgiving: bool = True,
        reserved: bool = False,  # noqa: ARG002
    ) -> list[Any]:
        """Describe the limit to its Lua (the header of ``conversion.lua``)."""
        return [
            self.least,
            self.limit,
            self.lockout_ms[0],
            self.life_ms,
            int(forgiving),
        ]


@dataclass(frozen=True, slots=True)
class Block(Base):
    """The operators' block: nothing is counted; while it stands it refuses. In no policy."""

    algorithm: ClassVar[str] = "block"
    limit: ClassVar[int] = 0
    window_ms: ClassVar[int] = 0
    lockout_ms: ClassVar[tuple[int, ...]] = ()
