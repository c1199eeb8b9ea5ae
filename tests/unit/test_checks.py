"""Checks of single values: what is wrong with a number is told apart."""

from __future__ import annotations

import pytest

from authguard import ConfigurationError
from authguard.checks import check_whole


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (6, "6 is out of range"),
        (0, "0 is out of range"),
        ("5", "is text, no number"),
        (b"5", "is text, no number"),
        (True, "True is no whole number"),
        (2.0, "2.0 is no whole number"),
        (float("inf"), "inf is no whole number"),
        (None, "None is no whole number"),
        pytest.param(10**5_000, "a int beyond all bounds is out of range", id="very long"),
    ],
)
def test_a_number_that_cant_be_is_told_with_what_is_wrong(value: object, problem: str) -> None:
    """AG012 names the setting, tells text and other kinds from a range, and gives both ends."""
    with pytest.raises(ConfigurationError) as caught:
        check_whole(value, "some_ms", 1, 5, unit="milliseconds")
    assert (caught.value.code, caught.value.where) == ("AG012", "some_ms")
    assert caught.value.problem == problem
    assert "take a whole number of milliseconds, 1 to 5" in caught.value.mend
    assert ("int(…)" in caught.value.mend) is isinstance(value, str | bytes)


@pytest.mark.parametrize(("most", "mend"), [(None, "0 (off) or more"), (9, "0 (off) to 9")])
def test_a_number_in_its_range_is_given_back(most: int | None, mend: str) -> None:
    """Both ends may be; a least number that switches off is told as such."""
    assert [check_whole(value, "n", 0, most, off=True) for value in (0, 9)] == [0, 9]
    with pytest.raises(ConfigurationError) as caught:
        check_whole(-1, "n", 0, most, off=True)
    assert caught.value.mend == f"take a whole number, {mend}"
