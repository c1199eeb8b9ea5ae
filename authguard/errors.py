"""
Every error authguard raises, in one tree.

::

    AuthguardError
    ├── ConfigurationError      a setting or policy is wrong: the start is refused
    ├── DeliveryFailed          a mail server did not take a message (authguard.smtp)
    ├── InvalidInput            a value of the request can't be used: HTTP 400
    ├── TooDear                 a cost is more than a limit could ever admit
    ├── Denied                  a limit or lock refuses the attempt: HTTP 429
    │   ├── Denylisted          the client's address is on the denylist: HTTP 403
    │   ├── Overloaded          the load alone refuses the attempt: HTTP 503
    │   └── RecoveryRequired    the account is shut until its owner has recovered: HTTP 429
    └── Unavailable             no verdict can be given now: HTTP 503
        ├── StoreUnavailable    the store gave no clear verdict in time
        └── HashingUnavailable  no password hash could be computed in time

No message ever holds a raw identifier, a password, a code or a secret.
"""

from __future__ import annotations

from typing import Final

from authguard.decision import DENYLIST, RECOVERY_WAIT_MS, Decision, Verdict

__all__ = [
    "AuthguardError",
    "ConfigurationError",
    "Denied",
    "Denylisted",
    "HashingUnavailable",
    "InvalidInput",
    "Overloaded",
    "RecoveryRequired",
    "StoreUnavailable",
    "TooDear",
    "Unavailable",
    "refusal",
]


#: From here on a number is no longer written out.
_UNTOLD: Final = 10**18


class AuthguardError(Exception):
    """The root of the tree; never raised itself."""


class ConfigurationError(AuthguardError, ValueError):
    """
    A setting or policy is wrong; the message names it and the mend.

    Attributes:
        code: A stable code (``AG0xx``), listed in ``docs/errors.md``.
        where: The setting, or table and key, at fault.
    """

    def __init__(self, code: str, where: str, problem: str, mend: str) -> None:
        self.code = code
        self.where = where
        self.problem = problem
        self.mend = mend
        super().__init__(f"{code} {where}: {problem}; {mend}")


class InvalidInput(AuthguardError, ValueError):
    """
    A value of the request can't be used; names the field, never the value.

    Attributes:
        field: The field at fault, such as ``account`` or ``password``.
        problem: What is wrong with it, fit to be shown to the sender.
    """

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(f"{field}: {problem}")


class TooDear(AuthguardError, ValueError):
    """A cost is more than a limit could ever admit; nothing was charged, and no wait would help."""

    def __init__(self, cost: int, most: int, limit: str | None = None) -> None:
        whose = "any limit" if limit is None else f"the limit {most} of {limit!r}"
        # A request can ask for a number of so many digits that Python refuses to write it out.
        number = str(cost) if cost < _UNTOLD else "it"
        super().__init__(f"cost: {number} is more than {whose} could ever admit")


class Denied(AuthguardError):
    """
    At least one limit or lock refuses the attempt.

    Nothing was charged, save in limits with ``count_refused``.

    Attributes:
        decision: Who refused, and until when.
    """

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        super().__init__(decision)

    def __str__(self) -> str:
        return (
            f"{self.decision.action}: refused by {', '.join(self.decision.refused_by)};"
            f" retry after {self.decision.retry_after} s"
        )

    @property
    def action(self) -> str:
        """The action that was refused."""
        return self.decision.action

    @property
    def retry_after(self) -> int:
        """Whole seconds until the same attempt would be admitted, at least 1."""
        return self.decision.retry_after


class Overloaded(Denied):
    """
    The load alone refuses the attempt: each limit that does would admit it as a whole.

    The service is short of capacity, and the client has done nothing wrong. Nothing was charged.
    """


def refusal(decision: Decision) -> Denied:
    """Give the error of a decision that refuses: :class:`Overloaded` if the load alone does."""
    return Overloaded(decision) if decision.shed else Denied(decision)


class Denylisted(Denied):
    """
    The client's address is on the denylist; nothing was asked of the store.

    There is no wait that would end it: ``retry_after`` is a day, for clients that must have one.
    """

    def __init__(self, action: str) -> None:
        day_ms = 86_400_000
        verdict = Verdict(
            name=DENYLIST,
            limit=0,
            window_ms=0,
            refuses=True,
            locked=False,
            lock_set=False,
            remaining=0,
            retry_after_ms=day_ms,
            reset_after_ms=day_ms,
        )
        super().__init__(Decision(action, allowed=False, verdicts=(verdict,), now_ms=0))

    def __str__(self) -> str:
        return f"{self.action}: the client's address is on the denylist"


class RecoveryRequired(Denied):
    """
    The account had so many failures that it is shut until its owner has recovered.

    Outside it looks like any refusal: the wait is the constant one of a limit with ``recovery``,
    or that of the limits that refuse besides if it is longer.

    Args:
        decision: What the action's limits said.
    """

    def __init__(self, decision: Decision) -> None:
        shut = Verdict(
            name="recovery",
            limit=0,
            window_ms=0,
            refuses=True,
            locked=False,
            lock_set=False,
            remaining=0,
            retry_after_ms=RECOVERY_WAIT_MS,
            reset_after_ms=RECOVERY_WAIT_MS,
            recovery=True,
        )
        verdicts = (*decision.verdicts, shut)
        super().__init__(Decision(decision.action, False, verdicts, decision.now_ms))


class Unavailable(AuthguardError):
    """
    No verdict can be given now, so the attempt is refused; never raised itself.

    Attributes:
        reason: One short word or phrase for logs; holds nothing of the request.
        retry_after_s: Seconds a client is told to wait.
    """

    retry_after_s = 5

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class StoreUnavailable(Unavailable):
    """The store gave no clear verdict within the deadline: fail closed."""


class HashingUnavailable(Unavailable):
    """No password hash could be computed in time; says nothing about the password."""

    retry_after_s = 1
