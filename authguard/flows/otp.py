"""The story of a one-time code: limits, then a code, then a message; and limits, then the check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from authguard.errors import InvalidInput
from authguard.flows.login import Checked, ReservedAttempt

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard.accounts import Member, Members
    from authguard.one_time import Holder

__all__ = ["DIGITS", "SECOND_FACTOR", "SIGN_IN", "Codes", "Sent", "check_code", "send_code"]

#: What a code is for: the only proof, or the second after a password. One is no proof for the
#: other.
SIGN_IN: Final = "sign-in"
SECOND_FACTOR: Final = "second-factor"

#: Digits by purpose. Six are enough beside a password (ASVS 5.0, 6.5.4: 20 bits); where the code
#: is the only factor, eight keep a guess at each of 100,000 accounts from opening one.
DIGITS: Final = {SIGN_IN: 8, SECOND_FACTOR: 6}

AttemptT = TypeVar("AttemptT", bound=ReservedAttempt)


class Codes(Protocol):
    """What issues and takes codes; :class:`authguard.one_time.OneTime` does."""

    def issue_code(
        self, holder: Holder, *, digits: int, life_ms: int, challenge: str | None = None
    ) -> tuple[str, str]:
        """Make a code the one live code of its holder; give the challenge's id and the code."""

    def holder(self, bearer: str) -> Holder | None:
        """Tell whose challenge it is."""

    def take_code(self, holder: Holder, challenge: str, code: str) -> bool:
        """Compare, and use up what is right, in one step."""


@dataclass(frozen=True, slots=True)
class Sent:
    """
    What the one who asked for a code is told, whether or not there is an account.

    Attributes:
        challenge: The challenge's id.
        next_send_s: Whole seconds until the next code may be asked for.
    """

    challenge: str
    next_send_s: int


def send_code(
    holder: Holder,
    *,
    challenge: str | None,
    reserve: Callable[[], object],
    codes: Codes,
    life_ms: int,
    send: Callable[[str, str], None],
    next_send_s: Callable[[], int],
) -> Sent:
    """
    Make a new code live and send it.

    The same steps for a name that nobody has: its code can't be entered, and ``send`` sends
    nothing.

    Args:
        holder: Whose code it is, and what for.
        challenge: The challenge that goes on with the new code, if it lives.
        reserve: Reserves the sending; raises ``Denied`` and ``StoreUnavailable``. What it
            reserved stays, whatever becomes of the message.
        codes: Makes the code.
        life_ms: How long it lives, in milliseconds.
        send: Sends challenge and code in the background; for a name of nobody, does as much.
        next_send_s: Tells the wait until the next one.

    Raises:
        Denied: A limit refuses; there is no new code, and the one before still works.
        StoreUnavailable: The store gave no answer; nothing is sent.
    """
    reserve()
    wait_s = next_send_s()  # before the code: if the store falls silent now, the one before lives
    challenge, code = codes.issue_code(
        holder, digits=DIGITS[holder.purpose], life_ms=life_ms, challenge=challenge
    )
    send(challenge, code)  # last of all: what it sets going must not slow this answer down
    return Sent(challenge, wait_s)


def check_code(
    read: Callable[[], tuple[str, str]],
    *,
    reserve: Callable[[Holder, Member | None, str], AttemptT],
    charge_client: Callable[[], None],
    codes: Codes,
    accounts: Members,
) -> tuple[Holder, str, str, Checked[AttemptT]] | None:
    """
    Check a code, and tell whose it is.

    Whose it is comes from the challenge alone, never from a field of the request. What is no code
    of the right form is a wrong code.

    Args:
        read: Gives the challenge's id and the code, or raises ``InvalidInput``.
        reserve: Reserves an attempt by the challenge's account; raises ``Denied`` and
            ``StoreUnavailable``.
        charge_client: Counts a request whose challenge is nobody's against its client alone.
        codes: Takes the code.
        accounts: Finds the account.

    Returns:
        Whose challenge, its id, the code, and how it was found; None for a challenge that was
        never issued or is over.

    Raises:
        Denied: A limit refuses; the code was not looked at and is not used up.
        StoreUnavailable: The store gave no answer.
        InvalidInput: The request can't be used; it was charged to the client.
    """
    try:
        challenge, code = read()
    except InvalidInput:
        charge_client()
        raise
    holder = codes.holder(challenge)
    if holder is None or holder.purpose not in DIGITS:
        charge_client()
        return None
    found = accounts.get(holder.account)  # for a name of nobody as well: it takes time
    account = found if holder.known else None
    attempt = reserve(holder, account, challenge)
    right = _is_code(code, DIGITS[holder.purpose]) and codes.take_code(holder, challenge, code)
    if not right or account is None or not account.active or account.session_stamp != holder.stamp:
        return holder, challenge, code, Checked(account, proved=False, attempt=attempt)
    if account.second_factor and holder.purpose == SIGN_IN:  # switched on since it was sent
        return holder, challenge, code, Checked(account, proved=False, attempt=attempt)
    attempt.succeed()
    return holder, challenge, code, Checked(account, proved=True, attempt=attempt)


def _is_code(code: str, digits: int) -> bool:
    """Tell whether the text is so many ASCII digits: other scripts have digits, too."""
    return len(code) == digits and code.isascii() and code.isdecimal()
