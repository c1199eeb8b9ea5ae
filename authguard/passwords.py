"""
Passwords: argon2id, a bounded number of hashes at a time, and the same work for every answer.

A password hash is dear on purpose, so whoever can ask for hashes can use up the machine. Two
bounds stand against that: the guard's limits come first (no hash for a refused attempt), and
:class:`Passwords` computes at most ``slots`` hashes at a time.
"""

from __future__ import annotations

import logging
import secrets
from typing import Final, Self

from argon2 import PasswordHasher
from argon2.exceptions import (
    Argon2Error,
    InvalidHashError,
    UnsupportedParametersError,
    VerificationError,
    VerifyMismatchError,
)
from argon2.low_level import error_to_str

from authguard._password_bytes import MAX_PASSWORD_BYTES, password_bytes
from authguard._slots import Slots
from authguard.checks import is_whole
from authguard.errors import ConfigurationError, HashingUnavailable, InvalidInput

__all__ = ["MAX_PASSWORD_BYTES", "Passwords", "password_bytes"]

#: OWASP Password Storage Cheat Sheet, argon2id: memory in KiB and the passes it needs at least.
#: The rows are of equal strength.
_OWASP_MINIMA: Final = ((47104, 1), (19456, 2), (12288, 3), (9216, 4), (7168, 5))

# argon2's words for "this encoded hash can't be right", found before any hash is computed: the
# codes of phc-winner-argon2's argon2.h for decoding and for parameters out of range. Any other
# error (no memory, no thread) is the machine's and says nothing about hash or password.
_UNREADABLE: Final = frozenset(
    error_to_str(code) for code in (-2, -3, -6, -7, -12, -13, -14, -15, -16, -17, -26, -32, -34)
)

_log = logging.getLogger("authguard")


class Passwords:
    """
    Hashes and verifies passwords with argon2id, never more than ``slots`` at a time.

    The bound holds for all threads of a process that share this object, so build one and keep it.
    With several worker processes divide the cores by the workers (``docs/passwords.md``). An
    object built before a fork works in the child, with slots of its own.

    Args:
        memory_kib: Memory of one hash, in KiB. The default with two passes and one lane is the
            minimum of OWASP's Password Storage Cheat Sheet (19 MiB, t=2, p=1).
        time_cost: Passes over the memory; at least what the cheat sheet lists for the memory.
        parallelism: Lanes. More than one gains nothing once the cores are busy.
        slots: Hashes at a time; None is the number of CPUs this process may use.
        queue: Callers that may wait for a slot, first come, first served.
        wait_s: Longest wait for a slot, in seconds.

    Raises:
        ConfigurationError: A value is unsafe or no value at all (AG030 to AG036).
    """

    def __init__(
        self,
        *,
        memory_kib: int = 19456,
        time_cost: int = 2,
        parallelism: int = 1,
        slots: int | None = None,
        queue: int = 16,
        wait_s: float = 1.0,
    ) -> None:
        _check_strength(memory_kib, time_cost, parallelism)
        self._set_up(memory_kib, time_cost, parallelism, Slots(slots, queue, wait_s))

    @classmethod
    def cheapest_for_tests(
        cls, *, slots: int | None = None, queue: int = 16, wait_s: float = 1.0
    ) -> Self:
        """
        Return an object whose hashes protect nobody: a few KiB and one pass, for tests alone.

        Args:
            slots: As for the class.
            queue: As for the class.
            wait_s: As for the class.

        Raises:
            ConfigurationError: As for the class.
        """
        cheap = cls.__new__(cls)
        cheap._set_up(8, 1, 1, Slots(slots, queue, wait_s))  # noqa: SLF001 - our own class
        return cheap

    def _set_up(self, memory_kib: int, time_cost: int, parallelism: int, slots: Slots) -> None:
        self._slots = slots
        try:
            self._hasher = PasswordHasher(
                time_cost=time_cost,
                memory_cost=memory_kib,
                parallelism=parallelism,
                hash_len=32,
                salt_len=16,
            )
            # Of a password nobody knows: what a name without a hash is verified against.
            self._dummy = self._hasher.hash(secrets.token_bytes(32))
        except (Argon2Error, UnsupportedParametersError, MemoryError, OverflowError) as error:
            raise ConfigurationError(
                "AG036",
                "passwords",
                "argon2 can't compute a hash with these parameters on this machine",
                "lower memory_kib, time_cost or parallelism, or give the machine more memory",
            ) from error

    @property
    def slots(self) -> int:
        """How many hashes this object computes at a time."""
        return self._slots.count

    def hash(self, password: str) -> str:
        """
        Return a new encoded hash of the whole password, with a salt of its own.

        Args:
            password: What the account shall be entered with from now on.

        Raises:
            InvalidInput: No text, empty, or too long; no hash was computed.
            HashingUnavailable: No slot came free in time, or the machine couldn't hash.
        """
        secret = password_bytes(password)
        if not secret:
            raise InvalidInput("password", "is empty")
        with self._slots:
            try:
                return self._hasher.hash(secret)
            except (Argon2Error, MemoryError) as error:
                raise HashingUnavailable("argon2 failed") from error

    def verify(self, stored: str | None, password: str) -> bool:
        """
        Tell whether the password is the stored one, at the cost of exactly one hash either way.

        Without a readable hash the password is verified against a dummy with the current
        parameters, and the answer is False. An empty password is verified like any other and is
        never right, not even where somebody stored the hash of nothing.

        Args:
            stored: The account's encoded hash; None for an unknown name or an account without a
                password. One that can't be read is logged as an error, without the hash.
            password: What was typed.

        Raises:
            InvalidInput: No text, or too long; no hash was computed.
            HashingUnavailable: No slot came free in time, or the machine couldn't hash. Says
                nothing about the password: release the attempt, answer 503.
        """
        secret = password_bytes(password)
        with self._slots:
            right = None if stored is None else self._compare(stored, secret)
            if right is None:
                self._compare(self._dummy, secret)
        if stored is not None and right is None:
            _log.error("a stored password hash can't be read: its account can't sign in")
        return right is True and bool(secret)

    def needs_rehash(self, stored: str) -> bool:
        """
        Tell whether the stored hash was made with other parameters than the current ones.

        Ask after a success, while the password is at hand. A rehash that fails for want of a
        slot may wait for the next sign-in; it doesn't undo the success.

        Args:
            stored: The account's encoded hash. For one that can't be read the answer is False.
        """
        try:
            return self._hasher.check_needs_rehash(stored)
        except (InvalidHashError, UnicodeError):
            return False

    def _compare(self, encoded: str, secret: bytes) -> bool | None:
        """Compute one hash and compare; None, and no hash, if ``encoded`` can't be read."""
        try:
            return self._hasher.verify(encoded, secret)
        except VerifyMismatchError:
            return False
        except (InvalidHashError, UnicodeError):
            return None
        except (Argon2Error, MemoryError) as error:
            if isinstance(error, VerificationError) and str(error) in _UNREADABLE:
                return None
            raise HashingUnavailable("argon2 failed") from error


def _check_strength(memory_kib: int, time_cost: int, parallelism: int) -> None:
    """Refuse parameters below OWASP's minima, and what argon2 can't take."""
    least_kib, most_passes = _OWASP_MINIMA[-1]
    if not is_whole(memory_kib, least_kib):
        raise ConfigurationError(
            "AG030",
            "passwords.memory_kib",
            f"must be a whole number of KiB, at least {least_kib}",
            f"take 19456, or {least_kib} with time_cost={most_passes} where memory is scarce",
        )
    passes = next(passes for kib, passes in _OWASP_MINIMA if memory_kib >= kib)
    if not is_whole(time_cost, passes):
        raise ConfigurationError(
            "AG031",
            "passwords.time_cost",
            f"must be a whole number, at least {passes} with {memory_kib} KiB of memory",
            f"set time_cost to {passes}, or raise memory_kib",
        )
    lanes = memory_kib // 8  # argon2 needs 8 KiB a lane
    if not is_whole(parallelism, 1) or parallelism > lanes:
        raise ConfigurationError(
            "AG032",
            "passwords.parallelism",
            f"must be a whole number from 1 to {lanes} with {memory_kib} KiB of memory",
            "set parallelism to 1",
        )
