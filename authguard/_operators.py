"""
Operators' commands: ``status``, ``unlock`` and ``block``.

They work at a desk: the app's (``flask authguard``), or one that is set up from options and the
environment (``authguard``). Needs the extra ``cli``.
"""

from __future__ import annotations

import getpass
import json
import os
import shlex
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from authguard._notes import check_text
from authguard._terminal import EXIT_STATUS, UnavailableError, WrongUseError, place_of, show
from authguard.checks import LONGEST_MEMORY_MS
from authguard.errors import ConfigurationError, InvalidInput, StoreUnavailable
from authguard.guard import Guard
from authguard.identity import AccountKey
from authguard.identity.addresses import read_address
from authguard.identity.pseudonyms import check_secrets
from authguard.limits import parse_period_ms
from authguard.ops.desk import Desk, Selection
from authguard.ops.operate import block, unlock
from authguard.ops.printable import printable
from authguard.ops.standing import status
from authguard.ops.standing_table import moment, standing_table
from authguard.stores._address import read_address as read_store_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from authguard.identity import Address
    from authguard.ops.operate import Blocked, Unlocked

__all__ = [
    "DESK",
    "WHERE",
    "block_command",
    "open_desk",
    "say_how_it_counts",
    "status_command",
    "unlock_command",
    "wait_for_workers",
    "where_options",
    "who_option",
    "why_option",
]

#: Where a context keeps the function that gives the app's desk, in its ``meta``.
DESK: Final = "authguard.desk"

#: Options that say where to look; an app knows.
WHERE: Final = frozenset({"store_url", "policy"})

_UNLOCK_STATUS: Final = f"{EXIT_STATUS}  3  there was nothing to free\n"
_NOTHING_FREED: Final = 3

#: How long another process may still tell a refusal that it knows, in seconds: a command that lets
#: somebody go on returns after that, so that it holds in every worker then.
WORKERS_FORGET_S: Final = LONGEST_MEMORY_MS / 1000

#: Longest time of one decision at a desk of our own: a person waits, no request.
_PATIENT_MS: Final = 2_000

_AS_SPELT: Final = (
    "names count by their spelling, whatever its case: if your app looks them up, use flask"
    " authguard, and --exact for a key as it is"
)


class _Address(click.ParamType[Any]):
    """An IP address in any spelling."""

    name = "addr"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Address:
        """Read it, or end with status 2."""
        try:
            return read_address(str(value))
        except ValueError:
            self.fail(f"{printable(str(value))} is no IP address", param, ctx)


class _Line(click.ParamType[Any]):
    """A short line of text."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check it, or end with status 2."""
        try:
            return check_text(str(value), "text")
        except InvalidInput as error:
            self.fail(f"the text {error.problem}", param, ctx)


def _os_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as containers have
        return f"user {os.getuid()}"


def where_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where to look."""
    for option in (
        click.option(
            "--policy",
            metavar="FILE",
            type=click.Path(),
            help="The app's policy file; the default profile without one.",
        ),
        click.option(
            "--store-url",
            metavar="URL",
            envvar="AUTHGUARD_STORE_URL",
            show_envvar=True,
            help="The app's Valkey. The secret is read from AUTHGUARD_SECRET; several are"
            " separated by blanks, the newest first.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
    ):
        function = option(function)
    return function


#: The option that says who does it.
who_option: Final = click.option(
    "--by",
    metavar="NAME",
    type=_Line(),
    default=_os_user,
    show_default="the system's user",
    help="Who does it.",
)


def why_option(where: str = "kept for 90 days") -> Callable[[Callable[..., Any]], Any]:
    """Give the option that says why, and tell where that will be found."""
    return click.option("--reason", metavar="TEXT", type=_Line(), help=f"Why; {where}.")


#: Options that read the account's name as its key.
exact_option: Final = click.option(
    "--exact",
    is_flag=True,
    help="Take the account's name as its key, such as an API key: not spelt otherwise, not looked"
    " up.",
)


def named_account(account: str | None, *, exact: bool) -> str | None:
    """
    Give the account that is meant, as the guard takes it.

    Raises:
        InvalidInput: It can't be a key.
    """
    if account is None or not exact:
        return account
    try:
        return AccountKey(account)
    except InvalidInput as error:
        raise click.UsageError(printable(str(error))) from None


def _whom(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say whom, who, and why."""
    for option in (
        who_option,
        why_option(),
        click.option(
            "--network", type=_Address(), metavar="ADDR", help="A network, by any address of it."
        ),
        click.option(
            "--client",
            type=_Address(),
            metavar="ADDR",
            help="A client, by any of its addresses; with --account, the account from there.",
        ),
        exact_option,
        click.option(
            "--account", metavar="NAME", help="An account, by any of its names; never a pattern."
        ),
    ):
        function = option(function)
    return function


@click.command("status", epilog=EXIT_STATUS, short_help="Tell how an account or client stands.")
@click.argument("action")
@click.argument("account", metavar="[KEY]", required=False)
@click.option(
    "--client",
    type=_Address(),
    metavar="ADDR",
    help="A client, by any of its addresses; with KEY, the account from there as well.",
)
@click.option(
    "--destination", metavar="TO", help="An e-mail address or phone number that messages go to."
)
@exact_option
@where_options
def status_command(
    *,
    action: str,
    account: str | None,
    client: Address | None,
    destination: str | None,
    exact: bool,
    as_json: bool,
    store_url: str | None = None,
    policy: str | None = None,
) -> None:
    """
    Tell how an account, a client or a destination stands at ACTION, such as login.

    KEY is an account, by any of its names. Every limit that counts by what is named is shown: used,
    left, and when the next place is free; the locks; the blocks; overrides and the load; and what
    operators did last, when and why. Limits that count by account and client together are shown
    where both are named.
    """
    if account is None and client is None and destination is None:
        raise click.UsageError("name somebody: KEY, --client or --destination")
    account = named_account(account, exact=exact)
    with open_desk(store_url, policy) as desk:
        say_how_it_counts(desk, account)
        _say_whose_tiers(desk, action, account)
        standing = status(desk, action, account=account, client=client, destination=destination)
    if as_json:
        click.echo(json.dumps(standing.as_json()))
    else:
        show(standing_table(standing))


@click.command("unlock", epilog=_UNLOCK_STATUS, short_help="Empty counts, end locks and blocks.")
@click.argument("actions", metavar="[ACTION]...", nargs=-1)
@_whom
@where_options
@click.pass_context
def unlock_command(
    ctx: click.Context,
    *,
    actions: tuple[str, ...],
    account: str | None,
    exact: bool,
    client: Address | None,
    network: Address | None,
    by: str,
    reason: str | None,
    as_json: bool,
    store_url: str | None = None,
    policy: str | None = None,
) -> None:
    """
    Let an account, a client or a network go on: empty its counts, end its locks, lift its block.

    For the ACTIONs that are named, such as login, or for all. With --account, all that counts by
    the account, from whichever client; with --client besides, from that client alone. With --client
    or --network alone, what counts by that. A block is lifted whatever ACTION is named, since it
    holds for all. It returns when every worker heeds it, which takes a second; interrupted in that
    second, it is done all the same.
    """
    account = named_account(account, exact=exact)
    selection = _selection(account, client, network)
    with open_desk(store_url, policy) as desk:
        say_how_it_counts(desk, account)
        done = unlock(desk, selection, by=by, reason=reason, actions=tuple(dict.fromkeys(actions)))
    if done:
        wait_for_workers()
    _tell_what_stays(done, selection)
    click.echo(json.dumps(done.as_json()) if as_json else _freed(done))
    if not done:
        ctx.exit(_NOTHING_FREED)


@click.command("block", epilog=EXIT_STATUS, short_help="Refuse an account, client or network.")
@_whom
@click.option("--for", "length", metavar="PERIOD", help="Such as 1h; else until it is unlocked.")
@where_options
def block_command(
    *,
    account: str | None,
    exact: bool,
    client: Address | None,
    network: Address | None,
    by: str,
    reason: str | None,
    length: str | None,
    as_json: bool,
    store_url: str | None = None,
    policy: str | None = None,
) -> None:
    """
    Refuse every action of an account, a client, a network, or an account from one client.

    No success, no new password and no window ends it: only --for, or an unlock. Sessions that are
    open already stay open. It returns when every worker heeds it, which takes a second; interrupted
    in that second, it is done all the same.
    """
    account = named_account(account, exact=exact)
    selection = _selection(account, client, network)
    with open_desk(store_url, policy) as desk:
        say_how_it_counts(desk, account)
        for_ms = None if length is None else parse_period_ms(length, "--for")
        done = block(desk, selection, by=by, reason=reason, for_ms=for_ms)
        wait_for_workers()  # it may stand in a longer one's place
    click.echo(json.dumps(done.as_json()) if as_json else _blocked(done))


def _selection(account: str | None, client: Address | None, network: Address | None) -> Selection:
    """Say whom the options name."""
    if network is not None and (account is not None or client is not None):
        raise click.UsageError("--network stands alone; leave --account and --client out")
    if account is None and client is None and network is None:
        raise click.UsageError("name somebody: --account, --client or --network")
    return Selection(account, client, network)


def wait_for_workers() -> None:
    """Wait until every worker has asked the store anew."""
    time.sleep(WORKERS_FORGET_S)


@contextmanager
def open_desk(store_url: str | None, policy: str | None) -> Iterator[Desk]:
    """Give the app's desk, or set one up; an error at it is one line and an exit status."""
    with ExitStack() as ending:
        apps: Callable[[], Desk] | None = click.get_current_context().meta.get(DESK)
        try:
            if apps is not None:
                yield apps()
            else:
                yield Desk(
                    ending.enter_context(_own_guard(store_url, policy)), word=lambda _: _AS_SPELT
                )
        except (ConfigurationError, InvalidInput) as error:
            raise WrongUseError(printable(str(error))) from None
        except StoreUnavailable as error:
            place = "the store" if apps is not None else place_of(store_url)
            raise UnavailableError(
                f"{place} gave no clear answer ({error.reason}); what was asked may be done or not,"
                " so ask again"
            ) from None


def _own_guard(store_url: str | None, policy: str | None) -> Guard:
    if not store_url:
        raise ConfigurationError(
            "AG010", "--store-url", "missing", "give it, or set AUTHGUARD_STORE_URL"
        )
    read_store_url(store_url, "AUTHGUARD_STORE_URL, or --store-url")
    return Guard(store_url, secret=_own_secrets(), policies=policy, deadline_ms=_PATIENT_MS)


def _own_secrets() -> tuple[bytes, ...]:
    """Read the environment's secret; an app may hold one with a blank in it, and we split there."""
    secrets = os.environ.get("AUTHGUARD_SECRET", "").split()
    if len(secrets) == 1:
        return check_secrets(secrets[0], "AUTHGUARD_SECRET")
    try:
        return check_secrets(secrets, "AUTHGUARD_SECRET")
    except ConfigurationError as error:
        if not secrets:
            raise
        problem = f"{error.problem} (blanks separate several)"
        raise ConfigurationError(error.code, error.where, problem, error.mend) from None


def say_how_it_counts(desk: Desk, account: str | None) -> None:
    """Say on standard error what an operator must know of how a name counts."""
    word = None if account is None or isinstance(account, AccountKey) else desk.word(account)
    if word is not None:
        click.echo(f"Note: {word}", err=True)


def _say_whose_tiers(desk: Desk, action: str, account: str | None) -> None:
    """Say that only an app knows an account's tier, where the action's limits tell tiers apart."""
    if account is not None and not desk.guard.knows_tiers and desk.guard.policy(action).tiers:
        click.echo(
            "Note: limits are shown as without a tier; with AuthGuard(tier=…) in the app, flask"
            " authguard shows an account's own",
            err=True,
        )


def _tell_what_stays(done: Unlocked, selection: Selection) -> None:
    """Say on standard error what refuses still, or may."""
    values = {**selection.named, "network": selection.client}

    def options(by: tuple[str, ...]) -> str:
        return " ".join(f"--{part} {shlex.quote(str(values[part]))}" for part in by)

    for by in done.still_blocked:
        click.echo(f"Note: still blocked by {' and '.join(by)}; unlock {options(by)}", err=True)
    for left in done.still_full:
        click.echo(f"Note: still refused by {left}; unlock {options(left.by)}", err=True)


def _freed(done: Unlocked) -> str:
    """Say what was freed, a line for each action."""
    lines = [
        f"{each.action}: "
        + ", ".join(
            [
                *([_counted(each.entries, "place") + " freed in its logs"] if each.entries else []),
                *([_counted(each.locks, "lock") + " ended"] if each.locks else []),
                *(["recovery no longer required"] if each.recovery else []),
            ]
        )
        for each in done.freed
        if each
    ]
    if any(done.freed) and done.pairs:
        lines.append(f"afresh from every client: {', '.join(map(str, done.pairs))}")
    if done.block:
        lines.append("block lifted")
    return "\n".join(lines) or f"nothing to free: no count, lock or block by {_on(done.on)}"


def _blocked(done: Blocked) -> str:
    if done.until_ms is None:
        return f"{_on(done.on)} blocked for every action, until somebody unlocks it"
    until = moment(done.until_ms, done.at_ms)
    return f"{_on(done.on)} blocked for every action, until {until} (UTC)"


def _on(parts: tuple[str, ...]) -> str:
    return " and ".join(parts)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
