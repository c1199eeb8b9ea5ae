"""
A look over the store and the settings: a list of findings, each with its mend.

A question looks at one thing and gives what it found; :data:`_OF_THE_SERVER` lists those that the
server is asked. What it doesn't let be seen is a finding too, not a failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from authguard.errors import StoreUnavailable
from authguard.limits import Cooldown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from authguard.guard import Guard
    from authguard.limits import Algorithm
    from authguard.policy import Policy

    _Quotas: TypeAlias = Mapping[str, tuple[str, ...]]

__all__ = ["CheckReport", "Finding", "Level", "check", "quotas"]

Level: TypeAlias = Literal["ok", "warning", "error"]

#: A limit that counts for this long or longer is a quota: it must survive a restart.
QUOTA_MS: Final = 86_400_000

#: What is lost with the server, besides the counts.
_BESIDES: Final = "locks, blocks and links"

#: What a store says where the server itself refuses a command: it is there, and won't tell.
_REFUSED: Final = ("no permission", "error reply")

#: Why a disk that fails stops everything.
_NO_WRITES: Final = "the server takes no writes, so every attempt is refused"

_KEEP: Final = (
    "on the running server CONFIG SET appendonly yes, then CONFIG REWRITE (with the file alone"
    " changed it would start empty); for a new one take docs/deploy/valkey.conf"
)
_POLICY_MENDS: Final = {
    "AG040": "add a limit by account alone",
    "AG041": "add a limit by client alone, or by network",
    "AG042": 'write outage = "deny"',
}


@dataclass(frozen=True, slots=True)
class Finding:
    """
    One thing that was looked at.

    Attributes:
        code: A stable code (``AG0xx``), listed in ``docs/errors.md``.
        level: ``ok``; ``warning``, for what can go wrong; ``error``, for what is wrong now.
        seen: What was seen, in one line.
        mend: What to do about it; None if it is ok.
    """

    code: str
    level: Level
    seen: str
    mend: str | None = None

    def as_json(self) -> dict[str, str | None]:
        """Give it in the words of ``check --json``."""
        return {"code": self.code, "level": self.level, "seen": self.seen, "mend": self.mend}


@dataclass(frozen=True, slots=True)
class CheckReport:
    """
    All that was found.

    Attributes:
        findings: In the order in which the questions were asked.
        quotas: The limits that count for a day or longer, by action.
    """

    findings: tuple[Finding, ...]
    quotas: Mapping[str, tuple[str, ...]]

    @property
    def ok(self) -> bool:
        """Whether there is nothing to mend."""
        return all(finding.level == "ok" for finding in self.findings)

    def count(self, level: Level) -> int:
        """Count the findings of a level."""
        return sum(finding.level == level for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """Give it in the words of ``check --json``."""
        return {
            "ok": self.ok,
            "warnings": self.count("warning"),
            "errors": self.count("error"),
            "quotas": {action: list(names) for action, names in self.quotas.items()},
            "findings": [finding.as_json() for finding in self.findings],
        }


def check(guard: Guard) -> CheckReport:
    """
    Look a guard's store and policies over; writes nothing.

    Raises:
        StoreUnavailable: If the store gave no clear answer, or can't run a script.
    """
    guard.now_ms()  # by a script, unless the guard has a clock of its own: the store decides
    store = guard._engine.store  # noqa: SLF001 (a guard shows it to nobody else)
    kept = quotas(guard.policies)
    ask = getattr(store, "ask", None)
    found: list[Finding] = []
    if callable(ask):
        server = _Server(ask)
        for code, question in _OF_THE_SERVER:
            try:
                found.extend(question(server, kept))
            except _CantTellError as error:
                found.append(Finding(code, "warning", f"can't tell: {error}", error.mend))
    else:
        found.append(_unseen(type(store).__name__))
    found.extend(_policies(guard.policies))
    return CheckReport(tuple(found), kept)


def quotas(policies: Mapping[str, Policy]) -> _Quotas:
    """Name the limits that count or lock for a day or longer, by action; without those of none."""
    named = {
        action: tuple(
            limit.name
            for limit in policy.limits
            if any(
                max(numbers.window_ms, *numbers.lockout_ms, *_waits_ms(numbers)) >= QUOTA_MS
                for numbers in (limit.algorithm, *limit.tiers.values())
            )
        )
        for action, policy in policies.items()
    }
    return {action: names for action, names in named.items() if names}


def _waits_ms(algorithm: Algorithm) -> tuple[int, ...]:
    return algorithm.waits_ms if isinstance(algorithm, Cooldown) else (0,)


def _listed(kept: _Quotas) -> str:
    """Give quotas in one line."""
    return "; ".join(f"{action}: {', '.join(names)}" for action, names in kept.items())


class _CantTellError(Exception):
    """The server doesn't show something: what, and how to let it be seen."""

    def __init__(self, problem: str, mend: str) -> None:
        self.mend = mend
        super().__init__(problem)


class _Server:
    """What a server says of itself; each thing is asked once."""

    def __init__(self, ask: Callable[..., object]) -> None:
        self._ask = ask
        self._replies: dict[tuple[str, ...], object] = {}

    def info(self, section: str, name: str) -> str:
        """Give a field of a section of INFO."""
        lines = _text(self._reply("INFO", section)).splitlines()
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        return _field(fields, name, f"INFO {section}")

    def number(self, section: str, name: str) -> int:
        """Give a field that is a whole number."""
        text = self.info(section, name)
        if not (text.isascii() and text.isdigit()):
            raise _hidden(f"INFO {section}", name)
        return int(text)

    def config(self, name: str) -> str:
        """Give a setting."""
        reply = self._reply("CONFIG", "GET", name)
        texts = [_text(part) for part in reply] if isinstance(reply, list) else []
        fields = dict(zip(texts[::2], texts[1::2], strict=False))
        return _field(fields, name, f"CONFIG GET {name}")

    def _reply(self, *command: str) -> object:
        if command not in self._replies:
            try:
                self._replies[command] = self._ask(*command)
            except StoreUnavailable as error:
                if error.reason not in _REFUSED:
                    raise
                rule = "+config|get" if command[0] == "CONFIG" else f"+{command[0].lower()}"
                raise _CantTellError(
                    f"the server refuses {' '.join(command)} ({error.reason})",
                    f"let authguard's user run it (ACL {rule}), or look yourself",
                ) from None
        return self._replies[command]


def _text(reply: object) -> str:
    return reply.decode(errors="replace") if isinstance(reply, bytes) else str(reply)


def _field(fields: Mapping[str, str], name: str, command: str) -> str:
    if name not in fields:
        raise _hidden(command, name)
    return fields[name]


def _hidden(command: str, name: str) -> _CantTellError:
    return _CantTellError(
        f"{command} of this server doesn't tell {name}", "ask whoever runs it, or its manual"
    )


def _which(server: _Server, _: _Quotas) -> Iterator[Finding]:
    """Which server it is."""
    try:
        name = f"Valkey {server.info('server', 'valkey_version')}"
    except _CantTellError:
        name = f"Redis {server.info('server', 'redis_version')}"
    yield Finding("AG060", "ok", f"{name} answers")


def _persistence(server: _Server, kept: _Quotas) -> Iterator[Finding]:
    """Whether counts survive a restart."""
    log = server.info("persistence", "aof_enabled") == "1"
    if log:
        seen = "an append-only file is kept: counts, locks and blocks survive a restart"
        yield Finding("AG061", "ok", seen)
    elif not kept:
        seen = f"no limit counts for a day or more; {_BESIDES} end with the server"
        yield Finding("AG061", "ok", seen)
    else:
        yield _without_log(server, _listed(kept))


def _without_log(server: _Server, listed: str) -> Finding:
    """Say what a restart takes where there is no append-only file."""
    try:
        rule = server.config("save")
    except _CantTellError as error:
        seen = (
            f"no append-only file; can't tell whether there are snapshots: {error};"
            f" with them a crash loses the latest counts, without them all, of {listed}"
        )
        return Finding("AG061", "warning", seen, _KEEP)
    if not rule:
        seen = f"nothing is kept on disk: a restart empties {listed}; and ends {_BESIDES}"
        return Finding("AG061", "error", seen, _KEEP)
    changes = server.number("persistence", "rdb_changes_since_last_save")
    seen = (
        f"snapshots alone (save {rule}): a crash loses all since the last one, now"
        f" {changes:,} changes{_since_snapshot(server)}, of {listed}"
    )
    return Finding("AG061", "warning", seen, _KEEP)


def _since_snapshot(server: _Server) -> str:
    try:
        now_s = server.number("server", "server_time_usec") // 1_000_000
        saved_s = server.number("persistence", "rdb_last_save_time")
    except _CantTellError:  # older servers don't tell their time here
        return ""
    return f" in {_length(max(0, now_s - saved_s))}"


def _flushing(server: _Server, kept: _Quotas) -> Iterator[Finding]:
    """How much of the append-only file a crash can take."""
    if not kept or server.info("persistence", "aof_enabled") != "1":
        return
    when = server.config("appendfsync")
    if when == "no":
        yield Finding(
            "AG062",
            "warning",
            "appendfsync no: a power cut takes all that the system had not written yet, half a"
            f" minute's counts or more, of {_listed(kept)}",
            "CONFIG SET appendfsync everysec, then CONFIG REWRITE",
        )
    else:
        loses = "nothing that was answered" if when == "always" else "the last second at most"
        yield Finding("AG062", "ok", f"appendfsync {when}: a crash loses {loses}")


def _writing(server: _Server, _: _Quotas) -> Iterator[Finding]:
    """Whether what should be kept is being written."""

    def failed(field: str) -> bool:
        return server.info("persistence", field) != "ok"

    found: list[tuple[Level, str]] = []
    if server.info("persistence", "aof_enabled") == "1":
        if failed("aof_last_write_status"):
            found.append(("error", f"the append-only file can't be written: {_NO_WRITES}"))
        if failed("aof_last_bgrewrite_status"):
            seen = "the last rewrite of the append-only file failed: it grows until one succeeds"
            found.append(("warning", seen))
    if failed("rdb_last_bgsave_status") and server.config("save"):
        if server.config("stop-writes-on-bgsave-error") == "no":
            found.append(("warning", "the last snapshot failed: a crash loses more by the hour"))
        else:
            found.append(("error", f"the last snapshot failed: {_NO_WRITES}"))
    for level, seen in found:
        yield Finding("AG063", level, seen, "look at its log and its disk: full, read-only, gone?")
    if not found:
        yield Finding("AG063", "ok", "no write to disk has failed")


def _eviction(server: _Server, _: _Quotas) -> Iterator[Finding]:
    """Whether a full memory takes counts away."""
    policy = server.info("memory", "maxmemory_policy")
    if policy == "noeviction":
        seen = "maxmemory-policy noeviction: a full memory refuses attempts, and forgets none"
        yield Finding("AG064", "ok", seen)
        return
    bounded = server.number("memory", "maxmemory") > 0
    when = "when the memory is full" if bounded else "as soon as maxmemory is set"
    yield Finding(
        "AG064",
        "error" if bounded else "warning",
        f"maxmemory-policy {policy}: {when}, counts and locks are thrown out, and guessers start"
        " afresh",
        "CONFIG SET maxmemory-policy noeviction, then CONFIG REWRITE; give a cache its own server",
    )


def _unseen(store: str) -> Finding:
    seen = f"can't tell: a {store} can't be looked over, nor whether its counts survive a restart"
    return Finding("AG065", "warning", seen, "use a ValkeyStore, or give yours ask(*command)")


def _policies(policies: Mapping[str, Policy]) -> Iterator[Finding]:
    """What the policies warn of themselves."""
    for policy in policies.values():
        for warning in policy.warnings:
            code, _, seen = warning.partition(" ")
            yield Finding(code, "warning", seen, _POLICY_MENDS.get(code, "see docs/errors.md"))


def _length(length_s: int) -> str:
    """Give a length of time in its largest unit, rounded up."""
    for unit, size_s, most in (("s", 1, 119), ("min", 60, 119), ("h", 3_600, 47)):
        if (count := -(-length_s // size_s)) <= most:
            return f"{count} {unit}"
    return f"{-(-length_s // 86_400)} d"


#: What a server is asked, in this order: the code of what can't be told, and the question.
_OF_THE_SERVER: Final[tuple[tuple[str, Callable[[_Server, _Quotas], Iterator[Finding]]], ...]] = (
    ("AG060", _which),
    ("AG061", _persistence),
    ("AG062", _flushing),
    ("AG063", _writing),
    ("AG064", _eviction),
)
