"""Keeps `torch._dynamo` out of the process while meta kernels run.

Python meta kernels and reference implementations are wrapped by `torch._disable_dynamo`, which imports all of
`torch._dynamo` (about a second) on its first call, only to say that dynamo must not look inside. While dynamo
is not loaded there is nobody to tell, so the wrapped functions get a stand-in that calls them directly. Once
the program does load dynamo, the stand-in steps aside for good and torch's own wrapper does its work.
"""

from __future__ import annotations

import functools
import gc
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

_MARK = "__dynamo_disable"
_OWNERS = ("torch._refs", "torch._decomp", "torch._prims", "torch._prims_common", "torch._meta_registrations")


def _stand_in(fn: types.FunctionType, wrapper: types.FunctionType) -> Callable[..., Any]:
    def direct(*args: Any, **kwargs: Any) -> Any:
        if "torch._dynamo" in sys.modules:
            if getattr(fn, _MARK, None) is direct:
                delattr(fn, _MARK)
            return wrapper(*args, **kwargs)
        return fn(*args, **kwargs)

    return direct


@functools.cache
def keep_dynamo_out() -> int:
    """Gives every wrapped meta or reference function its stand-in, once; returns how many."""
    if "torch._dynamo" in sys.modules:
        return 0
    template = torch._disable_dynamo(lambda: None)  # type: ignore[attr-defined]
    code = template.__code__
    if "fn" not in code.co_freevars:
        return 0
    cell = code.co_freevars.index("fn")
    found = 0
    for wrapper in gc.get_referrers(code):
        if not isinstance(wrapper, types.FunctionType) or wrapper.__code__ is not code:
            continue
        fn = wrapper.__closure__[cell].cell_contents if wrapper.__closure__ else None
        if not isinstance(fn, types.FunctionType) or not fn.__module__.startswith(_OWNERS):
            continue
        if not hasattr(fn, _MARK):
            setattr(fn, _MARK, _stand_in(fn, wrapper))
            found += 1
    return found
