"""From the shape engine's numbers to the index algebra: what symbolic sizes look like inside the code generator.

    torch.SymInt of 2*s0*s1 + 1     ->   Index 2*s0*s1 + 1 over Size("s0"), Size("s1")
    torch.SymInt of (s0 + 7)//2     ->   Index e0 over Size("e0"): computed by the plan, opaque here
    torch.SymFloat of s0**-0.5      ->   Real of Size("x0"): its bits

Lowerings see `Val`s in place of fakes, whose numbers are translated, and so nothing here ever asks the shape engine a
question that could pin a size. Numbers that hold for one size alone are plain ints.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from dyncomp.codegen.ir.index import Index, IndexLike, Size, as_index, const
from dyncomp.codegen.ir.proofs import as_number
from dyncomp.codegen.ir.real import Real
from dyncomp.fake.tensor import FakeTensor
from dyncomp.shape.symbolic import is_symbolic, number_key

LOWEST = -(1 << 62)
_REGISTER = (1 << 63) - 1
UNKNOWN = 64  # stands in for sizes that only running the program tells


class Val:
    """Metadata of a tensor with numbers as the code generator has them: what lowerings ask of a node's `meta["val"]`."""

    __slots__ = ("shape", "dtype", "device", "_strides", "_offset")

    def __init__(self, shape: tuple[Any, ...], strides: tuple[Any, ...], offset: Any, fake: Any):
        self.shape, self._strides, self._offset = shape, strides, offset
        self.dtype, self.device = fake.dtype, fake.device

    def stride(self) -> tuple[Any, ...]:
        return self._strides

    def storage_offset(self) -> Any:
        return self._offset


class SizedNode:
    """An fx node as lowerings see it, with `Val`s in `meta`."""

    __slots__ = ("node", "meta")

    def __init__(self, node: fx.Node, val: Any):
        self.node, self.meta = node, {**node.meta, "val": val}

    @property
    def target(self) -> Any:
        return self.node.target

    @property
    def args(self) -> Any:
        return self.node.args

    @property
    def kwargs(self) -> Any:
        return self.node.kwargs

    @property
    def users(self) -> Any:
        return self.node.users

    @property
    def name(self) -> str:
        return self.node.name


class Symbols:
    """Translates numbers; remembers what each `Size` stands for."""

    def __init__(self, env: Any):
        self.env = env
        self.meaning: dict[str, Any] = {}  # name of a size -> expression of the shape engine
        self._known: dict[Any, Index] = {}
        self._opaque = 0
        self.reals: dict[str, Any] = {}  # name of a size -> the SymFloat whose bits it is
        self._known_reals: dict[Any, Real] = {}

    def number(self, value: Any) -> Any:
        """A SymInt as an `Index`, or as an int where the facts say so; a SymFloat as a `Real`; everything else as it is."""
        if isinstance(value, torch.SymFloat):
            return self._real(value)
        if not isinstance(value, torch.SymInt):
            return value
        return as_number(self._index(self.env.facts.simplify(number_key(value))))

    def _real(self, value: Any) -> Any:
        expr = self.env.facts.simplify(number_key(value))
        known = self._known_reals.get(expr)
        if known is None:
            name = f"x{len(self.reals)}"
            self.reals[name] = value
            known = self._known_reals[expr] = Real(as_index(Size(name, LOWEST)), value)
        return known

    def tree(self, value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            items = [self.tree(item) for item in value]
            return items if isinstance(value, list) else tuple(items)
        if isinstance(value, dict):
            return {name: self.tree(item) for name, item in value.items()}
        return self.number(value)

    def val(self, val: Any) -> Any:
        """A fake, or a tuple of them, as `Val`s."""
        if isinstance(val, (tuple, list)):
            return tuple([self.val(item) for item in val])
        if not isinstance(val, FakeTensor):
            return self.number(val)
        meta = val.meta
        shape = tuple([self.number(n) for n in meta.shape])
        strides = tuple([self.number(n) for n in meta.strides])
        return Val(shape, strides, self.number(meta.offset), val)

    def _index(self, expr: Any) -> Index:
        known = self._known.get(expr)
        if known is None:
            known = self._known[expr] = self._opaque_size(expr) if self._may_wrap(expr) else self._translated(expr)
        return known

    def _may_wrap(self, expr: Any) -> bool:
        """No guard keeps numbers that tracing may not look at within 64 bits: where sums and products of them leave these, the
        plan's arithmetic notices, a kernel's does not.
        """
        if not (expr.is_Add or expr.is_Mul or expr.is_Pow):
            return False
        low, high = self.env.facts.range(expr)
        return (low < -_REGISTER or high > _REGISTER) and self.env.is_unbacked(expr)

    def _opaque_size(self, expr: Any) -> Index:
        self._opaque += 1
        return self._size(f"e{self._opaque - 1}", expr)

    def _translated(self, expr: Any) -> Index:
        if expr.is_Integer:
            return const(int(expr))
        if expr.is_Symbol:
            return self._size(str(expr), expr)
        if expr.is_Add:
            total: IndexLike = 0
            for arg in expr.args:
                total = self._index(arg) + total
            return as_index(total)
        if expr.is_Mul:
            product = const(1)
            for arg in expr.args:
                product = product * self._index(arg)
            return product
        if expr.is_Pow and expr.exp.is_Integer and expr.exp > 0:
            product = const(1)
            for _ in range(int(expr.exp)):
                product = product * self._index(expr.base)
            return product
        return self._opaque_size(expr)

    def _size(self, name: str, expr: Any) -> Index:
        self.meaning[name] = expr
        low = self.env.facts.low(expr)
        seen = self.env.hint(expr)
        return as_index(Size(name, LOWEST if low == -math.inf else int(low), UNKNOWN if seen is None else int(seen)))


def has_symbols(tree: Any) -> bool:
    """True if a number in nested arguments is still the shape engine's own (a truth of sizes)."""
    if isinstance(tree, (tuple, list)):
        return any(has_symbols(item) for item in tree)
    if isinstance(tree, dict):
        return any(has_symbols(item) for item in tree.values())
    return is_symbolic(tree)
