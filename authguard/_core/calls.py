"""
What is asked of the store, as values: script, keys, arguments, and how to read the reply.

A reply that is anything but the well-formed answer of its script is
:class:`~authguard.errors.StoreUnavailable`: nobody is admitted on a guess.
"""

from __future__ import annotations

from functools import partial
from operator import ge
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from authguard._core.plan import with_load
from authguard._core.scripts import script
from authguard.decision import Cleared, Decision, Usage, Verdict
from authguard.errors import StoreUnavailable
from authguard.limits import LeakyBucket
from authguard.limits.rates import LARGEST_EXACT
from authguard.policy import RECOVERY_WAIT_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from authguard._core.keys import Binding, Shape
    from authguard._core.scripts import Script
    from authguard.policy import PolicyLimit

__all__ = [
    "Load",
    "ScriptCall",
    "acquire",
    "clear",
    "drop",
    "inspect",
    "join_usages",
    "load",
    "mark",
    "needs",
    "override",
    "pardon",
    "peek",
    "put",
    "read",
    "recover",
    "refuse",
    "set_block",
    "settle",
    "strictest",
    "take",
]

T = TypeVar("T")

#: No clock shows this or more (the year 6429); the Lua keeps times in six bytes.
LATEST_MS: Final = 2**47

_ADMITS, _FULL, _LOCKED, _LOCK_SET, _SHED, _EXEMPT = range(6)

#: Of a limit that admits: refuses, locked, lock set; and recovery, shed, exempt, delay.
_ADMITTED: Final = (False, False, False)
_REST: Final = (False, False, False, 0)

_ARE_INTEGERS: Final = frozenset({int})

#: What stands for admitted or not where nobody waits for the answer any more.
_TOO_LATE: Final = -1

#: A verdict's integers for each limit, and what says that no wait would help.
_VERDICT: Final = 6
_NEVER: Final = -1

#: A usage's integers for each limit, and how an endless block says its end.
_USAGE: Final = 10
_ENDLESS: Final = -1

#: The load of a service that has all its capacity, in thousandths.
WHOLE_LOAD: Final = 1_000

#: A one-time secret is compared whole, so none may be guessed by its length.
_SHORTEST_CANDIDATE, _LONGEST_CANDIDATE = 16, 128


class ScriptCall(NamedTuple, Generic[T]):
    """
    One script call.

    Attributes:
        script: What runs.
        keys: Its KEYS.
        args: Its ARGV.
        read: Turns the store's reply into the answer, or raises ``StoreUnavailable``.
        dated: The store is told, as one more argument, the last moment (by its own clock) at which
            somebody waits for the answer; the reply begins with that clock.
    """

    script: Script
    keys: tuple[str, ...]
    args: tuple[bytes | str | int, ...]
    read: Callable[[object], T]
    dated: bool = False


class Load(NamedTuple):
    """
    What elastic limits follow.

    Attributes:
        share: Thousandths of their limit that apply; 1000 where nobody has said anything.
        ends_ms: When that ends, milliseconds since the epoch; None where nobody has.
        set_at_ms: When it was said; 0 where nobody has.
    """

    share: int
    ends_ms: int | None
    set_at_ms: int


def clock_argument(now_ms: int | None) -> str:
    """Say which clock counts: the store's own, or one that a test or a replay passes."""
    return "" if now_ms is None else str(now_ms)


def acquire(
    binding: Binding,
    *,
    cost: int,
    attempt_id: bytes,
    now_ms: int | None,
    load: Load | None = None,
) -> ScriptCall[Decision]:
    """
    Reserve a place in every log, or in none.

    Args:
        binding: The limits and their keys.
        cost: Places in each log.
        attempt_id: Names the entries.
        now_ms: The clock that counts, or None for the store's own.
        load: What elastic limits follow, where the call names no key that tells it.
    """
    shape = binding.shape
    plan = _under(load, shape.plan_with_blocks)
    return ScriptCall(
        script("acquire", shape.algorithms),
        binding.keys + binding.block_keys,
        (clock_argument(now_ms), cost, attempt_id, plan, binding.members),
        lambda reply: _read_decision(reply, shape, cost),
        dated=now_ms is None,
    )


def peek(
    binding: Binding, *, cost: int, now_ms: int | None, load: Load | None = None
) -> ScriptCall[Decision]:
    """Ask what acquire would say; writes nothing."""
    return _asking("peek", binding, cost, now_ms, load)


def refuse(
    binding: Binding, *, cost: int, now_ms: int | None, load: Load | None = None
) -> ScriptCall[Decision]:
    """Say that another group refuses the attempt: what counts refusals counts it."""
    return _asking("refuse", binding, cost, now_ms, load)


def _asking(
    verb: str, binding: Binding, cost: int, now_ms: int | None, load: Load | None
) -> ScriptCall[Decision]:
    shape = binding.shape
    plan = _under(load, shape.plan_with_blocks)
    return ScriptCall(
        script(verb, shape.algorithms),
        binding.keys + binding.block_keys,
        (clock_argument(now_ms), cost, plan, binding.members),
        lambda reply: _read_decision(reply, shape, cost),
        dated=now_ms is None,  # the scripts ignore it; what is learnt is the clock
    )


def settle(
    binding: Binding,
    *,
    reserved_at_ms: int,
    attempt_id: bytes,
    cost: int,
    forgive: bool,
    now_ms: int | None,
    load: Load | None = None,
) -> ScriptCall[Cleared]:
    """Take a reservation back; with ``forgive``, its client's earlier failures too."""
    shape = binding.shape
    plan = _under(load, shape.plan if forgive else shape.plan_unforgiving)
    return ScriptCall(
        script("settle", shape.algorithms),
        binding.keys,
        (clock_argument(now_ms), reserved_at_ms, attempt_id, cost, plan, binding.members),
        lambda reply: _read_cleared(reply, shape),
    )


def clear(binding: Binding, *, now_ms: int | None) -> ScriptCall[Cleared]:
    """Empty the logs and end their locks."""
    return _emptying("clear", binding, now_ms, None)


def recover(
    binding: Binding, *, now_ms: int | None, load: Load | None = None
) -> ScriptCall[Cleared]:
    """Do the same for limits of an hour or less, and for those that would refuse now."""
    return _emptying("recover", binding, now_ms, load)


def _emptying(
    verb: str, binding: Binding, now_ms: int | None, load: Load | None
) -> ScriptCall[Cleared]:
    shape = binding.shape
    return ScriptCall(
        script(verb, shape.algorithms),
        binding.keys,
        (clock_argument(now_ms), _under(load, shape.plan), binding.members),
        lambda reply: _read_cleared(reply, shape),
    )


def inspect(
    binding: Binding, *, now_ms: int | None, load: Load | None = None
) -> ScriptCall[tuple[Usage, ...]]:
    """Look at every limit and block for an operator; writes nothing."""
    shape = binding.shape
    return ScriptCall(
        script("inspect", shape.algorithms),
        binding.keys + binding.block_keys,
        (clock_argument(now_ms), _under(load, shape.plan_with_blocks), binding.members),
        lambda reply: _read_usage(reply, shape),
    )


def set_block(binding: Binding, *, life_ms: int, now_ms: int | None) -> ScriptCall[int | None]:
    """
    Set the block that a binding of ``Shape.of_block`` names; tells its end, None if endless.

    Args:
        binding: The block's keys.
        life_ms: How long it stands; 0: until it is cleared.
        now_ms: The clock that counts, or None for the store's own.
    """
    return ScriptCall(
        script("set_block", frozenset()),
        binding.keys,
        (clock_argument(now_ms), life_ms),
        lambda reply: _integers(reply, 1)[0] or None,
    )


def pardon(keys: tuple[str, ...], *, life_ms: int, now_ms: int | None) -> ScriptCall[int]:
    """
    Let an account go on from any client: what was counted for it with one before counts no more.

    Args:
        keys: The pardon's key under each secret.
        life_ms: When what was made just before no longer matters by itself.
        now_ms: The clock that counts, or None for the store's own.
    """
    return ScriptCall(
        script("pardon", frozenset()),
        keys,
        (clock_argument(now_ms), life_ms),
        lambda reply: _integers(reply, 1)[0],
    )


def override(
    keys: tuple[str, ...],
    limit: PolicyLimit,
    *,
    numbers: list[Any],
    life_ms: int,
    now_ms: int | None,
) -> ScriptCall[int | None]:
    """
    Give a limit other numbers for one account; tells when that ends.

    Args:
        keys: The overrides' key under each secret.
        limit: The limit.
        numbers: What takes the place of its own; none: the account is exempt from it.
        life_ms: How long; 0 takes an override back, and tells when it would have ended, or None if
            there was none.
        now_ms: The clock that counts, or None for the store's own.
    """
    import json  # noqa: PLC0415 (only if it is used)

    algorithm = limit.algorithm.algorithm
    return ScriptCall(
        script("override", frozenset()),
        keys,
        (clock_argument(now_ms), limit.name, algorithm, life_ms, json.dumps(numbers or 0)),
        lambda reply: _integers(reply, 1)[0] or None,
    )


def load(keys: tuple[str, ...], *, now_ms: int | None) -> ScriptCall[Load]:
    """
    Ask what elastic limits follow now.

    Args:
        keys: The load's key under each secret.
        now_ms: The clock that counts, or None for the store's own.
    """
    return ScriptCall(script("load", frozenset()), keys, (clock_argument(now_ms),), _read_load)


def put(key: str, value: bytes, *, life_ms: int, now_ms: int | None) -> ScriptCall[None]:
    """Store a one-time secret for its life, over any other of that name."""
    return ScriptCall(
        script("put", frozenset()),
        (key,),
        (clock_argument(now_ms), life_ms, value),
        _read_stored,
    )


def read(keys: tuple[str, ...], *, now_ms: int | None) -> ScriptCall[tuple[bytes | None, ...]]:
    """Read one-time secrets; None for each that is not there, or over."""
    return ScriptCall(
        script("read", frozenset()),
        keys,
        (clock_argument(now_ms),),
        lambda reply: _read_values(reply, len(keys)),
    )


def take(key: str, *values: bytes, now_ms: int | None) -> ScriptCall[bool]:
    """
    Use a one-time secret up, if its last 32 bytes are one of these; of many tries one is told True.

    Raises:
        ValueError: If a value is shorter than 16 bytes or longer than 128.
    """
    if any(not _SHORTEST_CANDIDATE <= len(value) <= _LONGEST_CANDIDATE for value in values):
        raise ValueError("values: must be of 16 to 128 bytes")
    return ScriptCall(
        script("take", frozenset()), (key,), (clock_argument(now_ms), *values), _read_taken
    )


def mark(key: str, fresh: bytes, *, life_ms: int, now_ms: int | None) -> ScriptCall[bytes]:
    """Leave a mark, or tell the one that is there."""
    return ScriptCall(
        script("mark", frozenset()), (key,), (clock_argument(now_ms), fresh, life_ms), _read_mark
    )


def drop(keys: tuple[str, ...]) -> ScriptCall[int]:
    """Take one-time secrets away; the answer is how many there were."""
    return ScriptCall(
        script("drop", frozenset()), keys, (), lambda reply: _read_count(reply, len(keys))
    )


def needs(key: str) -> ScriptCall[tuple[int | None, dict[str, str]]]:
    """
    Ask which commands of our scripts the server refuses on a key, and why; writes nothing.

    It names no key that a cluster could send it by: ask one node after another.

    Args:
        key: One of our form that is not there.

    Returns:
        The server's clock, None if it refuses even that; and of each command that it refuses
        ``command`` or ``key``, whichever the ACL denies, or the first word of the error.
    """
    return ScriptCall(script("needs", frozenset()), (), (key,), _read_needs)


def _under(load: Load | None, plan: bytes) -> bytes:
    """Write the load into a plan that names no key for it."""
    if load is None:
        return plan
    return with_load(plan, load.share, load.ends_ms or 0)


def _integers(reply: object, length: int) -> list[int]:
    if (
        type(reply) is not list
        or len(reply) != length
        or not _ARE_INTEGERS.issuperset(map(type, reply))
    ):
        raise StoreUnavailable("malformed reply")
    return reply


def _read_decision(reply: object, shape: Shape, cost: int) -> Decision:
    judged = shape.limits * shape.secrets
    own = len(judged)
    if isinstance(reply, list) and len(reply) != 2 + _VERDICT * own:
        if reply[1:] == [_TOO_LATE]:
            raise StoreUnavailable("too late")
        judged += shape.blocks * shape.secrets  # they are told where one of them refuses
    now_ms, admitted, *said = _integers(reply, 2 + _VERDICT * len(judged))
    if not 0 <= now_ms < LATEST_MS or admitted not in (0, 1):
        raise StoreUnavailable("malformed reply")
    if admitted and _is_plain(said):
        told = partial(_verdicts, shape, judged, said, cost)
        return Decision(shape.action, True, lambda: _joined(told()[:own], shape.limits), now_ms)
    verdicts = _verdicts(shape, judged, said, cost)
    if bool(admitted) is any(verdict.refuses for verdict in verdicts):
        raise StoreUnavailable("malformed reply")
    decided = _joined(verdicts[:own], shape.limits)
    if len(judged) > own:
        blocking = _joined(verdicts[own:], shape.blocks)
        decided += tuple(verdict for verdict in blocking if verdict.refuses)
    return Decision(shape.action, bool(admitted), decided, now_ms)


def _verdicts(
    shape: Shape, judged: tuple[PolicyLimit, ...], said: list[int], cost: int
) -> list[Verdict]:
    """Read what each limit says, secret by secret."""
    integers = iter(said)
    return [
        _read_verdict(shape, limit, cost, its_own)
        for limit, *its_own in zip(judged, *[integers] * _VERDICT, strict=True)
    ]


def _is_plain(said: list[int]) -> bool:
    """
    Tell whether every limit simply admits, by numbers that can be.

    Then nothing else can be wrong with the reply, and the verdicts are made when somebody asks.
    """
    places = said[1::_VERDICT]
    return (
        not any(said[::_VERDICT])  # states
        and not any(said[4::_VERDICT])  # waits
        and min(said, default=0) >= 0
        and max(places, default=0) <= LARGEST_EXACT
        and all(map(ge, places, said[3::_VERDICT]))  # what remains
    )


def _read_verdict(shape: Shape, limit: PolicyLimit, cost: int, integers: list[int]) -> Verdict:
    state, places, window_ms, remaining, wait_ms, reset_ms = integers
    if not 0 <= remaining <= places <= LARGEST_EXACT or window_ms < 0 or reset_ms < 0:
        raise StoreUnavailable("malformed reply")
    if state == _ADMITS and wait_ms == 0:  # most of them
        return Verdict._make(
            (limit.name, places, window_ms, *_ADMITTED, remaining, 0, reset_ms, *_REST)
        )
    refuses = state in (_FULL, _LOCKED, _SHED)
    if not _ADMITS <= state <= _EXEMPT or not _is_wait(shape, limit, cost, state, wait_ms):
        raise StoreUnavailable("malformed reply")
    return Verdict(
        name=limit.name,
        limit=places,
        window_ms=window_ms,
        refuses=refuses,
        locked=state == _LOCKED,
        lock_set=state == _LOCK_SET,
        remaining=remaining,
        retry_after_ms=wait_ms if refuses else 0,
        reset_after_ms=reset_ms,
        shed=state == _SHED,
        exempt=state == _EXEMPT,
        delay_ms=0 if refuses else wait_ms,
    )


def _is_wait(shape: Shape, limit: PolicyLimit, cost: int, state: int, wait_ms: int) -> bool:
    """Tell whether that state can have that wait."""
    if state in (_FULL, _LOCKED, _SHED):
        most = limit.algorithm.largest_cost(reserved=shape.reserved)
        never = wait_ms == _NEVER and most is not None and cost * limit.cost > most
        return wait_ms > 0 or never
    shapes = isinstance(limit.algorithm, LeakyBucket) and state == _ADMITS
    return wait_ms == 0 or (wait_ms > 0 and shapes)


def _joined(verdicts: list[Verdict], limits: tuple[PolicyLimit, ...]) -> tuple[Verdict, ...]:
    """Give one verdict for each limit, from those under every secret."""
    step = len(limits)
    if len(verdicts) > step:
        verdicts = [strictest(verdicts[at::step]) for at in range(step)]
    for at, limit in enumerate(limits):
        if limit.recovery:
            verdicts[at] = _recovering(verdicts[at])
    return tuple(verdicts)


def _recovering(verdict: Verdict) -> Verdict:
    """Say that the account must be recovered, and no true wait, where the limit is full."""
    if not verdict.refuses:
        return verdict if verdict.remaining else verdict._replace(recovery=True)
    return verdict._replace(
        recovery=True, retry_after_ms=RECOVERY_WAIT_MS, reset_after_ms=RECOVERY_WAIT_MS
    )


def strictest(verdicts: list[Verdict]) -> Verdict:
    """Join what one limit says under each secret: any of its logs can refuse."""
    if len(verdicts) == 1:
        return verdicts[0]
    setting_lock = [verdict for verdict in verdicts if verdict.lock_set]
    return verdicts[0]._replace(
        refuses=any(verdict.refuses for verdict in verdicts),
        locked=any(verdict.locked for verdict in verdicts),
        lock_set=bool(setting_lock),
        remaining=min(verdict.remaining for verdict in verdicts),
        shed=all(verdict.shed for verdict in verdicts if verdict.refuses)
        and any(verdict.refuses for verdict in verdicts),
        delay_ms=max(verdict.delay_ms for verdict in verdicts),
        retry_after_ms=_NEVER
        if any(verdict.retry_after_ms == _NEVER for verdict in verdicts)
        else max(verdict.retry_after_ms for verdict in verdicts),
        recovery=any(verdict.recovery for verdict in verdicts),
        # Where a lock was set: its end.
        reset_after_ms=max(verdict.reset_after_ms for verdict in setting_lock or verdicts),
    )


def _read_cleared(reply: object, shape: Shape) -> Cleared:
    step = 2 * len(shape.limits)
    integers = _integers(reply, step * shape.secrets)
    if any(number < 0 for number in integers):
        raise StoreUnavailable("malformed reply")
    # What stands under several secrets is one entry, and one lock.
    each = range(0, step, 2)
    return Cleared(
        entries=sum(max(integers[at::step]) for at in each),
        locks=sum(max(integers[at + 1 :: step]) for at in each),
    )


def _read_usage(reply: object, shape: Shape) -> tuple[Usage, ...]:
    places = (len(shape.limits) + len(shape.blocks)) * shape.secrets
    integers = _integers(reply, _USAGE * places)
    rows = [integers[at : at + _USAGE] for at in range(0, len(integers), _USAGE)]
    for *others, locked_ms, level, set_ms in rows:
        if min(*others, level, set_ms) < 0 or locked_ms < _ENDLESS:
            raise StoreUnavailable("malformed reply")
    own = len(shape.limits) * shape.secrets
    blocks = rows[own:]
    return (
        *(_usage(it, rows[at : own : len(shape.limits)]) for at, it in enumerate(shape.limits)),
        *(_usage(it, blocks[at :: len(shape.blocks)]) for at, it in enumerate(shape.blocks)),
    )


def join_usages(usages: list[Usage]) -> Usage:
    """Join what one limit holds under each secret; what stands longest is told."""
    if len(usages) == 1:
        return usages[0]
    endless = any(usage.endless for usage in usages)
    return usages[0]._replace(
        limit=max(usage.limit for usage in usages),
        window_ms=max(usage.window_ms for usage in usages),
        used=max(usage.used for usage in usages),
        newest_ms=_latest(usage.newest_ms for usage in usages),
        frees_after_ms=max(usage.frees_after_ms for usage in usages),
        locked_until_ms=None if endless else _latest(usage.locked_until_ms for usage in usages),
        endless=endless,
        level=max(usage.level for usage in usages),
        lock_set_at_ms=_latest(usage.lock_set_at_ms for usage in usages),
        override_until_ms=_latest(usage.override_until_ms for usage in usages),
        exempt=any(usage.exempt for usage in usages),
    )


def _latest(times_ms: Iterable[int | None]) -> int | None:
    return max((at_ms for at_ms in times_ms if at_ms is not None), default=None)


def _usage(limit: PolicyLimit, rows: list[list[int]]) -> Usage:
    """Join what one limit holds under each secret; what stands longest is told."""
    places, window_ms, override_ms, exempt, *stands = map(max, zip(*rows, strict=True))
    used, newest_ms, frees_ms, locked_ms, level, set_ms = stands
    endless = any(row[7] == _ENDLESS for row in rows)
    return Usage(
        name=limit.name,
        by=limit.by,
        algorithm=limit.algorithm.algorithm,
        limit=places,
        window_ms=window_ms,
        used=used,
        newest_ms=newest_ms or None,
        frees_after_ms=frees_ms,
        locked_until_ms=None if endless else locked_ms or None,
        endless=endless,
        level=level,
        lock_set_at_ms=set_ms or None,
        override_until_ms=override_ms or None,
        exempt=exempt == 1,
    )


def _read_load(reply: object) -> Load:
    share, ends_ms, set_at_ms = _integers(reply, 3)
    if not 0 <= share <= WHOLE_LOAD or min(ends_ms, set_at_ms) < 0:
        raise StoreUnavailable("malformed reply")
    return Load(share, ends_ms or None, set_at_ms)


def _read_needs(reply: object) -> tuple[int | None, dict[str, str]]:
    if not isinstance(reply, list) or len(reply) % 2 != 1 or type(reply[0]) is not int:
        raise StoreUnavailable("malformed reply")
    now_ms, *words = reply
    if any(not isinstance(word, bytes) or not word.isalpha() for word in words):
        raise StoreUnavailable("malformed reply")
    texts = [word.decode() for word in words]
    refused = dict(zip(texts[::2], texts[1::2], strict=True))
    return None if now_ms < 0 else now_ms, refused


def _read_mark(reply: object) -> bytes:
    if not isinstance(reply, bytes):
        raise StoreUnavailable("malformed reply")
    return reply


def _read_stored(reply: object) -> None:
    if _integers(reply, 1) != [1]:
        raise StoreUnavailable("malformed reply")


def _read_taken(reply: object) -> bool:
    return _read_count(reply, 1) == 1


def _read_count(reply: object, most: int) -> int:
    (count,) = _integers(reply, 1)
    if not 0 <= count <= most:
        raise StoreUnavailable("malformed reply")
    return count


def _read_values(reply: object, length: int) -> tuple[bytes | None, ...]:
    if (
        not isinstance(reply, list)
        or len(reply) != length
        or any(not isinstance(value, bytes) for value in reply)
    ):
        raise StoreUnavailable("malformed reply")
    return tuple(value or None for value in reply)
