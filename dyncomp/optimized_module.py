"""`optimize(module)`: an object of a subclass of the module's class, sharing its `__dict__`.

So attributes are seen from both sides, `state_dict` keys are the same, `isinstance` holds, hooks added later are found,
and only `__call__` differs: it goes to the native dispatcher, with the original module as `self`.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any

import torch

from dyncomp._frame import _core
from dyncomp.context import CompileContext
from dyncomp.entry import call_module
from dyncomp.errors import OptionError
from dyncomp.marks import ORIGINAL

PREFIX = "_orig_mod."


def original_of(module: Any) -> Any:
    """The module that was optimised, or the argument itself."""
    return type(module).__dict__.get(ORIGINAL, module)


def is_optimized(module: Any) -> bool:
    return ORIGINAL in type(module).__dict__


def optimize_module(module: torch.nn.Module, context: CompileContext, again: Callable[[torch.nn.Module], Any]) -> Any:
    """The optimised twin of `module`. `again(other)` optimises another module with the same options (deepcopy, pickle)."""
    if isinstance(module, torch.jit.ScriptModule):
        raise OptionError(
            "a ScriptModule is compiled by TorchScript already; pass the Python module to dyncomp.optimize"
        )
    module = original_of(module)
    base = type(module)
    dispatcher = _core.Dispatcher(call_module, context)
    body = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        ORIGINAL: module,
        "__call__": types.MethodType(dispatcher, module),
        "__deepcopy__": lambda self, memo: again(copy.deepcopy(module, memo)),
        "__reduce_ex__": lambda self, protocol: (again, (module,)),
        "load_state_dict": _load_state_dict,
    }
    twin: Any = object.__new__(_subclass(base, body))
    object.__setattr__(twin, "__dict__", module.__dict__)
    return twin


def _subclass(base: type, body: dict[str, Any]) -> type:
    """A subclass made without running the base's `__init_subclass__`, which is meant for the user's own classes."""
    body = {**body, "__init_subclass__": classmethod(lambda cls, **kw: None)}
    if "__init_subclass__" not in _mro_dict(base):
        return type(base)(base.__name__, (base,), body)
    shim = _NoInit(base)
    return type(base)(base.__name__, (shim.mixin, base), body)


def _mro_dict(base: type) -> set[str]:
    return {name for cls in base.__mro__ if cls is not object for name in cls.__dict__}


class _NoInit:
    """A mixin whose `__init_subclass__` stops the call before it reaches `base`'s."""

    def __init__(self, base: type) -> None:
        self.mixin = type("_Twin", (), {"__init_subclass__": classmethod(lambda cls, **kw: None), "__slots__": ()})


def _load_state_dict(self: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
    """Also takes checkpoints saved from wrappers that prefix every key with `_orig_mod.`."""
    if state_dict and all(key.startswith(PREFIX) for key in state_dict):
        stripped = type(state_dict)((key[len(PREFIX) :], value) for key, value in state_dict.items())
        if (metadata := getattr(state_dict, "_metadata", None)) is not None:
            stripped._metadata = {
                key[len(PREFIX) :] if key.startswith(PREFIX) else key: v for key, v in metadata.items()
            }
        state_dict = stripped
    return super(type(self), self).load_state_dict(state_dict, *args, **kwargs)
