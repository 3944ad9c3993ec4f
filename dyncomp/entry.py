"""Entry points for targets that are not plain functions. These frames are traced as if the user had written them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def call_module(module: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls a module as eager does, hooks included."""
    return module(*args, **kwargs)


def caller_of(target: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls `target`, for callables without bytecode of their own (builtins, partials)."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    return call


def captured_is_compiling() -> bool:
    """What `dyncomp.is_compiling()` is in captured code."""
    return True
