"""The operators' command ``check``: a look over the store and the settings. Needs ``cli``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import click

from authguard._operators import DESK, open_desk, where_options
from authguard._terminal import EXIT_STATUS, UnavailableError, place_of, show
from authguard.errors import StoreUnavailable
from authguard.ops.check import check
from authguard.ops.check.outages import mend_of
from authguard.ops.check_table import check_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard.ops.check import Setup

__all__ = ["SETUP", "check_command"]

#: Where a context keeps the function that gives the app's set-up, in its ``meta``.
SETUP: Final = "authguard.setup"

_CHECK_STATUS: Final = f"{EXIT_STATUS}  3  there is something to mend: a warning or an error\n"
_TO_MEND: Final = 3


@click.command("check", epilog=_CHECK_STATUS, short_help="Look the store and the settings over.")
@where_options
@click.pass_context
def check_command(
    ctx: click.Context,
    *,
    as_json: bool,
    store_url: str | None = None,
    policy: str | None = None,
) -> None:
    """
    Look the store and the settings over: each finding with its code, and what to do about it.

    Tells which server answers, and whether attempts can do on it what they need; whether limits of
    a day or more survive its restart, and how much of them a crash takes; what a full memory does,
    and how much is left; of a cluster, whether all of it is served; and what is to be said of the
    policies, the secret and an app's settings. Nothing is written. What the server's ACL hides is a
    warning.
    """
    apps_setup: Callable[[], Setup] | None = ctx.meta.get(SETUP)
    with open_desk(store_url, policy) as desk:
        try:
            report = check(desk.guard, None if apps_setup is None else apps_setup())
        except StoreUnavailable as error:
            place = "the store" if DESK in ctx.meta else place_of(store_url)
            raise UnavailableError(
                f"{place} gave no clear answer ({error.reason}); {mend_of(error.reason)}"
            ) from None
    if as_json:
        click.echo(json.dumps(report.as_json()))
    else:
        show(check_table(report))
    if not report.ok:
        ctx.exit(_TO_MEND)
