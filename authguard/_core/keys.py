"""
The names of keys, and the binding of a policy's limits to them.

A key is ``rl:v1:{tag}digest``, 38 characters whatever the input: ``digest`` is 128 bits over
action, limit and the pseudonyms it counts by; ``tag`` is taken from the pseudonym that names its
group, so that on a cluster all limits of one account (and of its devices) share a slot, and those
of one network and its clients another. A limit's lock stands beside its log, under the same name
and a ``!``. One-time secrets (``record_key``) have names of the same form, and so have an account's
overrides, with a ``+``.
"""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from authguard.limits import Block, Conversion, LeakyBucket, SlidingLog, heeds_pardon
from authguard.policy import ADDRESS_PARTS, PARTS, PolicyLimit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from authguard.limits import Algorithm
    from authguard.policy import Policy

__all__ = [
    "Binding",
    "Shape",
    "can_override",
    "load_key",
    "override_key",
    "pardon_key",
    "record_key",
]

_Part: TypeAlias = Literal["all", "request", "message"]

#: What an operator can block, for every action.
_BLOCKS: Final = tuple(
    PolicyLimit("block", by, Block())
    for by in (("account",), ("client",), ("network",), ("account", "client"))
)

#: What a limit's Lua is told of it besides its numbers (``open_limits.lua``).
_ELASTIC, _HEEDS_OVERRIDES = 1, 2

#: Bytes of a pseudonym that tell one value of a ``distinct`` from another.
_MEMBER: Final = 6


class _Name(NamedTuple):
    """
    How a limit's key is named.

    Attributes:
        prefix: The hashed bytes that stand for action and limit.
        subjects: What it counts by.
        group: Whose pseudonym gives the tag.
        locks: A lock stands beside it.
        heeds_pardon: It heeds the account's pardon.
        member: The part whose values it tells apart.
    """

    prefix: bytes
    subjects: tuple[str, ...]
    group: str
    locks: bool
    heeds_pardon: bool
    member: str | None

    @classmethod
    def of(cls, action: str, limit: PolicyLimit) -> _Name:
        log = limit.algorithm if isinstance(limit.algorithm, SlidingLog) else None
        return cls(
            _prefix(action, limit),
            limit.subjects,
            _group(limit),
            locks=log is not None and log.lockout_ms != (),
            heeds_pardon=log is not None and heeds_pardon(limit.by),
            member=limit.member_part,
        )

    def key(self, of: Mapping[str, bytes]) -> str:
        """Name the key for what these pseudonyms name."""
        subjects = [of[subject] for subject in self.subjects]
        tag = of.get(self.group, subjects[0])
        return record_key(tag, hashlib.sha256(self.prefix + b"".join(subjects)).digest())


@dataclass(frozen=True, slots=True)
class Shape:
    """
    The limits of a policy that apply when certain parts are known; the same for many attempts.

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
        plan: What their Lua is told, as JSON.
        plan_unforgiving: The same, for a settle that takes back its own entries alone.
        plan_with_blocks: The same as ``plan``, and the blocks behind them.
        names: For each limit and block, how its key is named.
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
    names: tuple[_Name, ...]
    _groups: list[Shape] = field(default_factory=list, init=False, compare=False, repr=False)
    _without: dict[frozenset[str], Shape] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

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

        def specs(of: tuple[PolicyLimit, ...], *, forgiving: bool = True) -> list[list[Any]]:
            return [
                [
                    limit.algorithm.algorithm,
                    limit.name,
                    limit.cost,
                    _ELASTIC * limit.elastic + _HEEDS_OVERRIDES * can_override(limit),
                    limit.algorithm.spec(limit.by, forgiving=forgiving, reserved=reserved),
                ]
                for limit in of
            ] * secrets

        def plan(limits: list[list[Any]]) -> bytes:
            whole = {
                "overrides": secrets * overrides,
                "loads": loads,
                "limits": limits,
            }
            return json.dumps(whole, separators=(",", ":")).encode()

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
            plan(specs(limits)),
            plan(specs(limits, forgiving=False)),
            plan(specs(limits) + specs(blocks)),
            tuple(_Name.of(action, limit) for limit in limits + blocks),
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
        keys: list[str] = []
        block_keys: list[str] = []
        members: list[bytes] = []
        own = len(self.limits)
        if self.overrides:
            keys += [override_key(self.action, of["account"]) for of in pseudonyms]
        if self.loads:
            keys += [load_key(of["global"]) for of in pseudonyms]
        for of in pseudonyms:
            for name in self.names[:own]:
                key = name.key(of)
                keys.append(key)
                if name.locks:
                    keys.append(f"{key}!")
                if name.heeds_pardon:
                    keys.append(pardon_key(self.action, of["account"]))
                if name.member is not None:
                    members.append(of.get(name.member, bytes(_MEMBER))[:_MEMBER])
            block_keys += [name.key(of) for name in self.names[own:]]
        return Binding(self, tuple(keys), tuple(block_keys), b"".join(members), pseudonyms)


@dataclass(frozen=True, slots=True)
class Binding:
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


def record_key(group: bytes, name: bytes) -> str:
    """
    Name a one-time secret.

    Args:
        group: Six bytes or more; records and limits of one group share a slot.
        name: 16 bytes or more that only the secret's owner can make.
    """
    text = urlsafe_b64encode(group[:6] + name[:16]).decode("ascii")  # six bytes: eight characters
    return f"rl:v1:{{{text[:8]}}}{text[8:30]}"


def pardon_key(action: str, account: bytes) -> str:
    """
    Name the mark that an operator let an account go on at an action, from any client.

    Args:
        action: The action.
        account: The account's pseudonym.
    """
    name = hashlib.sha256(b"pardon %s %s" % (action.encode(), account)).digest()
    return f"{record_key(account, name)}~"


def override_key(action: str, account: bytes) -> str:
    """
    Name what operators have overridden for an account at an action.

    Args:
        action: The action.
        account: The account's pseudonym.
    """
    name = hashlib.sha256(b"overrides %s %s" % (action.encode(), account)).digest()
    return f"{record_key(account, name)}+"


def load_key(everybody: bytes) -> str:
    """
    Name the load that elastic limits follow.

    Args:
        everybody: The pseudonym of ``global``.
    """
    return record_key(everybody, hashlib.sha256(b"load %s" % everybody).digest())


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


def _prefix(action: str, limit: PolicyLimit) -> bytes:
    if isinstance(limit.algorithm, Block):
        action = ""  # it holds for every action
    fields = (action, limit.name, limit.algorithm.algorithm, *limit.by)
    text = b"".join(b"%d:%s" % (len(field.encode()), field.encode()) for field in fields)
    return hashlib.sha256(text).digest()
