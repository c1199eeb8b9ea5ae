"""A report on a standing for a person at a terminal of 80 columns. Needs the extra ``cli``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from rich import box
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from authguard.ops.printable import printable
from authguard.ops.replay_table import duration

if TYPE_CHECKING:
    from rich.console import RenderableType

    from authguard._notes import Act
    from authguard.ops.standing import Standing, StandingLimit

__all__ = ["moment", "standing_table"]

_MINUTE_MS: Final = 60_000


def standing_table(standing: Standing) -> RenderableType:
    """Lay a standing out."""
    parts: list[RenderableType] = [_summary(standing)]
    if standing.limits:
        parts.append(_limits(standing))
    if standing.acts:
        parts.append(_acts(standing))
    return Group(*(Padding(part, (0, 0, 1, 0)) for part in parts[:-1]), parts[-1])


def moment(at_ms: int, now_ms: int) -> str:
    """
    Give a moment in UTC, and how far away it is; with its date where that is not today's.

    Rounded up to the second, of a later day to the minute: nothing is said to be over too early.
    """
    then, now = (datetime.fromtimestamp(-(-it // 1000), UTC) for it in (at_ms, now_ms))
    clock = f"{then:%H:%M:%S}"
    if then.date() != now.date():
        minutes = -(-at_ms // _MINUTE_MS) if at_ms > now_ms else at_ms // _MINUTE_MS
        clock = f"{datetime.fromtimestamp(minutes * 60, UTC):%Y-%m-%d %H:%M}"
    away = _largest_unit(abs(at_ms - now_ms))
    return f"{clock}, in {away}" if at_ms > now_ms else f"{clock}, {away} ago"


def _largest_unit(length_ms: int) -> str:
    """Give a length of time in its largest unit, rounded up."""
    length_s = -(-length_ms // 1000)
    for unit, size_s, most in (("s", 1, 59), ("min", 60, 59), ("h", 3_600, 48)):
        if (count := -(-length_s // size_s)) <= most:
            return f"{count} {unit}"
    return f"{-(-length_s // 86_400)} d"


def _summary(standing: Standing) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    now_ms = standing.now_ms
    rows = [("Action", standing.action)]
    if standing.account is not None:
        rows.append(("Account", f"{printable(standing.account)} (in logs: {standing.subject})"))
    if standing.client is not None:
        rows.append(("Client", standing.client))
    rows.append(("State", _state(standing)))
    for limit in standing.limits:
        if limit.locked_until_ms is not None:
            end = moment(limit.locked_until_ms, now_ms)
            exempt = "; the account is exempt from it" if limit.exempt else ""
            told = f"by {limit.name} until {end} (episode {limit.episode}){exempt}"
            rows.append(("Locked", told))
    if standing.load is not None and standing.load < 1:
        elastic = ", ".join(limit.name for limit in standing.limits if limit.elastic)
        if elastic:
            rows.append(("Load", f"{standing.load:g} of their numbers: {elastic}"))
    for block in standing.blocks:
        until = (
            "without end" if block.until_ms is None else f"until {moment(block.until_ms, now_ms)}"
        )
        rows.append(("Blocked", f"by an operator, {until} ({_joined(block.by)})"))
    if standing.recovery_required:
        rows.append(("Recovery", "required: a new password by mail, or an operator's unlock"))
    for name, value in rows:
        table.add_row(name, Text(value))
    return table


def _state(standing: Standing) -> str:
    if not standing.refused_by:
        return "an attempt would be admitted, as far as these limits go"
    refused = f"refused by {', '.join(standing.refused_by)}"
    if standing.retry_after_s is None:
        return refused
    return f"{refused}; admitted again in {duration(standing.retry_after_s * 1000)}"


def _limits(standing: Standing) -> Table:
    table = _table("Limits")
    table.add_column("limit", overflow="fold")
    table.add_column("counts by", overflow="fold")
    table.add_column("used", justify="right", no_wrap=True)
    table.add_column("left", justify="right", no_wrap=True)
    table.add_column("frees at (UTC)", overflow="fold")
    table.add_column("lock, override", overflow="fold")
    now_ms = standing.now_ms
    for limit in standing.limits:
        table.add_row(
            Text(limit.name),
            ", ".join(limit.by),
            f"{limit.used:,}/{limit.limit:,}",
            "" if limit.remaining is None else f"{limit.remaining:,}",
            "" if limit.frees_at_ms is None else moment(limit.frees_at_ms, now_ms),
            "\n".join(filter(None, (_lock(limit, now_ms), _override(limit, now_ms)))),
        )
    return table


def _lock(limit: StandingLimit, now_ms: int) -> str:
    if limit.locked_until_ms is not None:
        return f"until {moment(limit.locked_until_ms, now_ms)}, episode {limit.episode}"
    return f"episode {limit.episode} is over" if limit.episode else ""


def _override(limit: StandingLimit, now_ms: int) -> str:
    if limit.override_until_ms is None:
        return ""
    what = "exempt" if limit.exempt else "override"
    return f"{what} until {moment(limit.override_until_ms, now_ms)}"


def _acts(standing: Standing) -> Table:
    table = _table("What operators did last")
    table.add_column("when (UTC)", no_wrap=True)
    table.add_column("act", overflow="fold")
    table.add_column("by", overflow="fold")
    table.add_column("why", overflow="fold")
    for act in standing.acts:
        table.add_row(
            moment(act.at_ms, standing.now_ms),
            _told(act, standing.now_ms),
            Text(printable(act.by)),
            Text("" if act.reason is None else printable(act.reason)),
        )
    return table


def _told(act: Act, now_ms: int) -> Text:
    told = f"{act.act} {_joined(act.on)}"
    if act.about:
        told += f" for {act.about}"
    if act.until_ms is not None:
        told += f", until {moment(act.until_ms, now_ms)}"
    return Text(told)


def _joined(parts: tuple[str, ...]) -> str:
    return " and ".join(parts)


def _table(title: str) -> Table:
    return Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
    )
