"""A store that loses its data is noticed: nobody is refused for it, and log and signal tell."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from flask import Flask

from authguard import Denied
from authguard.flask import AuthGuard
from authguard.flask.signals import data_lost
from tests.conftest import SECRET

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from authguard import Guard
    from authguard.testing import EmbeddedValkey

VERA = {"account": "vera", "client": "192.0.2.7"}
LOST = "the store has lost data: counts, locks and blocks may have begun afresh"


def a_while_later(guard: Guard) -> None:
    """Let the guard look for its mark with the next attempt."""
    guard._mark._due_s = 0.0


def attempts(guard: Guard, times: int) -> None:
    """Look for the mark at each of so many attempts."""
    for _ in range(times):
        a_while_later(guard)
        guard.attempt("login", **VERA)


def test_lost_data_is_told_once_and_refuses_nobody(
    guard_factory: Callable[..., Guard], client: valkey.Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    """A91: after FLUSHALL counts begin afresh, and the log says so, once for each guard."""
    guard, beside = guard_factory(remember_refusals_ms=0), guard_factory()
    attempts(guard, 2)
    attempts(beside, 3)
    with pytest.raises(Denied):
        guard.attempt("login", **VERA)
    assert caplog.messages == []
    client.flushall()
    attempts(guard, 2)
    attempts(beside, 2)
    assert caplog.messages == [LOST, LOST]
    assert all(record.levelno == logging.ERROR for record in caplog.records)


def test_the_mark_costs_one_call_in_ten_seconds(
    guard_factory: Callable[..., Guard], client: valkey.Valkey
) -> None:
    """A process looks when ten seconds are over, never at each attempt; the mark has an expiry."""
    guard = guard_factory()
    guard.attempt("login", **VERA)
    before = set(client.scan_iter())
    a_while_later(guard)
    guard.attempt("login", **VERA)
    (mark,) = set(client.scan_iter()) - before
    assert 365 * 86_400_000 < client.pttl(mark) <= 366 * 86_400_000
    client.delete(mark)
    guard.attempt("login", **VERA)
    assert not client.exists(mark)


def test_a_store_that_gives_no_answer_has_lost_nothing(
    guard_factory: Callable[..., Guard], client: valkey.Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    """The attempt's own answer stands, whatever becomes of the look at the mark."""
    guard = guard_factory()
    attempts(guard, 1)
    client.delete(guard._mark._key)
    client.rpush(guard._mark._key, "no mark")
    attempts(guard, 1)
    assert caplog.messages == []
    client.delete(guard._mark._key)
    attempts(guard, 1)
    assert caplog.messages == [LOST]


def test_a_failing_listener_changes_no_answer(
    guard_factory: Callable[..., Guard], client: valkey.Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the app's function does, the attempt is answered, and the loss is told once."""
    guard = guard_factory()
    guard.when_data_is_lost(lambda: 1 // 0)
    attempts(guard, 1)
    client.flushall()
    attempts(guard, 2)
    assert caplog.messages == [LOST, "what was to be told of lost data failed"]


def test_an_app_is_told_by_a_signal(own_valkey: EmbeddedValkey, own_client: valkey.Valkey) -> None:
    """A91: in Flask the signal data_lost is sent, once."""
    app = Flask(__name__)
    app.config.update(TESTING=True, AUTHGUARD_STORE_URL=own_valkey.url, AUTHGUARD_SECRET=SECRET)
    extension = AuthGuard(app)
    with app.app_context():
        guard = extension.guard
    told: list[Flask] = []

    def hear(sender: Flask) -> None:
        told.append(sender)

    with data_lost.connected_to(hear, sender=app):
        attempts(guard, 2)
        own_client.flushall()
        attempts(guard, 2)
    assert told == [app]
    guard.close()
