"""
Policies: an action's limits, each bound to what it counts by, and its outage rule.

Limits are data; :mod:`authguard.policy_file` reads the TOML.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from authguard.checks import shown
from authguard.errors import ConfigurationError
from authguard.identity.addresses import check_prefix

if TYPE_CHECKING:
    from authguard.limits import SlidingLog

__all__ = ["ADDRESS_PARTS", "PARTS", "Policy", "PolicyLimit"]

#: What a limit can count by, in the order in which several of them form one key. The first one
#: present decides which group of keys a limit belongs to.
PARTS: Final = (
    "account",
    "device",
    "destination",
    "number_range",
    "challenge",
    "client",
    "network",
    "global",
)

#: The parts that an address gives, and a prefix length can be set for.
ADDRESS_PARTS: Final = ("client", "network")

#: Actions that check credentials or send secrets, where an outage must not open the door.
_CREDENTIALS: Final = frozenset(
    {"login", "password.forgot", "password.reset", "otp.send", "otp.verify", "unlock"}
)


@dataclass(frozen=True, slots=True)
class PolicyLimit:
    """
    One limit of a policy.

    Attributes:
        name: Its name, unique in the policy; shown to operators, never to a client.
        by: What it counts by, in the order of :data:`PARTS`; several together form one key.
        algorithm: How it counts.
        ipv4_prefix: Leading bits of an IPv4 address that this limit counts as one client or
            network, 1 to 32; None: as the guard's setting says.
        ipv6_prefix: The same of an IPv6 address, 1 to 128.
        where: The table it stands in, for errors.
        subjects: What is looked up for its key: ``by``, an address with its own lengths apart.

    Raises:
        ConfigurationError: AG005, if nothing can be counted by that; AG025, for a wrong length.
    """

    name: str
    by: tuple[str, ...]
    algorithm: SlidingLog
    ipv4_prefix: int | None = None
    ipv6_prefix: int | None = None
    where: InitVar[str | None] = None
    subjects: tuple[str, ...] = field(init=False, default=(), compare=False, repr=False)

    def __post_init__(self, where: str | None) -> None:
        where = where or f"limit {shown(self.name)}"
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

    @property
    def by_address_alone(self) -> bool:
        """Whether it counts by nothing that differs but an address."""
        return set(self.by) - {"global"} in ({"client"}, {"network"}, {"client", "network"})


@dataclass(frozen=True, slots=True)
class Policy:
    """
    What guards one action.

    Attributes:
        action: The action's name, such as ``login``.
        limits: All of them must admit an attempt; charged together or not at all.
        outage: What happens when the store gives no verdict: ``deny`` (503) or ``allow``.
        parts: All that its limits count by.
        warnings: What is allowed but looks wrong, each with its code.
    """

    action: str
    limits: tuple[PolicyLimit, ...]
    outage: Literal["deny", "allow"] = "deny"
    parts: frozenset[str] = field(init=False, default=frozenset(), compare=False, repr=False)
    warnings: tuple[str, ...] = field(init=False, default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        self._check()
        parts = frozenset(part for limit in self.limits for part in limit.by)
        warnings = []
        # Together with another part it bounds nothing: each of the other's values has its own log.
        if not any(set(limit.by) - {"global"} == {"account"} for limit in self.limits):
            warnings.append(
                f"AG040 {self.action}: no limit counts by account alone;"
                " one account can be guessed from many addresses"
            )
        if not any(limit.by_address_alone for limit in self.limits):
            warnings.append(
                f"AG041 {self.action}: no limit counts by client or network alone;"
                " one address can try many accounts"
            )
        if self.outage == "allow" and self.action in _CREDENTIALS:
            warnings.append(
                f"AG042 {self.action}: outage = allow; while the store is away nothing is counted"
            )
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "warnings", tuple(warnings))

    def _check(self) -> None:
        if not self.limits:
            raise ConfigurationError(
                "AG004",
                f"[{self.action}] limits",
                "missing or empty",
                'write limits = [{ name = "…", by = ["account"], sliding_log = "5/15m" }]',
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
