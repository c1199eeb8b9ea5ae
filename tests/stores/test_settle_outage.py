"""The store dies between an admission and its success: the success stands, the entry too."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from authguard.testing import embedded_valkey

from .conftest import VERA, stopped, warm
from .wire import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from authguard.testing import EmbeddedValkey

    from .conftest import Guards


@pytest.mark.parametrize("way_out", ["succeed", "release"])
def test_a_success_after_the_store_died_stands_and_the_entry_stays(
    tmp_path: Path, guard_factory: Guards, caplog: pytest.LogCaptureFixture, way_out: str
) -> None:
    """B050: succeed() doesn't raise, says so in the log, and what was charged is still counted."""
    kept = {"data_dir": tmp_path, "appendonly": "yes", "appendfsync": "always"}
    port = free_port()
    with embedded_valkey(port, **kept) as server:
        guard = guard_factory(store=server.url, deadline_ms=3_000)
        guard.attempt("login", **VERA)
        attempt = guard.attempt("login", **VERA)
    with caplog.at_level(logging.DEBUG, "authguard"):
        getattr(attempt, way_out)()
        getattr(attempt, way_out)()
    assert not attempt.settled
    assert attempt.succeeded is (way_out == "succeed")
    assert [record.getMessage() for record in caplog.records] == [
        "login: settle failed (connection); the entry stays"
    ]
    assert caplog.records[0].levelno == logging.WARNING
    with embedded_valkey(port, **kept):
        decision = guard.attempt("login", **VERA).decision
        assert [verdict.remaining for verdict in decision.verdicts[:2]] == [2, 7]


def test_a_success_while_the_store_is_frozen_ends_by_the_deadline(
    own_valkey: EmbeddedValkey, guard_factory: Guards, caplog: pytest.LogCaptureFixture
) -> None:
    """B050: a settlement that gets no answer is given up by the deadline and never repeated."""
    guard = guard_factory(store=own_valkey.url, deadline_ms=1_000)
    warm(guard)
    attempt = guard.attempt("login", **VERA)
    with stopped(own_valkey):
        attempt.succeed()
        assert attempt.succeeded
        assert not attempt.settled
    assert "login: settle failed (timeout); the entry stays" in caplog.text
    warm(guard)
    attempt.succeed()
    assert not attempt.settled


def test_an_error_in_the_body_leaves_the_entry(guard_factory: Guards) -> None:
    """B050: whatever happens between admission and success, nothing but a success gives back."""
    guard = guard_factory()
    with pytest.raises(ZeroDivisionError), guard.attempt("login", **VERA):
        _ = 1 / 0
    assert guard.peek("login", **VERA).verdicts[0].remaining == 4
