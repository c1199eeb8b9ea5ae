"""
The algorithms a limit can use: frozen values, checked once when they are made.

Counts and periods are written ``"COUNT/PERIOD"``; a period is a whole number with a unit,
``s``, ``m``, ``h`` or ``d``: ``"5/15m"`` is five in any fifteen minutes (a fixed window knows
``1mo`` as well). What each admits and
costs, and when to choose it, stands in ``docs/algorithms.md``.
"""

from __future__ import annotations

from typing import TypeAlias

from authguard.limits.breakers import Block, Conversion
from authguard.limits.buckets import LeakyBucket, TokenBucket
from authguard.limits.logs import Distinct, SlidingLog, heeds_pardon
from authguard.limits.rates import SHORT_MS, parse_period_ms
from authguard.limits.waits import Cooldown
from authguard.limits.windows import FixedWindow, SlidingWindowCounter

__all__ = [
    "SHORT_MS",
    "Algorithm",
    "Block",
    "Conversion",
    "Cooldown",
    "Distinct",
    "FixedWindow",
    "LeakyBucket",
    "SlidingLog",
    "SlidingWindowCounter",
    "TokenBucket",
    "heeds_pardon",
    "parse_period_ms",
]

#: What a limit can be.
Algorithm: TypeAlias = (
    SlidingLog
    | SlidingWindowCounter
    | FixedWindow
    | TokenBucket
    | LeakyBucket
    | Cooldown
    | Distinct
    | Conversion
    | Block
)
