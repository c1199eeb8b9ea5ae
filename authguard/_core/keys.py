"""
The names of keys, and the binding of a policy's limits to them.

A key is ``rl:v1:{tag}whatlimit``, 38 characters whatever the input. ``tag`` is 48 bits of the
pseudonym that names its group, so that on a cluster all limits of one account (and of its devices)
share a slot, and those of one network and its clients another. ``what`` is 84 bits of what is
counted: its pseudonym, or a digest of several. ``limit`` is 48 bits over action and limit, the same
for all it counts, so that an attempt's keys are made by joining text. A limit's lock stands beside
its log, under the same name and a ``!``. One-time secrets (``record_key``) have names of the same
form, and so have an account's overrides, with a ``+``.
"""

from __future__ import annotations

import hashlib
from binascii import b2a_base64
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from authguard._core.plan import ELASTIC, HEEDS_OVERRIDES, Spec, encode
from authguard.limits import Block, Conversion, LeakyBucket, SlidingLog, heeds_pardon
from authguard.limits.rates import LARGEST_COUNT
from authguard.policy import ADDRESS_PARTS, PARTS, PolicyLimit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from authguard.limits import Algorithm
    from authguard.policy import Policy

__all__ = [
    "BLOCK",
    "Binding",
    "Shape",
    "can_override",
    "load_key",
    "override_key",
    "pardon_key",
    "record_key",
]

_Part: TypeAlias = Literal["all", "request", "message"]

#: The name of an operator's block.
BLOCK: Final = "block"

#: What an operator can block, for every action.
_BLOCKS: Final = tuple(
    PolicyLimit(BLOCK, by, Block())
    for by in (("account",), ("client",), ("network",), ("account", "client"))
)

_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")

#: Bytes of a pseudonym that tell one value of a ``distinct`` from another.
_MEMBER: Final = 6


class _Names:
    """
    How a shape's keys are named: by what they count, and a suffix that is the same for all of it.

    Attributes:
        counted: What is counted, each once: whose pseudonym gives the tag, and the subjects.
        heads: Of the account's overrides and the load: which of ``counted``, and the suffix.
        own: Of the limits in turn, their locks and pardons among them.
        logs: Where each limit's first key stands in ``own``.
        blocks: Of the operators' blocks.
        members: The parts whose values are told apart, in turn.
    """

    __slots__ = ("blocks", "counted", "heads", "logs", "members", "own")

    def __init__(
        self,
        action: str,
        limits: tuple[PolicyLimit, ...],
        blocks: tuple[PolicyLimit, ...],
        *,
        overrides: bool,
        loads: bool,
    ) -> None:
        counted: dict[tuple[str, tuple[str, ...]], int] = {}

        def at(group: str, *subjects: str) -> int:
            return counted.setdefault((group, subjects), len(counted))

        def account(suffix: str) -> tuple[int, str]:
            return at("account", "account"), suffix

        self.heads = [account(_override_suffix(action))] if overrides else []
        if loads:
            self.heads.append((at("global", "global"), _LOAD_SUFFIX))
        self.own: list[tuple[int, str]] = []
        self.logs: list[int] = []
        for limit in limits:
            place, suffix = at(_group(limit), *limit.subjects), _suffix(action, limit)
            self.logs.append(len(self.own))
            self.own.append((place, suffix))
            if isinstance(limit.algorithm, SlidingLog):
                if limit.algorithm.lockout_ms:
                    self.own.append((place, f"{suffix}!"))
                if heeds_pardon(limit.by):
                    self.own.append(account(_pardon_suffix(action)))
        self.blocks = [
            (at(_group(block), *block.subjects), _suffix(action, block)) for block in blocks
        ]
        self.members = [part for limit in limits if (part := limit.member_part) is not None]
        self.counted = tuple(counted)


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """
    The limits of a policy that apply when certain parts are known; the same for many attempts.

    Made once, and compared as itself.

    Attributes:
        action: The action.
        limits: Those for which all is known that they need; with a known device, limits by device
            take the place of those by account.
        blocks: The operators' blocks that an attempt or a peek asks besides.
        secrets: How many secrets name the keys. While one takes another's place every limit is
            asked and charged under both, so that no log starts empty.
        reserved: The last places of a budget are not the attempt's to use: its device is unknown.
        overrides: The account's overrides are asked for.
        elastic: A limit follows the load.
        loads: How many keys tell the load: one for each secret if it is asked for in the same call.
        algorithms: The algorithms they use.
        plan: What their Lua is told (``_core/plan.py``).
        plan_unforgiving: The same, for a settle that takes back its own entries alone.
        plan_with_blocks: The same as ``plan``, and the blocks behind them.
        names: How the keys are named.
        most: The highest cost that no limit's own number forbids.
        counts_refused: A limit counts refused attempts too.
    """

    action: str
    limits: tuple[PolicyLimit, ...]
    blocks: tuple[PolicyLimit, ...]
    secrets: int
    reserved: bool
    overrides: bool
    elastic: bool
    loads: int
    algorithms: frozenset[str]
    plan: bytes
    plan_unforgiving: bytes
    plan_with_blocks: bytes
    names: _Names
    most: int
    counts_refused: bool
    _groups: list[Shape] = field(default_factory=list, init=False, repr=False)
    _without: dict[frozenset[str], Shape] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls,
        policy: Policy,
        subjects: frozenset[str],
        *,
        secrets: int = 1,
        only: frozenset[str] | None = None,
        by_address: bool = True,
        part: _Part = "all",
        blocks: bool = False,
        members: bool = True,
        tier: str | None = None,
        overrides: bool = False,
    ) -> Shape:
        """
        Choose the limits that apply.

        Args:
            policy: The action's policy.
            subjects: What is known; the channel of a message too, as ``sms`` or ``email``.
            secrets: How many secrets name the keys.
            only: Leave out the limits that count by none of these parts.
            by_address: False leaves out the limits that count by nothing but an address.
            part: ``request`` leaves out what only the message's true destination tells: limits
                by number range or country, and those of one channel. ``message`` leaves out all
                that do not count by the message.
            blocks: Ask the operators' blocks too, whatever else is left out.
            members: False also takes a ``distinct`` whose told-apart part is not known: what it
                holds can be looked at or cleared without it, and not charged.
            tier: The account's tier.
            overrides: What operators have overridden for the account counts.
        """
        limits = tuple(
            limit.of_tier(tier)
            for limit in policy.limits
            if subjects.issuperset(limit.needs if members else limit.needs - {limit.member_part})
            and (only is None or not only.isdisjoint(limit.by))
            and (by_address or not limit.by_address_alone)
            and _belongs(limit, part)
        )
        if any("device" in limit.by for limit in limits):
            limits = tuple(
                limit for limit in limits if "account" not in limit.by or "device" in limit.by
            )
        asked = tuple(block for block in _BLOCKS if blocks and subjects.issuperset(block.by))
        return cls._made(
            policy.action,
            limits,
            asked,
            secrets,
            reserved="device" not in subjects,
            overrides=overrides and "account" in subjects,
        )

    @classmethod
    def of_block(cls, by: tuple[str, ...], *, secrets: int = 1) -> Shape:
        """Give the one block by these parts, to be set, looked at or cleared."""
        (block,) = (block for block in _BLOCKS if block.by == by)
        return cls._made("", (block,), (), secrets, reserved=True)

    @classmethod
    def _made(
        cls,
        action: str,
        limits: tuple[PolicyLimit, ...],
        blocks: tuple[PolicyLimit, ...],
        secrets: int,
        *,
        reserved: bool,
        overrides: bool = False,
        loads: int | None = None,
    ) -> Shape:
        overrides = overrides and any(map(can_override, limits))
        elastic = any(limit.elastic for limit in limits)
        loads = secrets * elastic if loads is None else loads

        def plan(*, forgiving: bool = True, blocks: tuple[PolicyLimit, ...] = ()) -> bytes:
            specs = [
                Spec(
                    limit.algorithm.algorithm,
                    limit.name,
                    limit.cost,
                    ELASTIC * limit.elastic + HEEDS_OVERRIDES * can_override(limit),
                    limit.algorithm.spec(limit.by, forgiving=forgiving, reserved=reserved),
                )
                for limit in limits
            ]
            return encode(
                specs * secrets,
                overrides=secrets * overrides,
                loads=loads,
                blocks=secrets * len(blocks),
            )

        return cls(
            action,
            limits,
            blocks,
            secrets,
            reserved,
            overrides,
            elastic,
            loads,
            frozenset(limit.algorithm.algorithm for limit in limits + blocks),
            plan(),
            plan(forgiving=False),
            plan(blocks=blocks),
            _Names(action, limits, blocks, overrides=overrides, loads=loads > 0),
            _most(limits, reserved=reserved),
            any(_counts_refused(limit) for limit in limits),
        )

    def keep(self, algorithm: type[Algorithm]) -> Shape:
        """Leave out all limits of other algorithms, and the blocks."""
        kept = tuple(limit for limit in self.limits if isinstance(limit.algorithm, algorithm))
        return self._kept(kept, ())

    def without_recovery(self) -> Shape:
        """Leave out the limits that only a recovery of the account may empty."""
        kept = tuple(limit for limit in self.limits if not limit.recovery)
        return self._kept(kept, self.blocks)

    def without(self, names: frozenset[str]) -> Shape:
        """Leave out the limits of these names, and the blocks; made once for all attempts."""
        if names not in self._without:
            kept = tuple(limit for limit in self.limits if limit.name not in names)
            self._without[names] = self._kept(kept, ())
        return self._without[names]

    def _kept(self, limits: tuple[PolicyLimit, ...], blocks: tuple[PolicyLimit, ...]) -> Shape:
        return self._made(
            self.action,
            limits,
            blocks,
            self.secrets,
            reserved=self.reserved,
            overrides=self.overrides,
            loads=0 if self.elastic and not self.loads else None,
        )

    @property
    def groups(self) -> tuple[Shape, ...]:
        """
        Split it by the groups its keys fall into, each under one secret: the address's is first.

        On a cluster the keys of a group share a slot, and those of two groups needn't. The load's
        key is in the group of ``global``; on a cluster it is read before (``_core/groups.py``).
        """
        if not self._groups:
            every = {_group(limit) for limit in self.limits + self.blocks}
            self._groups[:] = [  # whole, and the same from any thread
                self._made(
                    self.action,
                    tuple(limit for limit in self.limits if _group(limit) == group),
                    tuple(block for block in self.blocks if _group(block) == group),
                    1,
                    reserved=self.reserved,
                    overrides=self.overrides and group == "account",
                    loads=0,
                )
                for group in sorted(every, key=self._rank)
            ]
        return tuple(self._groups)

    def _rank(self, group: str) -> tuple[bool, int, int]:
        """
        Order groups: the address's first, so that a blocked client charges nothing else.

        What can't be taken back comes last: a leaky bucket's place, the lock of a conversion.
        """
        part = group.partition("/")[0]
        kinds = [type(limit.algorithm) for limit in self.limits if _group(limit) == group]
        lasting = 2 * (Conversion in kinds) or LeakyBucket in kinds
        return part not in ADDRESS_PARTS, lasting, PARTS.index(part)

    def bind(self, *pseudonyms: Mapping[str, bytes]) -> Binding:
        """Give every limit its keys: those under the first secret, then under the next."""
        names = self.names
        bases = [
            [_base(of, group, of_what) for group, of_what in names.counted] for of in pseudonyms
        ]
        keys = [base[at] + suffix for at, suffix in names.heads for base in bases]
        keys += [base[at] + suffix for base in bases for at, suffix in names.own]
        block_keys = [base[at] + suffix for base in bases for at, suffix in names.blocks]
        members = b""
        if names.members:
            nobody = bytes(_MEMBER)
            members = b"".join(
                [of.get(part, nobody)[:_MEMBER] for of in pseudonyms for part in names.members]
            )
        return Binding(self, tuple(keys), tuple(block_keys), members, pseudonyms)


class Binding(NamedTuple):
    """
    A shape's limits, bound to their keys.

    Attributes:
        shape: The limits.
        keys: The account's overrides and the load, if they are asked for, under each secret; then
            the limits' keys in turn, secret by secret: a sliding log with a lockout has two, its
            log and its lock; one by account and client also has the account's pardon.
        block_keys: The blocks' keys in turn, secret by secret.
        members: Six bytes for each ``distinct`` in turn, secret by secret: the value it counts.
        pseudonyms: What it was bound to.
    """

    shape: Shape
    keys: tuple[str, ...]
    block_keys: tuple[str, ...]
    members: bytes
    pseudonyms: tuple[Mapping[str, bytes], ...]

    def without(self, names: frozenset[str]) -> Binding:
        """Leave out the limits of these names, and the blocks."""
        return self.shape.without(names).bind(*self.pseudonyms)


def _base(of: Mapping[str, bytes], group: str, subjects: tuple[str, ...]) -> str:
    """Name what is counted: the beginning of the keys of all limits that count it."""
    counted = of[subjects[0]]
    tag = of.get(group) or counted
    if len(subjects) > 1:
        counted = hashlib.blake2b(b"".join([of[subject] for subject in subjects])).digest()
    if group in ADDRESS_PARTS:
        return _remembered(tag, counted)
    return _joined(tag, counted)


def _joined(tag: bytes, counted: bytes) -> str:
    text = _text(tag[:6] + counted[6:18])  # six bytes are eight characters; the rest is cut at 14
    return f"rl:v1:{{{text[:8]}}}{text[8:22]}"


#: A client comes again and again (``_subjects.py`` remembers as many).
_remembered = lru_cache(4_096)(_joined)


def _text(data: bytes) -> str:
    """Write bytes in the alphabet of RFC 4648, section 5; the library's own call takes longer."""
    return b2a_base64(data, newline=False).translate(_URL_SAFE).decode("ascii")


def _suffix_of(*fields: str) -> str:
    """Name a limit, or what else stands in the store: eight characters."""
    text = b"".join(b"%d:%s" % (len(field.encode()), field.encode()) for field in fields)
    return _text(hashlib.sha256(text).digest()[:6])


def _suffix(action: str, limit: PolicyLimit) -> str:
    if isinstance(limit.algorithm, Block):
        action = ""  # it holds for every action
    return _suffix_of("limit", action, limit.name, limit.algorithm.algorithm, *limit.by)


def _override_suffix(action: str) -> str:
    return f"{_suffix_of('overrides', action)}+"


def _pardon_suffix(action: str) -> str:
    return f"{_suffix_of('pardon', action)}~"


_LOAD_SUFFIX: Final = _suffix_of("load")


def _counts_refused(limit: PolicyLimit) -> bool:
    return isinstance(limit.algorithm, SlidingLog) and limit.algorithm.count_refused


def _most(limits: tuple[PolicyLimit, ...], *, reserved: bool) -> int:
    """Give the highest cost that no limit's own number forbids, override or not."""
    most = LARGEST_COUNT
    for limit in limits:
        largest = limit.algorithm.largest_cost(reserved=reserved)
        if largest is not None:
            most = min(most, largest // limit.cost)
    return most


def record_key(group: bytes, name: bytes) -> str:
    """
    Name a one-time secret.

    Args:
        group: Six bytes or more; records and limits of one group share a slot.
        name: 16 bytes or more that only the secret's owner can make.
    """
    text = _text(group[:6] + name[:16])  # six bytes are eight characters
    return f"rl:v1:{{{text[:8]}}}{text[8:30]}"


def pardon_key(action: str, account: bytes) -> str:
    """
    Name the mark that an operator let an account go on at an action, from any client.

    Args:
        action: The action.
        account: The account's pseudonym.
    """
    return _base({"account": account}, "account", ("account",)) + _pardon_suffix(action)


def override_key(action: str, account: bytes) -> str:
    """
    Name what operators have overridden for an account at an action.

    Args:
        action: The action.
        account: The account's pseudonym.
    """
    return _base({"account": account}, "account", ("account",)) + _override_suffix(action)


def load_key(everybody: bytes) -> str:
    """
    Name the load that elastic limits follow.

    Args:
        everybody: The pseudonym of ``global``.
    """
    return _base({"global": everybody}, "global", ("global",)) + _LOAD_SUFFIX


def can_override(limit: PolicyLimit) -> bool:
    """Tell whether a limit can be changed for one account: it counts by it, or by its device."""
    return not {"account", "device"}.isdisjoint(limit.by) and limit.algorithm.numbers() != []


def _belongs(limit: PolicyLimit, part: _Part) -> bool:
    if part == "message":
        return limit.by_message
    by_destination_alone = limit.channel is None and {"number_range", "country"}.isdisjoint(
        limit.by
    )
    return part == "all" or by_destination_alone


def _group(limit: PolicyLimit) -> str:
    """
    Name the group that a limit's keys are in: whose pseudonym gives the tag.

    A device belongs to one account, and a client to one network; a limit that cuts addresses its
    own way does not follow the guard's networks, and is a group of its own.
    """
    first = limit.subjects[0]
    return {"device": "account", "client": "network"}.get(first, first)
