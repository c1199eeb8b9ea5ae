"""
Steps: what is asked of the store in turn, written once for both colours.

A method with steps is a generator: it yields script calls and is sent their answers, and what it
returns is the method's result. Whoever drives it does the I/O, waiting or awaiting. A call that
fails raises inside the generator, at its ``yield``, so that an outage rule or a warning stands
beside the call it belongs to.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from authguard._core.calls import ScriptCall
from authguard.errors import StoreUnavailable

if TYPE_CHECKING:
    from authguard.stores.base import AsyncStore, Store

__all__ = ["Steps", "adrive", "drive"]

T = TypeVar("T")

Steps: TypeAlias = Generator[ScriptCall[Any], Any, T]


def drive(store: Store, steps: Steps[T]) -> T:
    """
    Run steps on a store, all within one deadline; give what they return.

    Raises:
        StoreUnavailable: Where the steps let it pass.
    """
    try:
        call = next(steps)  # what comes before the first call may look an account up: not our time
        with store.one_deadline():
            while True:
                try:
                    reply = store.run(call)
                except StoreUnavailable as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()


async def adrive(store: AsyncStore, steps: Steps[T]) -> T:
    """
    Await steps on a store, all within one deadline; give what they return.

    Cancelled in the middle, it leaves what was charged: a counted failure, never a free try.

    Raises:
        StoreUnavailable: Where the steps let it pass.
    """
    try:
        call = next(steps)
        with store.one_deadline():
            while True:
                try:
                    reply = await store.run(call)
                except StoreUnavailable as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()
