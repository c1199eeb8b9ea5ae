"""The Lua scripts: the only place that knows where ``lua/`` is and how its files are joined."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from authguard._core.plan import NUMBERS, own_format

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Script", "script"]

#: What each algorithm's file builds on, in the order in which they are joined.
_NEEDS: Final[dict[str, tuple[str, ...]]] = {
    "sliding_log": ("times", "lock"),
    "cooldown": (),
    "distinct": ("times",),
    "fixed_window": ("calendar",),
    "sliding_window_counter": (),
    "token_bucket": ("bucket",),
    "leaky_bucket": ("bucket",),
    "conversion": ("times",),
    "block": (),
}

#: What is true of an algorithm besides its functions.
_TRAITS: Final = {
    "token_bucket": ", drains = true",
    "leaky_bucket": ", drains = true",
    "distinct": ", tells_apart = true",
    "block": ", of_operators = true",
}

#: What a verb asks of an algorithm; the rest is left out, since a script makes all its functions at
#: every call.
_ASKS: Final = {
    "acquire": ("open", "refuses", "charge", "refused", "verdict"),
    "peek": ("open", "refuses", "verdict"),
    "refuse": ("open", "refuses", "refused", "verdict"),
    "settle": ("open", "settle"),
    "clear": ("open", "clear"),
    "recover": ("open", "refuses", "clear"),
    "inspect": ("open", "inspect"),
}
_FUNCTIONS: Final = frozenset(name for names in _ASKS.values() for name in names)

#: What a verb that decides needs besides.
_BESIDE: Final = dict.fromkeys(("acquire", "peek", "refuse"), ("blocks", "answer"))

#: What few calls meet is a function that makes it when one does.
_RARE: Final = frozenset({"terms", "lock", "calendar"})

#: What all that follows knows by the names in it.
_PLAIN: Final = frozenset({"times"})

#: The verbs to which a block is a limit as any other; the rest ask it beside the limits, or not.
_OF_OPERATORS: Final = frozenset({"clear", "recover", "inspect"})

#: The verbs that ask no clock, and those that know no limits.
_TIMELESS: Final = frozenset({"drop", "needs"})
_BARE: Final = frozenset({"put", "read", "take", "set_block", "pardon", "override", "load", "mark"})


@dataclass(frozen=True, slots=True)
class Script:
    """
    One joined script.

    Attributes:
        verb: What it does, such as ``acquire``.
        text: The Lua, as the server gets it.
        sha1: The name under which the server caches it (EVALSHA).
    """

    verb: str
    text: str
    sha1: str


#: A file's constants: numbers and texts, under names in capitals; and such a name.
_CONSTANTS: Final = re.compile(r"^local ([A-Z_, ]+) = (.+?)(?: --.*)?\n", re.MULTILINE)
_CAPITALS: Final = re.compile(r"\b[A-Z_]+\b")

#: A function of a file's own level, to its end.
_FUNCTION: Final = re.compile(r"^local function (\w+)\(.*\n(?:.*\n)*?end\n", re.MULTILINE)


@cache
def script(verb: str, algorithms: frozenset[str]) -> Script:
    """Join a verb with the algorithms its limits use; each file is read once a process."""
    if verb in _TIMELESS:
        return _script(verb, [_source(verb)])
    if verb in _BARE:
        return _script(verb, [_source("clock"), _chunk("terms"), _source(verb)])
    names = sorted(algorithms)
    shared = dict.fromkeys(need for name in names for need in _NEEDS[name])
    listed = [name for name in names if name != "block" or verb in _OF_OPERATORS]
    by_number = ", ".join(f"[{NUMBERS[name]}] = {name}" for name in listed)
    return _script(
        verb,
        [
            _source("clock"),
            *(_chunk(name) for name in ("terms", *shared)),
            *(_algorithm(name, verb) for name in names),
            f"local algorithms = {{ {by_number} }}",
            *(_inlined(name) for name in ("open_limits", *_BESIDE.get(verb, ()))),
            _source(verb),
        ],
    )


def _script(verb: str, parts: list[str]) -> Script:
    text = "\n".join(parts)
    return Script(verb, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def _chunk(name: str) -> str:
    if name in _PLAIN:
        return _inlined(name)
    return _defined(name, _inlined(name), rare=name in _RARE)


def _algorithm(name: str, verb: str) -> str:
    """Give an algorithm's functions that the verb asks, as a table."""
    asked = _ASKS[verb]
    source = _FUNCTION.sub(
        lambda found: "" if found[1] in _FUNCTIONS.difference(asked) else found[0], _inlined(name)
    )
    there = [each for each in asked if re.search(rf"^local .*\b{each}\b", source, re.MULTILINE)]
    functions = ", ".join(f"{each} = {each}" for each in there)
    about = f'name = "{name}", own = "{own_format(name)}"{_TRAITS.get(name, "")}'
    return _defined(
        name,
        f"{source}return {{ {about}, {functions} }}\n",
        rare=name == "block" and verb not in _OF_OPERATORS,
    )


def _defined(name: str, source: str, *, rare: bool) -> str:
    """Give what a file returns a name: at once, or, if few calls meet it, when it is asked for."""
    if rare:
        return f"local function {name}()\n{source}end"
    body, _, returned = source.rpartition("\nreturn ")
    return f"local {name}\ndo\n{body}\n{name} = {returned}end"


@cache
def _inlined(name: str) -> str:
    """Read a file and write its constants in: a local that functions share costs at every call."""
    text = _source(name)
    values: dict[str, str] = {}
    for names, told in _CONSTANTS.findall(text):
        each = (f"({value})" for value in told.split(", "))
        values |= zip(names.split(", "), each, strict=True)
    text = _CONSTANTS.sub("", text)
    return _CAPITALS.sub(lambda found: values.get(found[0], found[0]), text)


@cache
def _source(name: str) -> str:
    return (_lua_folder() / f"{name}.lua").read_text(encoding="utf-8")


@cache
def _lua_folder() -> Path:
    """Find the Lua: inside the installed package, else beside it in a checkout (editable)."""
    from pathlib import Path  # noqa: PLC0415 (4 ms that the import of authguard need not take)

    package = Path(__file__).resolve().parent.parent
    packaged = package / "_lua"
    return packaged if packaged.is_dir() else package.parent / "lua"
