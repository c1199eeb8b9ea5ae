"""
What operators did to a subject, when and why: the last acts, kept sealed in the store. Private.

A subject is what an operator can name: an account, a client, a network, or an account from one
client. Its record stands beside its logs. Key and seal are made with the guard's secret, so that a
copy of the store shows neither whose it is nor what was written.
"""

from __future__ import annotations

import json
import logging
import secrets
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from authguard._colours import awaited, blocking
from authguard._core import calls, groups
from authguard._core.keys import record_key
from authguard._core.sealed import SALT_BYTES, seal, unseal
from authguard.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from authguard._core.steps import Steps
    from authguard._engine import Engine
    from authguard._subjects import Known
    from authguard.identity import Address, Pseudonyms

__all__ = [
    "KEPT",
    "LIFE_MS",
    "LONGEST_TEXT",
    "Act",
    "AsyncNotes",
    "Notes",
    "NotesSteps",
    "check_text",
]

#: How many acts are kept for one subject, and for how long after the last one.
KEPT: Final = 10
LIFE_MS: Final = 90 * 86_400_000

#: Longest name of an operator, and longest reason, in characters.
LONGEST_TEXT: Final = 200

_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})

_ClientAddress: TypeAlias = "str | Address | None"

_log = logging.getLogger("authguard")


@dataclass(frozen=True, slots=True)
class Act:
    """
    One act of an operator.

    Attributes:
        act: What was done.
        on: What it was done to: ``account``, ``client``, ``network``, or the first two together.
        at_ms: When, milliseconds since the epoch.
        by: Who did it.
        reason: Why; None where nobody said.
        actions: For which actions; none: for every one.
        until_ms: When a block or override ends by itself, milliseconds since the epoch; None: it
            has no end, or is none.
        limit: Which limit was overridden; None for other acts.
        to: With which numbers, or ``exempt``; None: the override was taken back.
    """

    act: Literal["unlock", "block", "override"]
    on: tuple[str, ...]
    at_ms: int
    by: str
    reason: str | None = None
    actions: tuple[str, ...] = ()
    until_ms: int | None = None
    limit: str | None = None
    to: str | None = None

    @property
    def about(self) -> str:
        """For what it was done: the actions, or an action's limit and its numbers; may be empty."""
        actions = ", ".join(self.actions)
        if self.limit is None:
            return actions
        return f"{actions}, {self.limit}: {self.to or 'as in the policy'}"


class Named(Protocol):
    """Reads whom an operator names: what is known of it, and the parts that it counts by."""

    def __call__(
        self, account: str | None, client: _ClientAddress, network: _ClientAddress
    ) -> tuple[Known, tuple[str, ...]]:
        """Raise ``InvalidInput`` or ``ValueError`` for what can't be meant."""
        ...


class NotesSteps:
    """
    Operators' last acts: the steps of both faces, :class:`Notes` and :class:`AsyncNotes`.

    What is added is read, lengthened and written back, so of two acts at the same moment one may
    be missing here. The log has a line for each.
    """

    def __init__(self, engine: Engine, named: Named) -> None:
        self._engine = engine
        self._named = named

    def _add(
        self,
        act: Act,
        *,
        account: str | None = None,
        client: _ClientAddress = None,
        network: _ClientAddress = None,
    ) -> Steps[None]:
        """
        Keep an act as the subject's last one; of more than ten the oldest goes.

        Raises:
            StoreUnavailable: If the store gave no clear answer.
            InvalidInput: If a text is too long or holds what can't be seen.
        """
        check_text(act.by, "by")
        if act.reason is not None:
            check_text(act.reason, "reason")
        known, on = self._named(account, client, network)
        earlier = yield from self._read(known, on)
        acts = (act, *earlier)[:KEPT]
        key, secret = _record(self._engine.pseudonyms[0], known.pseudonyms[0], on)
        sealed = seal(secret, secrets.token_bytes(SALT_BYTES), _as_text(acts))
        yield calls.put(key, sealed, life_ms=LIFE_MS, now_ms=self._engine.now_ms(None))

    def _last(
        self,
        *,
        account: str | None = None,
        client: _ClientAddress = None,
        network: _ClientAddress = None,
    ) -> Steps[tuple[Act, ...]]:
        """
        Give what operators did to the subject, the last act first.

        Raises:
            StoreUnavailable: If the store gave no clear answer.
        """
        return (yield from self._read(*self._named(account, client, network)))

    def subject(
        self,
        *,
        account: str | None = None,
        client: _ClientAddress = None,
        network: _ClientAddress = None,
    ) -> str:
        """Give the subject's pseudonym, for logs; an account's is that of ``Guard.subject``."""
        known, on = self._named(account, client, network)
        return known.pseudonyms[0][on[0]][:8].hex()

    def _read(self, known: Known, on: tuple[str, ...]) -> Steps[tuple[Act, ...]]:
        """Join what stands under each of the guard's secrets."""
        records = [
            _record(pseudonyms, of, on)
            for pseudonyms, of in zip(self._engine.pseudonyms, known.pseudonyms, strict=True)
        ]
        found = yield from groups.read(
            tuple(key for key, _ in records),
            now_ms=self._engine.now_ms(None),
            spread=self._engine.spread,
        )
        acts: list[Act] = []
        for (_, secret), sealed in zip(records, found, strict=True):
            if sealed is not None:
                acts.extend(act for act in _acts(secret, sealed) if act not in acts)
        return tuple(sorted(acts, key=lambda act: act.at_ms, reverse=True)[:KEPT])


class Notes(NotesSteps):
    """Operators' last acts; ``Guard.notes``."""

    add = blocking(NotesSteps._add)
    last = blocking(NotesSteps._last)


class AsyncNotes(NotesSteps):
    """The same with ``await``; ``AsyncGuard.notes``."""

    add = awaited(NotesSteps._add)
    last = awaited(NotesSteps._last)


def check_text(text: str, field: str) -> str:
    """
    Give what an operator wrote, without the blanks around it.

    Raises:
        InvalidInput: If it is empty, too long, or holds characters that nobody can see.
    """
    text = text.strip()
    if not 1 <= len(text) <= LONGEST_TEXT:
        raise InvalidInput(field, f"must have 1 to {LONGEST_TEXT} characters")
    if any(unicodedata.category(character) in _UNSEEN for character in text):
        raise InvalidInput(field, "must not hold control or invisible characters")
    return text


def _record(
    pseudonyms: Pseudonyms, of: Mapping[str, bytes], on: tuple[str, ...]
) -> tuple[str, bytes]:
    """Name the subject's record, and make the secret that it is sealed under."""
    fields = [field for part in on for field in (part, of[part].hex())]
    name = pseudonyms.mac("notes", *fields)
    return record_key(of[on[0]], name), pseudonyms.mac("seal of notes", *fields)


def _as_text(acts: tuple[Act, ...]) -> str:
    rows = [
        [
            *(it.act, list(it.on), it.at_ms, it.by, it.reason, list(it.actions), it.until_ms),
            *(() if it.limit is None else (it.limit, it.to)),  # as before, but for overrides
        ]
        for it in acts
    ]
    return json.dumps(rows, separators=(",", ":"))


def _acts(secret: bytes, sealed: bytes) -> list[Act]:
    """Read a record; one that somebody has written over must not keep an operator from work."""
    try:
        rows = json.loads(unseal(secret, sealed))
        return [
            Act(
                act, tuple(on), int(at_ms), str(by), reason, tuple(actions), until_ms, *limit_and_to
            )
            for act, on, at_ms, by, reason, actions, until_ms, *limit_and_to in rows
        ]
    except (ValueError, TypeError):
        _log.warning("the notes on an operator's subject can't be read and are left out")
        return []
