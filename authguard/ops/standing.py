"""
How an account or a client stands: every limit's count, the locks, the blocks, the last acts.

Looks and writes nothing. A report always has the same fields, with None where there is nothing to
tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from authguard.errors import ConfigurationError
from authguard.flows.otp import DIGITS
from authguard.limits import SHORT_MS
from authguard.ops.desk import Selection

if TYPE_CHECKING:
    from authguard._notes import Act
    from authguard.decision import Decision, Usage
    from authguard.identity import AccountKey, Address
    from authguard.ops.desk import Desk
    from authguard.policy import PolicyLimit

__all__ = [
    "BLOCK",
    "Standing",
    "StandingBlock",
    "StandingLimit",
    "decide",
    "iso_8601",
    "purposes",
    "status",
]

#: Algorithms: the operators' block; what counts no attempts that could be left over; and what
#: counts failures.
BLOCK: Final = "block"
_BREAKER: Final = "conversion"
_FAILURE_LOG: Final = "sliding_log"


@dataclass(frozen=True, slots=True)
class StandingLimit:
    """
    One limit.

    Attributes:
        name: Its name in the policy.
        by: What it counts by.
        algorithm: How it counts.
        window_ms: How long a place stays taken, with the numbers that count now, in milliseconds.
        limit: How many it admits now: its own number, its tier's or an override's, as much of it
            as the load leaves.
        used: Places taken.
        remaining: Places left, 0 while it is locked; None for a ``conversion``, and where the
            account is exempt.
        newest_ms: When its newest entry was made, or None.
        frees_at_ms: When one more place is free; None if none is taken.
        locked_until_ms: When its lock ends; None if it is not locked.
        episode: The lock's number in its row of lockouts, or of a cooldown's waits; 0: none.
        override_until_ms: When the account's override of it ends; None if there is none.
        exempt: The override exempts the account: the limit neither counts nor refuses.
        elastic: It follows the load.
    """

    name: str
    by: tuple[str, ...]
    algorithm: str
    window_ms: int
    limit: int
    used: int
    remaining: int | None
    newest_ms: int | None
    frees_at_ms: int | None
    locked_until_ms: int | None
    episode: int
    override_until_ms: int | None = None
    exempt: bool = False
    elastic: bool = False

    def as_json(self) -> dict[str, Any]:
        """Give it as JSON's types."""
        return {
            "name": self.name,
            "by": list(self.by),
            "algorithm": self.algorithm,
            "window_ms": self.window_ms,
            "limit": self.limit,
            "used": self.used,
            "remaining": self.remaining,
            "newest": iso_8601(self.newest_ms),
            "frees_at": iso_8601(self.frees_at_ms),
            "locked": self.locked_until_ms is not None,
            "locked_until": iso_8601(self.locked_until_ms),
            "episode": self.episode,
            "override_until": iso_8601(self.override_until_ms),
            "exempt": self.exempt,
            "elastic": self.elastic,
        }


@dataclass(frozen=True, slots=True)
class StandingBlock:
    """
    A block that an operator has set.

    Attributes:
        by: What is blocked.
        since_ms: Since when.
        until_ms: Until when; None: until somebody unlocks it.
    """

    by: tuple[str, ...]
    since_ms: int | None
    until_ms: int | None

    def as_json(self) -> dict[str, Any]:
        """Give it as JSON's types."""
        return {
            "by": list(self.by),
            "since": iso_8601(self.since_ms),
            "until": iso_8601(self.until_ms),
        }


@dataclass(frozen=True, slots=True)
class Standing:
    """
    How somebody stands at one action.

    Attributes:
        action: The action.
        account: The key that the account counts under; None if none is named.
        subject: The account's pseudonym, as logs and events show it.
        client: The client's address; None if none is named.
        now_ms: When this was so.
        limits: Every limit that counts by what is named.
        blocks: The blocks that stand.
        recovery_required: Whether the account is shut until its owner has recovered; None if the
            app's accounts don't tell, or know no such account.
        refused_by: What would refuse an attempt now.
        retry_after_s: Whole seconds until one would be admitted; None if one would be now, or if
            no time ends the refusal.
        acts: What operators did to what is named, the last first.
        load: The share of them that its elastic limits admit; None if it has none.
    """

    action: str
    account: str | None
    subject: str | None
    client: str | None
    now_ms: int
    limits: tuple[StandingLimit, ...]
    blocks: tuple[StandingBlock, ...]
    recovery_required: bool | None
    refused_by: tuple[str, ...]
    retry_after_s: int | None
    acts: tuple[Act, ...]
    load: float | None = None

    @property
    def strictest(self) -> StandingLimit | None:
        """
        The limit that ``failures`` and ``remaining`` are told of.

        Of the logs by the account (without one: by the client, or the destination) with a window
        of an hour or less, the one with the fewest places left; if there is none, of the longer
        ones, and then of limits that are no logs.
        """
        part = "account" if self.account else "client" if self.client else "destination"
        counting = [limit for limit in self.limits if limit.remaining is not None]
        counting = [limit for limit in counting if part in limit.by] or counting
        logs = [limit for limit in counting if limit.algorithm == _FAILURE_LOG] or counting
        short = [limit for limit in logs if limit.window_ms <= SHORT_MS] or logs
        return min(short, key=lambda limit: (limit.remaining, limit.limit), default=None)

    @property
    def last_failure_ms(self) -> int | None:
        """When the newest entry was made that one of the same logs holds."""
        part = "account" if self.account else "client" if self.client else "destination"
        logs = [limit for limit in self.limits if limit.algorithm == _FAILURE_LOG]
        times = [limit.newest_ms for limit in logs if part in limit.by]
        return max((time for time in times if time is not None), default=None)

    @property
    def locked_until_ms(self) -> int | None:
        """When the last of the locks ends; None if there is none."""
        ends = [limit.locked_until_ms for limit in self.limits]
        return max((end for end in ends if end is not None), default=None)

    @property
    def blocked_until_ms(self) -> int | None:
        """When the last of the blocks ends; None if there is none, or one without an end."""
        ends = [block.until_ms for block in self.blocks]
        return None if None in ends else max((end for end in ends if end is not None), default=None)

    def as_json(self) -> dict[str, Any]:
        """Give it as JSON's types; always the same fields."""
        strictest = self.strictest
        return {
            "action": self.action,
            "account": self.account,
            "subject": self.subject,
            "client": self.client,
            "at": iso_8601(self.now_ms),
            "failures": None if strictest is None else strictest.used,
            "remaining": None if strictest is None else strictest.remaining,
            "last_failure": iso_8601(self.last_failure_ms),
            "locked": self.locked_until_ms is not None,
            "locked_until": iso_8601(self.locked_until_ms),
            "retry_after": self.retry_after_s,
            "refused_by": list(self.refused_by),
            "blocked": bool(self.blocks),
            "blocked_until": iso_8601(self.blocked_until_ms),
            "blocks": [block.as_json() for block in self.blocks],
            "recovery_required": self.recovery_required,
            "load": self.load,
            "limits": [limit.as_json() for limit in self.limits],
            "acts": [act_as_json(act) for act in self.acts],
        }


def status(
    desk: Desk,
    action: str,
    *,
    account: str | None = None,
    client: Address | None = None,
    destination: str | None = None,
) -> Standing:
    """
    Look at everything that counts by what is named.

    Args:
        desk: Where to look.
        action: The policy's name.
        account: The account, in any spelling.
        client: The client's address; with the account, the pair of the two as well.
        destination: An e-mail address or phone number that messages go to.

    Raises:
        StoreUnavailable: If the store gave no clear answer.
        InvalidInput: If what is named can't be used.
        ConfigurationError: AG009 or AG023: no such action, or nothing there counts by that.
    """
    guard = desk.guard
    key = None if account is None else guard.account_key(account)
    named: dict[str, Any] = {"account": key, "client": client, "destination": destination}
    rows = _usage(desk, action, named)
    decision = decide(desk, action, named)
    limits = guard.policy(action).by_name
    elastic = any(limit.elastic for limit in limits.values())
    load = guard.current_load() if elastic else None
    now_ms = guard.now_ms()  # read last, so that no place is said to be free too early
    recovery = _recovery_required(desk, action, key)
    blocks = tuple(
        StandingBlock(row.by, row.lock_set_at_ms, row.locked_until_ms)
        for row in rows
        if row.algorithm == BLOCK and (row.endless or row.locked_until_ms is not None)
    )
    refusing = () if decision is None else decision.refused_by
    refused_by = tuple(dict.fromkeys((*refusing, *(("recovery",) if recovery else ()))))
    timeless = recovery or "denylist" in refused_by or any(it.until_ms is None for it in blocks)
    waits = decision is not None and not decision.allowed and not timeless
    return Standing(
        action=action,
        account=key,
        subject=None if key is None else guard.subject(key),
        client=None if client is None else str(client),
        now_ms=now_ms,
        limits=tuple(
            _limit(row, limits[row.name.partition(" ")[0]], now_ms)
            for row in rows
            if row.algorithm != BLOCK
        ),
        blocks=blocks,
        recovery_required=recovery,
        refused_by=refused_by,
        retry_after_s=decision.retry_after if waits and decision is not None else None,
        acts=_acts(desk, key, client),
        load=load,
    )


def act_as_json(act: Act) -> dict[str, Any]:
    """Give an act as JSON's types."""
    return {
        "act": act.act,
        "on": list(act.on),
        "at": iso_8601(act.at_ms),
        "by": act.by,
        "reason": act.reason,
        "actions": list(act.actions) or None,
        "until": iso_8601(act.until_ms),
        "limit": act.limit,
        "to": act.to,
    }


def iso_8601(at_ms: int | None) -> str | None:
    """Give a moment as text, in UTC and to the millisecond."""
    if at_ms is None:
        return None
    moment = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03}Z"


def _limit(row: Usage, limit: PolicyLimit, now_ms: int) -> StandingLimit:
    left = 0 if row.locked_until_ms is not None else max(0, row.limit - row.used)
    return StandingLimit(
        name=row.name,
        by=row.by,
        algorithm=row.algorithm,
        window_ms=row.window_ms,
        limit=row.limit,
        used=row.used,
        remaining=None if row.algorithm == _BREAKER or row.exempt else left,
        newest_ms=row.newest_ms,
        frees_at_ms=row.locked_until_ms
        or (now_ms + row.frees_after_ms if row.frees_after_ms else None),
        locked_until_ms=row.locked_until_ms,
        episode=row.level,
        override_until_ms=row.override_until_ms,
        exempt=row.exempt,
        elastic=limit.elastic,
    )


def purposes(desk: Desk, action: str) -> tuple[str | None, ...]:
    """List what the limits of an action tell apart by purpose; just None where none does."""
    by_purpose = any("purpose" in limit.by for limit in desk.guard.policy(action).limits)
    return tuple(DIGITS) if by_purpose else (None,)


def _usage(desk: Desk, action: str, named: dict[str, Any]) -> list[Usage]:
    """Give every limit's usage; one by purpose once for each, its purpose behind its name."""
    rows: dict[tuple[str, tuple[str, ...]], Usage] = {}
    for purpose in purposes(desk, action):
        for row in desk.guard.usage(action, **named, purpose=purpose):
            name = f"{row.name} ({purpose})" if "purpose" in row.by else row.name
            rows[name, row.by] = row._replace(name=name)
    return list(rows.values())


def decide(desk: Desk, action: str, named: dict[str, Any]) -> Decision | None:
    """
    Ask what an attempt would be told; None where nothing could decide by what is named.

    Of several purposes the answer to the one that has to wait longest.
    """
    try:
        each = [
            desk.guard.peek(action, **named, purpose=purpose) for purpose in purposes(desk, action)
        ]
        return max(each, key=lambda decision: (not decision.allowed, decision.retry_after_ms))
    except ConfigurationError as error:
        if error.code != "AG023":
            raise
        return None


def _recovery_required(desk: Desk, action: str, key: AccountKey | None) -> bool | None:
    member = None if desk.members is None or key is None else desk.members.get(key)
    return None if member is None else action in member.recovery_required


def _acts(desk: Desk, key: AccountKey | None, client: Address | None) -> tuple[Act, ...]:
    subjects = []
    if key is not None:
        subjects.append(Selection(account=key))
    if client is not None:
        subjects.extend((Selection(client=client), Selection(network=client)))
    if key is not None and client is not None:
        subjects.append(Selection(account=key, client=client))
    acts = [act for each in subjects for act in desk.guard.notes.last(**each.named)]
    return tuple(sorted(acts, key=lambda act: act.at_ms, reverse=True))
