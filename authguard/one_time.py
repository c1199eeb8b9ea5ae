"""
One-time secrets: codes and links. Kept as HMACs, bound to what they are for, taken at most once.

Two records stand for each. What the owner holds (a challenge's id, a link's token) names one that
tells whose it is, sealed under that very text; and the account and purpose name the one secret
that is live, so a newer one takes an older one's place. Comparing and taking is one script: of any
number of right answers at once, one is the first.
"""

from __future__ import annotations

import hmac
import json
import secrets
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from authguard._colours import awaited, blocking
from authguard._core import calls, groups
from authguard._core.keys import record_key
from authguard._core.sealed import SALT_BYTES, seal, unseal
from authguard.checks import is_unicode
from authguard.identity.accounts import AccountKey

if TYPE_CHECKING:
    from authguard._core.steps import Steps
    from authguard._engine import Engine
    from authguard.identity import Pseudonyms

__all__ = ["AsyncOneTime", "Holder", "OneTime", "OneTimeSteps"]

#: Bytes of a challenge's id and of the nonce that it is made from; 128 bits can't be guessed.
_NONCE: Final = 16

#: Bytes of a link's token: 256 bits, as ASVS 5.0 wants of reset tokens (11.5.1 asks for 128).
_TOKEN: Final = 32

#: Longest text that is looked up as somebody's challenge or token.
_LONGEST_BEARER: Final = 128


@dataclass(frozen=True, slots=True)
class Holder:
    """
    Whose secret it is, and what it is for.

    Attributes:
        account: The account's key, or the name in its one spelling if it names nobody.
        known: Whether there is such an account. What is issued for a name that is nobody's costs
            the same and can be taken by nobody.
        purpose: Such as ``sign-in``; a secret for one purpose is none for another.
        channel: How it was sent.
        stamp: The account's session stamp when it was issued; under another one it is over.
        nonce: What the challenge's id is made from.
        issued_under: Which of the guard's secrets names the records, 0 for the newest.
    """

    account: AccountKey
    known: bool
    purpose: str
    channel: str = ""
    stamp: str = ""
    nonce: str = field(default="", compare=False, repr=False)
    issued_under: int = 0

    @property
    def fields(self) -> tuple[str, str, str]:
        """What the records are named by."""
        return self.purpose, "known" if self.known else "unknown", self.account


class OneTimeSteps:
    """The steps of both faces, :class:`OneTime` and :class:`AsyncOneTime`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def _issue_code(
        self, holder: Holder, *, digits: int, life_ms: int, challenge: str | None = None
    ) -> Steps[tuple[str, str]]:
        """
        Make a code the account's one live code for this purpose; the one before is dead.

        Args:
            holder: Whose it is.
            digits: How many digits.
            life_ms: How long it lives, in milliseconds.
            challenge: A challenge of the same holder that is to go on with the new code. It does
                whatever became of its last code, so that nobody can tell whether that was sent.

        Returns:
            The challenge's id, and the code: uniform, with leading zeros.

        Raises:
            StoreUnavailable: If the store gave no clear answer; nothing must be sent.
        """
        pseudonyms = self._engine.pseudonyms[0]
        opened = None if challenge is None else (yield from self._holder(challenge))
        if opened is None or challenge != _challenge(pseudonyms, holder, opened.nonce):
            holder = replace(holder, nonce=secrets.token_hex(_NONCE))
        else:
            holder = replace(holder, nonce=opened.nonce)
        challenge = _challenge(pseudonyms, holder, holder.nonce)
        code = f"{secrets.randbelow(10**digits):0{digits}}"
        proof = _proof(pseudonyms, holder, challenge, code)
        if not holder.known:
            proof = secrets.token_bytes(len(proof))  # no code makes this one
        yield from self._put(
            _bearer_key(pseudonyms, challenge), _sealed(challenge, holder), life_ms
        )
        yield from self._make_live(holder, bytes.fromhex(holder.nonce) + proof, life_ms)
        return challenge, code

    def _live_challenge(self, holder: Holder) -> Steps[str | None]:
        """
        Give the id of the challenge whose code is live for this account and purpose, or None.

        Raises:
            StoreUnavailable: If the store gave no clear answer.
        """
        records = yield from self._live(holder)
        for pseudonyms, record in zip(self._engine.pseudonyms, records, strict=True):
            if record:
                return _challenge(pseudonyms, holder, record[:_NONCE].hex())
        return None

    def _issue_link(self, holder: Holder, *, bound_to: tuple[str, ...], life_ms: int) -> Steps[str]:
        """
        Make a token the account's one live link for this purpose; the one before is dead.

        Args:
            holder: Whose it is.
            bound_to: Texts that the link dies with when one of them changes, such as the hash of
                the password.
            life_ms: How long it lives, in milliseconds.

        Returns:
            The token: 256 bits as 43 characters, fit for a URL.

        Raises:
            StoreUnavailable: If the store gave no clear answer; nothing must be sent.
        """
        pseudonyms = self._engine.pseudonyms[0]
        token = _text(secrets.token_bytes(_TOKEN))
        proof = _proof(pseudonyms, holder, token, *bound_to)
        yield from self._put(_bearer_key(pseudonyms, token), _sealed(token, holder), life_ms)
        yield from self._make_live(holder, bytes(_NONCE) + proof, life_ms)
        return token

    def _holder(self, bearer: str) -> Steps[Holder | None]:
        """
        Tell whose challenge or token it is; None for what was never issued, or is over.

        Args:
            bearer: The challenge's id, or the link's token, as it came back.

        Raises:
            StoreUnavailable: If the store gave no clear answer.
        """
        if len(bearer) > _LONGEST_BEARER or not is_unicode(bearer):
            bearer = ""  # asked all the same: nobody issued this one
        all_secrets = self._engine.pseudonyms
        keys = tuple(_bearer_key(each, bearer) for each in all_secrets)
        records = yield from self._read(keys)
        for issued_under, record in enumerate(records):
            if record:
                fields: list[Any] = json.loads(unseal(bearer.encode(), record))
                purpose, known, account, channel, stamp, nonce = fields
                key = AccountKey(account)
                return Holder(key, known, purpose, channel, stamp, nonce, issued_under)
        return None

    def _take_code(self, holder: Holder, challenge: str, code: str) -> Steps[bool]:
        """
        Compare a code with the live one, and use it up if it is right; both in one step.

        Args:
            holder: As :meth:`holder` gave it for the challenge.
            challenge: The challenge's id.
            code: What was typed.

        Raises:
            StoreUnavailable: If the store gave no clear answer. The code may be used up.
        """
        return (yield from self._take(holder, challenge, code))

    def _is_live(self, holder: Holder, token: str, *, bound_to: tuple[str, ...]) -> Steps[bool]:
        """
        Tell whether a link could be used now; it is not used up, and may be by somebody else.

        Args:
            holder: As :meth:`holder` gave it for the token.
            token: The token.
            bound_to: What it is bound to, as it is now.

        Raises:
            StoreUnavailable: If the store gave no clear answer.
        """
        pseudonyms = self._engine.pseudonyms[holder.issued_under]
        proof = _proof(pseudonyms, holder, token, *bound_to)
        record = (yield from self._live(holder))[holder.issued_under]
        return hmac.compare_digest(record[_NONCE:], proof)

    def _take_link(self, holder: Holder, token: str, *, bound_to: tuple[str, ...]) -> Steps[bool]:
        """
        Use a link up if it is the live one; of parallel tries one is told True.

        Args:
            holder: As :meth:`holder` gave it for the token.
            token: The token.
            bound_to: What it is bound to, as it is now.

        Raises:
            StoreUnavailable: If the store gave no clear answer. The link may be used up.
        """
        return (yield from self._take(holder, token, *bound_to))

    def message_id(self, holder: Holder, challenge: str, code: str) -> bytes:
        """Give the five bytes that name a code's message among those of its range."""
        pseudonyms = self._engine.pseudonyms[holder.issued_under]
        return pseudonyms.mac("message", *holder.fields, challenge, code)[:5]

    def _live(self, holder: Holder) -> Steps[tuple[bytes, ...]]:
        """Give what is live, under each secret; empty where nothing is."""
        keys = tuple(_live_key(each, holder) for each in self._engine.pseudonyms)
        records = yield from self._read(keys)
        return tuple(record or b"" for record in records)

    def _read(self, keys: tuple[str, ...]) -> Steps[tuple[bytes | None, ...]]:
        return groups.read(keys, now_ms=self._engine.now_ms(None), spread=self._engine.spread)

    def _make_live(self, holder: Holder, record: bytes, life_ms: int) -> Steps[None]:
        """Put the one live secret in place; what an older secret still names is over."""
        newest, *older = (_live_key(each, holder) for each in self._engine.pseudonyms)
        yield from self._put(newest, record, life_ms)
        for key in older:
            yield calls.drop((key,))

    def _put(self, key: str, value: bytes, life_ms: int) -> Steps[None]:
        yield calls.put(key, value, life_ms=life_ms, now_ms=self._engine.now_ms(None))

    def _take(self, holder: Holder, *proved: str) -> Steps[bool]:
        pseudonyms = self._engine.pseudonyms[holder.issued_under]
        call = calls.take(
            _live_key(pseudonyms, holder),
            _proof(pseudonyms, holder, *proved),
            now_ms=self._engine.now_ms(None),
        )
        taken: bool = yield call
        return taken


class OneTime(OneTimeSteps):
    """Issues and takes one-time secrets; ``Guard.one_time``."""

    issue_code = blocking(OneTimeSteps._issue_code)
    live_challenge = blocking(OneTimeSteps._live_challenge)
    issue_link = blocking(OneTimeSteps._issue_link)
    holder = blocking(OneTimeSteps._holder)
    take_code = blocking(OneTimeSteps._take_code)
    is_live = blocking(OneTimeSteps._is_live)
    take_link = blocking(OneTimeSteps._take_link)


class AsyncOneTime(OneTimeSteps):
    """The same with ``await``; ``AsyncGuard.one_time``."""

    issue_code = awaited(OneTimeSteps._issue_code)
    live_challenge = awaited(OneTimeSteps._live_challenge)
    issue_link = awaited(OneTimeSteps._issue_link)
    holder = awaited(OneTimeSteps._holder)
    take_code = awaited(OneTimeSteps._take_code)
    is_live = awaited(OneTimeSteps._is_live)
    take_link = awaited(OneTimeSteps._take_link)


def _challenge(pseudonyms: Pseudonyms, holder: Holder, nonce: str) -> str:
    # Made anew from what the store holds, so that a live challenge can be given a second time.
    return _text(pseudonyms.mac("challenge", *holder.fields, nonce)[:_NONCE])


def _proof(pseudonyms: Pseudonyms, holder: Holder, *proved: str) -> bytes:
    return pseudonyms.mac("proof", *holder.fields, *proved)


def _bearer_key(pseudonyms: Pseudonyms, bearer: str) -> str:
    name = pseudonyms.mac("bearer", bearer)
    return record_key(name, name[16:])


def _live_key(pseudonyms: Pseudonyms, holder: Holder) -> str:
    # In the account's own slot, beside its logs.
    return record_key(
        pseudonyms.of("account", holder.account), pseudonyms.mac("live", *holder.fields)
    )


def _sealed(bearer: str, holder: Holder) -> bytes:
    fields: list[object] = [holder.purpose, holder.known, holder.account]
    fields += [holder.channel, holder.stamp, holder.nonce]
    return seal(bearer.encode(), secrets.token_bytes(SALT_BYTES), json.dumps(fields))


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")
