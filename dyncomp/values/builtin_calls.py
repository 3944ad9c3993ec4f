"""Builtins that are methods, namespaces, or no part of a graph at all. The others, by theme: `builtin_containers`,
`builtin_numbers`, `builtin_iteration`, `builtin_classes`, `builtin_objects`. Each handler answers one builtin for all
kinds of values; constants fall through to the real function.
"""

from __future__ import annotations

import builtins
import types

from dyncomp.errors import GraphBreak
from dyncomp.values.base import Tracer, Value
from dyncomp.values.builtin_arguments import Args, Kwargs
from dyncomp.values.function import BoundMethodValue
from dyncomp.values.registry import on_call


@on_call(types.MethodType)
def _method(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return BoundMethodValue(args[0], args[1])


@on_call(globals)
def _globals(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return tx.frames[-1].globals()


@on_call(builtins.print, builtins.input, builtins.open, builtins.breakpoint)
def _side_effect(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise GraphBreak("side-effect", "print, input, open or breakpoint")


@on_call(
    builtins.eval,
    builtins.exec,
    builtins.compile,
    builtins.locals,
    builtins.dir,
    builtins.__import__,
)
def _refused(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise GraphBreak("unsupported-builtin", "eval, exec, compile, locals, dir or __import__")
