"""Objects whose end a program can notice: what happens when the last reference to one goes.

    for x in generator: ... break        the generator is closed there, its `with` and `finally` blocks run
    handle = None                        a `__del__` runs, a C object gives back what it guards
    del obj                              the callback of a weak reference runs

CPython does these at one point of the program; a graph has no such points. So the interpreter ends a graph before an instruction
that may drop the last reference to one of these objects, and what a frame hands to its rest keeps them alive as long as eager does.
"""

from __future__ import annotations

import types
import weakref
from typing import Any

import torch

# Kinds that hold nothing whose end shows, or whose contents outlive any frame.
_SILENT = (
    int, float, complex, str, bytes, bytearray, type(None), range, slice, type, types.FunctionType, types.BuiltinFunctionType,
    types.ModuleType, types.CodeType, torch.nn.Module, torch.device, torch.dtype, torch.layout, torch.memory_format, torch.Generator,
    torch.UntypedStorage,
)  # fmt: skip
_CONTAINERS = (list, tuple, set, frozenset)
_LOOKS = 64  # objects looked at inside another one
_DEPTH = 2


def end_shows(obj: Any, depth: int = _DEPTH) -> bool:
    """True if dropping the last reference to `obj` may do something that the program can see. Looks into containers, bound methods and
    instances, not far: an approximation from above for the object itself, from below for what it holds."""
    if isinstance(obj, torch.Tensor):
        return _has_callback(obj)
    if isinstance(obj, _SILENT):
        return False
    cls = type(obj)
    if hasattr(cls, "__del__") or _is_c_guard(cls) or _has_callback(obj):
        return True
    return depth > 0 and any(end_shows(part, depth - 1) for part in _parts(obj)[:_LOOKS])


def may_be_watched(obj: Any) -> bool:
    """True if a program may see whether `obj` is alive: its end shows, or it has weak references."""
    return end_shows(obj) or weakref.getweakrefcount(obj) > 0


def holds(container: Any, obj: Any, depth: int = _DEPTH) -> bool:
    """True if `container` is `obj` or leads to it within as many steps as `end_shows` looks."""
    if container is obj:
        return True
    return depth > 0 and any(holds(part, obj, depth - 1) for part in _parts(container)[:_LOOKS])


def _is_c_guard(cls: type) -> bool:
    """Objects of torch's C++ side switch something on for as long as they live."""
    return type(cls).__name__ == "pybind11_type" or cls.__module__ == "torch._C"


def _has_callback(obj: Any) -> bool:
    if not weakref.getweakrefcount(obj):
        return False
    return any(ref.__callback__ is not None for ref in weakref.getweakrefs(obj))


def _parts(obj: Any) -> list[Any]:
    if isinstance(obj, _CONTAINERS):
        return list(obj)[:_LOOKS]
    if isinstance(obj, dict):
        return list(obj.values())
    if isinstance(obj, types.MethodType):
        return [obj.__self__]
    held = getattr(obj, "__dict__", None) if type(obj).__getattribute__ is object.__getattribute__ else None
    return list(held.values()) if type(held) is dict else []
