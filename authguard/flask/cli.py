"""
``flask authguard …``: the same commands, at the app's own desk.

They use the app's guard, so its store, policies, normaliser and look-up count as they do in
requests. Loaded when one is called: an app's start must not wait for tables it doesn't print.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
from flask.cli import with_appcontext

from authguard.flask import signals
from authguard.flask.start import setup_of
from authguard.flask.state import current_app_object, current_state

if TYPE_CHECKING:
    from flask import Flask

    from authguard.ops.check import Setup
    from authguard.ops.desk import Desk, Event

__all__ = ["add_commands"]

_NAME: Final = "authguard"


def add_commands(app: Flask) -> None:
    """Add the group to the app's own commands, unless it has one of that name."""
    if _NAME not in app.cli.commands:
        app.cli.add_command(_AppCommands(_NAME, help="Look after sign-in: its counts and locks."))


class _AppCommands(click.Group):
    """Finds its commands when it is asked for them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's own)
        """Name them."""
        return sorted(self._found())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Give one, and say where it works."""
        found = self._found().get(cmd_name)
        from authguard.cli import DESK, SETUP  # noqa: PLC0415 (see the module)

        ctx.meta[DESK] = with_appcontext(_desk)
        ctx.meta[SETUP] = with_appcontext(_setup)
        return found

    def _found(self) -> dict[str, click.Command]:
        try:
            from authguard.cli import app_commands  # noqa: PLC0415 (see the module)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "rich":
                raise
            raise click.UsageError(
                "the command line needs rich, which is not installed; pip install 'authguard[cli]'"
            ) from None
        return app_commands()


def _desk() -> Desk:
    from authguard.ops.desk import Desk  # noqa: PLC0415 (see the module)

    state = current_state()
    members = None if state.messaging is None else state.messaging.members
    return Desk(state.guard, members, tell=_tell, word=_word)


def _setup() -> Setup:
    return setup_of(current_app_object())


def _word(account: str) -> str | None:
    """Say that nobody has a name, where the app can tell."""
    look_up = current_state().look_up
    if look_up.accounts is None and look_up.resolve is None:
        return None
    if look_up(account) is not None:
        return None
    return "nobody has that name: it counts by its spelling; --exact takes a key as it is"


def _tell(event: Event) -> None:
    """Send the signals of an act: one for each action that is named, and one for each lock."""
    app, act = current_app_object(), event.act
    for action in act.actions or (None,):
        signals.send(
            signals.operator_acted,
            app,
            act=act.act,
            action=action,
            reason=act.reason,
            by=act.by,
            subject=event.subject,
            limit=act.limit,
            to=act.to,
        )
    for action in event.unlocked:
        signals.send(
            signals.account_unlocked,
            app,
            action=action,
            cause="operator",
            subject=event.subject if "account" in act.on else None,
        )
