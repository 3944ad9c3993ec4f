"""Policy for frames whose first call runs no tensor operation: a later call with other arguments may be worth compiling.

call 1   f(x, on=False)   nothing to compile: runs as plain Python, its guards are kept
call 2   f(x, on=False)   the same guards hold: plain Python, nothing is traced
call 3   f(x, on=True)    they fail, and the call can reach tensors: traced again, compiled
...      16 such calls without one that is worth compiling: never asked about again, so that a warm call costs nothing

What is asked about again is bounded too, since a trace costs more than most such frames: `_TRACES` in all.
"""

from __future__ import annotations

import types
from typing import Any

from dyncomp._frame import _core
from dyncomp.context import CompileContext
from dyncomp.guards import build as guard_build
from dyncomp.interp.frame_trace import FrameTrace, reaches_tensors

_CALLS = 16  # as plain Python before a frame is left alone for good
_TRACES = 4


class Waiting:
    """What is known of one code object under one owner that had nothing to compile so far."""

    def __init__(self) -> None:
        self.trees: list[Any] = []  # each holds for calls with nothing to compile
        self.calls = 0
        self.traces = 0


def answer_again(func: types.FunctionType, args: tuple[Any, ...], owner: CompileContext, cache: Any) -> Any:
    """What the runtime is told about a call of a frame that had nothing to compile; None: trace it."""
    waiting = owner.waiting.get(func.__code__)
    if waiting is None:
        return None
    if cache.misses <= 1 or len(cache):  # of a cache that was emptied since; compiled in the meantime
        owner.waiting.pop(func.__code__, None)
        return None
    waiting.calls += 1
    if waiting.calls >= _CALLS:
        return _give_up(func, owner)
    if not reaches_tensors(func, args) or any(tree.check(func, args) for tree in waiting.trees):
        return _core.EAGER_ONCE
    return None if waiting.traces < _TRACES else _give_up(func, owner)


def nothing_to_compile(func: types.FunctionType, trace: FrameTrace, owner: CompileContext) -> Any:
    """What the runtime is told after a trace that left the frame alone for what it found in this call."""
    waiting = owner.waiting.setdefault(func.__code__, Waiting())
    waiting.traces += 1
    if trace.run_code is not None:
        waiting.trees.append(guard_build.build_tree(trace.guards, ()))
    return _core.EAGER_ONCE


def _give_up(func: types.FunctionType, owner: CompileContext) -> Any:
    owner.waiting.pop(func.__code__, None)
    return _core.FREEZE
