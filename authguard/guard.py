"""
The guard: reserve, then verify, then give back on success.

Before a credential is looked at, one atomic call on Valkey reserves a place in every log that
could refuse the attempt; only a proven success gives the place back.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias

from authguard._core import calls
from authguard._core.attempt import Reservation
from authguard._core.keys import Shape, pardon_key
from authguard._engine import Engine, check_cost
from authguard._notes import Notes
from authguard._subjects import NO_ACCOUNT, Claims, NoAccount, Subjects
from authguard.attempt import Attempt
from authguard.checks import shown
from authguard.decision import Decision
from authguard.errors import ConfigurationError, Denied, Denylisted, StoreUnavailable
from authguard.identity.destinations import StandIn
from authguard.limiter import Limiter
from authguard.limits import Algorithm, Conversion, Distinct, SlidingLog, heeds_pardon
from authguard.one_time import OneTime
from authguard.policy import ADDRESS_PARTS, PARTS, Policy, PolicyLimit
from authguard.policy_file import load_policies

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from ipaddress import IPv4Address, IPv6Address
    from pathlib import Path

    from authguard._subjects import Known
    from authguard.decision import Cleared, Usage
    from authguard.identity import AccountKey, Email, Normaliser, Phone
    from authguard.stores.base import Store

__all__ = ["NO_ACCOUNT", "Attempt", "Guard"]

_Part: TypeAlias = Literal["all", "request", "message"]

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
        self._shapes: dict[tuple[object, ...], Shape] = {}
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
        self.one_time = OneTime(self._engine)
        self.notes = Notes(self._engine, self._named)
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

    def subject(self, account: str) -> str:
        """
        Give the account's pseudonym, for logs and events: 16 hexadecimal digits.

        The same for all names of the account, and nobody without the secret can tell whose it is.

        Args:
            account: The account in any spelling, or its key.
        """
        return self._engine.pseudonyms[0].of("account", self.account_key(account))[:8].hex()

    def attempt(
        self,
        action: str,
        *,
        account: str | NoAccount | None = None,
        client: str | IPv4Address | IPv6Address | None = None,
        destination: str | Email | Phone | StandIn | None = None,
        device: str | None = None,
        challenge: str | None = None,
        purpose: str | None = None,
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
                ``+``. Limits by ``destination``, ``number_range`` and ``country`` apply where it
                is given. With a :class:`~authguard.identity.StandIn` those that depend on the
                true one are left to :meth:`message`.
            device: The id of a known device of this account, as its signed cookie proves. Limits
                by device take the place of those by account, if the policy has any; a device that
                is worn out counts for nothing.
            challenge: The id of the challenge that a code answers.
            purpose: What a code is for.
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
        claims = Claims(account, client, destination, device, challenge, purpose)
        try:
            return self._reserve(action, claims, cost=cost, now_ms=now_ms)
        except Denied as error:
            if device is None or not self.policy(action).wears_out(error.decision.refused_by):
                raise
        return self._reserve(action, replace(claims, device=None), cost=cost, now_ms=now_ms)

    def message(
        self,
        action: str,
        *,
        destination: Email | Phone,
        device: str | None = None,
        message_id: bytes | None = None,
        now_ms: int | None = None,
    ) -> Attempt:
        """
        Reserve the message itself: by where it goes, and what all messages together may cost.

        The second half of an :meth:`attempt` that was made with a stand-in for its destination.
        Call it where nobody can see how it ends, just before the message is sent. What was
        reserved stays, whether the provider takes the message or not.

        Args:
            action: The policy's name, such as ``otp.send``.
            destination: The stored address or number.
            device: A known device: it may use the budget's reserve.
            message_id: Five bytes that name the message to :meth:`message_over`.
            now_ms: As in :meth:`attempt`.

        Raises:
            Denied: A limit refuses; nothing must be sent.
            StoreUnavailable: If the store gave no clear verdict in time; nothing must be sent.
        """
        claims = Claims(NO_ACCOUNT, destination=destination, device=device)
        return self._reserve(
            action, claims, part="message", attempt_id=message_id, cost=1, now_ms=now_ms
        )

    def message_over(
        self, action: str, *, destination: Email | Phone, message_id: bytes, entered: bool
    ) -> None:
        """
        Say what became of a message with a code, for the guard on its range and country.

        Nothing else is given back: what was charged for it stays.

        Args:
            action: The policy's name, such as ``otp.send``.
            destination: Where it went.
            message_id: As it was given to :meth:`message`.
            entered: Its code was entered; or it never left, and nobody could.

        Raises:
            StoreUnavailable: If the store gave no clear answer.
        """
        claims = Claims(NO_ACCOUNT, destination=destination)
        known = self._subjects.known(self.policy(action), claims, partial=True)
        shape = self._shape(action, known.subjects, part="message").keep(Conversion)
        if shape.limits:
            self._engine.store.run(
                calls.settle(
                    shape.bind(*known.pseudonyms),
                    reserved_at_ms=0,  # the id alone names it
                    attempt_id=message_id,
                    cost=1,
                    forgive=entered,
                    now_ms=self._engine.now_ms(None),
                )
            )

    def peek(
        self,
        action: str,
        *,
        account: str | NoAccount | None = None,
        client: str | IPv4Address | IPv6Address | None = None,
        destination: str | Email | Phone | StandIn | None = None,
        device: str | None = None,
        challenge: str | None = None,
        purpose: str | None = None,
        cost: int = 1,
        now_ms: int | None = None,
    ) -> Decision:
        """
        Tell what :meth:`attempt` would decide now; charges and writes nothing.

        The arguments and errors are those of :meth:`attempt`, without ``Denied``.
        """
        claims = Claims(account, client, destination, device, challenge, purpose)
        known = self._subjects.known(self.policy(action), claims, partial=True)
        if known.denylisted:
            return Denylisted(action).decision
        shape = self._applying(action, claims, known)
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
        purpose: str | None = None,
        only: Literal["client", "network"] | None = None,
        now_ms: int | None = None,
    ) -> Cleared:
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
        binding = shape.bind(*known.pseudonyms)
        return self._engine.store.run(calls.clear(binding, now_ms=self._engine.now_ms(now_ms)))

    def pardon(self, action: str, *, account: str, now_ms: int | None = None) -> tuple[str, ...]:
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
        logs = {
            limit.name: limit.algorithm
            for limit in self.policy(action).limits
            if isinstance(limit.algorithm, SlidingLog) and heeds_pardon(limit.by)
        }
        if logs:
            claims = Claims(account)
            known = self._subjects.known(self.policy(action), claims, partial=True, listed=False)
            keys = tuple(pardon_key(action, of["account"]) for of in known.pseudonyms)
            life_ms = max(max(log.window_ms, *log.lockout_ms, 0) for log in logs.values())
            now_ms = self._engine.now_ms(now_ms)
            self._engine.store.run(calls.pardon(keys, life_ms=life_ms, now_ms=now_ms))
        return tuple(logs)

    def recover(
        self,
        action: str,
        *,
        account: str,
        client: str | IPv4Address | IPv6Address | None = None,
        recovered: bool = False,
        now_ms: int | None = None,
    ) -> Cleared:
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
        binding = shape.bind(*known.pseudonyms)
        return self._engine.store.run(calls.recover(binding, now_ms=self._engine.now_ms(now_ms)))

    def usage(
        self,
        action: str,
        *,
        account: str | None = None,
        client: str | IPv4Address | IPv6Address | None = None,
        destination: str | Email | Phone | None = None,
        purpose: str | None = None,
        now_ms: int | None = None,
    ) -> tuple[Usage, ...]:
        """
        Tell an operator what stands in every limit that applies, and the blocks; writes nothing.

        Raises:
            StoreUnavailable: If the store gave no clear answer.
        """
        claims = Claims(account, client, destination, purpose=purpose)
        known = self._subjects.known(self.policy(action), claims, partial=True, listed=False)
        shape = self._applying(action, claims, known, members=False)
        binding = shape.bind(*known.pseudonyms)
        return self._engine.store.run(calls.inspect(binding, now_ms=self._engine.now_ms(now_ms)))

    def block(
        self,
        *,
        account: str | None = None,
        client: str | IPv4Address | IPv6Address | None = None,
        network: str | IPv4Address | IPv6Address | None = None,
        for_ms: int | None = None,
        now_ms: int | None = None,
    ) -> int | None:
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
        binding = shape.bind(*known.pseudonyms)
        return self._engine.store.run(
            calls.set_block(binding, life_ms=for_ms or 0, now_ms=self._engine.now_ms(now_ms))
        )

    def unblock(
        self,
        *,
        account: str | None = None,
        client: str | IPv4Address | IPv6Address | None = None,
        network: str | IPv4Address | IPv6Address | None = None,
        now_ms: int | None = None,
    ) -> bool:
        """Lift a block; tell whether there was one. Arguments and errors are :meth:`block`'s."""
        known, shape = self._blocked(account, client, network)
        binding = shape.bind(*known.pseudonyms)
        cleared = self._engine.store.run(calls.clear(binding, now_ms=self._engine.now_ms(now_ms)))
        return cleared.locks > 0

    def now_ms(self) -> int:
        """
        Read the clock that counts, milliseconds since the epoch: the store's, or the guard's own.

        Raises:
            StoreUnavailable: If the store gave no clear answer.
        """
        own_ms = self._engine.now_ms(None)
        if own_ms is not None:
            return own_ms
        nothing = self._shape(next(iter(self.policies)), frozenset(), blocks=False)
        binding = nothing.bind(*({} for _ in self._engine.pseudonyms))
        return self._engine.store.run(calls.peek(binding, cost=1, now_ms=None)).now_ms

    def limiter(self, limit: Algorithm, *, name: str | None = None) -> Limiter:
        """
        Use one algorithm by itself, keyed by any text.

        Args:
            limit: The algorithm.
            name: Limiters of one name share their logs, whatever their numbers; without a name,
                those of equal numbers do.
        """
        if isinstance(limit, Conversion | Distinct) or not isinstance(limit, Algorithm):
            raise ConfigurationError(
                "AG005",
                "limiter(…)",
                f"{shown(limit)} can't count by itself",
                "give a SlidingLog, FixedWindow or Cooldown; the others stand in policies, which"
                " tell what is different and what was entered",
            )
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

    def _reserve(
        self,
        action: str,
        claims: Claims,
        *,
        part: _Part = "all",
        attempt_id: bytes | None = None,
        cost: int,
        now_ms: int | None,
    ) -> Attempt:
        """Reserve what :meth:`attempt` or :meth:`message` says."""
        known = self._subjects.known(self.policy(action), claims, partial=part == "message")
        if known.denylisted:
            raise Denylisted(action)
        shape = self._applying(action, claims, known, part=part)
        check_cost(cost, shape)
        reservation = Reservation(
            shape.bind(*known.pseudonyms),
            attempt_id or (known.client_tag or _NO_TAG) + secrets.token_bytes(2),
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
        return Attempt(
            self._engine, reservation, decision, now_ms, known.account, device=claims.device
        )

    def _standing(
        self, action: str, claims: Claims, *, only: str | None = None
    ) -> tuple[Known, Shape]:
        """Give the limits to be emptied: those by the narrowest of what is given."""
        known = self._subjects.known(self.policy(action), claims, partial=True, listed=False)
        parts = _cleared_by(known.subjects) if only is None else frozenset({only})
        return known, self._applying(action, claims, known, only=parts, blocks=False, members=False)

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

    def _blocked(
        self,
        account: str | None,
        client: str | IPv4Address | IPv6Address | None,
        network: str | IPv4Address | IPv6Address | None,
    ) -> tuple[Known, Shape]:
        """Give the one block that is meant."""
        known, by = self._named(account, client, network)
        return known, Shape.of_block(by, secrets=len(self._subjects.pseudonyms))

    def _shape(
        self,
        action: str,
        subjects: frozenset[str],
        *,
        only: frozenset[str] | None = None,
        by_address: bool = True,
        part: _Part = "all",
        blocks: bool = True,
        members: bool = True,
    ) -> Shape:
        """Give the limits that apply to what is known; made once for all attempts."""
        asked = (action, subjects, only, by_address, part, blocks, members)
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
            )
        return shape

    def _applying(
        self,
        action: str,
        claims: Claims,
        known: Known,
        *,
        only: frozenset[str] | None = None,
        part: _Part = "all",
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
        )
        quiet = isinstance(claims.account, NoAccount) or known.allowlisted
        if not shape.limits and not quiet:
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
