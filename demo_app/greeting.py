"""What the demo prints before it is ready: where to look, who is who, and what to try."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from demo_app.accounts import PEOPLE

if TYPE_CHECKING:
    from demo_app.accounts import Person

_TEXT: Final = """\
authguard demo

  Start here    {url}/
  Sign in       {url}/auth/login
  Outbox        {url}/outbox   (all mails and text messages)
  Load          {url}/load     (who gets through when the service is short of capacity)
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
  - Sign in as tess, whose password alone is not enough: her code is in the outbox.
  - As vera take "Sign in with a code" or "Forgot your password?" on the sign-in page: the code or
    the link is in the outbox.

From a shell

  - Guess. The last answer is a 429 that says how long to wait:

    for i in 1 2 3 4 5 6; do curl -si {url}/auth/login \\
      -H 'Content-Type: application/json' \\
      -d '{{"identifier": "ghost", "password": "a guess"}}' |
      grep -iE '^(HTTP|Retry-After)'; done

  - Sign in with the right password:

    curl -si {url}/auth/login \\
      -H 'Content-Type: application/json' \\
      -d '{{"identifier": "vera", "password": "correct horse vera"}}'

  - Sign in with a code: send one, read it in the outbox, give it back:

    ask() {{ curl -s {url}/auth/otp/$1 -H 'Content-Type: application/json' -d "$2"; }}
    challenge=$(ask send '{{"identifier": "vera", "channel": "sms"}}' |
      sed -E 's/.*"challenge": *"([^"]*)".*/\\1/')
    code=$(curl -s {url}/outbox.json | grep -oE '"code": *"[0-9]+"' |
      head -n 1 | tr -dc 0-9)
    ask verify "{{\\"challenge\\": \\"$challenge\\", \\"code\\": \\"$code\\"}}"
{lock}
  - Look after it, as an operator does:

    . {operate}
    {flask} authguard status login omar
    {flask} authguard unlock --account omar
{outage}
Ctrl-C ends it.
"""

# The account's own limit is higher than what one client has: it takes a second client to fill it.
_LOCK: Final = """\

  - Lock omar out: sign in as omar in a browser and out again, then guess from three addresses
    (Linux has all of 127.0.0.0/8):

    for a in 2 3 4; do for i in 1 2 3 4 5; do curl -so /dev/null -w '%{{http_code}} ' \\
      --interface 127.0.0.$a {url}/auth/login -H 'Content-Type: application/json' \\
      -d '{{"identifier": "omar", "password": "a guess"}}'; done; done; echo

    The browser is known to be his, so it still lets him in; another one has to wait, or to open
    the link in the mail that he has got.
"""

_OUTAGE: Final = """\

  - Freeze Valkey. Without its verdict nobody gets in, right password or not (503):

    kill -STOP {pid}      and to let it go on:      kill -CONT {pid}
"""


def greeting(
    url: str,
    *,
    store: str,
    operate: str,
    flask: str,
    store_pid: int | None = None,
    default_policy: bool = True,
) -> str:
    """
    The text that a newcomer reads in the terminal.

    Args:
        url: Where the demo answers, without a slash at the end.
        store: The store in words; holds no password.
        operate: The file that makes a shell speak to this run.
        flask: The flask command, as it is called from here.
        store_pid: The embedded Valkey's process, or None if it isn't ours to freeze.
        default_policy: The default profile is in force, so its numbers may be named.
    """
    loopback = (urlsplit(url).hostname or "").startswith("127.")
    return _TEXT.format(
        url=url,
        store=store,
        accounts="\n".join(map(_lines, PEOPLE)),
        when=": the sixth within 15 minutes" if default_policy else "",
        lock=_LOCK.format(url=url) if default_policy and loopback else "",
        operate=operate,
        flask=flask,
        outage="" if store_pid is None else _OUTAGE.format(pid=store_pid),
    )


def _lines(person: Person) -> str:
    """One account with its password, and below it what is special about it."""
    line = f"  {person.username:<6}{person.email:<20}{person.phone:<15}{person.password}"
    if not person.active:
        line += "\n        is disabled, and so refused like a wrong password"
    if person.second_factor:
        line += "\n        has a second factor: after the password, a code by text message"
    return line
