"""What operators do, and an owner's recovery: the half of a guard that no request's check needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from authguard._core import calls, groups
from authguard._core.keys import Shape, can_override, load_key, override_key, pardon_key
from authguard._core.refusals import unlocking
from authguard._guard_base import GuardBase
from authguard._subjects import Claims
from authguard.checks import shown
from authguard.errors import ConfigurationError, InvalidInput
from authguard.limits import Algorithm, SlidingLog, heeds_pardon
from authguard.limits.rates import LONGEST_PERIOD_MS
from authguard.policy import ADDRESS_PARTS

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

    from authguard._core.steps import Steps
    from authguard._subjects import Known, NoAccount
    from authguard.decision import Cleared, Usage
    from authguard.identity import Email, Phone
    from authguard.policy import PolicyLimit

__all__ = ["OperatorSteps"]

#: How long a window that an operator gives an account by an override can be, for a pardon to
#: outlive what it pardons: 30 days.
_OVERRIDDEN_MS: Final = 30 * 86_400_000


class OperatorSteps(GuardBase):
    """Clears, recovers, blocks, overrides and looks: the steps of both guards."""

    @unlocking
    def _clear(
        self,
        action: str,
        *,
        account: str | NoAccount | None = None,
        client: str | IPv4Address | IPv6Address | None = None,
        destination: str | Email | Phone | None = None,
        purpose: str | None = None,
        only: Literal["client", "network"] | None = None,
        now_ms: int | None = None,
    ) -> Steps[Cleared]:
        """
        Empty the logs that count by what is given, and end their locks.

        With an account: those that count by it; give the client too to empty the pair of the two.
        The client's and its network's own logs stay, so that opening an account gives nobody
        behind the same address a fresh budget. Without one, with a client: its logs and its
        network's, or with ``only`` those of one of them. With a destination alone: its own, and
        not its number range's, which others share. What counts everybody together is cleared only
        if nothing is given. What counts by a purpose as well is cleared for the one that is given.
        A lock's level stays, until its quiet time has passed.

        Raises:
            StoreUnavailable: If the store gave no clear answer; it may have cleared all the same.
            InvalidInput: If the account, the client or the destination can't be used.
            ConfigurationError: AG009, if the action has no policy; AG023, if none of its limits
                counts by that.
            ValueError: If ``only`` is given without a client, or with something else.
        """
        alone = account is None and destination is None and client is not None
        if only is not None and not (alone and only in ADDRESS_PARTS):
            raise ValueError("only: must be client or network, of a client that is given alone")
        claims = Claims(account, client, destination, purpose=purpose)
        known, shape = self._standing(action, claims, only=only)
        bound = self._engine.bind(shape, known.pseudonyms)
        return (yield from groups.clear(bound, now_ms=self._engine.now_ms(now_ms)))

    @unlocking
    def _pardon(
        self, action: str, *, account: str, now_ms: int | None = None
    ) -> Steps[tuple[str, ...]]:
        """
        Let an account go on wherever it comes from: what counts by it and a client starts afresh.

        :meth:`clear` empties such a log only if its client is named too. For operators: an owner's
        own recovery leaves an attacker's log as it is.

        Args:
            action: The policy's name.
            account: The account in any spelling.
            now_ms: As in :meth:`attempt`.

        Returns:
            The names of the limits; none if the action has no such limit.

        Raises:
            StoreUnavailable: If the store gave no clear answer; it may have done it all the same.
        """
        policy = self.policy(action)
        logs = {
            limit.name: (limit.algorithm, *limit.tiers.values())
            for limit in policy.limits
            if isinstance(limit.algorithm, SlidingLog) and heeds_pardon(limit.by)
        }
        if logs:
            claims = Claims(account)
            known = self._subjects.known(policy, claims, partial=True, listed=False)
            keys = tuple(pardon_key(action, of["account"]) for of in known.pseudonyms)
            each = [log for with_tiers in logs.values() for log in with_tiers]
            lengths_ms = [length for log in each for length in (log.window_ms, *log.lockout_ms)]
            life_ms = max(_OVERRIDDEN_MS, *lengths_ms)
            now_ms = self._engine.now_ms(now_ms)
            for part in self._engine.parts(keys):
                yield calls.pardon(part, life_ms=life_ms, now_ms=now_ms)
        return tuple(logs)

    @unlocking
    def _recover(
        self,
        action: str,
        *,
        account: str,
        client: str | IPv4Address | IPv6Address | None = None,
        recovered: bool = False,
        now_ms: int | None = None,
    ) -> Steps[Cleared]:
        """
        Let an owner in who has proved to be the owner: the lock, short counts, and what is full.

        Logs by account of an hour or less are emptied and their locks ended, and so are longer
        ones that would refuse now; a long one that is not full stays, and so does everybody
        else's. With the client, the pair of the two as well.

        Args:
            action: The policy's name, such as ``login``.
            account: The account.
            client: Where the owner is.
            recovered: The account has been recovered, so limits with ``recovery`` are lifted, too.
            now_ms: As in :meth:`attempt`.

        Raises:
            StoreUnavailable: If the store gave no clear answer; it may have done it all the same.
        """
        known, shape = self._standing(action, Claims(account, client))
        if not recovered:
            shape = shape.without_recovery()
        bound = self._engine.bind(shape, known.pseudonyms)
        return (yield from groups.recover(bound, now_ms=self._engine.now_ms(now_ms)))

    def _usage(
        self,
        action: str,
        *,
        account: str | None = None,
        client: str | IPv4Address | IPv6Address | None = None,
        destination: str | Email | Phone | None = None,
        purpose: str | None = None,
        now_ms: int | None = None,
    ) -> Steps[tuple[Usage, ...]]:
        """
        Tell an operator what stands in every limit that applies, and the blocks; writes nothing.

        Raises:
            StoreUnavailable: If the store gave no clear answer.
        """
        claims = Claims(account, client, destination, purpose=purpose)
        known = self._subjects.known(self.policy(action), claims, partial=True, listed=False)
        shape = self._applying(action, claims, known, members=False)
        bound = self._engine.bind(shape, known.pseudonyms)
        return (yield from groups.inspect(bound, now_ms=self._engine.now_ms(now_ms)))

    @unlocking  # a block that is set again may end sooner
    def _block(
        self,
        *,
        account: str | None = None,
        client: str | IPv4Address | IPv6Address | None = None,
        network: str | IPv4Address | IPv6Address | None = None,
        for_ms: int | None = None,
        now_ms: int | None = None,
    ) -> Steps[int | None]:
        """
        Refuse every action of an account, a client, a network, or an account from one client.

        Nothing but :meth:`unblock` or its end lifts it: no success, no reset, no further try.

        Args:
            account: The account in any spelling.
            client: An address; with the account, the pair of the two.
            network: An address of the network; alone.
            for_ms: How long, in milliseconds; None: until it is lifted.
            now_ms: As in :meth:`attempt`.

        Returns:
            When it ends, milliseconds since the epoch; None: never.

        Raises:
            StoreUnavailable: If the store gave no clear answer; it may be blocked all the same.
            InvalidInput: If what is given can't be used.
            ValueError: If nothing is given, a network with something else, or no positive length.
        """
        if for_ms is not None and (type(for_ms) is not int or for_ms < 1):
            raise ValueError("for_ms: must be whole milliseconds from 1")
        known, shape = self._blocked(account, client, network)
        ends_ms: int | None = None
        for binding in self._engine.bind(shape, known.pseudonyms).bindings:
            ends_ms = yield calls.set_block(
                binding, life_ms=for_ms or 0, now_ms=self._engine.now_ms(now_ms)
            )
        return ends_ms

    @unlocking
    def _unblock(
        self,
        *,
        account: str | None = None,
        client: str | IPv4Address | IPv6Address | None = None,
        network: str | IPv4Address | IPv6Address | None = None,
        now_ms: int | None = None,
    ) -> Steps[bool]:
        """Lift a block; tell whether there was one. Arguments and errors are :meth:`block`'s."""
        known, shape = self._blocked(account, client, network)
        bound = self._engine.bind(shape, known.pseudonyms)
        cleared = yield from groups.clear(bound, now_ms=self._engine.now_ms(now_ms))
        return cleared.locks > 0

    @unlocking
    def _override(
        self,
        action: str,
        limit: str,
        *,
        account: str,
        to: str | Algorithm | None,
        for_ms: int,
        now_ms: int | None = None,
    ) -> Steps[int]:
        """
        Give a limit other numbers for one account, or exempt the account from it, for a while.

        Every worker heeds it from the next attempt on that reaches the store; a refusal that
        another process remembers, it repeats for a second at most. It goes before the account's
        tier, and an elastic limit follows the load all the same. What has been counted goes on
        counting.

        Args:
            action: The policy's name.
            limit: The limit's name; it must count by account, or by the account's device.
            account: The account in any spelling.
            to: The numbers, as the limit's own are written (``"5000/1h"``), or an algorithm of the
                same kind, period and options. A text keeps the other options of the limit, or of
                the account's tier, such as a burst. None: the account is exempt.
            for_ms: How long, in milliseconds.
            now_ms: As in :meth:`attempt`.

        Returns:
            When it ends, milliseconds since the epoch.

        Raises:
            StoreUnavailable: If the store gave no clear answer; it may be done all the same.
            InvalidInput: If the account can't be used.
            ConfigurationError: AG009, if there is no such action or limit; AG053, if the limit
                can't be changed for one account; AG005 or AG006, for wrong numbers.
            ValueError: If the length is no whole number from 1, or longer than ten years.
        """
        if type(for_ms) is not int or not 1 <= for_ms <= LONGEST_PERIOD_MS:
            raise ValueError("for_ms: must be whole milliseconds from 1, ten years at most")
        changed = self._changeable(action, limit)
        known = self._of_account(action, account)
        own = changed.of_tier(known.tier).algorithm
        numbers = [] if to is None else own.numbers_of(to, "to")
        if isinstance(to, Algorithm) and _options(to, changed) != _options(own, changed):
            raise ConfigurationError(
                "AG006",
                "to",
                f"{shown(to)} differs from the limit in more than its numbers",
                "write the numbers as text, or give an algorithm with the limit's own options",
            )
        if changed.cost > 1 and numbers and numbers[0] < changed.cost:
            raise ConfigurationError(
                "AG005",
                "to",
                f"{numbers[0]} places are fewer than the {changed.cost} that an attempt takes",
                f"give {changed.cost} or more; to shut the account out, block it",
            )
        ends_ms = yield from self._put_override(
            action, known, changed, numbers=numbers, life_ms=for_ms, now_ms=now_ms
        )
        return ends_ms or 0

    @unlocking
    def _lift_override(
        self, action: str, limit: str, *, account: str, now_ms: int | None = None
    ) -> Steps[bool]:
        """Take an override back; tell whether there was one. Errors are :meth:`override`'s."""
        changed = self._changeable(action, limit)
        known = self._of_account(action, account)
        ended_ms = yield from self._put_override(
            action, known, changed, numbers=[], life_ms=0, now_ms=now_ms
        )
        return ended_ms is not None

    @unlocking
    def _load(
        self, share: float, *, for_ms: int = 60_000, now_ms: int | None = None
    ) -> Steps[None]:
        """
        Say how much of its capacity the service has: limits marked ``elastic`` follow it.

        Every worker heeds it from the next attempt on that reaches the store; a refusal that
        another process remembers, it repeats for a second at most. It ends by itself: whoever
        measures the load says it again before. Of several who say it, the last one counts.

        Args:
            share: From 0 (nothing is admitted by an elastic limit) to 1 (all of it is); counted in
                thousandths. A limit is rounded up to whole places.
            for_ms: How long it holds, in milliseconds.
            now_ms: As in :meth:`attempt`.

        Raises:
            StoreUnavailable: If the store gave no clear answer; it may hold all the same.
            ValueError: If the share is no number from 0 to 1, or the length no whole number from 1.
        """
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise ValueError("share: must be a number from 0 to 1")
        if type(for_ms) is not int or not 1 <= for_ms <= LONGEST_PERIOD_MS:
            raise ValueError("for_ms: must be whole milliseconds from 1, ten years at most")
        thousandths = max(round(share * calls.WHOLE_LOAD), 1 if share else 0)
        for key in self._load_keys():
            yield calls.put(
                key,
                thousandths.to_bytes(2),
                life_ms=for_ms,
                now_ms=self._engine.now_ms(now_ms),
            )

    def _current_load(self, *, now_ms: int | None = None) -> Steps[float]:
        """
        Tell the share of its capacity that the service has: 1 where nobody has said anything.

        Raises:
            StoreUnavailable: If the store gave no clear answer.
        """
        said = yield from self._said_load(now_ms)
        return said.share / calls.WHOLE_LOAD

    def _load_until_ms(self, *, now_ms: int | None = None) -> Steps[int | None]:
        """
        Tell when that ends by itself, milliseconds since the epoch; None where nobody has said it.

        Raises:
            StoreUnavailable: If the store gave no clear answer.
        """
        said = yield from self._said_load(now_ms)
        return said.ends_ms

    def _said_load(self, now_ms: int | None) -> Steps[calls.Load]:
        return groups.load(
            self._load_keys(), now_ms=self._engine.now_ms(now_ms), spread=self._engine.spread
        )

    def _put_override(
        self,
        action: str,
        known: Known,
        limit: PolicyLimit,
        *,
        numbers: list[Any],
        life_ms: int,
        now_ms: int | None,
    ) -> Steps[int | None]:
        """Write or take back an override under every secret; tell when it ends, or would have."""
        told: list[int | None] = []
        for keys in self._engine.parts(_override_keys(action, known)):
            call = calls.override(
                keys,
                limit,
                numbers=numbers,
                life_ms=life_ms,
                now_ms=self._engine.now_ms(now_ms),
            )
            told.append((yield call))
        return max((ends_ms for ends_ms in told if ends_ms is not None), default=None)

    def _changeable(self, action: str, name: str) -> PolicyLimit:
        policy = self.policy(action)
        limit = policy.by_name.get(name)
        if limit is None:
            raise ConfigurationError(
                "AG009",
                f"[{action}] limit {shown(name)}",
                "there is none of that name",
                f"take one of: {', '.join(policy.by_name)}",
            )
        if not can_override(limit):
            raise ConfigurationError(
                "AG053",
                f"[{action}] {name}",
                f"a {limit.algorithm.algorithm} by {', '.join(limit.by)} can't be changed for one"
                " account",
                "take a limit that counts by account or device",
            )
        return limit

    def _of_account(self, action: str, account: str) -> Known:
        if not isinstance(account, str):
            raise InvalidInput("account", "is missing")
        return self._subjects.known(
            self.policy(action), Claims(account), partial=True, listed=False
        )

    def _load_keys(self) -> tuple[str, ...]:
        return tuple(load_key(each.of("global", "")) for each in self._engine.pseudonyms)

    def _standing(
        self, action: str, claims: Claims, *, only: str | None = None
    ) -> tuple[Known, Shape]:
        """Give the limits to be emptied: those by the narrowest of what is given."""
        known = self._subjects.known(self.policy(action), claims, partial=True, listed=False)
        parts = _cleared_by(known.subjects) if only is None else frozenset({only})
        return known, self._applying(action, claims, known, only=parts, blocks=False, members=False)

    def _blocked(
        self,
        account: str | None,
        client: str | IPv4Address | IPv6Address | None,
        network: str | IPv4Address | IPv6Address | None,
    ) -> tuple[Known, Shape]:
        """Give the one block that is meant."""
        known, by = self._named(account, client, network)
        return known, Shape.of_block(by, secrets=len(self._subjects.pseudonyms))


def _override_keys(action: str, known: Known) -> tuple[str, ...]:
    return tuple(override_key(action, of["account"]) for of in known.pseudonyms)


def _options(algorithm: Algorithm, limit: PolicyLimit) -> list[Any]:
    """Give what the Lua is told of an algorithm besides its numbers."""
    return algorithm.spec(limit.by, reserved=True)[len(algorithm.numbers()) :]


def _cleared_by(subjects: frozenset[str]) -> frozenset[str]:
    """Choose what the cleared logs must count by: the narrowest of what is given."""
    for parts in ({"account"}, set(ADDRESS_PARTS), {"destination"}):
        if not subjects.isdisjoint(parts):
            return frozenset(parts)
    return frozenset({"global"})
