"""Calls of Python functions: which are followed, and how."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from dyncomp import config
from dyncomp.errors import GraphBreak
from dyncomp.interp.bind import bind
from dyncomp.interp.generators import GeneratorValue
from dyncomp.interp.machine import Frame, Host
from dyncomp.values.base import Value
from dyncomp.values.function import FunctionValue

# Modules whose functions act on the process, on files or on clocks: their calls run as Python.
BREAKING_MODULES: dict[str, str] = {
    "logging": "side-effect",
    "warnings": "side-effect",
    "traceback": "side-effect",
    "random": "random",
    "threading": "side-effect",
    "subprocess": "side-effect",
    "importlib": "unsupported-call",
    "re": "unsupported-call",
    "pickle": "side-effect",
    "tempfile": "side-effect",
    "shutil": "side-effect",
    "multiprocessing": "side-effect",
    "asyncio": "unsupported-call",
    "socket": "side-effect",
    "ast": "unsupported-call",
}
# Modules of this package whose functions stand in the place of a user's.
_FOLLOWED = ("dyncomp.entry", "dyncomp.compiled_autograd.steps", "dyncomp.values.stand_ins")
_ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


def inline(trace: Host, function: FunctionValue, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    _keep_traceback(trace, function, kwargs)
    refuse(function)
    if len(trace.frames) > config.inline_depth:
        raise GraphBreak(
            "recursion", f"{function.qualname} is inlined more than {config.inline_depth} calls deep"
        )
    frame = Frame(trace, function, bind(trace, function, args, kwargs))
    if function.code.co_flags & inspect.CO_GENERATOR:
        return GeneratorValue(frame, function, args, kwargs)
    return frame.run()


def _keep_traceback(trace: Host, function: FunctionValue, kwargs: dict[str, Value]) -> None:
    """Functions that show where the exception being handled came from: it must be Python that raised it."""
    module = function.globals.get("__name__")
    shows = module == "traceback" or module == "logging" and ("exc_info" in kwargs or function.qualname.endswith(".exception"))
    current = trace.frames[-1].current_exception() if shows and trace.frames else None
    if current is not None:
        current.need_traceback()


def refuse(function: FunctionValue) -> None:
    """Breaks the graph at functions that must run as Python."""
    module = function.globals.get("__name__")
    if not isinstance(module, str):
        return
    package = module.partition(".")[0]
    reason = BREAKING_MODULES.get(module) or BREAKING_MODULES.get(package)
    if reason is not None:
        raise GraphBreak(reason, f"call of {module}.{function.qualname}")
    if package == "dyncomp" and module not in _FOLLOWED:
        raise GraphBreak("unsupported-call", f"call of {module}.{function.qualname}")
    if function.code.co_flags & _ASYNC:
        raise GraphBreak("generator", f"{function.qualname} is asynchronous")
