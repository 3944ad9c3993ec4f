"""Branches on the value of a tensor of which one side only raises: that side is not taken, which the running graph checks.

    if not torch._is_all_true(valid):           _assert_async(all_true)
        raise ValueError(f"found {value}")  ->  <what follows>

Where the check fails, the frame runs again as plain Python, which raises the program's own error. Where that happens often, the frame
is compiled once more, and breaks at such branches as at all others.

In:  the frame at a conditional jump, and the tensor it asks
Out: the truth that does not raise, now checked in the graph; None where the branch has to break the graph
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from dyncomp.bytecode.canonical import Op, canonical
from dyncomp.bytecode.code_table import CodeKey
from dyncomp.fake import FakeTensor
from dyncomp.guards.source import Const
from dyncomp.interp.failed_checks import MESSAGE, failed_checks
from dyncomp.interp.machine import Frame
from dyncomp.values.backward_trace import in_custom_backward
from dyncomp.values.base import Value
from dyncomp.values.torch_tensor import TensorValue

_LONGEST = 200  # instructions of a side, most of which build its message


def granted_truth(frame: Frame, op: Op, condition: Value) -> bool | None:
    """See above. `op` jumps where the condition is true (POP_JUMP_IF_TRUE) or where it is not."""
    jumps = _side_that_goes_on(CodeKey(frame.code), op.index)
    trace: Any = frame.trace
    if jumps is None or not isinstance(condition, TensorValue) or not _can_check(trace, condition.fake(trace)):
        return None
    if any(_may_catch(one) for one in trace.frames):
        return None
    often = failed_checks(trace.func.__code__).often
    if often:
        return None
    trace.guard(Const(often, "checks that failed too often"), "empty")
    truth = jumps is (op.name == "POP_JUMP_IF_TRUE")
    checked = trace.graph_call("detach", [condition])
    if not truth:
        checked = trace.graph_call(torch.logical_not, [checked])
    trace.graph_call(torch._assert_async, [checked, trace.constant(MESSAGE)])
    trace.checks.granted = True
    return truth


def _can_check(trace: Any, fake: Any) -> bool:
    """On other devices a check that fails leaves the device unusable; what was written already cannot be run again."""
    if not isinstance(fake, FakeTensor) or fake.device.type != "cpu" or not all(type(size) is int and size == 1 for size in fake.shape):
        return False
    return not (trace.fake_mode.levels or in_custom_backward(trace) or trace.wrote_for_good())


def _may_catch(frame: Frame) -> bool:
    """True inside a `try`: there the error may be part of how the program works. `with` blocks only clean up."""
    return frame.op.handler is not None and _has_try(CodeKey(frame.code))


@functools.lru_cache(maxsize=4096)
def _has_try(key: CodeKey) -> bool:
    ops = canonical(key.code).ops
    return any(op.name == "PUSH_EXC_INFO" and ops[op.index + 1].name != "WITH_EXCEPT_START" for op in ops)


@functools.lru_cache(maxsize=4096)
def _side_that_goes_on(key: CodeKey, index: int) -> bool | None:
    """True if only the side that jumps goes on, False if only the other one does; None if both do, or neither."""
    ops = canonical(key.code).ops
    jump, fall = _only_raises(ops, ops[index].target), _only_raises(ops, index + 1)
    return None if jump is fall else fall


def _only_raises(ops: list[Op], start: int) -> bool:
    """True if whatever runs from here on comes to a `raise` of this frame, without a loop or a `return`."""
    todo, seen = [start], set()
    raises = False
    while todo:
        op = ops[todo.pop()]
        if op.index in seen:
            continue
        seen.add(op.index)
        if len(seen) > _LONGEST or op.name in ("RETURN_VALUE", "YIELD_VALUE", "FOR_ITER") or 0 <= op.target < op.index:
            return False
        if op.name in ("RAISE_VARARGS", "RERAISE"):
            raises = True
            continue
        if op.target >= 0:
            todo.append(op.target)
        if op.name != "JUMP":
            todo.append(op.index + 1)
    return raises
