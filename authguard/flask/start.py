"""
The look over the store and the settings at an app's start: warnings and errors go to the log.

It tells and decides nothing: an app whose store is away starts, and refuses attempts until it is
back.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import click
from flask.cli import FlaskGroup

from authguard.errors import StoreUnavailable
from authguard.flask.state import state_of

if TYPE_CHECKING:
    from flask import Flask

    from authguard.flask.state import State
    from authguard.ops.check import Finding, Setup

__all__ = ["look_over", "setup_of"]

_log = logging.getLogger("authguard")

_LEVELS: Final = {"warning": logging.WARNING, "error": logging.ERROR}

#: What the guard has logged itself.
_TOLD: Final = frozenset({"AG040", "AG041", "AG042"})


def setup_of(app: Flask) -> Setup:
    """Give what the app's settings say that its guard doesn't know."""
    from authguard.ops.check import Setup  # noqa: PLC0415 (only where a look is taken)

    state = state_of(app)
    if state is None:
        return Setup()
    # An empty list is the operator's word that there are none; nothing is no word.
    said = app.config.get("AUTHGUARD_TRUSTED_PROXIES") is not None
    proxies = len(state.settings.trusted_proxies) if said else None
    return Setup(deadline_ms=state.settings.deadline_ms, proxies=proxies)


def look_over(app: Flask, state: State) -> None:
    """
    Log what ``check`` warns of, once for each process.

    Left out for an app under test, and where the ``flask`` command loads it for anything but to
    run it. If the store is away that is all that is said, by the guard's deadline.
    """
    if app.testing or _is_for_a_command():
        return
    from authguard.ops.check import check  # noqa: PLC0415 (as above)
    from authguard.ops.check.outages import mend_of  # noqa: PLC0415 (as above)

    try:
        report = check(state.guard, setup_of(app))
    except StoreUnavailable as error:
        _log.warning(
            "%s the store gave no clear answer at the start (%s): attempts are refused until it"
            " does; %s",
            "AG076",
            error.reason,
            mend_of(error.reason),
        )
        return
    finally:
        state.guard.close()  # a server that forks its workers must not give them our connections
    # What one missing permission hides is one line, with the codes of all that can't be told.
    codes: dict[tuple[str, str, str | None], list[str]] = {}
    for finding in report.findings:
        if finding.level in _LEVELS and finding.code not in _TOLD:
            codes.setdefault(_said(finding), []).append(finding.code)
    for (level, seen, mend), same in codes.items():
        _log.log(_LEVELS[level], "%s %s; %s", ", ".join(same), seen, mend)


def _said(finding: Finding) -> tuple[str, str, str | None]:
    return finding.level, finding.seen, finding.mend


def _is_for_a_command() -> bool:
    """Tell whether the flask command loads the app for something else than to serve it."""
    context = click.get_current_context(silent=True)
    if context is None or not isinstance(context.find_root().command, FlaskGroup):
        return False
    return context.command.name != "run"
