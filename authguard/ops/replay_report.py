"""What a replay found: plain values, and the counting that leads to them."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from authguard.decision import Decision
    from authguard.ops.sshd_log import SignIn, SshdLog

__all__ = ["ReplayCount", "Report", "Tally", "WorstOffender"]

#: How many clients and accounts a report names (the contract of the command line).
_TOP: Final = 10


@dataclass(frozen=True, slots=True)
class Tally:
    """
    How one client or account fared.

    Attributes:
        key: The client's address in its canonical form, or the account as the log spells it.
        attempts: Its tries, the sum of the next two.
        admitted: Those that would have reached the password check.
        refused: Those that would not.
    """

    key: str
    attempts: int
    admitted: int
    refused: int


@dataclass(frozen=True, slots=True)
class WorstOffender:
    """
    The client that was refused most often, the first of a report's clients.

    Attributes:
        key: Its address.
        refused: How often it was refused.
        kept_out_ms: For how long it was kept out, in milliseconds of the log's time: each refusal
            keeps it out from its own moment until ``retry_after`` later, and time that several
            refusals cover counts once (the length of the union of those spans). The last span
            may end after the log does. What was refused by a limit of an account counts too,
            though another account might have been open to the client.
    """

    key: str
    refused: int
    kept_out_ms: int


@dataclass(frozen=True, slots=True)
class Report:
    """
    What a policy would have done to the tries of a log.

    Attributes:
        policy: Where the limits came from: ``default``, or the policy file.
        lines: Lines of the log.
        other_lines: Those that tell of no try.
        damaged_lines: Those that tell of a try, but can't be replayed.
        assumed_year: The first line's year, if it had to be assumed; else None.
        first_ms: When the first try was, in milliseconds since 1970; None without tries.
        last_ms: When the last one was.
        attempts: All tries, the sum of the next two, and of ``failures`` and ``successes``.
        admitted: Tries that no limit refused: the guesses an attacker would have had.
        refused: Tries that at least one limit refused.
        failures: Tries with a wrong credential.
        successes: Tries with the right one.
        successes_refused: Of those, how many would have been refused: people kept out.
        malformed: Tries under a name that can't be used, which only their client is charged for;
            admitted by the limits, such a request is still answered 400.
        by_limit: For each limit that refused any, how many. One try refused by two limits counts
            in both.
        clients: The ten most refused clients, the most refused first; only those refused at all.
        accounts: The same for accounts.
        worst_offender: The client refused most, and how long it was kept out; None if none was.
        keys_left: Keys that could not be taken out of the store again; they end by themselves.
        wall_ms: How long the replay took, in milliseconds.
    """

    policy: str
    lines: int
    other_lines: int
    damaged_lines: int
    assumed_year: int | None
    first_ms: int | None
    last_ms: int | None
    attempts: int
    admitted: int
    refused: int
    failures: int
    successes: int
    successes_refused: int
    malformed: int
    by_limit: Mapping[str, int]
    clients: tuple[Tally, ...]
    accounts: tuple[Tally, ...]
    worst_offender: WorstOffender | None
    keys_left: int
    wall_ms: int

    def as_json(self) -> dict[str, Any]:
        """Give plain JSON values, the times as RFC 3339 text besides."""
        return {
            **asdict(self),
            "first_at": None if self.first_ms is None else rfc_3339(self.first_ms),
            "last_at": None if self.last_ms is None else rfc_3339(self.last_ms),
        }


def rfc_3339(at_ms: int) -> str:
    """Give a moment as text, in UTC and to the second."""
    moment = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


@dataclass(slots=True)
class _Count:
    """One client's or account's tries so far."""

    attempts: int = 0
    refused: int = 0
    kept_out_ms: int = 0
    out_until_ms: int = 0

    def keep_out(self, from_ms: int, until_ms: int) -> None:
        """Add a span to the union; spans come in the order of their beginnings."""
        self.kept_out_ms += max(0, until_ms - max(from_ms, self.out_until_ms))
        self.out_until_ms = max(self.out_until_ms, until_ms)


class ReplayCount:
    """Counts tries as they are decided, in order of time."""

    def __init__(self) -> None:
        self._by_limit: Counter[str] = Counter()
        self._clients: dict[str, _Count] = {}
        self._accounts: dict[str, _Count] = {}
        self._attempts = 0
        self._refused = 0
        self._successes = 0
        self._successes_refused = 0
        self._malformed = 0

    def add(self, sign_in: SignIn, refusal: Decision | None, *, malformed: bool) -> None:
        """Count one try; ``refusal`` is None where it was admitted."""
        client = self._clients.setdefault(str(sign_in.client), _Count())
        account = self._accounts.setdefault(sign_in.account, _Count())
        refused = refusal is not None
        self._attempts += 1
        self._refused += refused
        self._successes += sign_in.succeeded
        self._successes_refused += sign_in.succeeded and refused
        self._malformed += malformed
        for count in (client, account):
            count.attempts += 1
            count.refused += refused
        if refusal is not None:
            self._by_limit.update(refusal.refused_by)
            client.keep_out(sign_in.at_ms, sign_in.at_ms + refusal.retry_after_ms)

    def report(self, log: SshdLog, *, policy: str, keys_left: int, wall_ms: int) -> Report:
        """Sum up."""
        clients = _most_refused(self._clients.items())
        worst = None
        if clients:
            top = clients[0]
            worst = WorstOffender(top.key, top.refused, self._clients[top.key].kept_out_ms)
        return Report(
            policy=policy,
            lines=log.lines,
            other_lines=log.other_lines,
            damaged_lines=log.damaged_lines,
            assumed_year=log.assumed_year,
            first_ms=log.sign_ins[0].at_ms if log.sign_ins else None,
            last_ms=log.sign_ins[-1].at_ms if log.sign_ins else None,
            attempts=self._attempts,
            admitted=self._attempts - self._refused,
            refused=self._refused,
            failures=self._attempts - self._successes,
            successes=self._successes,
            successes_refused=self._successes_refused,
            malformed=self._malformed,
            by_limit=dict(self._by_limit.most_common()),
            clients=clients,
            accounts=_most_refused(self._accounts.items()),
            worst_offender=worst,
            keys_left=keys_left,
            wall_ms=wall_ms,
        )


def _most_refused(counts: Iterable[tuple[str, _Count]]) -> tuple[Tally, ...]:
    """Give the ten most refused; of equals the busier one first, then by key."""
    tallies = [
        Tally(key, count.attempts, count.attempts - count.refused, count.refused)
        for key, count in counts
        if count.refused
    ]
    tallies.sort(key=lambda tally: (-tally.refused, -tally.attempts, tally.key))
    return tuple(tallies[:_TOP])
