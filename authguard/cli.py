"""
The command line: one set of commands, for ``authguard`` and for ``flask authguard``.

Commands do what the terminal needs (arguments, exit status, progress); what they tell is worked
out in :mod:`authguard.ops`. Needs the extra ``cli``.
"""

from __future__ import annotations

import copy
import json
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from authguard import __version__
from authguard._check import SETUP, check_command
from authguard._operators import DESK, WHERE, block_command, status_command, unlock_command
from authguard._terminal import EXIT_STATUS, UnavailableError, WrongUseError, place_of, show
from authguard._terms import load_command, override_command
from authguard.errors import ConfigurationError, StoreUnavailable
from authguard.ops.printable import printable
from authguard.ops.replay import replay
from authguard.ops.replay_table import replay_table
from authguard.ops.sshd_log import UnreadableLogError, read_sshd_log
from authguard.policy_file import default_policies, load_policies
from authguard.testing import embedded_valkey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from authguard.ops.replay import Report
    from authguard.ops.sshd_log import SshdLog
    from authguard.policy import Policy

__all__ = ["DESK", "SETUP", "app_commands", "commands"]

#: Tries from which a replay shows a progress bar: about a second's work.
_LONG_LOG: Final = 5_000


@click.group(
    name="authguard",
    epilog=EXIT_STATUS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="authguard", message="%(prog)s %(version)s")
def commands() -> None:
    """Abuse protection for sign-in: try its limits out, and look after them."""


for _command in (
    *(check_command, status_command, unlock_command, block_command),
    *(override_command, load_command),
):
    commands.add_command(_command)


@commands.command("replay", epilog=EXIT_STATUS, short_help="Try a policy on recorded sign-ins.")
@click.argument("log", type=click.Path())
@click.option(
    "--policy",
    metavar="FILE",
    type=click.Path(),
    help="Limits to try, as TOML; the default profile where it has no [login].",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--store-url",
    metavar="URL",
    envvar="AUTHGUARD_STORE_URL",
    show_envvar=True,
    help="A Valkey to count on; without one, an embedded server is started for the replay. A live"
    " one is safe: a replay's keys are its own, and it takes them away.",
)
@click.option(
    "--year",
    type=click.IntRange(1970, 9000),
    help="Year of the log's first line, where its lines don't say. Default: the latest that puts"
    " no line after the file's own date.",
)
def replay_command(
    log: str, policy: str | None, as_json: bool, store_url: str | None, year: int | None
) -> None:
    """
    Run the sign-in tries recorded in LOG, an OpenSSH server's log, through the login policy.

    Tells how many tries would have been admitted and refused, by which limit, for which clients
    and accounts, and how long the worst offender would have been kept out. Tries are passwords
    and keyboard-interactive answers; times are the log's own. LOG may be - for standard input.
    """
    with ExitStack() as ending:
        try:
            recorded = read_sshd_log("/dev/stdin" if log == "-" else log, year=year)
            policies = load_policies(policy)
            if not store_url:
                store_url = ending.enter_context(_own_server())
            report = replay(
                recorded,
                store_url,
                policies=policies,
                policy_name=_policy_name(policy, policies),
                progress=ending.enter_context(_progress(recorded)),
            )
        except (UnreadableLogError, ConfigurationError) as error:
            raise WrongUseError(printable(str(error))) from None
        except StoreUnavailable as error:
            raise UnavailableError(_store_lost(store_url, error)) from None
    _warn(report)
    if as_json:
        click.echo(json.dumps({"log": log, **report.as_json()}))
    else:
        show(replay_table(report, log))


def _policy_name(path: str | None, policies: Mapping[str, Policy]) -> str:
    """Say what decided: a file without a table for the action leaves the default in force."""
    if path is None:
        return "default"
    same = policies["login"] == default_policies()["login"]
    return f"default ({path} changes nothing for login)" if same else path


@contextmanager
def _own_server() -> Iterator[str]:
    """Run a Valkey of our own; give its address."""
    with ExitStack() as ending:
        try:
            server = ending.enter_context(embedded_valkey())
        except ConfigurationError as error:
            raise WrongUseError(f"{error} (--store-url URL)") from None
        except StoreUnavailable as error:
            raise UnavailableError(f"{error}; name a server with --store-url") from error
        yield server.url


def _warn(report: Report) -> None:
    """Tell on standard error what a reader of the figures must know."""
    if report.damaged_lines:
        lines = (
            "1 line tells" if report.damaged_lines == 1 else f"{report.damaged_lines} lines tell"
        )
        click.echo(f"Warning: {lines} of a try but can't be read; not in the figures", err=True)
    if report.keys_left:
        click.echo(
            f"Warning: up to {report.keys_left} keys of the replay are left in the store;"
            " they end by themselves",
            err=True,
        )


@contextmanager
def _progress(log: SshdLog) -> Iterator[Callable[[int], object] | None]:
    """Show a bar on standard error, where that is a terminal and the log is long."""
    console = Console(stderr=True)
    tries = sum(sign_in.times for sign_in in log.sign_ins)
    if tries < _LONG_LOG or not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("replaying"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("replay", total=tries)
        yield lambda done: bar.advance(task, done)


def _store_lost(url: str | None, error: StoreUnavailable) -> str:
    return (
        f"{place_of(url)} gave no clear verdict ({error.reason}); start it, or leave out"
        " --store-url to use an embedded one"
    )


def app_commands() -> dict[str, click.Command]:
    """
    Give the same commands for an app, by name.

    Operators' commands find the app's desk by ``DESK`` in the context's ``meta``, so they take no
    options that say where to look.
    """
    return {
        name: command if name == "replay" else _at_the_apps_desk(command)
        for name, command in commands.commands.items()
    }


def _at_the_apps_desk(command: click.Command) -> click.Command:
    own = copy.copy(command)
    own.params = [param for param in command.params if param.name not in WHERE]
    return own
