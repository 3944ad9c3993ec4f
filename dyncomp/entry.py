"""Entry points for targets that are not plain functions. These frames are traced as if the user had written them."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any


def call_module(module: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls a module as eager does, hooks included."""
    return module(*args, **kwargs)


def caller_of(target: Callable[..., Any]) -> types.FunctionType:
    """A function that calls `target`, for callables without bytecode of their own (builtins, partials)."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    return call
