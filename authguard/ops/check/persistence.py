"""Questions to a node about its disk: what a restart or a crash takes, and whether it can write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from authguard.ops.check.node import CantTellError
from authguard.ops.check.policies import listed
from authguard.ops.check.report import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from authguard.ops.check.node import Node
    from authguard.ops.check.report import Level

__all__ = ["flushing", "persistence", "writing"]

#: What is lost with the server, besides the counts.
_BESIDES: Final = "locks, blocks and links"

#: Why a disk that fails stops everything.
_NO_WRITES: Final = "the server takes no writes, so every attempt is refused"

_KEEP: Final = (
    "on the running server CONFIG SET appendonly yes, then CONFIG REWRITE (with the file alone"
    " changed it would start empty; where that fails there is no file, and it must stand where the"
    " server's start is written); for a new one take docs/deploy/valkey.conf"
)


def persistence(node: Node) -> Iterator[Finding]:
    """Whether counts survive a restart."""
    log = node.info("persistence", "aof_enabled") == "1"
    if log:
        seen = "an append-only file is kept: counts, locks and blocks survive a restart"
        yield Finding("AG061", "ok", seen)
    elif not node.quotas:
        seen = f"no limit counts for a day or more; {_BESIDES} end with the server"
        yield Finding("AG061", "ok", seen)
    else:
        yield _without_log(node, listed(node.quotas))


def _without_log(node: Node, quotas: str) -> Finding:
    """Say what a restart takes where there is no append-only file."""
    try:
        rule = node.config("save")
    except CantTellError as error:
        seen = (
            f"no append-only file; can't tell whether there are snapshots: {error};"
            f" with them a crash loses the latest counts, without them all, of {quotas}"
        )
        return Finding("AG061", "warning", seen, _KEEP)
    if not rule:
        seen = f"nothing is kept on disk: a restart empties {quotas}; and ends {_BESIDES}"
        return Finding("AG061", "error", seen, _KEEP)
    changes = node.number("persistence", "rdb_changes_since_last_save")
    seen = (
        f"snapshots alone (save {rule}): a crash loses all since the last one, now"
        f" {changes:,} changes{_since_snapshot(node)}, of {quotas}"
    )
    return Finding("AG061", "warning", seen, _KEEP)


def _since_snapshot(node: Node) -> str:
    try:
        now_s = node.number("server", "server_time_usec") // 1_000_000
        saved_s = node.number("persistence", "rdb_last_save_time")
    except CantTellError:  # older servers don't tell their time here
        return ""
    return f" in {_length(max(0, now_s - saved_s))}"


def flushing(node: Node) -> Iterator[Finding]:
    """How much of the append-only file a crash can take."""
    if not node.quotas or node.info("persistence", "aof_enabled") != "1":
        return
    when = node.config("appendfsync")
    if when == "no":
        yield Finding(
            "AG062",
            "warning",
            "appendfsync no: a power cut takes all that the system had not written yet, half a"
            f" minute's counts or more, of {listed(node.quotas)}",
            "CONFIG SET appendfsync everysec, then CONFIG REWRITE",
        )
    else:
        loses = "nothing that was answered" if when == "always" else "the last second at most"
        yield Finding("AG062", "ok", f"appendfsync {when}: a crash loses {loses}")


def writing(node: Node) -> Iterator[Finding]:
    """Whether what should be kept is being written."""

    def failed(field: str) -> bool:
        return node.info("persistence", field) != "ok"

    found: list[tuple[Level, str]] = []
    if node.info("persistence", "aof_enabled") == "1":
        if failed("aof_last_write_status"):
            found.append(("error", f"the append-only file can't be written: {_NO_WRITES}"))
        if failed("aof_last_bgrewrite_status"):
            seen = "the last rewrite of the append-only file failed: it grows until one succeeds"
            found.append(("warning", seen))
    if failed("rdb_last_bgsave_status") and node.config("save"):
        if node.config("stop-writes-on-bgsave-error") == "no":
            found.append(("warning", "the last snapshot failed: a crash loses more by the hour"))
        else:
            found.append(("error", f"the last snapshot failed: {_NO_WRITES}"))
    for level, seen in found:
        yield Finding("AG063", level, seen, "look at its log and its disk: full, read-only, gone?")
    if not found:
        yield Finding("AG063", "ok", "no write to disk has failed")


def _length(length_s: int) -> str:
    """Give a length of time in its largest unit, rounded up."""
    for unit, size_s, most in (("s", 1, 119), ("min", 60, 119), ("h", 3_600, 47)):
        if (count := -(-length_s // size_s)) <= most:
            return f"{count} {unit}"
    return f"{-(-length_s // 86_400)} d"
