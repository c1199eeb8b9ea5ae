"""What the fuzz tests share: one test, drawn often by default and deeply where it may be slow."""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.flask.conftest import bare_app, site, site_factory

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["bare_app", "fuzzed", "mostly", "site", "site_factory"]


def mostly(right: st.SearchStrategy[Any], odd: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw what is right five times of six, so that what is drawn of many parts is nearly right."""
    return st.sampled_from([right] * 5 + [odd]).flatmap(lambda chosen: chosen)


def fuzzed(
    *, quick: int, deep: int, **drawn: st.SearchStrategy[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """
    Run a test on drawn arguments: ``quick`` examples by default, ``deep`` ones if slow is chosen.

    Its other arguments are fixtures, made once for all examples.
    """
    deadline_s = 1_800

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def run(examples: int, **fixtures: Any) -> None:
            def example(**values: Any) -> None:
                test(**fixtures, **values)

            # hypothesis keeps what failed under the name, and shows it.
            example.__name__ = example.__qualname__ = test.__name__
            settings(
                max_examples=examples,
                deadline=None,
                suppress_health_check=[HealthCheck.too_slow],  # of a busy machine
            )(given(**drawn)(example))()

        asked = inspect.signature(test).parameters.values()
        kind = inspect.Parameter.KEYWORD_ONLY
        fixtures = [each.replace(kind=kind) for each in asked if each.name not in drawn]
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter("examples", kind), *fixtures]
        )
        depths = pytest.mark.parametrize(
            "examples", [quick, pytest.param(deep, marks=pytest.mark.slow)]
        )
        return pytest.mark.timeout(deadline_s)(depths(run))

    return decorate
