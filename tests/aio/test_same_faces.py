"""The two guards have the same methods: one is called, the other awaited."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from authguard import AsyncGuard, Guard
from authguard._notes import AsyncNotes, Notes
from authguard.attempt import AsyncAttempt, Attempt
from authguard.limiter import AsyncLimiter, Limiter
from authguard.one_time import AsyncOneTime, OneTime

PAIRS = [
    (Guard, AsyncGuard),
    (Attempt, AsyncAttempt),
    (Limiter, AsyncLimiter),
    (OneTime, AsyncOneTime),
    (Notes, AsyncNotes),
]
METHODS = [
    (waits, awaits, name)
    for waits, awaits in PAIRS
    for name in sorted(dir(waits))
    if not name.startswith("_") and inspect.isfunction(getattr(waits, name))
]


@pytest.mark.parametrize(("waits", "awaits"), PAIRS)
def test_both_have_the_same_names(waits: type, awaits: type) -> None:
    """Whatever one has the other has, and both are made with the same arguments."""
    public = [{name for name in dir(each) if not name.startswith("_")} for each in (waits, awaits)]
    assert public[0] == public[1]
    assert inspect.signature(waits) == inspect.signature(awaits)


@pytest.mark.parametrize(("waits", "awaits", "name"), METHODS)
def test_both_methods_take_and_say_the_same(waits: Any, awaits: Any, name: str) -> None:
    """A method's parameters are the same in both, and so is what help() says of it."""
    methods = [getattr(each, name) for each in (waits, awaits)]
    parameters = [inspect.signature(method).parameters for method in methods]
    assert parameters[0] == parameters[1]
    said = [inspect.getdoc(method) for method in methods]
    assert said[0] == said[1] or f"authguard.Guard.{name}" in (said[1] or "")
    assert methods[0].__name__ == methods[1].__name__ == name


@pytest.mark.parametrize(("waits", "awaits", "name"), METHODS)
def test_what_asks_the_store_is_awaited(waits: Any, awaits: Any, name: str) -> None:
    """A method is awaited where it asks the store, and only there."""
    asks = inspect.isgeneratorfunction(getattr(waits, f"_{name}", None)) or name in {
        "check",  # whose questions are no steps: a thread asks them
        "close",  # asks nothing, yet lets connections go
        "live_challenge",
        "release",  # whose steps are those of another method
        "succeed",
        "take_code",
        "take_link",
    }
    method = getattr(awaits, name)
    assert asks == (inspect.iscoroutinefunction(method) or name in {"attempt", "message"})
    assert not inspect.iscoroutinefunction(getattr(waits, name))
