"""Whole small programs, run once in plain Python and once through `dyncomp.optimize`; all that they observe must be equal.

    @program(graphs=1)
    def test_name(C):
        fast = C(some_function)          # C is the compile function under test; in the plain run it returns its argument
        return fast(torch.ones(2)), side_effects_seen

`graphs` bounds how many graphs the compiled run may make, where a needless recompile is the point; `breaks` how many graph breaks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

import dyncomp
from tests.support import assert_same


def program(
    function: Callable[[Any], Any] | None = None, *, graphs: int | None = None, breaks: int | None = None
) -> Any:
    if function is None:
        return lambda fn: program(fn, graphs=graphs, breaks=breaks)

    def test() -> None:
        want = _run(function, lambda fn=None, **options: fn if fn is not None else lambda inner: inner)
        dyncomp.reset()
        got = _run(function, dyncomp.optimize)
        made = dyncomp.stats()
        dyncomp.reset()
        assert_same(got, want, rtol=1e-5, atol=1e-6)
        assert graphs is None or made.graphs <= graphs, f"{made.graphs} graphs instead of at most {graphs}"
        assert breaks is None or made.graph_breaks <= breaks, f"breaks: {made.break_reasons}"

    test.__name__ = test.__qualname__ = function.__name__
    test.__module__, test.__doc__ = function.__module__, function.__doc__
    return test


def _run(function: Callable[[Any], Any], compiler: Callable[..., Any]) -> Any:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # how the compiler tells of its own faults
        return function(compiler)


def outcome(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a call returns, or the type and text of what it raises."""
    try:
        return call(*args, **kwargs)
    except Exception as error:
        return type(error).__name__, str(error)


def ones(*sizes: int) -> torch.Tensor:
    return torch.ones(*(sizes or (2,)))
