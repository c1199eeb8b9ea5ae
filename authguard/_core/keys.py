"""
The names of keys, and the binding of a policy's limits to them.

A key is ``rl:v1:{tag}digest``, 38 characters whatever the input: ``digest`` is 128 bits over
action, limit and the pseudonyms it counts by; ``tag`` is taken from the pseudonym of the first
of them, so that on a cluster all limits of one account share a slot, and those of one client
another. A limit's lock stands beside its log, under the same name and a ``!``.
"""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from authguard.policy import Policy, PolicyLimit

__all__ = ["Binding", "Shape"]


@dataclass(frozen=True, slots=True)
class Shape:
    """
    The limits of a policy that apply when certain parts are known; the same for many attempts.

    Attributes:
        action: The action.
        limits: Those whose every part is known; with a known device, limits by device take the
            place of those by account.
        secrets: How many secrets name the keys. While one takes another's place every limit is
            asked and charged under both, so that no log starts empty.
        algorithms: The algorithms they use.
        specs: What their Lua is told, as JSON.
        specs_unforgiving: The same, for a settle that takes back its own entries alone.
        prefixes: For each limit, the hashed bytes that stand for action and limit in its key.
    """

    action: str
    limits: tuple[PolicyLimit, ...]
    secrets: int
    algorithms: frozenset[str]
    specs: bytes
    specs_unforgiving: bytes
    prefixes: tuple[bytes, ...]

    @classmethod
    def of(
        cls,
        policy: Policy,
        subjects: frozenset[str],
        *,
        secrets: int = 1,
        only: frozenset[str] | None = None,
        by_address: bool = True,
    ) -> Shape:
        """
        Choose the limits that apply.

        Args:
            policy: The action's policy.
            subjects: What is known.
            secrets: How many secrets name the keys.
            only: Leave out the limits that count by none of these parts.
            by_address: False leaves out the limits that count by nothing but an address.
        """
        limits = tuple(
            limit
            for limit in policy.limits
            if subjects.issuperset(limit.subjects)
            and (only is None or not only.isdisjoint(limit.by))
            and (by_address or not limit.by_address_alone)
        )
        if any("device" in limit.by for limit in limits):
            limits = tuple(
                limit for limit in limits if "account" not in limit.by or "device" in limit.by
            )
        return cls(
            policy.action,
            limits,
            secrets,
            frozenset(limit.algorithm.algorithm for limit in limits),
            _json([limit.algorithm.spec(limit.by) for limit in limits] * secrets),
            _json([limit.algorithm.spec(limit.by, forgiving=False) for limit in limits] * secrets),
            tuple(_prefix(policy.action, limit) for limit in limits),
        )

    def bind(self, *pseudonyms: Mapping[str, bytes]) -> Binding:
        """Give every limit its keys: those under the first secret, then under the next."""
        keys: list[str] = []
        for of in pseudonyms:
            for limit, prefix in zip(self.limits, self.prefixes, strict=True):
                subjects = [of[subject] for subject in limit.subjects]
                digest = hashlib.sha256(prefix + b"".join(subjects)).digest()
                key = f"rl:v1:{{{_base64(subjects[0][:6])}}}{_base64(digest[:16])[:22]}"
                keys.append(key)
                if limit.algorithm.lockout_ms:
                    keys.append(f"{key}!")
        return Binding(self, tuple(keys))


@dataclass(frozen=True, slots=True)
class Binding:
    """
    A shape's limits, bound to their keys.

    Attributes:
        shape: The limits.
        keys: Their keys in turn, secret by secret; a limit with a lockout has two, its log and
            its lock.
    """

    shape: Shape
    keys: tuple[str, ...]


def _prefix(action: str, limit: PolicyLimit) -> bytes:
    fields = (action, limit.name, limit.algorithm.algorithm, *limit.by)
    text = b"".join(b"%d:%s" % (len(field.encode()), field.encode()) for field in fields)
    return hashlib.sha256(text).digest()


def _base64(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode("ascii")


def _json(specs: list[list[object]]) -> bytes:
    return json.dumps(specs, separators=(",", ":")).encode()
