"""
Two colours of one core: a method with steps, as one that waits and as one that is awaited. Private.

A class with steps has generator methods whose names begin with ``_``; its two faces name each of
them in one line. Signature and docstring are the steps' own.
"""

from __future__ import annotations

from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from authguard._core.steps import adrive, drive

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from authguard._core.steps import Steps

__all__ = ["awaited", "blocking"]

P = ParamSpec("P")
T = TypeVar("T")


def blocking(steps: Callable[Concatenate[Any, P], Steps[T]]) -> Callable[Concatenate[Any, P], T]:
    """Make a method that runs these steps on the engine's store."""

    @wraps(steps)
    def run(self: Any, /, *args: P.args, **settings: P.kwargs) -> T:
        return drive(self._engine.store, steps(self, *args, **settings))

    return _public(run)


def awaited(
    steps: Callable[Concatenate[Any, P], Steps[T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Make a method that awaits these steps on the engine's store."""

    @wraps(steps)
    async def run(self: Any, /, *args: P.args, **settings: P.kwargs) -> T:
        return await adrive(self._engine.store, steps(self, *args, **settings))

    return _public(run)


def _public(method: Callable[P, T]) -> Callable[P, T]:
    """Name it as it is called, for tracebacks and help, and say what it returns."""
    method.__qualname__ = method.__name__ = method.__name__.lstrip("_")
    steps = signature(method)
    returns = str(steps.return_annotation).removeprefix("Steps[").removesuffix("]")
    method.__signature__ = steps.replace(return_annotation=returns)  # type: ignore[attr-defined]
    return method
