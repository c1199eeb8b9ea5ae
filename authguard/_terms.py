"""
Operators' commands that change limits' numbers for a while: ``override`` and ``load``.

Needs the extra ``cli``.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import click

from authguard._operators import (
    exact_option,
    named_account,
    open_desk,
    say_how_it_counts,
    wait_for_workers,
    where_options,
    who_option,
    why_option,
)
from authguard._terminal import EXIT_STATUS
from authguard.limits import LeakyBucket, TokenBucket, parse_period_ms
from authguard.ops.printable import printable
from authguard.ops.standing_table import moment
from authguard.ops.terms import EXEMPT, current_load, lift_override, override, set_load

if TYPE_CHECKING:
    from authguard.limits import Algorithm
    from authguard.ops.terms import Load, Overridden

__all__ = ["load_command", "override_command"]

_OVERRIDE_STATUS: Final = f"{EXIT_STATUS}  3  there was nothing to lift\n"
_NOTHING_LIFTED: Final = 3

#: How long a load holds that an operator sets: a person comes back to it later than a probe does.
_LOAD_HOLDS: Final = "10m"

#: Thousandths are what the load is counted in.
_SHARE: Final = re.compile(r"0?\.[0-9]{1,3}|0|1(\.0{1,3})?", re.ASCII)


class _Share(click.ParamType[Any]):
    """A share from 0 to 1, in thousandths at the finest."""

    name = "share"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read it, or end with status 2."""
        if _SHARE.fullmatch(str(value)) is None:
            self.fail(
                f"{printable(str(value))} is no share; write a number from 0 to 1, such as 0.2,"
                " with three decimals at most",
                param,
                ctx,
            )
        return float(value)


@click.command(
    "override", epilog=_OVERRIDE_STATUS, short_help="Give one account other numbers for a while."
)
@click.argument("action")
@click.argument("limit")
@click.option("--account", metavar="NAME", required=True, help="The account, by any of its names.")
@exact_option
@click.option("--to", metavar="RATE", help="Its numbers, in the limit's notation, such as 5000/1h.")
@click.option("--burst", type=click.IntRange(1), metavar="N", help="With --to, of a token_bucket.")
@click.option("--queue", type=click.IntRange(0), metavar="N", help="With --to, of a leaky_bucket.")
@click.option("--exempt", is_flag=True, help="The limit doesn't apply to the account.")
@click.option("--lift", is_flag=True, help="Take an override back.")
@click.option("--for", "length", metavar="PERIOD", help="How long, such as 7d.")
@why_option()
@who_option
@where_options
@click.pass_context
def override_command(
    ctx: click.Context,
    *,
    action: str,
    limit: str,
    account: str,
    exact: bool,
    to: str | None,
    burst: int | None,
    queue: int | None,
    exempt: bool,
    lift: bool,
    length: str | None,
    reason: str | None,
    by: str,
    as_json: bool,
    store_url: str | None = None,
    policy: str | None = None,
) -> None:
    """
    Give the LIMIT of ACTION other numbers for one account, or exempt the account from it.

    Take one of --to, --exempt and --lift. It goes before the account's tier, and ends by itself
    after --for. What has been counted goes on counting, and a lock that stands stays: unlock ends
    it. It returns when every worker heeds it, which takes a second; interrupted in that second, it
    is done all the same.
    """
    if [to is not None, exempt, lift].count(True) != 1:
        raise click.UsageError("take exactly one of --to, --exempt and --lift")
    if lift and length is not None:
        raise click.UsageError("--lift holds for good; leave --for out")
    if not lift and length is None:
        raise click.UsageError("say how long, such as --for 7d")
    if (burst is not None or queue is not None) and (to is None or None not in (burst, queue)):
        raise click.UsageError("--burst or --queue goes with --to, one of the two")
    whom = named_account(account, exact=exact) or account
    with open_desk(store_url, policy) as desk:
        say_how_it_counts(desk, whom)
        if length is None:
            done = lift_override(desk, action, limit, account=whom, by=by, reason=reason)
        else:
            for_ms = parse_period_ms(length, "--for")
            numbers: str | Algorithm | None = to
            if to is not None and burst is not None:
                numbers = TokenBucket(to, burst=burst, where="--to")
            elif to is not None and queue is not None:
                numbers = LeakyBucket(to, queue=queue, where="--to")
            done = override(
                *(desk, action, limit),
                account=whom,
                to=numbers,
                shown=to and " ".join(filter(None, (to, _holds(burst, queue)))),
                for_ms=for_ms,
                by=by,
                reason=reason,
            )
    if done:
        wait_for_workers()
    click.echo(json.dumps(done.as_json()) if as_json else _overridden(done))
    if not done:
        ctx.exit(_NOTHING_LIFTED)


@click.command("load", epilog=EXIT_STATUS, short_help="Show or set what elastic limits follow.")
@click.argument("share", type=_Share(), required=False)
@click.option(
    "--for", "length", metavar="PERIOD", help=f"How long it holds; {_LOAD_HOLDS} without it."
)
@why_option("it stands in the log, so name nobody")
@who_option
@where_options
def load_command(
    *,
    share: float | None,
    length: str | None,
    reason: str | None,
    by: str,
    as_json: bool,
    store_url: str | None = None,
    policy: str | None = None,
) -> None:
    """
    Show the load; with a SHARE from 0 to 1, set it.

    It is the share of its capacity that the service has: limits marked elastic admit that share of
    their numbers, rounded up, and nothing at 0. It ends by itself, and a SHARE of 1 ends it at
    once. Of several who set it, an app's probe among them, the last one counts. Setting it returns
    when every worker heeds it, which takes a second; interrupted in that second, it is done all the
    same.
    """
    if share is None and (length is not None or reason is not None):
        raise click.UsageError("name the SHARE that --for and --reason are about")
    if share == 1 and length is not None:
        raise click.UsageError("a SHARE of 1 ends the load; leave --for out")
    with open_desk(store_url, policy) as desk:
        if share is None:
            load = current_load(desk)
        else:
            for_ms = parse_period_ms(length or _LOAD_HOLDS, "--for")
            load = set_load(desk, share, for_ms=for_ms, by=by, reason=reason)
            wait_for_workers()
    click.echo(json.dumps(load.as_json()) if as_json else _load(load))
    if not load.elastic:
        click.echo("Note: no limit of the policy is elastic, so none follows the load", err=True)


def _holds(burst: int | None, queue: int | None) -> str | None:
    """Say what a bucket holds, as a policy would."""
    if burst is not None:
        return f"burst {burst}"
    return None if queue is None else f"queue {queue}"


def _overridden(done: Overridden) -> str:
    what = f"{done.action}: {done.limit} of account"
    if done.until_ms is None:
        return (
            f"{what} is as in the policy again"
            if done.lifted
            else f"nothing to lift: account has no override of {done.limit} at {done.action}"
        )
    until = moment(done.until_ms, done.at_ms)
    if done.to == EXEMPT:
        return f"{done.action}: account is exempt from {done.limit} until {until} (UTC)"
    return f"{what} is {done.to} until {until} (UTC)"


def _load(load: Load) -> str:
    until = (
        ""
        if load.until_ms is None or load.share == 1
        else f" until {moment(load.until_ms, load.at_ms)} (UTC)"
    )
    lines = [f"load {load.share:g}{until}"]
    lines += [f"followed by {action}: {', '.join(names)}" for action, names in load.elastic.items()]
    return "\n".join(lines)
