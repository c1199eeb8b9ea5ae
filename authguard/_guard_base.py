"""What a guard is made of: its settings, and which limits apply to what is known. Private."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from authguard._core import groups
from authguard._core.keys import Shape
from authguard._core.refusals import Refusals
from authguard._engine import Engine
from authguard._mark import Mark
from authguard._subjects import Claims, NoAccount, Subjects
from authguard.checks import LONGEST_MEMORY_MS, check_whole, shown
from authguard.errors import ConfigurationError
from authguard.identity.destinations import StandIn
from authguard.policy import NORMAL, PARTS, priority_subject
from authguard.policy_file import load_policies

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from ipaddress import IPv4Address, IPv6Address
    from pathlib import Path

    from authguard._core.steps import Steps
    from authguard._subjects import Known
    from authguard.identity import AccountKey, Normaliser
    from authguard.policy import Policy
    from authguard.stores.base import AsyncStore, Store

__all__ = ["GuardBase", "Part"]

Part: TypeAlias = Literal["all", "request", "message"]

_log = logging.getLogger("authguard")


class GuardBase:
    """The settings of a guard; the arguments are those of :class:`authguard.Guard`."""

    def __init__(
        self,
        store: str | Store | AsyncStore,
        *,
        secret: str | bytes | Sequence[str | bytes],
        policies: str | Path | Mapping[str, Any] | None = None,
        clock: Callable[[], int] | None = None,
        deadline_ms: int = 100,
        normalise: Callable[[str], str] | None = None,
        resolve: Callable[[str], str | None] | None = None,
        tier: Callable[[str], str | None] | None = None,
        prefixes: Mapping[str, tuple[int, int]] | None = None,
        allowlist: Sequence[str] = (),
        denylist: Sequence[str] = (),
        remember_refusals_ms: int = LONGEST_MEMORY_MS,
    ) -> None:
        self.policies: Mapping[str, Policy] = load_policies(policies)
        self._shapes: dict[tuple[object, ...], Shape] = {}
        if store is None or store == "":
            raise ConfigurationError(
                "AG010", "store", "missing", "write valkey://[user:password@]host:port/database"
            )
        if isinstance(store, str):
            store = self._store_of(store, deadline_ms)
        self._subjects = Subjects(
            self.policies,
            secret=secret,
            normalise=normalise,
            resolve=resolve,
            tier=tier,
            prefixes=prefixes,
            allowlist=allowlist,
            denylist=denylist,
        )
        clock_s = partial(time.clock_gettime, time.CLOCK_MONOTONIC)  # freezegun stops the others
        hold_ms = check_whole(
            remember_refusals_ms,
            "remember_refusals_ms",
            0,
            LONGEST_MEMORY_MS,
            unit="milliseconds",
            off=True,
        )
        refusals = Refusals(hold_ms, clock_s)
        self._engine = Engine(store, self._subjects.pseudonyms, clock, refusals)
        self._mark = Mark(self._engine, clock_s)
        for policy in self.policies.values():
            for warning in policy.warnings:
                _log.warning("%s", warning)

    @staticmethod
    def _store_of(url: str, deadline_ms: int) -> Store | AsyncStore:
        """Make the store of an address."""
        raise NotImplementedError

    @property
    def normalise(self) -> Normaliser:
        """Gives the one spelling of a name; for sign-up, so that names are stored as they count."""
        return self._subjects.normalise

    def when_data_is_lost(self, tell: Callable[[], None]) -> None:
        """
        Have a function called when the store is seen to have lost its data.

        It runs within an attempt, in any thread, ten seconds or so after the loss, and must return
        at once. The log has a line as well.
        """
        self._mark.lost = tell

    @property
    def knows_tiers(self) -> bool:
        """Whether it has a function that gives an account's tier."""
        return self._subjects.tier is not None

    def account_key(self, account: str) -> AccountKey:
        """
        Give the one key under which an account counts, whatever it was called by.

        Pass it on as ``account``, and ``resolve`` is not asked again.

        Args:
            account: What was typed.

        Raises:
            InvalidInput: It can't be the name of an account.
            ConfigurationError: AG026, if ``resolve`` gave something that is no key.
        """
        return self._subjects.account_key(account)

    def subject(self, account: str) -> str:
        """
        Give the account's pseudonym, for logs and events: 16 hexadecimal digits.

        The same for all names of the account, and nobody without the secret can tell whose it is.

        Args:
            account: The account in any spelling, or its key.
        """
        return self._engine.pseudonyms[0].of("account", self.account_key(account))[:8].hex()

    def policy(self, action: str) -> Policy:
        """
        Give an action's policy.

        Raises:
            ConfigurationError: AG009, naming the actions there are.
        """
        policy = self.policies.get(action)
        if policy is None:
            raise ConfigurationError(
                "AG009",
                f"action {shown(action)}",
                "has no policy",
                f"write its table, or take one of: {', '.join(sorted(self.policies))}",
            )
        return policy

    def _now_ms(self) -> Steps[int]:
        """
        Read the clock that counts, milliseconds since the epoch: the store's, or the guard's own.

        Raises:
            StoreUnavailable: If the store gave no clear answer.
        """
        own_ms = self._engine.now_ms(None)
        if own_ms is not None:
            return own_ms
        nothing = self._shape(next(iter(self.policies)), frozenset(), blocks=False)
        bound = self._engine.bind(nothing, [{} for _ in self._engine.pseudonyms])
        decision = yield from groups.peek(bound, cost=1, now_ms=None)
        return decision.now_ms

    def _named(
        self,
        account: str | None,
        client: str | IPv4Address | IPv6Address | None,
        network: str | IPv4Address | IPv6Address | None,
    ) -> tuple[Known, tuple[str, ...]]:
        """Read whom an operator means; tell the parts that name it."""
        if network is not None and (account is not None or client is not None):
            raise ValueError("network: is named alone")
        if account is None and client is None and network is None:
            raise ValueError("account, client or network: one must be given")
        any_policy = next(iter(self.policies.values()))  # what is meant is meant for every action
        address = network if client is None else client
        known = self._subjects.known(
            any_policy, Claims(account, address), partial=True, listed=False
        )
        parts = (("account", account), ("client", client), ("network", network))
        return known, tuple(part for part, given in parts if given is not None)

    def _shape(
        self,
        action: str,
        subjects: frozenset[str],
        *,
        only: frozenset[str] | None = None,
        by_address: bool = True,
        part: Part = "all",
        blocks: bool = True,
        members: bool = True,
        tier: str | None = None,
    ) -> Shape:
        """Give the limits that apply to what is known; made once for all attempts."""
        asked = (action, subjects, only, by_address, part, blocks, members, tier)
        shape = self._shapes.get(asked)
        if shape is None:
            shape = self._shapes[asked] = Shape.of(
                self.policy(action),
                subjects,
                secrets=len(self._subjects.pseudonyms),
                only=only,
                by_address=by_address,
                part=part,
                blocks=blocks,
                members=members,
                tier=tier,
                overrides=True,
            )
        return shape

    def _applying(
        self,
        action: str,
        claims: Claims,
        known: Known,
        *,
        only: frozenset[str] | None = None,
        part: Part = "all",
        blocks: bool = True,
        members: bool = True,
    ) -> Shape:
        """Give the same, and refuse loudly where nothing would be counted or shown."""
        if isinstance(claims.destination, StandIn):
            part = "request"
        shape = self._shape(
            action,
            known.subjects,
            only=only,
            by_address=not known.allowlisted,
            part=part,
            blocks=blocks and part != "message",
            members=members,
            tier=known.tier,
        )
        quiet = isinstance(claims.account, NoAccount) or known.allowlisted
        if not shape.limits and not quiet:
            lanes = map(priority_subject, self.policy(action).priorities | {NORMAL})
            parts = sorted(known.subjects.intersection([*PARTS, *lanes]) - {"global"})
            raise ConfigurationError(
                "AG023",
                f"[{action}] limits",
                f"none applies: known is {', '.join(parts) or 'nothing'}",
                "add a limit by account or client for every priority, or name what the limits count"
                " by",
            )
        return shape
