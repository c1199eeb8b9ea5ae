"""Foreign text, made fit for a terminal."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    r"""
    Show ``text`` on one line, whatever it holds.

    Control characters, line ends, marks that turn the writing direction and lone surrogates appear
    as escapes (``\x1b``). Text that is empty, or begins or ends with a blank, is put in quotes:
    its edge would be invisible.
    """
    shown = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )
    return f'"{shown}"' if not shown or shown != shown.strip() else shown
