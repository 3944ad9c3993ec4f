"""Numbers out of tensors: `.item()`, `int(t)`, `float(t)`, `.tolist()`, tensors as slice bounds and as indices.

    torch.tensor([1, 2])[0].item()     known while tracing: 1
    torch.tensor(x.size(0)).item()     known too: the size (`fake/known_number.py`)
    x.sum().item()                     a number of the running graph (`config.capture_scalar_outputs`), else a graph break

Of a bool tensor only `int(t)` and `float(t)` give such a number: what `.item()` gives decides branches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dyncomp import config
from dyncomp.errors import GraphBreak
from dyncomp.fake import DataDependentValue
from dyncomp.fake.constant import outside, value_of
from dyncomp.fake.known_number import number_of, pinned_value
from dyncomp.values import host_numbers
from dyncomp.values.base import Tracer, Value
from dyncomp.values.sequence import ListValue, TupleValue
from dyncomp.values.slices import SliceValue
from dyncomp.values.sym_number import wrap_number

KNOB_HINT = (
    "Set dyncomp.config.capture_scalar_outputs = True to take the number into the graph, or keep the value a tensor "
    "(no .item(), .tolist(), int() or float() of a tensor)."
)
_INTEGERS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
_MOST_ITEMS = 64  # of a list: each is an operation of its own in the graph, where eager copies them all at once
_NUMBERS = {"item": None, "__int__": int, "__float__": float, "__complex__": complex, "__bool__": bool}


def known_number(
    tx: Tracer,
    tensor: Value,
    what: str,
    reason: str = "data-dependent-value",
    hint: str = "",
    convert: Callable[[torch.Tensor], Any] = torch.Tensor.item,
) -> Any:
    """The value of a tensor made from Python numbers; of any other it is known at run time only, which is a graph break. `convert`:
    what the program asks of the tensor, for the error that it gets if there is not just one element."""
    mode = tx.fake_mode
    before, mode.takes_late = mode.takes_late, False
    try:
        number = mode.run(tensor.fake(tx).item)  # type: ignore[attr-defined]
        return int(number) if isinstance(number, torch.SymInt) else number
    except DataDependentValue as error:
        raise GraphBreak(reason, what, hint) from error
    except RuntimeError as error:
        tx.raise_real(_refused(tensor.fake(tx), convert) or error)  # type: ignore[attr-defined]
    finally:
        mode.takes_late = before


def _refused(fake: Any, convert: Callable[[torch.Tensor], Any]) -> Exception | None:
    """What eager raises where a tensor of so many elements is taken for a number."""
    count = int(fake.numel())
    try:
        outside(lambda: convert(torch.zeros((), dtype=fake.dtype).expand(count)))
    except (RuntimeError, TypeError, ValueError) as error:
        return error
    return None


def truth(tx: Tracer, tensor: Any) -> bool:
    """What `if tensor:` asks."""
    held = number_of(tensor.fake(tx))
    if held is not None:
        return wrap_number(tx, held).truth(tx)
    answer = host_numbers.tensor_truth(tx, tensor)
    if answer is not None:
        return answer
    return bool(known_number(tx, tensor, "a branch on the value of a tensor", "data-dependent-branch", convert=bool))


def number_method(tx: Tracer, tensor: Any, name: str) -> Value:
    """`tensor.item()`, and what `int`, `float`, `complex` and `bool` call."""
    kind = _NUMBERS[name]
    held = number_of(tensor.fake(tx))
    if held is not None and name != "__complex__":
        number = wrap_number(tx, held)
        if kind is bool:
            return tx.constant(number.truth(tx))
        return number if kind is None else number.call_method(tx, name, [], {})
    if not (
        config.capture_scalar_outputs and name in ("item", "__int__", "__float__") and _gives_number(tx, tensor, name)
    ):
        hint = "" if name in ("__bool__", "__complex__") else KNOB_HINT
        number = known_number(tx, tensor, f"Tensor.{name}()", hint=hint, convert=kind or torch.Tensor.item)
        return tx.constant(number if kind is None else kind(number))
    fake = tensor.fake(tx)
    if value_of(fake) is not None:
        number = known_number(tx, tensor, f"Tensor.{name}()")
        return tx.constant(number if kind is None else kind(number))
    if fake.dtype is torch.bool:
        tensor = tx.graph_call("to", [tensor, tx.constant(torch.int64)])
    number = tx.graph_call("item", [tensor])
    return number if kind is None else number.call_method(tx, name, [], {})


def _gives_number(tx: Tracer, tensor: Any, name: str) -> bool:
    dtype = tensor.fake(tx).dtype
    return (
        dtype in _INTEGERS or dtype.is_floating_point and dtype.itemsize > 1 or dtype is torch.bool and name != "item"
    )


def index_number(tx: Tracer, tensor: Any) -> Value | None:
    """What `tensor.__index__()` gives, if it can be taken into the graph."""
    fake = tensor.fake(tx)
    if fake.dtype not in _INTEGERS or fake.ndim:
        return None
    if not config.capture_scalar_outputs and number_of(fake) is None and value_of(fake) is None:
        return None
    return number_method(tx, tensor, "item")


def tolist(tx: Tracer, tensor: Any) -> Value | None:
    """Nested lists of numbers; None where they cannot be taken into the graph."""
    fake = tensor.fake(tx)
    sizes = fake.meta.shape
    if not sizes and number_of(fake) is not None:
        return number_method(tx, tensor, "item")
    known = value_of(fake)
    if known is None and not config.capture_scalar_outputs:
        known = pinned_value(fake)
    if known is not None:
        return _listed(tx, outside(known.tolist))
    if not config.capture_scalar_outputs or not all(type(size) is int for size in sizes):
        return None
    if fake.numel() > _MOST_ITEMS or not _gives_number(tx, tensor, "item"):
        return None
    return _nested(tx, tensor, len(sizes))


def _listed(tx: Tracer, value: Any) -> Value:
    return tx.list_of([_listed(tx, item) for item in value]) if isinstance(value, list) else tx.constant(value)


def _nested(tx: Tracer, tensor: Any, depth: int) -> Value:
    if not depth:
        return number_method(tx, tensor, "item")
    return tx.list_of([_nested(tx, part, depth - 1) for part in tensor.unpack(tx)])


def key_with_numbers(tx: Tracer, key: Value) -> Value:
    """A key for a tensor with numbers in place of tensors that stand for one: slice bounds, and integers of no dimension. A list of
    numbers that vary becomes the tensor that torch makes of it.
    """
    if isinstance(key, TupleValue):
        return tx.tuple_of([key_with_numbers(tx, part) for part in key.items])
    if isinstance(key, SliceValue):
        return SliceValue([_number_of(tx, bound) for bound in key.bounds])
    if isinstance(key, ListValue) and any(item.symbolic for item in key.items):
        numbers = all(issubclass(item.python_type(), int) and not issubclass(item.python_type(), bool) for item in key.items)
        return tx.call(tx.constant(torch.tensor), [key]) if numbers else key
    if _is_tensor(key) and key.fake(tx).dtype is torch.uint8:  # type: ignore[attr-defined]
        return key  # a mask
    return _number_of(tx, key)


def _number_of(tx: Tracer, value: Value) -> Value:
    if not _is_tensor(value):
        return value
    number = index_number(tx, value)
    return value if number is None else number


def _is_tensor(value: Value) -> bool:
    return issubclass(value.python_type(), torch.Tensor)


def select_numbers(tx: Tracer, tensor: Value, key: Value) -> tuple[Value, Value | None]:
    """`x[n, 1:]` with a symbolic n is `x.select(0, n)[1:]`: (the selected tensor, what is left of the key or None if nothing is).

    torch's indexing would ask for the number itself. Keys with tensors, masks, lists or None stay as they are.
    """
    parts = list(key.items) if isinstance(key, TupleValue) else [key]
    if not any(_is_symbolic_int(part) for part in parts) or not all(map(_is_simple, parts)):
        return tensor, key
    rank = tensor.fake(tx).ndim  # type: ignore[attr-defined]
    whole = [i for i, part in enumerate(parts) if part.python_type() is type(...)]
    if len(whole) > 1 or len(parts) - len(whole) > rank:
        return tensor, key  # eager's own error
    for i in reversed(range(len(parts))):
        if _is_symbolic_int(parts[i]):
            dim = i if not whole or i < whole[0] else rank - (len(parts) - i)
            tensor = tx.graph_call("select", [tensor, tx.constant(dim), parts[i]])
            rank -= 1
            del parts[i]
            whole = [w - 1 if w > i else w for w in whole]
    return tensor, tx.tuple_of(parts) if parts else None


def _is_symbolic_int(value: Value) -> bool:
    return value.symbolic and value.python_type() is int


def _is_simple(value: Value) -> bool:
    return value.python_type() in (int, slice, type(...))
