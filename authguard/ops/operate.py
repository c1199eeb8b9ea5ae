"""
What an operator does to an account, a client, a network, or an account from one client.

Names are literal and go the way of those in requests: through the guard's normaliser and
``resolve``. Each act is logged, told to the app, and noted beside its subject. The log says who
did what, and gives the subject's pseudonym: no name, no address, and no reason, which may hold one.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from authguard._notes import Act, check_text
from authguard.decision import Cleared
from authguard.errors import ConfigurationError
from authguard.ops.desk import Event
from authguard.ops.standing import BLOCK, decide, iso_8601, purposes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from authguard.ops.desk import Desk, Selection

__all__ = ["Blocked", "Freed", "Left", "Unlocked", "block", "keyed", "record", "unlock"]

_log = logging.getLogger("authguard")


@dataclass(frozen=True, slots=True)
class Freed:
    """
    What an unlock freed for one action.

    Attributes:
        action: The action.
        entries: Places given back in its logs.
        locks: Locks ended.
        recovery: The account no longer has to be recovered.
    """

    action: str
    entries: int
    locks: int
    recovery: bool

    def __bool__(self) -> bool:
        return bool(self.entries or self.locks or self.recovery)

    def as_json(self) -> dict[str, Any]:
        """Give it as JSON's types."""
        return {
            "action": self.action,
            "entries": self.entries,
            "locks": self.locks,
            "recovery": self.recovery,
        }


@dataclass(frozen=True, slots=True)
class Left:
    """
    A limit that refuses still.

    Attributes:
        action: Its action.
        name: Its name.
        by: What it counts by.
    """

    action: str
    name: str
    by: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.action}: {self.name}"


@dataclass(frozen=True, slots=True)
class Unlocked:
    """
    What an unlock did.

    Attributes:
        on: What was unlocked, in the words of a policy.
        subject: Its pseudonym, as logs and events show it.
        freed: What was freed, by action; every action that was looked at.
        block: A block was lifted.
        still_blocked: What else it is blocked by, and stays so.
        still_full: The limits by what was not meant, such as the client's network, that refuse.
        pairs: The limits that count by account and client together and start afresh, whichever
            the client is; how much was in them nobody knows.
    """

    on: tuple[str, ...]
    subject: str
    freed: tuple[Freed, ...]
    block: bool
    still_blocked: tuple[tuple[str, ...], ...]
    still_full: tuple[Left, ...]
    pairs: tuple[Left, ...]

    def __bool__(self) -> bool:
        return self.block or any(self.freed)

    def as_json(self) -> dict[str, Any]:
        """Give it as JSON's types; always the same fields."""
        return {
            "act": "unlock",
            "on": list(self.on),
            "subject": self.subject,
            "freed": bool(self),
            "actions": [each.as_json() for each in self.freed],
            "block_lifted": self.block,
            "still_blocked": [list(by) for by in self.still_blocked],
            "still_full": list(map(str, self.still_full)),
            "pairs": list(map(str, self.pairs)),
        }


@dataclass(frozen=True, slots=True)
class Blocked:
    """
    What a block did.

    Attributes:
        on: What is blocked, in the words of a policy.
        subject: Its pseudonym, as logs and events show it.
        at_ms: When it was set, milliseconds since the epoch.
        until_ms: When it ends; None: when somebody unlocks it.
    """

    on: tuple[str, ...]
    subject: str
    at_ms: int
    until_ms: int | None

    def as_json(self) -> dict[str, Any]:
        """Give it as JSON's types; always the same fields."""
        return {
            "act": "block",
            "on": list(self.on),
            "subject": self.subject,
            "blocked_until": iso_8601(self.until_ms),
        }


def unlock(
    desk: Desk,
    selection: Selection,
    *,
    by: str,
    reason: str | None = None,
    actions: Sequence[str] = (),
) -> Unlocked:
    """
    Empty the logs, end the locks, lift the block, and let the account be used without recovery.

    With an account: what counts by it, and by it and any client together, or by the pair with that
    one client if it is named. With a client or a network: what counts by that. The block that is
    lifted is the one on exactly what is named.

    Args:
        desk: Where it is done.
        selection: To whom.
        by: Who does it.
        reason: Why.
        actions: For which actions; none: for all.

    Raises:
        StoreUnavailable: If the store gave no clear answer; part of it may be done.
        InvalidInput: If what is named can't be used.
        ConfigurationError: AG009 or AG023: no such action, or nothing there counts by that.
    """
    guard = desk.guard
    by, reason = check_text(by, "by"), None if reason is None else check_text(reason, "reason")
    for action in actions:
        guard.policy(action)
    named = keyed(desk, selection)
    subject = guard.notes.subject(**named)
    lifted = guard.unblock(**named)
    freed = tuple(
        each
        for action in actions or sorted(guard.policies)
        if (each := _free(desk, action, named, asked_for=action in actions)) is not None
    )
    blocks, full = _left(desk, freed, named)
    pairs = _pardon(desk, freed, named) if selection.parts == ("account",) else ()
    done = Unlocked(selection.parts, subject, freed, lifted, blocks, full, pairs)
    if done:
        act = Act("unlock", selection.parts, guard.now_ms(), by, reason, tuple(actions))
        unlocked = tuple(each.action for each in freed if each.locks)
        for action in unlocked:
            _log.warning("%s: unlocked by operator (subject %s)", action, subject)
        record(desk, act, named, Event(act, subject, unlocked))
    return done


def block(
    desk: Desk,
    selection: Selection,
    *,
    by: str,
    reason: str | None = None,
    for_ms: int | None = None,
) -> Blocked:
    """
    Refuse every action of what is named, whatever happens in between.

    Args:
        desk: Where it is done.
        selection: To whom.
        by: Who does it.
        reason: Why.
        for_ms: How long, in milliseconds; None: until somebody unlocks it.

    Raises:
        StoreUnavailable: If the store gave no clear answer; it may be blocked all the same.
        InvalidInput: If what is named can't be used.
    """
    guard = desk.guard
    by, reason = check_text(by, "by"), None if reason is None else check_text(reason, "reason")
    named = keyed(desk, selection)
    subject = guard.notes.subject(**named)
    until_ms = guard.block(**named, for_ms=for_ms)
    at_ms = guard.now_ms()
    act = Act("block", selection.parts, at_ms, by, reason, until_ms=until_ms)
    record(desk, act, named, Event(act, subject))
    return Blocked(selection.parts, subject, at_ms, until_ms)


def keyed(desk: Desk, selection: Selection) -> dict[str, Any]:
    """Look the account up once: all that follows is done to that one key."""
    named = selection.named
    if selection.account is not None:
        named["account"] = desk.guard.account_key(selection.account)
    return named


def _free(desk: Desk, action: str, named: dict[str, Any], *, asked_for: bool) -> Freed | None:
    """Free what counts for one action; None where nothing does, and nobody asked for this one."""
    members, key = desk.members, named.get("account")
    recovery = False
    if members is not None and key is not None and members.get(key) is not None:
        recovery = members.lift_recovery(key, action)
    try:
        cleared = _clear(desk, action, named)
    except ConfigurationError as error:
        if error.code != "AG023" or asked_for:
            raise
        return Freed(action, 0, 0, recovery) if recovery else None
    return Freed(action, cleared.entries, cleared.locks, recovery)


def _clear(desk: Desk, action: str, named: dict[str, Any]) -> Cleared:
    if "account" in named:
        each = [
            desk.guard.clear(action, **named, purpose=purpose) for purpose in purposes(desk, action)
        ]
        return Cleared(sum(it.entries for it in each), sum(it.locks for it in each))
    if "network" in named:
        return desk.guard.clear(action, client=named["network"], only="network")
    return desk.guard.clear(action, client=named["client"], only="client")


def _left(
    desk: Desk, freed: tuple[Freed, ...], named: dict[str, Any]
) -> tuple[tuple[tuple[str, ...], ...], tuple[Left, ...]]:
    """List the wider blocks and the other limits that refuse it still."""
    blocks: dict[tuple[str, ...], None] = {}
    full = []
    for each in freed if "network" not in named else ():
        decision = decide(desk, each.action, named)
        refused_by = () if decision is None else decision.refused_by
        for row in desk.guard.usage(each.action, **named):
            if row.algorithm == BLOCK and row.lock_set_at_ms is not None:
                blocks[row.by] = None
            elif row.algorithm != BLOCK and row.name in refused_by:
                full.append(Left(each.action, row.name, row.by))
    return tuple(blocks), tuple(full)


def _pardon(desk: Desk, freed: tuple[Freed, ...], named: dict[str, Any]) -> tuple[Left, ...]:
    by = {
        (each.action, limit.name): limit.by
        for each in freed
        for limit in desk.guard.policy(each.action).limits
    }
    return tuple(
        Left(each.action, name, by[each.action, name])
        for each in freed
        for name in desk.guard.pardon(each.action, account=named["account"])
    )


def record(desk: Desk, act: Act, named: dict[str, Any], event: Event) -> None:
    """Log the act, tell of it, and note it; the note last, since the store can be away by now."""
    _log.warning(
        "operator %s: %s of %s for %s (subject %s)",
        act.by,
        act.act,
        " and ".join(act.on),
        act.about or "every action",
        event.subject,
    )
    desk.tell(event)
    desk.guard.notes.add(act, **named)
