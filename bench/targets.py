"""What must be reached, what was, and whether that holds: a miss is told as a miss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from bench.figures import table
from bench.logins import DEFAULT_PROFILE, OURS, REMEMBERING, is_peer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["TARGETS", "Target", "judge", "report"]

Figures: TypeAlias = "Mapping[str, Any]"

#: How a target of speed begins, and which of the figures of speed it means.
FASTEST: Final = "x the fastest exact peer"
FASTEST_IS: Final = (
    f"{FASTEST}: decisions a second, ours by its of the same round; the median of the rounds"
)


@dataclass(frozen=True, slots=True)
class Target:
    """
    One figure that must be reached.

    Attributes:
        what: What is measured; its fields are read from the part's figures.
        part: The part of the benchmark that measures it.
        bounds: The target, for each number of the figure.
        at_least: They are lower bounds; else upper ones.
        reached: Reads the numbers from the part's figures.
        exactly: They must be met to the unit.
    """

    what: str
    part: str
    bounds: tuple[float, ...]
    reached: Callable[[Figures], Sequence[float]]
    at_least: bool = False
    exactly: bool = False

    @property
    def target(self) -> str:
        """The target in words."""
        numbers = " / ".join(f"{bound:,g}" for bound in self.bounds)
        return numbers if self.exactly else f"at {'least' if self.at_least else 'most'} {numbers}"

    def holds(self, numbers: Sequence[float]) -> bool:
        """Tell whether all numbers are within their bounds."""
        for number, bound in zip(numbers, self.bounds, strict=True):
            missed = number < bound if self.at_least else number > bound
            if missed or (self.exactly and number != bound):
                return False
        return True


def _beside_fastest(contenders: Figures) -> tuple[float]:
    """
    Give our speed to that of the fastest of the others which is exact.

    Of the figures of speed it is the one that compares decisions a second of the same rounds.
    """
    return (
        min(
            it["ours_to_it"][0] for name, it in contenders.items() if it["exact"] and is_peer(name)
        ),
    )


#: As the issue lists them.
TARGETS: Final = (
    Target(
        "a decision over 3 logs, p50, x PING (of {ping_us[0]} us)",
        "decision",
        (1.6,),
        lambda it: it["contenders"][OURS]["to_ping"][:1],
    ),
    Target(
        "over the default login profile, p50, x PING (of {ping_us[0]} us)",
        "decision",
        (2.0,),
        lambda it: it["contenders"][DEFAULT_PROFILE]["to_ping"][:1],
    ),
    Target(
        f"{FASTEST}, one thread",
        "decision",
        (2.5,),
        lambda it: _beside_fastest(it["contenders"]),
        at_least=True,
    ),
    Target(
        f"{FASTEST}, 8 threads",
        "crowd",
        (2.5,),
        lambda it: _beside_fastest(it["threads"]),
        at_least=True,
    ),
    Target(
        f"{FASTEST}, 4 processes",
        "crowd",
        (2.5,),
        lambda it: _beside_fastest(it["processes"]),
        at_least=True,
    ),
    Target(
        "our own CPU, to a bare EVALSHA's",
        "cpu",
        (0.5,),
        lambda it: it["three limits"]["beyond_to_bare"][:1],
    ),
    Target(
        "commands: failure / success / refusal known already",
        "commands",
        (1, 2, 0),
        lambda it: tuple(it.values()),
        exactly=True,
    ),
    Target(
        "bytes of a full log of 5 / 100 / 1,000 entries",
        "memory",
        (128, 1_150, 11_300),
        lambda it: it[OURS],
    ),
    Target(
        "adds to a Flask request, to what Flask-Limiter adds",
        "flask",
        (0.3,),
        lambda it: it["ours_adds_to_theirs"][:1],
    ),
    Target(
        "refused logins a second by test client, to a bare Flask route's",
        "flask",
        (0.7,),
        lambda it: it["refusals"]["test client"][REMEMBERING]["to_bare"][:1],
        at_least=True,
    ),
    Target(
        "p50 with {keys[large]:,} live keys, to that with {keys[small]:,}",
        "keys",
        (1.1,),
        lambda it: it["large_to_small"][OURS][:1],
    ),
    Target(
        "import beyond nothing / beyond Flask, ms",
        "imports",
        (60, 60),
        lambda it: (it["authguard_ms"][0], it["authguard_flask_ms"][0]),
    ),
    Target(
        "admitted of a limit of 100 / of 5 in a window / places lost",
        "admissions",
        (100, 5, 0),
        lambda it: tuple(it[OURS].values()),
        exactly=True,
    ),
)


def judge(figures: Figures) -> list[dict[str, Any]]:
    """
    Compare what was measured with the targets.

    Args:
        figures: Each part's figures, by its name; targets of parts that did not run are left out.
    """
    judged = []
    for target in TARGETS:
        if target.part in figures:
            measured = figures[target.part]
            numbers = tuple(target.reached(measured))
            judged.append(
                {
                    "what": target.what.format_map(measured),
                    "target": target.target,
                    "reached": numbers,
                    "holds": target.holds(numbers),
                }
            )
    return judged


def report(judged: Sequence[dict[str, Any]]) -> None:
    """Print the table."""
    speeds = any(it["what"].startswith(FASTEST) for it in judged)
    table(
        f"Targets ({FASTEST_IS})" if speeds else "Targets",
        ("", "target", "reached", "holds?"),
        (
            (
                it["what"],
                it["target"],
                " / ".join(f"{number:,g}" for number in it["reached"]),
                "yes" if it["holds"] else "NO",
            )
            for it in judged
        ),
    )
