"""The numbers in tensors of one element, followed through the graph that is being traced.

    step_t += 1; step = step_t.item()      the number in step_t at the start, plus one
    count > 3                              a comparison of it

Operations are followed that compute with such numbers alone, and exactly: what torch rounds otherwise than Python's numbers is left
out. A cell stands for the memory of a tensor; writes that were not followed show in the count of its storage.
"""

from __future__ import annotations

import dataclasses
import operator
import struct
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from dyncomp._frame import _exec
from dyncomp.fake.constant import outside
from dyncomp.fake.tensor import FakeTensor
from dyncomp.guards.source import Source
from dyncomp.values.base import Tracer

_KINDS = {torch.float64: float, torch.float32: float, torch.int64: int, torch.int32: int, torch.bool: int}
EXACT = 2.0**24  # whole numbers up to here are the same in float32


@dataclasses.dataclass(frozen=True)
class Expr:
    """A number of Python: `op` is one of a program (`shape.ops`), "const", "input" (a Source) or "small": a whole float that float32
    holds exactly, which is required.
    """

    op: str
    operands: tuple[Any, ...]
    kind: type  # int, float or bool


@dataclasses.dataclass
class Cell:
    """What is in the memory of one tensor. `writes`: how many of them were followed."""

    expr: Expr
    fake: FakeTensor
    writes: int = 0


class Followed:
    """The graph of one trace, as far as it was looked at."""

    def __init__(self) -> None:
        self.cells: dict[torch.fx.Node, Cell] = {}
        self.of_fakes: dict[int, Cell] = {}  # by the id of the fake, which the cell holds
        self.last: torch.fx.Node | None = None
        self.inputs: dict[Source, Any] = {}
        self.asked: dict[Any, int] = {}
        self.answers: dict[Expr, bool] = {}


def follow(tx: Tracer, followed: Followed) -> None:
    for node, source, real, _ in tx.inputs[len(followed.inputs) :]:
        followed.inputs[source] = real
        _enter(followed, node, source, real)
    node = followed.last.next if followed.last is not None else next(iter(tx.graph.nodes), None)
    while node is not None and node.op != "root":
        rule = _RULES.get(node.target) if node.op in ("call_function", "call_method") else None
        if rule is not None:
            rule(followed, node)
        if node not in followed.cells:
            _seen(followed, node)
        followed.last = node
        node = node.next


def _enter(followed: Followed, node: torch.fx.Node, source: Source, real: Any) -> None:
    fake = node.meta["example_value"]
    if type(fake) is FakeTensor and fake.dtype in _KINDS and _exec.host_number(real) is not None:
        _made(followed, node, Expr("input", (source,), _KINDS[fake.dtype]))


def _literal(fake: Any) -> Expr | None:
    """The number in a tensor that the program made of it."""
    if type(fake) is not FakeTensor or fake.constant is None or fake.dtype not in _KINDS or not _is_one(fake):
        return None
    return const(_KINDS[fake.dtype](outside(fake.constant.item)))


def _filled(value: int) -> Callable[[Followed, torch.fx.Node], None]:
    """`torch.zeros(())` and `torch.ones(())`."""

    def rule(followed: Followed, node: torch.fx.Node) -> None:
        fake = node.meta["example_value"]
        if type(fake) is FakeTensor and fake.dtype in _KINDS and _is_one(fake):
            _made(followed, node, const(_KINDS[fake.dtype](value)))

    return rule


def _is_one(fake: FakeTensor) -> bool:
    return all(type(size) is int and size == 1 for size in fake.meta.shape)


def _made(followed: Followed, node: torch.fx.Node, expr: Expr | None) -> None:
    fake = node.meta["example_value"]
    if expr is not None:  # written since or not: writes are counted from here on
        followed.cells[node] = followed.of_fakes[id(fake)] = Cell(expr, fake)


def _seen(followed: Followed, node: torch.fx.Node) -> None:
    """A node that is a tensor seen before, as operations in place return it, or one that the program made of a number."""
    fake = node.meta.get("example_value")
    if id(fake) in followed.of_fakes:
        followed.cells[node] = followed.of_fakes[id(fake)]
    else:
        _made(followed, node, _literal(fake))


def _operand(followed: Followed, value: Any) -> tuple[Expr, torch.dtype | None] | None:
    """A number and the dtype of the tensor that it is in, None of a plain one; None where it is unknown."""
    if isinstance(value, torch.fx.Node):
        fake = value.meta.get("example_value")
        if type(fake) is not FakeTensor or fake.dtype not in _KINDS:
            return None
        cell = followed.cells.get(value)
        return None if cell is None or cell.expr.kind is bool else (cell.expr, fake.dtype)
    return (const(value), None) if type(value) in (int, float) else None


def const(value: Any) -> Expr:
    return Expr("const", (value,), type(value))


def _float(expr: Expr) -> Expr:
    return expr if expr.kind is float else Expr("tofloat", (expr,), float)


def negation(expr: Expr) -> Expr:
    return Expr("not", (expr,), bool)


def equal(a: Expr, b: Expr) -> Expr:
    if a.kind is int and b.kind is int:
        return Expr("eq", (a, b), bool)
    return Expr("feq", (_float(a), _float(b)), bool)


def _less(a: Expr, b: Expr) -> Expr:
    if a.kind is int and b.kind is int:
        return Expr("lt", (a, b), bool)
    return Expr("flt", (_float(a), _float(b)), bool)


def _at_most(a: Expr, b: Expr) -> Expr:
    if a.kind is int and b.kind is int:
        return negation(_less(b, a))
    return Expr("fle", (_float(a), _float(b)), bool)


COMPARE: dict[str, Callable[[Expr, Expr], Expr]] = {
    "==": equal, "!=": lambda a, b: negation(equal(a, b)), "<": _less, ">": lambda a, b: _less(b, a),
    "<=": _at_most, ">=": lambda a, b: _at_most(b, a),
}  # fmt: skip


def _is_float32(value: float) -> bool:
    try:
        return bool(struct.unpack("f", struct.pack("f", value))[0] == value)
    except OverflowError:
        return False


def _arithmetic(name: str, a: Any, b: Any, result: torch.dtype, python: bool) -> Expr | None:
    """`python`: floats of Python that stand in float64 tensors; else what torch computes, which rounds to `result`."""
    left, right = a[0], b[0]
    if result is torch.float64 and (python or name != "pow"):
        return Expr({"div": "fdiv", "pow": "fpow"}.get(name, f"f{name}"), (_float(left), _float(right)), float)
    if name not in ("add", "sub"):
        return None
    if result is torch.int64 and left.kind is int and right.kind is int:
        return Expr(name, (left, right), int)
    if result is torch.float32:
        small = [Expr("small", (_float(one),), float) for one in (left, right)]
        return Expr("small", (Expr(f"f{name}", tuple(small), float),), float)
    return None


def _compared(op: str, a: Any, b: Any) -> Expr | None:
    """Of tensors: torch compares in one dtype, which must hold both numbers exactly."""
    (left, dtype), (right, other) = a, b
    for expr, own, against in ((left, dtype, other), (right, other, dtype)):
        if own is None and expr.kind is float and against is not torch.float64 and not _is_float32(expr.operands[0]):
            return None
        if own is None and expr.kind is int and against is torch.float32 and abs(expr.operands[0]) > EXACT:
            return None
    if left.kind is not right.kind and torch.float64 not in (dtype, other):
        if int in (left.kind, right.kind) and not (dtype is None or other is None):
            return None
        if dtype in (torch.int64, torch.int32) or other in (torch.int64, torch.int32):  # an integer as a float32
            return None
    return COMPARE[op](left, right)


def _binary(name: str, in_place: bool = False) -> Callable[[Followed, torch.fx.Node], None]:
    def rule(followed: Followed, node: torch.fx.Node) -> None:
        options = dict(node.kwargs)
        alpha = options.pop("alpha", 1)
        a, b = (_operand(followed, one) for one in node.args) if len(node.args) == 2 else (None, None)
        fake = node.meta["example_value"]
        expr = None
        if a is not None and b is not None and not options and alpha == 1 and type(fake) is FakeTensor and _is_one(fake):
            expr = _arithmetic(name, a, b, fake.dtype, "python_number" in node.meta)
        _put(followed, node.args[0], expr) if in_place else _made(followed, node, expr)

    return rule


def _put(followed: Followed, target: Any, expr: Expr | None) -> None:
    """A write that was followed; one that was not leaves the count behind."""
    cell = followed.cells.get(target)
    if cell is not None and expr is not None:
        cell.expr, cell.writes = expr, cell.writes + 1


def _comparison(op: str) -> Callable[[Followed, torch.fx.Node], None]:
    def rule(followed: Followed, node: torch.fx.Node) -> None:
        a, b = (_operand(followed, one) for one in node.args) if len(node.args) == 2 else (None, None)
        known = a is not None and b is not None and not node.kwargs
        _made(followed, node, _compared(op, a, b) if known else None)

    return rule


def _negated(followed: Followed, node: torch.fx.Node) -> None:
    a = _operand(followed, node.args[0])
    fake = node.meta["example_value"]
    if a is not None and type(fake) is FakeTensor and fake.dtype is torch.float64:
        _made(followed, node, Expr("fneg", (a[0],), float))


def _same(followed: Followed, node: torch.fx.Node) -> None:
    """The same number, in the same memory or in memory of its own, perhaps in another dtype that holds it."""
    source: Any = node.args[0] if node.args else None
    cell = followed.cells.get(source)
    fake = node.meta["example_value"]
    if cell is None or type(fake) is not FakeTensor or not _is_one(fake):
        return
    if fake.fake_storage is cell.fake.fake_storage:
        if fake.dtype is cell.fake.dtype:
            followed.cells[node] = cell
    elif fake.dtype is cell.fake.dtype:
        _made(followed, node, cell.expr)
    elif fake.dtype is torch.float64 and cell.expr.kind is not bool:
        _made(followed, node, _float(cell.expr))


def _foreach_add(followed: Followed, node: torch.fx.Node) -> None:
    """`torch._foreach_add_(counts, 1)`, as optimisers count their steps."""
    if len(node.args) != 2 or set(node.kwargs) - {"alpha"} or node.kwargs.get("alpha", 1) != 1:
        return
    b = _operand(followed, node.args[1])
    for target in node.args[0] if isinstance(node.args[0], list | tuple) else ():
        a = _operand(followed, target)
        expr = None
        if a is not None and b is not None:
            expr = _arithmetic("add", a, b, target.meta["example_value"].dtype, False)  # type: ignore[union-attr]
        _put(followed, target, expr)


_RULES: dict[Any, Callable[[Followed, torch.fx.Node], None]] = {torch._foreach_add_: _foreach_add}
for _name, _functions in {
    "add": (operator.add, torch.add, "add", "__add__", "__radd__"), "sub": (operator.sub, torch.sub, "sub"),
    "mul": (operator.mul, torch.mul, "mul"), "div": (operator.truediv, torch.div, "div"), "pow": (operator.pow,),
}.items():  # fmt: skip
    _RULES.update(dict.fromkeys(_functions, _binary(_name)))
for _name, _functions in {"add": (operator.iadd, "add_", "__iadd__"), "sub": (operator.isub, "sub_", "__isub__")}.items():  # type: ignore[assignment]
    _RULES.update(dict.fromkeys(_functions, _binary(_name, in_place=True)))
for _op, _functions in {
    "==": (operator.eq, torch.eq, "eq"), "!=": (operator.ne, torch.ne, "ne"), "<": (operator.lt, torch.lt, "lt"),
    "<=": (operator.le, torch.le, "le"), ">": (operator.gt, torch.gt, "gt"), ">=": (operator.ge, torch.ge, "ge"),
}.items():  # fmt: skip
    _RULES.update(dict.fromkeys(_functions, _comparison(_op)))
_RULES.update({torch.zeros: _filled(0), torch.ones: _filled(1)})
_RULES.update(dict.fromkeys((operator.neg, torch.neg, "neg"), _negated))
_RULES.update(dict.fromkeys(("to", "clone", "detach", "reshape", torch.clone, torch.detach, torch.reshape), _same))
