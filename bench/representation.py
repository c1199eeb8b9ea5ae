"""
In what form a sliding log is best kept: bytes and server time of each, at limits 5 to 10,000.

Usage: ``python -m bench.representation [--quick] [--write]``. Each form is a small script of its
own that keeps the same promise: at most `limit` entries in any window to the millisecond, entries
of ten bytes (time, client tag, nonce), an expiry, and an answer that tells the wait. Prints the
tables; with ``--write`` it also puts them into ``lua/README.md``.
"""

from __future__ import annotations

import argparse
import random
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import valkey

from authguard.testing import embedded_valkey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["FORMS", "Cell", "measure", "page_with", "tables"]

PAGE: Final = Path(__file__).parents[1] / "lua" / "README.md"
MEASURED: Final = re.compile(
    r"(<!-- measured: python -m bench\.representation --write -->\n).*?(<!-- end -->)", re.DOTALL
)

LIMITS: Final = (5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
BEGIN: Final = 30_000_000 * 60_000  # when the first entry of every log is made, ms

#: For bytes, so many entries in logs of one form; for times, so many logs that are asked in turn.
ENTRIES, LOGS = 50_000, 8

#: Calls of one kind in a round, and how many of them are under way at once.
CALLS, AT_ONCE = 400, 100

# Common to all forms. KEYS the log; ARGV now (ms), limit, window (ms), id (5 bytes).
# Reply: admitted, remaining, wait (ms), reset (ms); what is refused writes nothing.
# As in clock.lua: under a clock that is passed, a key lives an hour longer.
COMMON: Final = """
local key, call = KEYS[1], redis.call
local now, limit, window = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = call("TIME")
local base = time[1] * 1000 + math.floor(time[2] / 1000) + 3600000
local function age(entry, at) -- as in times.lua
  local since = (now - struct.unpack(">I5", entry, at or 1)) % 2 ^ 40
  return since < 2 ^ 39 and since or since - 2 ^ 40
end
local made = struct.pack(">I5", now % 2 ^ 40) .. ARGV[4]
"""

READ: Final = """
local log = call("GET", key) or ""
"""

STRING: Final = """
local size = #log / 10
local function age_at(index)
  return age(log, index * 10 + 1)
end
local low, high = 0, size
while low < high do
  local middle = math.floor((low + high) / 2)
  if age_at(middle) < window then high = middle else low = middle + 1 end
end
local count = size - low
if count >= limit then
  return { 0, 0, window - age_at(low + count - limit), window - age_at(size - 1) }
end
call("SET", key, string.sub(log, low * 10 + 1) .. made, "PXAT", window + base)
return { 1, limit - count - 1, 0, window }
"""

# The same bytes, but a log longer than PROBE is asked by its two ends, and read whole only where
# something old falls out of it.
READ_ENDS: Final = """
local PROBE = 2000
local log = call("GETRANGE", key, 0, PROBE - 1)
if #log == PROBE then
  local size = call("STRLEN", key) / 10
  if size == limit and age(log) < window then
    return { 0, 0, window - age(log), window - age(call("GETRANGE", key, -10, -6)) }
  end
  log = call("GET", key)
end
"""

# Eight bytes first: where the oldest is, and how many there are. A limit that was changed would
# have to make the ring anew; that is left out.
RING: Final = """
local head, first, size = call("GETRANGE", key, 0, 7), 0, 0
if head ~= "" then
  first, size = struct.unpack(">I4I4", head)
end
local function slot(index)
  return 8 + (first + index) % limit * 10
end
local function age_at(index)
  local at = slot(index)
  return age(call("GETRANGE", key, at, at + 4))
end
-- The first that still counts: mostly one of the oldest, so strides double from there.
local low, high, stride = 0, size, 1
while low < high do
  local probe = math.min(low + stride, high) - 1
  if age_at(probe) < window then
    if stride == 1 then break end
    high, stride = probe, 1
  else
    low, stride = probe + 1, stride * 2
  end
end
local count = size - low
if count >= limit then
  return { 0, 0, window - age_at(low), window - age_at(size - 1) }
end
first = (first + low) % limit
call("SETRANGE", key, slot(count), made)
call("SETRANGE", key, 0, struct.pack(">I4I4", first, count + 1))
call("PEXPIREAT", key, window + base)
return { 1, limit - count - 1, 0, window }
"""

LIST: Final = """
local size, old = call("LLEN", key), 0
local oldest
while old < size do
  oldest = call("LINDEX", key, old)
  if age(oldest) < window then break end
  old = old + 1
end
local count = size - old
if count >= limit then
  return { 0, 0, window - age(oldest), window - age(call("LINDEX", key, -1)) }
end
if old > 0 then
  call("LPOP", key, old)
end
call("RPUSH", key, made)
call("PEXPIREAT", key, window + base)
return { 1, limit - count - 1, 0, window }
"""

# The member is time and id: an id alone would push out an older entry of the same client.
ZSET: Final = """
local count = call("ZCOUNT", key, now - window + 1, "+inf")
if count >= limit then
  local leaving = call("ZRANGE", key, -limit, -limit)[1]
  return { 0, 0, window - age(leaving), window - age(call("ZRANGE", key, -1, -1)[1]) }
end
call("ZREMRANGEBYSCORE", key, "-inf", now - window)
call("ZADD", key, now, made)
call("PEXPIREAT", key, window + base)
return { 1, limit - count - 1, 0, window }
"""

#: Each form by its name, as the tables name it.
FORMS: Final = {
    "string": COMMON + READ + STRING,
    "string, by its ends": COMMON + READ_ENDS + STRING,
    "ring": COMMON + RING,
    "list": COMMON + LIST,
    "sorted set": COMMON + ZSET,
}


@dataclass(slots=True)
class Cell:
    """
    What one form costs at one limit.

    Attributes:
        bytes: MEMORY USAGE of a full log.
        grown: Bytes by which the server grew for each such log.
        refusals_us: Server time of a refusal, round by round.
        slides_us: Server time of an admission that the oldest entry makes room for, likewise.
    """

    bytes: int = 0
    grown: int = 0
    refusals_us: list[float] = field(default_factory=list)
    slides_us: list[float] = field(default_factory=list)

    @property
    def refusal_us(self) -> float:
        """Microseconds of a refusal in its best round."""
        return min(self.refusals_us)

    @property
    def slide_us(self) -> float:
        """Microseconds of a sliding admission in its best round."""
        return min(self.slides_us)


class Logs:
    """
    Full logs of one form and limit, and the one who asks them.

    An entry is made each millisecond, and the window is `limit` milliseconds long: so a full log
    admits one more at each further millisecond, and none before.
    """

    def __init__(self, client: Any, form: str, limit: int) -> None:
        self.limit, self.now, self._client = limit, BEGIN, client
        self._sha = client.script_load(FORMS[form])
        self._tag = f"rl:v1:{{{list(FORMS).index(form):08d}}}{limit:011d}"

    def names(self, logs: int) -> list[str]:
        """Name so many logs; names are as long as ours."""
        return [f"{self._tag}{number:011d}" for number in range(logs)]

    def ask(self, names: Sequence[str], calls: int, *, each_ms: int) -> Iterator[list[int]]:
        """Ask in turn; after each turn `each_ms` have passed."""
        ids = random.Random(calls)
        for begin in range(0, calls, AT_ONCE):
            batch = self._client.pipeline(transaction=False)
            for number in range(begin, min(begin + AT_ONCE, calls)):
                name = names[number % len(names)]
                batch.evalsha(
                    self._sha, 1, name, self.now, self.limit, self.limit, ids.randbytes(5)
                )
                if number % len(names) == len(names) - 1:
                    self.now += each_ms
            yield from batch.execute()

    def fill(self, names: Sequence[str]) -> None:
        """Fill each."""
        for _ in self.ask(names, self.limit * len(names), each_ms=1):
            pass

    def refuse(self, names: Sequence[str], calls: int) -> float:
        """Ask at the newest entry's own moment; give the server's microseconds a call."""
        self.now -= 1
        took = self._timed(names, calls, each_ms=0, expected=[0, 0, 1, self.limit])
        self.now += 1
        return took

    def slide(self, names: Sequence[str], calls: int) -> float:
        """Ask a millisecond later each turn; give the server's microseconds a call."""
        return self._timed(names, calls, each_ms=1, expected=[1, 0, 0, self.limit])

    def _timed(
        self, names: Sequence[str], calls: int, *, each_ms: int, expected: list[int]
    ) -> float:
        self._client.config_resetstat()
        for reply in self.ask(names, calls, each_ms=each_ms):
            if reply != expected:
                raise RuntimeError(f"{self._tag}: {reply} instead of {expected}")
        stats = self._client.info("commandstats")["cmdstat_evalsha"]
        return float(stats["usec"] / stats["calls"])


def agree(client: Any) -> None:
    """Ask all forms the same at random; whoever answers otherwise is no form of the same log."""
    chosen = random.Random(3)
    shas = {form: client.script_load(script) for form, script in FORMS.items()}
    for limit in (1, 2, 7, 230):  # the last is longer than what is read of an end
        now, window, admitted, asked = BEGIN, 16 * limit, 0, 4 * limit + 100
        for number in range(asked):
            now += chosen.choice((0, 1, 3, 40)) if number % (limit + 20) else window // 2
            numbers = now, limit, window, chosen.randbytes(5)
            replies = {
                form: client.evalsha(sha, 1, f"{form} {limit}", *numbers)
                for form, sha in shas.items()
            }
            if any(reply != replies["string"] for reply in replies.values()):
                raise RuntimeError(f"limit {limit}, {now - BEGIN} ms: {replies}")
            admitted += replies["string"][0]
        if not limit < admitted < asked:
            raise RuntimeError(f"limit {limit}: nothing to compare, {admitted} of {asked} admitted")


def bytes_of(port: int, form: str, limit: int, entries: int) -> Cell:
    """Fill many logs; the client that did it is gone before the server's memory is read."""
    with valkey.Valkey(port=port) as reader:
        reader.execute_command("FLUSHDB", "SYNC")  # not behind our back, while we measure
        begin = reader.info("memory")["used_memory"]
        with valkey.Valkey(port=port) as filler:
            logs = Logs(filler, form, limit)
            names = logs.names(max(LOGS, entries // limit))
            logs.fill(names)
        while reader.info("clients")["connected_clients"] > 1:
            pass
        grown = reader.info("memory")["used_memory"] - begin
        return Cell(bytes=reader.memory_usage(names[0], samples=0), grown=round(grown / len(names)))


def measure(*, quick: bool) -> dict[tuple[str, int], Cell]:
    """Measure all on a server of its own: bytes, then times in rounds of random order."""
    chosen = random.Random(4)
    rounds, entries = (2, ENTRIES // 20) if quick else (20, ENTRIES)
    with embedded_valkey() as server:
        with valkey.Valkey(port=server.port) as client:
            agree(client)
        for form in FORMS:  # so that no script is loaded while memory is compared
            bytes_of(server.port, form, 5, 5)
        cells = {
            (form, limit): bytes_of(server.port, form, limit, entries)
            for limit in LIMITS
            for form in FORMS
        }
        with valkey.Valkey(port=server.port) as client:
            client.flushdb()
            logs = {at: Logs(client, *at) for at in cells}
            for each in logs.values():
                each.fill(each.names(LOGS))
            for _ in range(rounds):
                for at in chosen.sample(list(cells), len(cells)):
                    names = logs[at].names(LOGS)
                    cells[at].refusals_us.append(logs[at].refuse(names, CALLS))
                    cells[at].slides_us.append(logs[at].slide(names, CALLS))
    return cells


def tables(cells: dict[tuple[str, int], Cell]) -> str:
    """Write both tables and where the forms cross, as Markdown."""

    def rows(text: Callable[[Cell], str]) -> list[str]:
        head = ["| limit | " + " | ".join(FORMS) + " |", "|--:" * (len(FORMS) + 1) + "|"]
        return head + [
            f"| {limit:,} | " + " | ".join(text(cells[form, limit]) for form in FORMS) + " |"
            for limit in LIMITS
        ]

    return "\n".join(
        [
            "Bytes of a full log: by MEMORY USAGE / by which the server grew for each.",
            "",
            *rows(lambda it: f"{it.bytes:,} / {it.grown:,}"),
            "",
            "Microseconds on the server, best round: a refusal / an admission as the oldest goes.",
            "",
            *rows(lambda it: f"{it.refusal_us:.1f} / {it.slide_us:.1f}"),
            "",
            *crossings(cells),
            "",
        ]
    )


def crossings(cells: dict[tuple[str, int], Cell]) -> list[str]:
    """Say from which limit on a form is faster than the string by a tenth, and what it costs."""
    said = ["By a tenth or more faster than the string, and bytes beside its own:", ""]
    for form in list(FORMS)[1:]:
        parts = [
            f"{what} from {begin:,} on" if begin else f"{what} nowhere"
            for what, begin in (
                ("refuses", _from(cells, form, lambda it: it.refusal_us)),
                ("slides", _from(cells, form, lambda it: it.slide_us)),
            )
        ]
        small, large = (cells[form, at].grown / cells["string", at].grown for at in (5, 10_000))
        said.append(
            f"- {form}: {', '.join(parts)}; {small:.1f} times the bytes at 5, {large:.1f} times at"
            f" 10,000"
        )
    return said


def _from(
    cells: dict[tuple[str, int], Cell], form: str, cost: Callable[[Cell], float]
) -> int | None:
    """Give the limit from which on a form costs less than nine tenths of the string."""
    begin = None
    for limit in reversed(LIMITS):
        if cost(cells[form, limit]) >= 0.9 * cost(cells["string", limit]):
            break
        begin = limit
    return begin


def page_with(measured: str, page: str) -> str:
    """Put what was measured between the page's two marks."""
    return MEASURED.sub(lambda marks: marks[1] + measured + marks[2], page)


def main() -> None:
    """Measure and print; with ``--write`` bring the document up to date."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.representation", description=__doc__.split("\n\n", maxsplit=1)[0]
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, to see it run")
    parser.add_argument("--write", action="store_true", help="into lua/README.md")
    chosen = parser.parse_args()
    measured = tables(measure(quick=chosen.quick))
    print(measured, end="")
    if chosen.write:
        PAGE.write_text(page_with(measured, PAGE.read_text("utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
