"""
What a guard does: reserve, then verify, then give back on success. The steps of both guards.

Before a credential is looked at, one atomic call on Valkey reserves a place in every log that
could refuse the attempt; only a proven success gives the place back.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final, NamedTuple

from authguard._core import calls, groups
from authguard._core.groups import Places
from authguard._engine import check_cost, check_reachable
from authguard._guard_operators import OperatorSteps
from authguard._subjects import NO_ACCOUNT, Claims
from authguard.checks import is_unicode, shown
from authguard.decision import Decision
from authguard.errors import ConfigurationError, Denied, Denylisted, StoreUnavailable, refusal
from authguard.limits import Algorithm, Block, Conversion, Distinct
from authguard.policy import Policy, PolicyLimit

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

    from authguard._core.steps import Steps
    from authguard._guard_base import Part
    from authguard._subjects import Known, NoAccount
    from authguard.identity import AccountKey, Email, Phone
    from authguard.identity.destinations import StandIn

__all__ = ["GuardSteps", "Reserved"]

_log = logging.getLogger("authguard")

#: A client without an address still has a tag: three zero bytes, under which nothing is forgiven.
_NO_TAG: Final = bytes(3)


class Reserved(NamedTuple):
    """
    What an admitted attempt is made of.

    Attributes:
        places: What it holds, and gives back.
        decision: What the limits said.
        now_ms: The clock that a replay passed.
        account: The key of the account that was counted.
        device: The known device that it counts by.
    """

    places: Places
    decision: Decision
    now_ms: int | None
    account: AccountKey | None
    device: str | None


class GuardSteps(OperatorSteps):
    """Asks and charges; see :class:`authguard.Guard`."""

    def _attempt(
        self,
        action: str,
        *,
        account: str | NoAccount | None = None,
        client: str | IPv4Address | IPv6Address | None = None,
        destination: str | Email | Phone | StandIn | None = None,
        device: str | None = None,
        challenge: str | None = None,
        purpose: str | None = None,
        priority: str | None = None,
        tier: str | None = None,
        cost: int = 1,
        now_ms: int | None = None,
    ) -> Steps[Reserved]:
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
            priority: How important it is, as the policy's limits name it; ``normal`` without one.
                Take it from what the client has proved, never from what it claims.
            tier: The account's tier; without one the guard's ``tier`` function is asked.
            cost: Places it takes in each log, times the limit's own ``cost``; from 1.
            now_ms: A replay's clock, in milliseconds since the epoch; never from a request.

        Raises:
            Denied: If a limit or lock refuses; nothing was charged, save in limits with
                ``count_refused``. ``Overloaded``, if the load alone refuses. ``Denylisted``, if the
                client is on the denylist: the store was not asked.
            StoreUnavailable: If the store gave no clear verdict in time.
            InvalidInput: If the account, the client or the destination can't be used.
            ConfigurationError: AG009, if the action has no policy; AG023, if none of its limits
                applies to what is known; AG026, for what ``resolve`` gave; AG051 or AG052, for a
                tier or a priority that no limit has.
            ValueError: If the cost is no whole number from 1; ``TooDear``, if it is more than a
                limit could admit.
        """
        claims = Claims(account, client, destination, device, challenge, purpose, priority, tier)
        policy = self.policy(action)
        known = self._subjects.known(policy, claims)
        try:
            return (yield from self._reserve(action, claims, known, cost=cost, now_ms=now_ms))
        except Denied as error:
            if device is None or not policy.wears_out(error.decision.refused_by):
                raise
        claims, known = claims._replace(device=None), known.without_device()
        return (yield from self._reserve(action, claims, known, cost=cost, now_ms=now_ms))

    def _message(
        self,
        action: str,
        *,
        destination: Email | Phone,
        device: str | None = None,
        message_id: bytes | None = None,
        now_ms: int | None = None,
    ) -> Steps[Reserved]:
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
        known = self._subjects.known(self.policy(action), claims, partial=True)
        reserving = self._reserve(
            action, claims, known, part="message", attempt_id=message_id, cost=1, now_ms=now_ms
        )
        return (yield from reserving)

    def _message_over(
        self, action: str, *, destination: Email | Phone, message_id: bytes, entered: bool
    ) -> Steps[None]:
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
        if not shape.limits:
            return
        for binding in self._engine.bind(shape, known.pseudonyms).bindings:
            yield calls.settle(
                binding,
                reserved_at_ms=0,  # the id alone names it
                attempt_id=message_id,
                cost=1,
                forgive=entered,
                now_ms=self._engine.now_ms(None),
            )

    def _peek(
        self,
        action: str,
        *,
        account: str | NoAccount | None = None,
        client: str | IPv4Address | IPv6Address | None = None,
        destination: str | Email | Phone | StandIn | None = None,
        device: str | None = None,
        challenge: str | None = None,
        purpose: str | None = None,
        priority: str | None = None,
        tier: str | None = None,
        cost: int = 1,
        now_ms: int | None = None,
    ) -> Steps[Decision]:
        """
        Tell what :meth:`attempt` would decide now; charges and writes nothing.

        The arguments and errors are those of :meth:`attempt`, without ``Denied``.
        """
        claims = Claims(account, client, destination, device, challenge, purpose, priority, tier)
        known = self._subjects.known(self.policy(action), claims, partial=True)
        if known.denylisted:
            return Denylisted(action).decision
        shape = self._applying(action, claims, known)
        check_cost(cost, shape)
        bound = self._engine.bind(shape, known.pseudonyms)
        decision = yield from groups.peek(bound, cost=cost, now_ms=self._engine.now_ms(now_ms))
        check_reachable(cost, decision, shape)
        return decision

    def _reserve(
        self,
        action: str,
        claims: Claims,
        known: Known,
        *,
        part: Part = "all",
        attempt_id: bytes | None = None,
        cost: int,
        now_ms: int | None,
    ) -> Steps[Reserved]:
        """Reserve what :meth:`attempt` or :meth:`message` says."""
        if known.denylisted:
            raise Denylisted(action)
        shape = self._applying(action, claims, known, part=part)
        check_cost(cost, shape)
        at_ms = self._engine.now_ms(now_ms)
        known_refusal = self._engine.known_refusal(shape, known.pseudonyms[0], cost, at_ms)
        if known_refusal is not None:
            raise refusal(known_refusal)
        tag = known.client_tag
        places = Places(
            self._engine.bind(shape, known.pseudonyms),
            attempt_id or (tag or _NO_TAG) + os.urandom(2),
            cost,
            knows_client=tag is not None,
        )
        try:
            decision = yield from self._engine.reserve(places, at_ms)
        except StoreUnavailable:
            self._tell_stuck(action, places)
            if self.policies[action].outage != "allow":
                raise
            _log.warning("%s: the store is away; admitted uncounted (outage = allow)", action)
            decision = Decision(action, allowed=True, verdicts=(), now_ms=0, degraded=True)
        else:
            if self._mark.is_due():
                yield from self._mark.look()
        if not decision.allowed:
            self._tell_stuck(action, places)
            check_reachable(cost, decision, shape)
            raise refusal(decision)
        return Reserved(places, decision, now_ms, known.account, claims.device)

    @staticmethod
    def _tell_stuck(action: str, places: Places) -> None:
        if places.stuck:
            _log.warning("%s: not admitted, and a place it had taken stays counted", action)

    @staticmethod
    def _limited(limit: object, name: object) -> Policy:
        """Give the policy of one algorithm by itself; arguments and errors are ``limiter``'s."""
        if isinstance(limit, Conversion | Block) or not isinstance(limit, Algorithm):
            raise ConfigurationError(
                "AG005",
                "limiter(…)",
                f"{shown(limit)} can't count by itself",
                "give another algorithm, such as a SlidingLog; a Conversion stands in policies,"
                " which tell what was entered",
            )
        own = repr(limit) if name is None else name
        if not isinstance(own, str) or not is_unicode(own):
            raise ConfigurationError(
                "AG005", "limiter(name=…)", f"{shown(name)} is no text", "give one, or leave it out"
            )
        of = limit.of if isinstance(limit, Distinct) else None
        bound = PolicyLimit("limiter", ("client" if of == "account" else "account",), limit)
        return Policy(f"limiter {own}", (bound,))
