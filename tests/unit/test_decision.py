"""Decisions are values: nobody who is handed one can change what another is told."""

from __future__ import annotations

import copy
import pickle

import pytest

from authguard import Decision
from authguard.decision import Verdict
from authguard.errors import Denylisted

VERDICT = Verdict("pair", 4, 900_000, True, False, False, 0, 60_000, 900_000)


@pytest.mark.parametrize("name", ["action", "allowed", "now_ms", "degraded", "verdicts", "more"])
def test_a_decision_cannot_be_changed(name: str) -> None:
    """A memory hands the same decision to many: none of them may write to it."""
    decision = Decision("login", False, (VERDICT,), 5)
    with pytest.raises(AttributeError):
        setattr(decision, name, True)
    with pytest.raises(AttributeError):
        delattr(decision, name)
    assert decision == Decision("login", False, (VERDICT,), 5)


def test_verdicts_that_are_made_late_are_the_same() -> None:
    """Equal, equally hashed, copied and pickled, and made once, whenever somebody looks."""
    made: list[int] = []

    def late() -> tuple[Verdict, ...]:
        made.append(1)
        return (VERDICT,)

    decision, other = Decision("login", True, late, 5), Decision("login", True, (VERDICT,), 5)
    assert (decision, hash(decision), repr(decision)) == (other, hash(other), repr(other))
    assert copy.deepcopy(decision) == pickle.loads(pickle.dumps(decision)) == other
    assert decision.verdicts is decision.verdicts
    assert made == [1]


def test_the_denylists_text_tells_no_wait() -> None:
    """A client on the denylist reads why it is refused, and of no time that would end it."""
    error = pickle.loads(pickle.dumps(Denylisted("login")))
    assert str(error) == "login: the client's address is on the denylist"
