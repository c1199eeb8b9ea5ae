"""The Lua scripts: the only place that knows where ``lua/`` is and how its files are joined."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

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

#: The verbs that know no limits.
_BARE: Final = frozenset(
    {"put", "read", "take", "drop", "set_block", "pardon", "override", "load", "mark", "needs"}
)


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


@cache
def script(verb: str, algorithms: frozenset[str]) -> Script:
    """Join a verb with the algorithms its limits use; each file is read once a process."""
    if verb in _BARE:
        return _script(verb, [_chunk("clock"), _chunk("terms"), _source(verb)])
    names = sorted(algorithms)
    shared = dict.fromkeys(need for name in names for need in _NEEDS[name])
    chunks = [_chunk(name) for name in ("clock", "terms", *shared, *names)]
    table = ", ".join(f"{name} = {name}" for name in names)
    algorithms_by_name = f"local algorithms = {{ {table} }}"
    asking = [_chunk(name) for name in ("open_limits", "answer")]
    return _script(verb, [*chunks, algorithms_by_name, *asking, _source(verb)])


def _script(verb: str, parts: list[str]) -> Script:
    text = "\n".join(parts)
    return Script(verb, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def _chunk(name: str) -> str:
    return f"local {name} = (function()\n{_source(name)}end)()"


def _source(name: str) -> str:
    return (_lua_folder() / f"{name}.lua").read_text(encoding="utf-8")


@cache
def _lua_folder() -> Path:
    """Find the Lua: inside the installed package, else beside it in a checkout (editable)."""
    package = Path(__file__).resolve().parent.parent
    packaged = package / "_lua"
    return packaged if packaged.is_dir() else package.parent / "lua"
