"""
What an operator does to a limit's numbers for a while: overrides for one account, and the load.

An override is noted beside its account, as every act on somebody is. The load is nobody's: it has
no subject to stand beside, ends soon, and is set by probes as well, so the log alone tells of it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from authguard._notes import Act, check_text
from authguard.ops.desk import Event, Selection
from authguard.ops.operate import keyed, record
from authguard.ops.standing import iso_8601

if TYPE_CHECKING:
    from collections.abc import Mapping

    from authguard.limits import Algorithm
    from authguard.ops.desk import Desk

__all__ = ["EXEMPT", "Load", "Overridden", "current_load", "lift_override", "override", "set_load"]

#: What an act says where an account is exempt.
EXEMPT: Final = "exempt"

_ON: Final = ("account",)

_log = logging.getLogger("authguard")


@dataclass(frozen=True, slots=True)
class Overridden:
    """
    What was done to a limit for one account.

    Attributes:
        action: The action.
        limit: The limit's name.
        subject: The account's pseudonym, as logs and events show it.
        to: The numbers it has now, or ``exempt``; None: its own again.
        at_ms: When it was done, milliseconds since the epoch.
        until_ms: When the override ends; None where it was taken back.
        lifted: An override was taken back.
    """

    action: str
    limit: str
    subject: str
    to: str | None
    at_ms: int
    until_ms: int | None
    lifted: bool = False

    def __bool__(self) -> bool:
        return self.lifted or self.until_ms is not None

    def as_json(self) -> dict[str, Any]:
        """Give it as JSON's types; always the same fields."""
        return {
            "act": "override",
            "on": list(_ON),
            "subject": self.subject,
            "action": self.action,
            "limit": self.limit,
            "to": self.to,
            "override_until": iso_8601(self.until_ms),
            "lifted": self.lifted,
        }


@dataclass(frozen=True, slots=True)
class Load:
    """
    The share of its capacity that the service has.

    Attributes:
        share: From 0 to 1.
        at_ms: When that was so, milliseconds since the epoch.
        until_ms: When it ends by itself; None where nobody has said it.
        elastic: The limits that follow it, by action.
    """

    share: float
    at_ms: int
    until_ms: int | None = None
    elastic: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Give it as JSON's types; always the same fields."""
        return {
            "load": self.share,
            "at": iso_8601(self.at_ms),
            "until": iso_8601(self.until_ms),
            "elastic": {action: list(names) for action, names in self.elastic.items()},
        }


def override(
    desk: Desk,
    action: str,
    limit: str,
    *,
    account: str,
    to: str | Algorithm | None,
    shown: str | None = None,
    for_ms: int,
    by: str,
    reason: str | None = None,
) -> Overridden:
    """
    Give a limit other numbers for one account, or exempt the account from it, for a while.

    Args:
        desk: Where it is done.
        action: The action.
        limit: The limit's name.
        account: The account, in any spelling.
        to: The numbers, in the limit's own notation or as an algorithm; None: an exemption.
        shown: How they are told; None: as ``to`` is written.
        for_ms: How long, in milliseconds.
        by: Who does it.
        reason: Why.

    Raises:
        StoreUnavailable: If the store gave no clear answer; it may be done all the same.
        InvalidInput: If the account or a text can't be used.
        ConfigurationError: AG009, if there is no such action or limit; AG053, if the limit can't
            be changed for one account; AG005 or AG006, for wrong numbers.
    """
    by, reason = _checked(by, reason)
    named = keyed(desk, Selection(account=account))
    until_ms = desk.guard.override(action, limit, to=to, for_ms=for_ms, **named)
    done = Overridden(
        action,
        limit,
        desk.guard.notes.subject(**named),
        EXEMPT if to is None else shown or str(to),
        desk.guard.now_ms(),
        until_ms,
    )
    _record_override(desk, done, named, by, reason)
    return done


def lift_override(
    desk: Desk, action: str, limit: str, *, account: str, by: str, reason: str | None = None
) -> Overridden:
    """
    Take an override back; false where there was none, which is no act.

    Arguments and errors are :func:`override`'s.
    """
    by, reason = _checked(by, reason)
    named = keyed(desk, Selection(account=account))
    lifted = desk.guard.lift_override(action, limit, **named)
    subject, at_ms = desk.guard.notes.subject(**named), desk.guard.now_ms()
    done = Overridden(action, limit, subject, None, at_ms, None, lifted)
    if done:
        _record_override(desk, done, named, by, reason)
    return done


def current_load(desk: Desk) -> Load:
    """
    Tell the load as it is, and which limits follow it.

    Raises:
        StoreUnavailable: If the store gave no clear answer.
    """
    guard = desk.guard
    return Load(guard.current_load(), guard.now_ms(), guard.load_until_ms(), _elastic(desk))


def set_load(desk: Desk, share: float, *, for_ms: int, by: str, reason: str | None = None) -> Load:
    """
    Set the load for a while.

    Args:
        desk: Where it is done.
        share: From 0 to 1; 1 ends one that was set before.
        for_ms: How long, in milliseconds; of no account for a share of 1.
        by: Who does it.
        reason: Why; it stands in the log.

    Raises:
        StoreUnavailable: If the store gave no clear answer; it may hold all the same.
        InvalidInput: If a text can't be used.
    """
    by, reason = _checked(by, reason)
    at_ms = desk.guard.now_ms()  # read first, so that it never ends before it is said to
    desk.guard.load(share, for_ms=1 if share == 1 else for_ms)
    until_ms = None if share == 1 else at_ms + for_ms
    done = Load(share, at_ms, until_ms, _elastic(desk))
    _log.warning(
        "operator %s: load %g%s%s",
        by,
        share,
        "" if until_ms is None else f" until {iso_8601(until_ms)}",
        "" if reason is None else f" ({reason})",
    )
    return done


def _checked(by: str, reason: str | None) -> tuple[str, str | None]:
    return check_text(by, "by"), None if reason is None else check_text(reason, "reason")


def _record_override(
    desk: Desk, done: Overridden, named: dict[str, Any], by: str, reason: str | None
) -> None:
    act = Act(
        "override",
        _ON,
        done.at_ms,
        by,
        reason,
        (done.action,),
        done.until_ms,
        done.limit,
        done.to,
    )
    record(desk, act, named, Event(act, done.subject))


def _elastic(desk: Desk) -> dict[str, tuple[str, ...]]:
    """List the limits that follow the load, by action."""
    found = {
        action: tuple(limit.name for limit in policy.limits if limit.elastic)
        for action, policy in sorted(desk.guard.policies.items())
    }
    return {action: names for action, names in found.items() if names}
