"""
The guard: reserve, then verify, then give back on success.

Before a credential is looked at, one atomic call on Valkey reserves a place in every log that
could refuse the attempt; only a proven success gives the place back.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Any, Final, Self

from authguard._core import calls
from authguard._core.attempt import Reservation
from authguard._core.keys import Shape
from authguard._engine import Engine, check_cost
from authguard._subjects import NO_ACCOUNT, Subjects
from authguard.checks import shown
from authguard.decision import Decision
from authguard.errors import (
    ConfigurationError,
    Denied,
    Denylisted,
    HashingUnavailable,
    StoreUnavailable,
)
from authguard.limiter import Limiter
from authguard.policy import ADDRESS_PARTS, PARTS, Policy, PolicyLimit
from authguard.policy_file import load_policies

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from ipaddress import IPv4Address, IPv6Address
    from pathlib import Path
    from types import TracebackType

    from authguard._subjects import Known, NoAccount
    from authguard.decision import Cleared
    from authguard.identity import AccountKey, Email, Normaliser, Phone
    from authguard.limits import SlidingLog
    from authguard.stores.base import Store

__all__ = ["NO_ACCOUNT", "Attempt", "Guard"]

_log = logging.getLogger("authguard")

#: A client without an address still has a tag: three zero bytes, under which nothing is forgiven.
_NO_TAG: Final = bytes(3)


class Guard:
    """
    Guards actions by the limits of their policies, on one store shared by all workers.

    Args:
        store: ``valkey://host:port/db``, or a store of one's own.
        secret: At least 32 random bytes; keys in the store are HMACs under it. Or a list of
            secrets, the newest first: while an old one is still listed every limit is counted
            under both, so that a change of secrets gives nobody a fresh budget.
        policies: A TOML file's path or the same as a mapping, over the default profile.
        clock: Gives milliseconds since the epoch, for tests and replays; without one the
            store's own clock counts, as it must in production.
        deadline_ms: Longest time of one decision, in milliseconds.
        normalise: Gives the one spelling of an account's name; one of
            :mod:`authguard.identity.accounts`, or a function of the app's own. By default NFKC and
            casefold.
        resolve: Turns whatever was typed (username, e-mail, phone) into the account's one key, or
            gives None for what names nobody. Names it does not know count as they are spelt.
        prefixes: How many bits of an address count as one ``client`` and one ``network``, each for
            IPv4 and IPv6: ``{"client": (32, 64), "network": (24, 48)}`` where nothing is said.
        allowlist: Networks whose limits by address don't apply; those by account do.
        denylist: Networks that are refused whatever they ask.

    Raises:
        ConfigurationError: AG001 to AG012, AG017, AG018, AG025, naming the setting and the mend.
    """

    def __init__(
        self,
        store: str | Store,
        *,
        secret: str | bytes | Sequence[str | bytes],
        policies: str | Path | Mapping[str, Any] | None = None,
        clock: Callable[[], int] | None = None,
        deadline_ms: int = 100,
        normalise: Callable[[str], str] | None = None,
        resolve: Callable[[str], str | None] | None = None,
        prefixes: Mapping[str, tuple[int, int]] | None = None,
        allowlist: Sequence[str] = (),
        denylist: Sequence[str] = (),
    ) -> None:
        self.policies: Mapping[str, Policy] = load_policies(policies)
        self._shapes: dict[tuple[str, frozenset[str], frozenset[str] | None, bool], Shape] = {}
        if store is None or store == "":
            raise ConfigurationError(
                "AG010", "store", "missing", "write valkey://[user:password@]host:port/database"
            )
        if isinstance(store, str):
            from authguard.stores.valkey import ValkeyStore  # noqa: PLC0415 (only if it is used)

            store = ValkeyStore(store, deadline_ms=deadline_ms)
        self._subjects = Subjects(
            self.policies,
            secret=secret,
            normalise=normalise,
            resolve=resolve,
            prefixes=prefixes,
            allowlist=allowlist,
            denylist=denylist,
        )
        self._engine = Engine(store, self._subjects.pseudonyms, clock)
        for policy in self.policies.values():
            for warning in policy.warnings:
                _log.warning("%s", warning)

    @property
    def normalise(self) -> Normaliser:
        """Gives the one spelling of a name; for sign-up, so that names are stored as they count."""
        return self._subjects.normalise

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

    def attempt(
        self,
        action: str,
        *,
        account: str | NoAccount | None = None,
        client: str | IPv4Address | IPv6Address | None = None,
        destination: str | Email | Phone | None = None,
        cost: int = 1,
        now_ms: int | None = None,
    ) -> Attempt:
        """
        Reserve a place in every log that could refuse the attempt, or in none.

        Call it before the credential is looked at. The reservation is made by this very call
        and stands as a counted failure until :meth:`Attempt.succeed`.

        Args:
            action: The policy's name, such as ``login``.
            account: The claimed account in any spelling, or :data:`NO_ACCOUNT`.
            client: The client's IP address.
            destination: Where a message would go: an e-mail address, or a phone number with its
                ``+``. Limits by ``destination`` and ``number_range`` apply where it is given.
            cost: Places it takes in each log, a whole number from 1.
            now_ms: A replay's clock, in milliseconds since the epoch; never from a request.

        Raises:
            Denied: If a limit or lock refuses; nothing was charged, save in limits with
                ``count_refused``. ``Denylisted``, if the client is on the denylist: the store was
                not asked.
            StoreUnavailable: If the store gave no clear verdict in time.
            InvalidInput: If the account, the client or the destination can't be used.
            ConfigurationError: AG009, if the action has no policy; AG023, if none of its limits
                applies to what is known; AG026, for what ``resolve`` gave.
            ValueError: If the cost is no whole number from 1, or more than a limit could admit.
        """
        known = self._known(action, account, client, destination)
        if known.denylisted:
            raise Denylisted(action)
        shape = self._applying(action, account, known)
        check_cost(cost, shape)
        reservation = Reservation(
            shape.bind(*known.pseudonyms),
            (known.client_tag or _NO_TAG) + secrets.token_bytes(2),
            cost,
            knows_client=known.client_tag is not None,
        )
        try:
            decision = self._engine.store.run(reservation.acquire(self._engine.now_ms(now_ms)))
        except StoreUnavailable:
            if self.policies[action].outage != "allow":
                raise
            _log.warning("%s: the store is away; admitted uncounted (outage = allow)", action)
            decision = Decision(action, allowed=True, verdicts=(), now_ms=0, degraded=True)
        if not decision.allowed:
            raise Denied(decision)
        return Attempt(self._engine, reservation, decision, now_ms, known.account)

    def peek(
        self,
        action: str,
        *,
        account: str | NoAccount | None = None,
        client: str | IPv4Address | IPv6Address | None = None,
        destination: str | Email | Phone | None = None,
        cost: int = 1,
        now_ms: int | None = None,
    ) -> Decision:
        """
        Tell what :meth:`attempt` would decide now; charges and writes nothing.

        The arguments and errors are those of :meth:`attempt`, without ``Denied``.
        """
        known = self._known(action, account, client, destination, partial=True)
        if known.denylisted:
            return Denylisted(action).decision
        shape = self._applying(action, account, known)
        check_cost(cost, shape)
        binding = shape.bind(*known.pseudonyms)
        return self._engine.store.run(
            calls.peek(binding, cost=cost, now_ms=self._engine.now_ms(now_ms))
        )

    def clear(
        self,
        action: str,
        *,
        account: str | NoAccount | None = None,
        client: str | IPv4Address | IPv6Address | None = None,
        destination: str | Email | Phone | None = None,
        now_ms: int | None = None,
    ) -> Cleared:
        """
        Empty the logs that count by what is given, and end their locks.

        With an account: those that count by it; give the client too to empty the pair of the two.
        The client's and its network's own logs stay, so that opening an account gives nobody
        behind the same address a fresh budget. Without one, with a client: its logs and its
        network's. With a destination alone: its own, and not its number range's, which others
        share. What counts everybody together is cleared only if nothing is given. A lock's level
        stays, until its quiet time has passed.

        Raises:
            StoreUnavailable: If the store gave no clear answer; it may have cleared all the same.
            InvalidInput: If the account, the client or the destination can't be used.
            ConfigurationError: AG009, if the action has no policy.
        """
        known = self._subjects.known(
            self.policy(action),
            account=account,
            client=client,
            destination=destination,
            partial=True,
            listed=False,
        )
        shape = self._applying(action, account, known, only=_cleared_by(known.subjects))
        binding = shape.bind(*known.pseudonyms)
        return self._engine.store.run(calls.clear(binding, now_ms=self._engine.now_ms(now_ms)))

    def limiter(self, limit: SlidingLog, *, name: str | None = None) -> Limiter:
        """
        Use one algorithm by itself, keyed by any text.

        Args:
            limit: The algorithm.
            name: Limiters of one name share their logs, whatever their numbers; without a name,
                those of equal numbers do.
        """
        own = name or f"{limit.algorithm} {limit.limit}/{limit.window_ms}"
        bound = PolicyLimit(own, ("account",), limit)
        return Limiter(
            self._engine,
            Shape.of(
                Policy(f"limiter {own}", (bound,)),
                frozenset({"account"}),
                secrets=len(self._engine.pseudonyms),
            ),
        )

    def close(self) -> None:
        """Let the store's connections go."""
        self._engine.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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

    def _known(
        self,
        action: str,
        account: str | NoAccount | None,
        client: str | IPv4Address | IPv6Address | None,
        destination: str | Email | Phone | None,
        *,
        partial: bool = False,
    ) -> Known:
        """Read who is asking; an attempt must give what its limits count by."""
        return self._subjects.known(
            self.policy(action),
            account=account,
            client=client,
            destination=destination,
            partial=partial,
        )

    def _shape(
        self,
        action: str,
        subjects: frozenset[str],
        *,
        only: frozenset[str] | None = None,
        by_address: bool = True,
    ) -> Shape:
        """Give the limits that apply to what is known; made once for all attempts."""
        shape = self._shapes.get((action, subjects, only, by_address))
        if shape is None:
            shape = Shape.of(
                self.policy(action),
                subjects,
                secrets=len(self._subjects.pseudonyms),
                only=only,
                by_address=by_address,
            )
            self._shapes[action, subjects, only, by_address] = shape
        return shape

    def _applying(
        self,
        action: str,
        account: str | NoAccount | None,
        known: Known,
        *,
        only: frozenset[str] | None = None,
    ) -> Shape:
        """Give the same, and refuse loudly where nothing would be counted or shown."""
        shape = self._shape(action, known.subjects, only=only, by_address=not known.allowlisted)
        if not shape.limits and account is not NO_ACCOUNT and not known.allowlisted:
            parts = sorted(known.subjects.intersection(PARTS) - {"global"})
            raise ConfigurationError(
                "AG023",
                f"[{action}] limits",
                f"none applies: known is {', '.join(parts) or 'nothing'}",
                "add a limit by account or client, or name what the limits count by",
            )
        return shape


def _cleared_by(subjects: frozenset[str]) -> frozenset[str]:
    """Choose what the cleared logs must count by: the narrowest of what is given."""
    for parts in ({"account"}, set(ADDRESS_PARTS), {"destination"}):
        if not subjects.isdisjoint(parts):
            return frozenset(parts)
    return frozenset({"global"})


class Attempt:
    """
    An admitted attempt: a counted failure, until :meth:`succeed` says otherwise.

    Attributes:
        account: The key of the account that was counted: what ``resolve`` gave, or the name in
            its one spelling. None if no account was named.
        decision: What the limits said when they admitted it.
        settled: Whether the reservation has been given back in the store.
    """

    def __init__(
        self,
        engine: Engine,
        reservation: Reservation,
        decision: Decision,
        now_ms: int | None,
        account: AccountKey | None,
    ) -> None:
        self.account = account
        self.decision = decision
        self.settled = False
        self._engine = engine
        self._reservation = reservation
        self._passed_ms = now_ms

    @property
    def action(self) -> str:
        """The action it belongs to."""
        return self.decision.action

    @property
    def succeeded(self) -> bool:
        """Whether :meth:`succeed` was called."""
        return self._reservation.state == "succeeded"

    @property
    def pending(self) -> bool:
        """Whether nothing has been said of it yet; left so, it is a counted failure."""
        return self._reservation.state == "reserved"

    def succeed(self) -> None:
        """
        Say that the credential was proved: the reservation is given back.

        In short logs by account the failures of the same client before it are forgiven, and a
        lock that this very attempt set is lifted. A second call changes nothing. If the store is
        away the success stands, the reservation stays counted, and a warning is logged.
        """
        self._leave(
            self._reservation.leave(
                "succeeded",
                reserved_at_ms=self.decision.now_ms,
                now_ms=self._engine.now_ms(self._passed_ms),
            )
        )

    def release(self) -> None:
        """
        Say that the credential was never looked at: only the own reservation is given back.

        For a check that could not take place, such as no free hash slot. Never call it after
        anything about the credential was learnt: that would be a free guess.
        """
        self._leave(
            self._reservation.leave(
                "released",
                reserved_at_ms=self.decision.now_ms,
                now_ms=self._engine.now_ms(self._passed_ms),
            )
        )

    def _leave(self, call: calls.ScriptCall[Cleared] | None) -> None:
        if call is None or self.decision.degraded:
            return
        try:
            self._engine.store.run(call)
        except StoreUnavailable as error:
            _log.warning("%s: settle failed (%s); the entry stays", self.action, error.reason)
        else:
            self.settled = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """
        Leave what has not succeeded a counted failure.

        Save where ``HashingUnavailable`` ends the block: the machine was too busy to look at the
        password, and that must lock nobody out, so the attempt is released.
        """
        if isinstance(error, HashingUnavailable):
            self.release()
