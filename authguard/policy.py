"""
Policies: an action's limits, each bound to what it counts by, and its outage rule.

Limits are data; :mod:`authguard.policy_file` reads the TOML.
"""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, TypeGuard

from authguard.checks import shown
from authguard.decision import RECOVERY_WAIT_MS
from authguard.errors import ConfigurationError
from authguard.identity.addresses import check_prefix
from authguard.limits import Conversion, Distinct, FixedWindow, SlidingLog
from authguard.limits.rates import LARGEST_COUNT, check_switch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from authguard.limits import Algorithm

__all__ = [
    "ADDRESS_PARTS",
    "NORMAL",
    "PARTS",
    "RECOVERY_WAIT_MS",
    "Policy",
    "PolicyLimit",
    "check_by",
    "is_name",
    "priority_subject",
]

#: What a limit can count by, in the order in which several of them form one key. The first one
#: present decides which group of keys a limit belongs to. ``country`` is that of a phone number,
#: ``purpose`` what a code is for.
PARTS: Final = (
    "account",
    "device",
    "destination",
    "number_range",
    "country",
    "challenge",
    "client",
    "network",
    "purpose",
    "global",
)

#: The parts that an address gives, and a prefix length can be set for.
ADDRESS_PARTS: Final = ("client", "network")

#: The parts that only the message's own destination gives.
_MESSAGE_PARTS: Final = frozenset({"destination", "number_range", "country"})

#: The ways a message can go.
_CHANNELS: Final = ("sms", "email")

#: The priority of an attempt that is given none.
NORMAL: Final = "normal"

#: Most limits of an action; a script can't name the keys of thousands.
_MOST_LIMITS: Final = 100

#: Possible names of limits, tiers and priorities.
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}", re.ASCII)

#: Actions whose token names no account until it is proved: none can count by account.
_BY_TOKEN: Final = frozenset({"password.reset", "unlock"})

#: Actions that check credentials or send secrets, where an outage must not open the door.
_CREDENTIALS: Final = frozenset(
    {"login", "password.forgot", "password.reset", "otp.send", "otp.verify", "unlock"}
)


@dataclass(frozen=True, slots=True)
class PolicyLimit:
    """
    One limit of a policy.

    Attributes:
        name: Its name, unique in the policy; shown to operators, and to the callers of a limited
            view; never on an auth route.
        by: What it counts by, in the order of :data:`PARTS`; several together form one key.
        algorithm: How it counts.
        ipv4_prefix: Leading bits of an IPv4 address that this limit counts as one client or
            network, 1 to 32; None: as the guard's setting says.
        ipv6_prefix: The same of an IPv6 address, 1 to 128.
        where: The table it stands in, for errors.
        channel: It applies only where the message goes this way: ``sms`` or ``email``.
        recovery: When it is full, the account must be recovered; a refusal by it shows the wait
            :data:`RECOVERY_WAIT_MS`. For a sliding log by account alone, without a lockout.
        worn: When it refuses, the device is no longer known. For a limit by device alone.
        cost: Places that one of an attempt's cost takes, a whole number from 1.
        tiers: Other numbers by the account's plan, as the app's ``tier`` function names it: each
            an algorithm of the same kind. An account of another tier has the limit's own.
        elastic: Its limit follows the load (``Guard.load``).
        priority: It applies only to attempts of this priority; ``normal`` are those without one.
        subjects: What is looked up for its key: ``by``, an address with its own lengths apart.
        needs: What must be known for it to apply: ``subjects``, the part whose values a
            ``distinct`` tells apart, the channel and the priority.

    Raises:
        ConfigurationError: AG005, if nothing can be counted by that, or for what does not go
            together; AG025, for a wrong length.
    """

    name: str
    by: tuple[str, ...]
    algorithm: Algorithm
    ipv4_prefix: int | None = None
    ipv6_prefix: int | None = None
    where: InitVar[str | None] = None
    _: KW_ONLY
    channel: Literal["sms", "email"] | None = None
    recovery: bool = False
    worn: bool = False
    cost: int = 1
    tiers: Mapping[str, Algorithm] = field(default_factory=dict, hash=False)
    elastic: bool = False
    priority: str | None = None
    subjects: tuple[str, ...] = field(init=False, default=(), compare=False, repr=False)
    needs: frozenset[str] = field(init=False, default=frozenset(), compare=False, repr=False)

    def __post_init__(self, where: str | None) -> None:
        where = where or f"limit {shown(self.name)}"
        if not is_name(self.name):
            raise ConfigurationError(
                "AG004",
                f"{where}.name",
                f"{shown(self.name)} is no possible name",
                "use lower-case letters, digits, '_' and '-'",
            )
        by = check_by(self.by, where)
        lengths = {"ipv4_prefix": (self.ipv4_prefix, 32), "ipv6_prefix": (self.ipv6_prefix, 128)}
        given = [key for key, (length, _) in lengths.items() if length is not None]
        for key in given:
            check_prefix(*lengths[key], f"{where}.{key}")
        if given and len(set(by).intersection(ADDRESS_PARTS)) != 1:
            raise ConfigurationError(
                "AG025",
                f"{where}.{given[0]}",
                f"there is not one address to cut in by = {list(by)}",
                "use it with client or with network",
            )
        rung = f"/{self.ipv4_prefix or ''}/{self.ipv6_prefix or ''}" if given else ""
        subjects = tuple(part + rung if part in ADDRESS_PARTS else part for part in by)
        object.__setattr__(self, "by", by)
        object.__setattr__(self, "subjects", subjects)
        self._check_options(where)
        asked = self.member_part, self.channel, self.priority and priority_subject(self.priority)
        object.__setattr__(self, "needs", frozenset((*subjects, *filter(None, asked))))

    def _check_options(self, where: str) -> None:
        if self.channel is not None and self.channel not in _CHANNELS:
            raise ConfigurationError(
                "AG005",
                f"{where}.channel",
                f"{shown(self.channel)} is no way for a message",
                f"take one of: {', '.join(_CHANNELS)}",
            )
        for key in ("recovery", "worn", "elastic"):
            check_switch(getattr(self, key), f"{where}.{key}")
        self._check_numbers(where)
        of = self.member_part
        if of is not None and (of not in PARTS or of == "global" or of in self.by):
            raise ConfigurationError(
                "AG005",
                f"{where}.distinct",
                f"{shown(of)} is in by" if of in self.by else f"nothing differs by {shown(of)}",
                f"name one part that is not in by: {', '.join(PARTS[:-1])}",
            )
        plain = isinstance(self.algorithm, SlidingLog) and not self.algorithm.lockout_ms
        if self.recovery and not (plain and self.by == ("account",)):
            raise ConfigurationError(
                "AG005",
                f"{where}.recovery",
                "an account is recovered where its own log is full",
                'use it with by = ["account"] and a sliding_log without a lockout',
            )
        if self.worn and self.by != ("device",):
            raise ConfigurationError(
                "AG005",
                f"{where}.worn",
                f"no device wears out by = {list(self.by)}",
                'use it with by = ["device"]',
            )

    def _check_numbers(self, where: str) -> None:
        most = self.algorithm.largest_cost(reserved=True)
        if type(self.cost) is not int or not 1 <= self.cost <= (most or LARGEST_COUNT):
            raise ConfigurationError(
                "AG005",
                f"{where}.cost",
                f"{shown(self.cost)} is no possible cost",
                f"take a whole number, 1 to {most or LARGEST_COUNT}",
            )
        if self.cost > 1 and most is None:
            raise ConfigurationError(
                "AG005",
                f"{where}.cost",
                f"a {self.algorithm.algorithm} makes no difference by cost",
                "leave it out",
            )
        for name, algorithm in dict(self.tiers).items():
            if not is_name(name) or isinstance(algorithm, str):
                raise ConfigurationError(
                    "AG005",
                    f"{where}.tiers",
                    f"{shown(name)} is no possible name, or no algorithm stands under it",
                    "give each tier an algorithm; names are of lower-case letters, digits, '_'"
                    " and '-'",
                )
            self.algorithm.numbers_of(algorithm, f"{where}.tiers.{name}")
            if bool(algorithm.lockout_ms) is not bool(self.algorithm.lockout_ms):
                raise ConfigurationError(
                    "AG005",
                    f"{where}.tiers.{name}.lockout",
                    "the limit has a lockout in some tiers alone, where no operator would find it",
                    "give one to the limit and to each tier, or to none",
                )
            # It must go with the limit's options as the limit's own does.
            replace(self, algorithm=algorithm, tiers={}, where=f"{where}.tiers.{name}")
        if self.priority is not None and not is_name(self.priority):
            raise ConfigurationError(
                "AG005",
                f"{where}.priority",
                f"{shown(self.priority)} is no possible name",
                "use lower-case letters, digits, '_' and '-'",
            )
        if self.elastic:
            self._check_elastic(where)

    def _check_elastic(self, where: str) -> None:
        problem = None
        if not self.algorithm.can_scale:
            problem = f"a {self.algorithm.algorithm} can't follow the load"
        elif self.algorithm.lockout_ms or self.recovery or self.worn:
            problem = "a lockout, a recovery or a worn-out device must not come of the load"
        elif isinstance(self.algorithm, SlidingLog) and self.algorithm.count_refused:
            problem = "what the load refuses must not count"
        elif isinstance(self.algorithm, FixedWindow) and self.algorithm.reserve:
            problem = "a reserve is not scaled with its limit"
        if problem is not None:
            raise ConfigurationError("AG005", f"{where}.elastic", problem, "leave it out")

    def of_tier(self, tier: str | None) -> PolicyLimit:
        """Give the limit as it is for accounts of a tier."""
        algorithm = None if tier is None else self.tiers.get(tier)
        return self if algorithm is None else replace(self, algorithm=algorithm)

    @property
    def member_part(self) -> str | None:
        """The part whose values a ``distinct`` tells apart; None for any other algorithm."""
        return self.algorithm.of if isinstance(self.algorithm, Distinct) else None

    @property
    def by_address_alone(self) -> bool:
        """Whether it counts by nothing that differs but an address."""
        return set(self.by) - {"global"} in ({"client"}, {"network"}, {"client", "network"})

    @property
    def by_message(self) -> bool:
        """Whether only a message's destination or channel tells if it applies."""
        return self.channel is not None or not _MESSAGE_PARTS.isdisjoint(self.by)


@dataclass(frozen=True, slots=True)
class Policy:
    """
    What guards one action.

    Attributes:
        action: The action's name, such as ``login``.
        limits: All of them must admit an attempt; charged together or not at all.
        outage: What happens when the store gives no verdict: ``deny`` (503) or ``allow``.
        parts: All that its limits count by, tell apart or follow.
        tiers: The tiers that its limits name.
        priorities: The priorities that its limits name.
        by_name: Its limits by their names, as verdicts give them.
        warnings: What is allowed but looks wrong, each with its code.
    """

    action: str
    limits: tuple[PolicyLimit, ...]
    outage: Literal["deny", "allow"] = "deny"
    parts: frozenset[str] = field(init=False, default=frozenset(), compare=False, repr=False)
    tiers: frozenset[str] = field(init=False, default=frozenset(), compare=False, repr=False)
    priorities: frozenset[str] = field(init=False, default=frozenset(), compare=False, repr=False)
    by_name: Mapping[str, PolicyLimit] = field(
        init=False, default_factory=dict, compare=False, repr=False
    )
    warnings: tuple[str, ...] = field(init=False, default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        self._check()
        parts = frozenset(part for limit in self.limits for part in limit.by)
        parts |= {limit.member_part for limit in self.limits if limit.member_part is not None}
        if any(limit.elastic for limit in self.limits):
            parts |= {"global"}  # the load is everybody's
        warnings = []
        # Together with another part it bounds nothing: each of the other's values has its own log.
        # Nor does a limit that counts no attempts, or applies to one channel or priority alone.
        bounding = [
            limit
            for limit in self.limits
            if limit.channel is limit.priority is None
            and not isinstance(limit.algorithm, Conversion)
        ]
        by_account = (
            set(limit.by) - {"global"} == {"account"} and limit.member_part is None
            for limit in bounding
        )
        if self.action not in _BY_TOKEN and not any(by_account):
            warnings.append(
                f"AG040 {self.action}: no limit counts by account alone;"
                " one account can be guessed from many addresses"
            )
        if not any(limit.by_address_alone for limit in bounding):
            warnings.append(
                f"AG041 {self.action}: no limit counts by client or network alone;"
                " one address can try many accounts"
            )
        if self.outage == "allow" and self.action in _CREDENTIALS:
            warnings.append(
                f"AG042 {self.action}: outage = allow; while the store is away nothing is counted"
            )
        object.__setattr__(self, "parts", parts)
        tiers = frozenset(tier for limit in self.limits for tier in limit.tiers)
        object.__setattr__(self, "tiers", tiers)
        priorities = frozenset(limit.priority for limit in self.limits if limit.priority)
        object.__setattr__(self, "priorities", priorities)
        object.__setattr__(self, "by_name", {limit.name: limit for limit in self.limits})
        object.__setattr__(self, "warnings", tuple(warnings))

    def wears_out(self, refused_by: Iterable[str]) -> bool:
        """
        Tell whether the device of a refused attempt has had so many failures that it is unknown.

        Args:
            refused_by: The names of what refuses: limits, or ``block`` and the like.
        """
        limits = (self.by_name.get(name) for name in refused_by)
        return any(limit is not None and limit.worn for limit in limits)

    def _check(self) -> None:
        if not self.limits:
            raise ConfigurationError(
                "AG004",
                f"[{self.action}] limits",
                "missing or empty",
                'write limits = [{ name = "…", by = ["account"], sliding_log = "5/15m" }]',
            )
        if len(self.limits) > _MOST_LIMITS:
            raise ConfigurationError(
                "AG005",
                f"[{self.action}] limits",
                f"{len(self.limits)} of them",
                f"write at most {_MOST_LIMITS}: one call asks them all",
            )
        if self.outage not in ("deny", "allow"):
            raise ConfigurationError(
                "AG005",
                f"[{self.action}] outage",
                f"{shown(self.outage)} is no outage rule",
                "write deny or allow",
            )
        names = [limit.name for limit in self.limits]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise ConfigurationError(
                    "AG007",
                    f"[{self.action}] limits[{index}].name",
                    f"{shown(name)} stands twice",
                    "give every limit of an action its own name",
                )


def priority_subject(priority: str) -> str:
    """Name what must be known for a limit of this priority to apply."""
    return f"priority {priority}"


def is_name(name: object) -> TypeGuard[str]:
    """Tell whether a limit, a tier or a priority can be called so."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_by(by: object, where: str) -> tuple[str, ...]:
    """
    Give what a limit counts by in the order of :data:`PARTS`.

    Raises:
        ConfigurationError: AG004, if it is missing; AG005, if nothing can be counted by that.
    """
    parts = list(by) if isinstance(by, list | tuple) else []
    unknown = [part for part in parts if part not in PARTS]
    if not parts or unknown or len(set(parts)) != len(parts):
        raise ConfigurationError(
            "AG004" if by is None else "AG005",
            f"{where}.by",
            "missing"
            if by is None
            else f"nothing counts by {shown(unknown[0])}"
            if unknown
            else f"{shown(by)} is not a list of different parts",
            f"list one or more of: {', '.join(PARTS)}",
        )
    return tuple(part for part in PARTS if part in parts)
