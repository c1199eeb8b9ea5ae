"""What the Lua is told of limits: whatever is written in is read out, to the last digit."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from authguard._core.plan import ELASTIC, HEEDS_OVERRIDES, Spec, decode, encode, with_load

LARGEST = 2**53
numbers = st.integers(0, LARGEST) | st.sampled_from([0, 1, 2**32, 2**48, LARGEST])
ahead = st.lists(st.integers(-LARGEST, LARGEST), max_size=8)
names = st.text(st.characters(codec="utf-8"), max_size=9)
FORMS: dict[str, tuple[st.SearchStrategy[Any], ...]] = {
    "sliding_log": (numbers, numbers, numbers, st.lists(numbers, max_size=4)),
    "fixed_window": (*[numbers] * 4, ahead),
    "sliding_window_counter": (numbers, numbers),
    "token_bucket": (numbers, numbers, numbers),
    "leaky_bucket": (numbers, numbers, numbers),
    "cooldown": (st.lists(numbers, min_size=1, max_size=32),),
    "distinct": (numbers, numbers, numbers),
    "conversion": (*[numbers] * 5,),
    "block": (),
}


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    """Draw a limit; a name goes with it if it heeds overrides."""
    algorithm = draw(st.sampled_from([*FORMS]))
    flags = draw(st.sampled_from([0, ELASTIC, HEEDS_OVERRIDES, ELASTIC | HEEDS_OVERRIDES]))
    name = draw(names) if flags & HEEDS_OVERRIDES else ""
    own = [draw(each) for each in FORMS[algorithm]]
    return Spec(algorithm, name, draw(st.integers(1, 10**9)), flags, own)


counts = st.integers(0, 9)


@given(st.lists(specs(), max_size=6), counts, counts, counts, st.integers(0, 1000), numbers)
def test_a_plan_is_read_as_it_was_written(  # noqa: PLR0917 (a plan's own)
    limits: list[Spec], overrides: int, loads: int, blocks: int, share: int, ends_ms: int
) -> None:
    """Numbers up to 2**53, times before 1970, lists and names survive, with a load and without."""
    plan = encode(limits, overrides=overrides, loads=loads, blocks=blocks)
    assert decode(plan) == (overrides, loads, blocks, 1000, 0, limits)
    assert decode(with_load(plan, share, ends_ms)) == (
        overrides,
        loads,
        blocks,
        share,
        ends_ms,
        limits,
    )
