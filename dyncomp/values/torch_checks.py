"""torch's checks on numbers: facts from there on, and where they fail, eager's error.

n = x.item(); torch._check_value(n < 8)      a number of the running graph: checked when it runs
torch._check_is_size(x.shape[0])             a number of the call: answered, and guarded
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from dyncomp.errors import GraphBreak
from dyncomp.values import registry
from dyncomp.values.base import Tracer, Value
from dyncomp.values.sym_number import SymNumberValue, compute

_CLASSES: dict[Any, type[Exception]] = {
    torch._check: RuntimeError,
    torch._check_index: IndexError,
    torch._check_value: ValueError,
    torch._check_type: TypeError,
    torch._check_not_implemented: NotImplementedError,
}


def holds(condition: Value, tx: Tracer) -> bool:
    """The truth; of a number that only the running program gives it is a check of the graph."""
    if isinstance(condition, SymNumberValue) and isinstance(condition.number, torch.SymBool):
        known = bool(condition.number.node.expect_true("", 0))
        tx.add_checks(torch._check)
        return known
    return condition.truth(tx)


def _fail(tx: Tracer, error: type[Exception], message: Value | None) -> None:
    if message is None or message.is_constant() and message.as_constant() is None:
        tx.raise_(error, "Expected cond to be True, but got False. (Could this error message be improved? If so, please report an enhancement request to PyTorch.)")  # fmt: skip
    tx.raise_(error, tx.call(message, []))  # type: ignore[arg-type]


def _register(function: Any, error: type[Exception]) -> None:
    @registry.on_call(function)
    def check(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        condition = args[0] if args else kwargs["cond"]
        if not holds(condition, tx):
            _fail(tx, error, args[1] if len(args) > 1 else kwargs.get("message"))
        return tx.constant(None)


for _function, _error in _CLASSES.items():
    _register(_function, _error)


def _between(tx: Tracer, number: Value, low: Value, high: Value | None) -> bool:
    if not holds(compute(tx, lambda a, b: a >= b, number, low), tx):
        return False
    return high is None or holds(compute(tx, lambda a, b: a <= b, number, high), tx)


def _given(value: Value | None) -> Value | None:
    return None if value is None or value.is_constant() and value.as_constant() is None else value


@registry.on_call(torch._check_is_size)
def _check_is_size(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    warnings.warn(
        "_check_is_size will be removed in a future PyTorch release along with guard_size_oblivious. "
        "Use _check(i >= 0) instead.",
        FutureWarning,
        stacklevel=2,
    )
    number = args[0] if args else kwargs["i"]
    if not _between(tx, number, tx.constant(0), _given(kwargs.get("max"))):
        _fail(tx, RuntimeError, args[1] if len(args) > 1 else kwargs.get("message"))
    return tx.constant(None)


def _register_range(function: Any, low: int | None) -> None:
    @registry.on_call(function)
    def constrain(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        number, *rest = args
        least, most = [*map(_given, rest), None, None][:2]
        least, most = least or _given(kwargs.get("min")), most or _given(kwargs.get("max"))
        if least is None and low is not None:
            least = tx.constant(low)
        if low == 0 and most is not None and (not most.is_constant() or most.as_constant() <= 2):
            raise GraphBreak("eager-error", "an upper bound of a size that is not above 2")
        bound = least or tx.constant(-(2**63))
        if not _between(tx, number, bound, most):
            raise GraphBreak("eager-error", f"{number.describe()} is out of the range that it is told to have")
        return tx.constant(None)


_register_range(torch._constrain_as_size, 0)
_register_range(torch.sym_constrain_range_for_size, 0)
_register_range(torch.sym_constrain_range, None)
