"""Python floats that only the running program knows, kept as 0-d float64 tensors of the graph.

    step = step_t.item()                    node of step_t.to(float64)
    bias_correction = 1 - beta1 ** step     nodes on 0-d float64 tensors: the arithmetic of Python's floats
    p.addcdiv_(m, d, value=-lr / bias_correction)      see `number_calls`

They arise in the code of optimisers (`values.optimizer`), where eager reads its step counts out of tensors and a
learning rate changes from step to step. As values of the program they are floats: stored or returned they become
one again (`Tensor.item`). What needs the number while tracing breaks the graph.

    ReadNumberValue     read out of a tensor, or computed
    GivenNumberValue    a float of the call: a constant like any other until an optimiser computes with it, and
                        a tensor made of it at each call from then on, so that its value is never guarded
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from dyncomp.errors import GraphBreak
from dyncomp.guards.source import Call
from dyncomp.values import host_numbers
from dyncomp.values.base import Builder, Tracer, Value
from dyncomp.values.constant import ConstantValue
from dyncomp.values.operators import BINARY, COMPARE, UNARY, compare
from dyncomp.values.sym_number import SymNumberValue
from dyncomp.values.torch_tensor import TensorValue

# A C callable without effects; an explicit device is not replaced by `with torch.device(...)`.
AS_TENSOR = functools.partial(torch.scalar_tensor, dtype=torch.float64, device="cpu")
# Python raises where a tensor gives inf or nan, but not for `+ - *`, nor for a power or quotient of moderate numbers
# that are not zero; the formulas of optimisers stay within that.
_FOLLOWED = frozenset("+ - * / **".split())


class RunningNumber(Value):
    """`tensor(tx)`: the 0-d float64 tensor that holds the number."""

    symbolic = True

    def tensor(self, tx: Tracer) -> TensorValue:
        raise NotImplementedError


class ReadNumberValue(RunningNumber):
    """A float read out of a tensor while the graph runs, or computed from such."""

    def __init__(self, held: TensorValue):
        super().__init__()
        self._held = held

    def tensor(self, tx: Tracer) -> TensorValue:
        return self._held

    def python_type(self) -> type:
        return float

    def describe(self) -> str:
        return "a number that the graph computes"

    def fx_arg(self, tx: Tracer) -> Any:
        raise GraphBreak("data-dependent-value", "a number read from a tensor, as an argument of a tensor operation")

    def truth(self, tx: Tracer) -> bool:
        answer = host_numbers.compare(tx, "!=", self._held, 0.0)
        if answer is None:
            raise GraphBreak("data-dependent-branch", "a branch on a number read from a tensor")
        return answer

    def unary(self, tx: Tracer, op: str) -> Value:
        return _compute_unary(tx, op, self)

    def binary(
        self, tx: Tracer, op: str, other: Value, reflected: bool = False, inplace: bool = False
    ) -> Value | None:
        return compute(tx, op, *((other, self) if reflected else (self, other)))

    def compare(self, tx: Tracer, op: str, other: Value, reflected: bool = False) -> Value | None:
        answer = None
        if is_number(other):
            sides = [_operand(tx, one) for one in ((other, self) if reflected else (self, other))]
            plain = [one if isinstance(one, TensorValue) else one.as_constant() for one in sides]
            answer = host_numbers.compare(tx, op, *plain)
        if answer is None:
            raise GraphBreak("data-dependent-branch", "a comparison of a number read from a tensor")
        return tx.constant(answer)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        raise GraphBreak("data-dependent-value", f"float.{name} of a number read from a tensor")

    def reconstruct(self, builder: Builder) -> None:
        builder.load_const(torch.Tensor.item)
        builder.load(self._held)
        builder.call(1)


class GivenNumberValue(ConstantValue, RunningNumber):
    """A float of the call. Outside of an optimiser's code it is a constant, guarded when its value is looked at."""

    def __init__(self, value: float, source: Any, tx: Tracer):
        super().__init__(value, source, tx)
        self._held: TensorValue | None = None
        self._elsewhere: SymNumberValue | None = None
        self._asked = False

    def elsewhere(self, tx: Tracer) -> SymNumberValue | None:
        """Outside of an optimiser's code: a number like any other of the call, symbolic once it varied. Schedules make rates of rates."""
        if not self.unread or in_optimizer(tx):
            return None
        if not self._asked:
            self._asked = True
            number = tx.sizes.number(self.peek(), self.source)
            self._elsewhere = None if number is None else SymNumberValue(tx, number, self.source)
        return self._elsewhere

    def is_running(self, tx: Tracer) -> bool:
        """True if computing with it should not fix its value."""
        return self.unread and in_optimizer(tx)

    def tensor(self, tx: Tracer) -> TensorValue:
        if self._held is None:
            self.python_type()  # guarded: only a float becomes such a tensor
            real = AS_TENSOR(self.peek())
            found = tx.wrap(real, Call(self.source, AS_TENSOR))  # type: ignore[arg-type]
            assert isinstance(found, TensorValue)
            self._held = found
        return self._held

    def unary(self, tx: Tracer, op: str) -> Value:
        if self.is_running(tx) and op in "+-":
            return _compute_unary(tx, op, self)
        varies = self.elsewhere(tx)
        return super().unary(tx, op) if varies is None else varies.unary(tx, op)

    def binary(
        self, tx: Tracer, op: str, other: Value, reflected: bool = False, inplace: bool = False
    ) -> Value | None:
        if self.is_running(tx) and is_number(other):
            return compute(tx, op, *((other, self) if reflected else (self, other)))
        varies = self.elsewhere(tx)
        if varies is not None:
            return varies.binary(tx, op, other, reflected, inplace)
        return super().binary(tx, op, other, reflected, inplace)

    def compare(self, tx: Tracer, op: str, other: Value, reflected: bool = False) -> Value | None:
        """`weight_decay != 0` asks for the truth of the number alone."""
        if op in ("==", "!=") and self.is_running(tx) and isinstance(other, ConstantValue):
            if not other.unread and type(other.peek()) in (int, float) and other.peek() == 0:
                return tx.constant(self.truth(tx) is (op == "!="))
        varies = self.elsewhere(tx)
        if varies is not None:
            return varies.compare(tx, op, other, reflected)
        return super().compare(tx, op, other, reflected)


def is_number(value: Value) -> bool:
    """A Python int or float, known or not."""
    if isinstance(value, RunningNumber):
        return True
    return isinstance(value, ConstantValue | SymNumberValue) and value.python_type() in (int, float)


def read_number(tx: Tracer, tensor: Value) -> Value:
    """`tensor.item()` of a floating tensor of one element."""
    assert isinstance(tensor, TensorValue)
    held = tensor
    if tensor.fake(tx).ndim:
        held = tx.graph_call("reshape", [held, tx.constant(())])  # type: ignore[assignment]
    if tensor.fake(tx).dtype != torch.float64:
        held = tx.graph_call("to", [held, tx.constant(torch.float64)])  # type: ignore[assignment]
    else:  # what is read now must not follow later writes
        held = tx.graph_call("clone", [held])  # type: ignore[assignment]
    _note(tx)
    return ReadNumberValue(held)


def compute(tx: Tracer, op: str, left: Value, right: Value) -> Value | None:
    """`left op right` of floats, one of them running; None for operands that are no numbers."""
    if not (is_number(left) and is_number(right)):
        return None
    if op not in _FOLLOWED:
        raise GraphBreak("data-dependent-value", f"{op} of a number that the graph computes")
    return ReadNumberValue(_call(tx, BINARY[op], [_operand(tx, left), _operand(tx, right)]))


def extreme(tx: Tracer, op: str, values: Sequence[Value]) -> Value | None:
    """`max` (">") or `min` ("<") of floats, some of them running: the first of those that no other one beats; else None."""
    if not (in_optimizer(tx) and all(map(is_number, values))):
        return None
    held = [_operand(tx, value) for value in values]
    best = held[0]
    for one in held[1:]:
        if not isinstance(one, TensorValue) and not isinstance(best, TensorValue):
            best = one if compare(tx, op, one, best).truth(tx) else best
            continue
        beats = tx.graph_call(COMPARE[op], [one, best])
        best = tx.graph_call(torch.where, [beats, one, best])
    assert isinstance(best, TensorValue)
    return ReadNumberValue(best)


def _compute_unary(tx: Tracer, op: str, value: RunningNumber) -> Value:
    if op == "+":
        return value
    if op != "-":
        raise GraphBreak("data-dependent-value", f"{op} of a number that the graph computes")
    return ReadNumberValue(_call(tx, UNARY[op], [value.tensor(tx)]))


def _operand(tx: Tracer, value: Value) -> Value:
    if isinstance(value, GivenNumberValue) and not value.unread:
        return tx.constant(value.as_constant())
    return value.tensor(tx) if isinstance(value, RunningNumber) else value


def _call(tx: Tracer, function: Any, args: list[Value]) -> TensorValue:
    result = tx.graph_call(function, args)
    assert isinstance(result, TensorValue)
    result.fx_arg(tx).meta["python_number"] = True
    _note(tx)
    return result


# -- where they may arise ------------------------------------------------------------------------------------
def _note(tx: Tracer) -> None:
    tx.state[__name__] = True


def any_running(tx: Tracer) -> bool:
    """True once this trace has met such a number."""
    return __name__ in tx.state


def note_given(tx: Tracer) -> None:
    """A float of an optimiser's options was met."""
    _note(tx)


_SCHEDULES = ("torch.optim.lr_scheduler", "torch.optim.swa_utils")  # they compute rates: that is plain Python


def in_torch_optim(tx: Tracer) -> bool:
    """True in frames of torch.optim itself, which must compute as without a compiler."""
    return bool(tx.frames) and str(tx.frames[-1].function.globals.get("__name__")).startswith("torch.optim.")


def in_optimizer(tx: Tracer) -> bool:
    """True while an optimiser's own code is traced: a module of torch.optim, or a method of an Optimizer."""
    for frame in reversed(tx.frames):
        module = frame.function.globals.get("__name__") or ""
        if module.startswith(_SCHEDULES):
            return False
        if module.startswith("torch.optim."):
            return True
        if issubclass(_receiver(frame), torch.optim.Optimizer):
            return True
    return False


def _receiver(frame: Any) -> type:
    """The class of the frame's `self`."""
    if frame.code.co_argcount == 0:
        return object
    first = frame.variables.get(frame.code.co_varnames[0])
    cls = getattr(first, "cls", object)
    return cls if isinstance(cls, type) else object
