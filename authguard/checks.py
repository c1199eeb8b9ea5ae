"""Checks of single values that several rooms need."""

from __future__ import annotations

from typing import Final, TypeGuard

from authguard.errors import ConfigurationError

__all__ = [
    "LONGEST_DEADLINE_MS",
    "LONGEST_MEMORY_MS",
    "check_function",
    "check_whole",
    "is_unicode",
    "is_whole",
    "shown",
]

#: The longest deadline that a store can be given, in milliseconds: beyond it is a mistake.
LONGEST_DEADLINE_MS: Final = 60_000

#: The longest that a refusal may be remembered, in milliseconds.
LONGEST_MEMORY_MS: Final = 1_000

_LONGEST_SHOWN: Final = 200


def is_whole(value: object, least: int) -> TypeGuard[int]:
    """Tell whether the value is an int (and no bool) of at least ``least``."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_unicode(text: str) -> bool:
    """
    Tell whether the text holds no lone surrogate.

    Looked for rather than tried, since the error that ``encode()`` would raise holds the text.
    """
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def shown(value: object) -> str:
    """Give a value as an error shows it: no number is too long for that, no list too deep."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__} beyond all bounds"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def check_whole(
    value: object, where: str, least: int, most: int | None, *, unit: str = "", off: bool = False
) -> int:
    """
    Give a whole number in its range.

    Args:
        value: What was given.
        where: The setting it stands in.
        least: The least it may be.
        most: The most; None: it has no upper end.
        unit: What it counts, such as ``milliseconds``, for the mend.
        off: Its least switches it off.

    Raises:
        ConfigurationError: AG012, with what is wrong with it and the range.
    """
    if is_whole(value, least) and (most is None or value <= most):
        return value
    of, up = f" of {unit}" if unit else "", "or more" if most is None else f"to {most}"
    mend = f"take a whole number{of}, {least}{' (off)' if off else ''} {up}"
    problem = f"{shown(value)} is no whole number"
    if isinstance(value, str | bytes):  # as the environment gives all it holds; not shown: it may
        # be another setting's, such as an address with a password
        problem, mend = "is text, no number", f"{mend}: write int(…) around it"
    elif isinstance(value, int) and not isinstance(value, bool):
        problem = f"{shown(value)} is out of range"
    raise ConfigurationError("AG012", where, problem, mend)


def check_function(function: object, where: str) -> None:
    """
    Refuse what can't be called.

    Raises:
        ConfigurationError: AG028.
    """
    if not callable(function):
        raise ConfigurationError(
            "AG028",
            where,
            f"{shown(function)} is no function",
            "give one that takes the typed text",
        )
