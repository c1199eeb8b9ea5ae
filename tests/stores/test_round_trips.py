"""A failure and a refusal cost one round trip, a success two, however many limits there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from authguard import Denied

from .conftest import VERA, warm
from .wire import Wire, honest

if TYPE_CHECKING:
    import valkey

    from authguard.testing import EmbeddedValkey

    from .conftest import Guards


def _calls(client: valkey.Valkey) -> dict[str, int]:
    """Count the script calls that the server has run."""
    stats = client.info("commandstats")
    return {
        verb: stats.get(f"cmdstat_{verb}", {"calls": 0})["calls"] for verb in ("evalsha", "eval")
    }


def test_failure_and_refusal_one_success_two(
    valkey_server: EmbeddedValkey, client: valkey.Valkey, guard_factory: Guards
) -> None:
    """On a connection in use the commands sent are EVALSHA: one, one for a refusal, two."""
    with Wire(honest, valkey_server.port) as wire:
        guard = guard_factory(store=wire.url)
        warm(guard)
        guard.attempt("login", **VERA).succeed()
        wire.commands.clear()
        client.config_resetstat()

        for _ in range(5):
            guard.attempt("login", **VERA)
        assert wire.verbs() == ["EVALSHA"] * 5
        with pytest.raises(Denied):
            guard.attempt("login", **VERA)
        assert wire.verbs() == ["EVALSHA"] * 6
        guard.attempt("login", account="omar", client="192.0.2.8").succeed()
        assert wire.verbs() == ["EVALSHA"] * 8
        assert len(wire.talks) == 1
    assert _calls(client) == {"evalsha": 8, "eval": 0}


@pytest.mark.parametrize("limits", [1, 2, 7, 24])
def test_any_number_of_limits_is_one_call(
    client: valkey.Valkey, guard_factory: Guards, limits: int
) -> None:
    """B060: one EVALSHA decides over all limits of an action, and one settles them."""
    parts = [["account"], ["client"], ["network"], ["account", "client"]]
    policy = {
        "login": {
            "limits": [
                {"name": f"limit-{number}", "by": parts[number % 4], "sliding_log": "100/1h"}
                for number in range(limits)
            ]
        }
    }
    guard = guard_factory(policies=policy)
    guard.attempt("login", **VERA).succeed()
    client.config_resetstat()
    attempt = guard.attempt("login", **VERA)
    assert _calls(client) == {"evalsha": 1, "eval": 0}
    assert len(attempt.decision.verdicts) == limits
    attempt.succeed()
    assert attempt.settled
    assert _calls(client) == {"evalsha": 2, "eval": 0}


def test_a_new_connection_sends_nothing_more_than_it_must(
    valkey_server: EmbeddedValkey, guard_factory: Guards
) -> None:
    """A connection to database 0 without a password starts with the decision itself."""
    with Wire(honest, valkey_server.port) as wire:
        guard = guard_factory(store=wire.url)
        guard.attempt("login", **VERA)
        assert [verb for verb in wire.verbs() if verb != "EVAL"] == ["EVALSHA"]
