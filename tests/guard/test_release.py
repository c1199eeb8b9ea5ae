"""A password that could not be looked at costs nobody a try."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from authguard import Denied, HashingUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard import Guard

VERA = {"account": "vera", "client": "203.0.113.9"}


def test_a_machine_too_busy_to_hash_locks_nobody_out(guard_factory: Callable[..., Guard]) -> None:
    """B056: ten blocks ended by HashingUnavailable leave the account's count at 0."""
    guard = guard_factory()
    for _ in range(10):
        with pytest.raises(HashingUnavailable), guard.attempt("login", **VERA):
            raise HashingUnavailable("hash queue full")
    assert guard.peek("login", **VERA).remaining == 5


def test_it_forgives_nothing(guard_factory: Callable[..., Guard]) -> None:
    """Failures before it stay counted, so an overloaded machine is no way to fresh tries."""
    guard = guard_factory()
    for _ in range(4):
        guard.attempt("login", **VERA)
    with pytest.raises(HashingUnavailable), guard.attempt("login", **VERA):
        raise HashingUnavailable("hash queue full")
    assert guard.peek("login", **VERA).remaining == 1


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, TimeoutError])
def test_any_other_end_stays_a_counted_failure(
    guard_factory: Callable[..., Guard], error: type[BaseException]
) -> None:
    """Rule 2: a crash or an interrupt in the block keeps the reservation."""
    guard = guard_factory()
    for _ in range(5):
        with pytest.raises(error), guard.attempt("login", **VERA):
            raise error
    with pytest.raises(Denied):
        guard.attempt("login", **VERA)


def test_after_a_success_it_changes_nothing(guard_factory: Callable[..., Guard]) -> None:
    """A rehash that finds no slot after the success doesn't take the success back."""
    guard = guard_factory()
    attempt = guard.attempt("login", **VERA)
    attempt.succeed()
    with pytest.raises(HashingUnavailable), attempt:
        raise HashingUnavailable("hash queue full")
    assert (attempt.succeeded, attempt.settled) == (True, True)
