"""What the demo prints before it is ready: where to look, who is who, and what to try."""

from __future__ import annotations

from typing import TYPE_CHECKING

from demo_app.accounts import PEOPLE

if TYPE_CHECKING:
    from demo_app.accounts import Person

_TEXT = """\
authguard demo

  Start here    {url}/
  Sign in       {url}/auth/login
  Outbox        {url}/outbox
  Valkey        {store}

Accounts (e-mail and phone do as well as the username)

{accounts}

What to try

  - Sign in as vera, sign out, and come back.
  - Give wrong passwords until you are refused{when}.
    The page counts down and lets you in when the wait is over.
  - Ask for ghost, who never existed, or for dora: the answers are everybody's.
  - Spell a name in other ways while you guess, VERA@Example.test or +1 (415) 555-0101: it stays one
    account with one budget.
  - The same from a shell. The last answer is a 429 that says how long to wait:

    for i in 1 2 3 4 5 6; do curl -si {url}/auth/login \\
      -H 'Content-Type: application/json' \\
      -d '{{"identifier": "omar", "password": "a guess"}}' |
      grep -iE '^(HTTP|Retry-After)'; done

  - And with the right password:

    curl -si {url}/auth/login \\
      -H 'Content-Type: application/json' \\
      -d '{{"identifier": "vera", "password": "correct horse vera"}}'
{outage}
Ctrl-C ends it.
"""

_OUTAGE = """\

  - Freeze Valkey. Without its verdict nobody gets in, right password or not (503):

    kill -STOP {pid}      and to let it go on:      kill -CONT {pid}
"""


def greeting(
    url: str, *, store: str, store_pid: int | None = None, default_policy: bool = True
) -> str:
    """
    The text that a newcomer reads in the terminal.

    Args:
        url: Where the demo answers, without a slash at the end.
        store: The store in words; holds no password.
        store_pid: The embedded Valkey's process, or None if it isn't ours to freeze.
        default_policy: The default profile is in force, so its numbers may be named.
    """
    return _TEXT.format(
        url=url,
        store=store,
        accounts="\n".join(map(_lines, PEOPLE)),
        when=": the sixth within 15 minutes" if default_policy else "",
        outage="" if store_pid is None else _OUTAGE.format(pid=store_pid),
    )


def _lines(person: Person) -> str:
    """One account with its password, and below it what is special about it."""
    line = f"  {person.username:<6}{person.email:<20}{person.phone:<15}{person.password}"
    if not person.active:
        line += "\n        is disabled, and so refused like a wrong password"
    if person.second_factor:
        line += "\n        has a second factor; codes are not sent yet, so there is no way in yet"
    return line
