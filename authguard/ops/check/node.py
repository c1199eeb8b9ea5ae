"""One node of a store, and what it says of itself."""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from authguard._core import calls
from authguard._core.keys import record_key
from authguard.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from authguard.ops.check.policies import Quotas

__all__ = ["CantTellError", "Needs", "Node", "refused_by", "rule_of"]

#: What a store says where the server itself refuses a command: it is there, and won't tell.
_REFUSED: Final = ("no permission", "error reply")

#: The command that a server names where its ACL refuses one.
_NAMED: Final = re.compile(r"run the '([a-z|-]{1,64})' command", re.ASCII)

#: What is asked of the servers beside scripts: to find one's way in a cluster, and to follow a slot
#: that moves; to see whether whom the sentinels name is a primary.
_WAYS: Final = {"cluster": (("ASKING",), ("CLUSTER", "SLOTS")), "sentinel": (("ROLE",),)}


class CantTellError(Exception):
    """The server doesn't show something: what, and how to let it be seen."""

    def __init__(self, problem: str, mend: str) -> None:
        self.mend = mend
        super().__init__(problem)


#: Longest number that a server can mean; Python refuses to read very long ones.
_MOST_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class Needs:
    """
    Whether a node does what attempts need.

    Attributes:
        failed: The commands that failed, and why: ``command`` or ``key``, whichever the ACL
            denies, else a word of the error.
        ahead_ms: How far its clock is ahead of this machine's; None if it wasn't to be read.
        within_ms: How wrong that can be, for the time that asking took.
    """

    failed: Mapping[str, str]
    ahead_ms: int | None
    within_ms: int


@dataclass(slots=True)
class Node:
    """
    One node; each thing is asked once.

    Attributes:
        ask: Sends it a command.
        kind: What it belongs to: ``server``, ``sentinel`` or ``cluster``.
        quotas: The limits that must survive its restart.
        name: Its address, where there are several; empty where there is one.
    """

    ask: Callable[..., object]
    kind: str
    quotas: Quotas
    name: str = ""
    _replies: dict[tuple[str, ...], object] = field(default_factory=dict, init=False)
    _needs: Needs | None = field(default=None, init=False)

    def info(self, section: str, name: str) -> str:
        """Give a field of a section of INFO."""
        return _field(self._fields("INFO", section), name, f"INFO {section}")

    def number(self, section: str, name: str) -> int:
        """Give a field that is a whole number."""
        return _number(self._fields("INFO", section), name, f"INFO {section}")

    def cluster(self, name: str) -> str:
        """Give a field of CLUSTER INFO."""
        return _field(self._fields("CLUSTER", "INFO"), name, "CLUSTER INFO")

    def slots(self, name: str) -> int:
        """Give a number of CLUSTER INFO."""
        return _number(self._fields("CLUSTER", "INFO"), name, "CLUSTER INFO")

    def config(self, name: str) -> str:
        """Give a setting."""
        reply = self._reply("CONFIG", "GET", name)
        texts = [_text(part) for part in reply] if isinstance(reply, list) else []
        fields = dict(zip(texts[::2], texts[1::2], strict=False))
        return _field(fields, name, f"CONFIG GET {name}")

    def needs(self) -> Needs:
        """Try what attempts need on a key that is not there; writes nothing."""
        if self._needs is None:
            self._needs = self._tried()
        return self._needs

    def _tried(self) -> Needs:
        call = calls.needs(record_key(secrets.token_bytes(6), secrets.token_bytes(16)))
        failed: dict[str, str] = {}
        ahead_ms, within_ms = None, 0
        for command in _WAYS.get(self.kind, ()):
            try:
                self.ask(*command)
            except StoreUnavailable as error:
                if error.reason not in _REFUSED:
                    raise
                failed[refused_by(error, " ".join(command))] = "command"
        # EVAL puts the script where EVALSHA finds it. Without keys, any node of a cluster runs it.
        for verb, what in (("EVAL", call.script.text), ("EVALSHA", call.script.sha1)):
            begun_ms = _here_ms()
            try:
                reply = self.ask(verb, what, "0", *map(str, call.args))
            except StoreUnavailable as error:
                if error.reason in _REFUSED:
                    denied = error.reason == "no permission"
                    failed[refused_by(error, verb)] = "command" if denied else "ERR"
                elif error.reason != "script cache":  # it may be asked, and was never sent
                    raise
                continue
            now_ms, refused = call.read(reply)
            failed.update(refused)
            if now_ms is not None:
                ended_ms = _here_ms()
                ahead_ms = now_ms - (begun_ms + ended_ms) // 2
                within_ms = (ended_ms - begun_ms + 1) // 2
        return Needs(failed, ahead_ms, within_ms)

    def _fields(self, *command: str) -> dict[str, str]:
        lines = _text(self._reply(*command)).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def _reply(self, *command: str) -> object:
        if command not in self._replies:
            try:
                self._replies[command] = self.ask(*command)
            except StoreUnavailable as error:
                if error.reason not in _REFUSED:
                    raise
                # Of a setting its name; a section of INFO is let be seen with all others.
                verb = refused_by(error, "INFO" if command[0] == "INFO" else " ".join(command[:2]))
                asked = " ".join(command) if verb == "CONFIG GET" else verb
                raise CantTellError(
                    f"the server refuses {asked} ({error.reason})",
                    f"let authguard's user run it (ACL {rule_of(verb)}), or look yourself",
                ) from None
        return self._replies[command]


def _here_ms() -> int:
    # Not time.time: freezegun stops that one, and the server's clock goes on.
    return int(time.clock_gettime(time.CLOCK_REALTIME) * 1000)


def refused_by(error: StoreUnavailable, verb: str) -> str:
    """Say which command was refused: SELECT is sent before the one that was meant."""
    named = _NAMED.search(str(error.__cause__))
    if named is None:
        return verb
    words = named[1].upper().replace("|", " ")
    return verb if verb.startswith(words) else words  # an older server leaves out the second word


def rule_of(verb: str) -> str:
    """Give the ACL rule that allows a command."""
    return f"+{verb.lower().replace(' ', '|')}"


def _text(reply: object) -> str:
    return reply.decode(errors="replace") if isinstance(reply, bytes) else str(reply)


def _field(fields: Mapping[str, str], name: str, command: str) -> str:
    if name not in fields:
        raise CantTellError(
            f"{command} of this server doesn't tell {name}", "ask whoever runs it, or its manual"
        )
    return fields[name]


def _number(fields: Mapping[str, str], name: str, command: str) -> int:
    text = _field(fields, name, command)
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        return _number({}, name, command)
    return int(text)
