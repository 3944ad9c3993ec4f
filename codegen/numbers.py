"""Symbolic numbers of a plan: which registers hold them, and the instructions that compute them.

    Index 2*s0*s1 over x.size(0), x.size(1)   ->   size r0 = x.size(0); size r1 = x.size(1); int r2 = r0 * r1; int r3 = r2 * 2

Numbers that depend on the inputs alone are computed in front of everything else, each of them once. While a
plan is written, its instructions name numbers by `("s", "s0")` and `("s", 3)`: the sizes by what they are
called in the index algebra, what is computed from them by its register. `finished` puts registers in place of names,
once it is known which sizes are needed at all.

Numbers that only the running graph gives (late ones) are read and computed after the call that gives them:

    op y = nonzero(x); ("given", ((node, slot of y),))     ->   op y = nonzero(x); size r4 = y.size(0); int r5 = r4 * 2
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from dyncomp.codegen.ir.index import FloorDiv, Index, Min, Mod, Product, Size, Var, as_index, sizes_in
from dyncomp.codegen.ir.real import Real
from dyncomp.errors import InternalError
from dyncomp.shape.int_program import float_of_bits
from dyncomp.shape.ops import OPS
from dyncomp.shape.symbolic import is_symbolic

Instruction = tuple[Any, ...]


class Numbers:
    """`sizes`: the graph's GraphSizes; `vals`: fakes (or numbers) of its inputs; `symbols`: what the sizes stand for;
    `order`: the graph's nodes and their places, those of a call's items being that of the call."""

    def __init__(self, sizes: Any, vals: list[Any], symbols: Any, order: Mapping[Any, int]):
        self.sizes, self.vals, self.symbols, self.order = sizes, vals, symbols, order
        self.code: list[Instruction] = []
        self.plan: list[Instruction] = []  # the instructions of the plan so far: what late numbers are computed among
        self._late: set[Any] = set()  # registers with late numbers
        self._count = 0
        self._names: dict[str, Any] = {}  # name -> SymInt or SymFloat
        self._given: dict[str, Any] = {}  # name -> the node that gives the number
        self._done: dict[Any, Any] = {}  # (operation, operands) -> register

    # ---- while the plan is written

    def of(self, tree: Any) -> Any:
        """Numbers as instructions have them; containers become tuples, all else stays."""
        if isinstance(tree, (tuple, list)):
            return tuple([self.of(item) for item in tree])
        if isinstance(tree, Index):
            return self._sum(tree)
        if isinstance(tree, Real):
            tree = tree.number
        is_fact = hasattr(tree, "truth")
        return self._raw(tree) if is_fact or is_symbolic(tree) else tree

    def larger(self, a: Any, b: Any) -> Any:
        """Of two numbers as instructions have them."""
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return a if a == b else self._compute("max", a, b)

    def sum(self, a: Any, b: Any) -> Any:
        return self._compute("add", a, b)

    def is_late(self, tree: Any) -> bool:
        """True if something in sizes or strides is known while the graph runs only."""
        if isinstance(tree, (tuple, list)):
            return any(self.is_late(item) for item in tree)
        if not isinstance(tree, Index) or not self.sizes.checked_while_running:
            return False
        meaning, env = self.symbols.meaning, self.symbols.env
        return any(size.name in meaning and env.needs_running(meaning[size.name]) for size in sizes_in(tree))

    def given_by(self, node: Any) -> Any:
        """Where the number that a node gives goes."""
        name = f"={node.name}"
        self._given[name] = node
        return ("f" if isinstance(node.meta["val"], torch.SymFloat) else "s", name)

    def _raw(self, number: Any) -> Any:
        """A float, truth or fact made of sizes: an argument that the index algebra does not take in."""
        name = f"#{len(self._names)}"
        known = self._done.setdefault(("raw", str(number)), name)
        if known == name:
            self._names[name] = number
        return ("f" if isinstance(number, torch.SymFloat) else "s", known)

    def _compute(self, operation: str, a: Any, b: Any) -> Any:
        key = (operation, a, b)
        known = self._done.get(key)
        if known is None:
            known = self._done[key] = ("s", self._count)
            late = not self._late.isdisjoint((a, b))
            if late:
                self._late.add(known)
            (self.plan if late else self.code).append(("int", self._count, operation, a, b))
            self._count += 1
        return known

    def _sum(self, index: Index) -> Any:
        total: Any = None
        for atom, coef in index.terms:
            if coef < 0:
                continue
            term = self._times(self._atom(atom), coef)
            total = term if total is None else self._compute("add", total, term)
        first = total is None  # then the sum begins with its constant, whatever its sign
        if first:
            total = index.const
        elif index.const > 0:
            total = self._compute("add", total, index.const)
        for atom, coef in index.terms:
            if coef < 0:
                total = self._compute("sub", total, self._times(self._atom(atom), -coef))
        if index.const < 0 and not first:
            total = self._compute("sub", total, -index.const)
        return total

    def _times(self, value: Any, coef: int) -> Any:
        return value if coef == 1 else self._compute("mul", value, coef)

    def _atom(self, atom: Any) -> Any:
        if isinstance(atom, Size):
            if atom.name in self.symbols.reals:
                return self._raw(self.symbols.reals[atom.name])
            if atom.name not in self._names:
                expr = self.symbols.meaning[atom.name]
                self._names[atom.name] = self.symbols.env.wrap(expr, int)
                if self.is_late(as_index(atom)):
                    self._late.add(("s", atom.name))
            return ("s", atom.name)
        if isinstance(atom, Product):
            first, *rest = [self._atom(part) for part in atom.atoms]
            for part in rest:
                first = self._compute("mul", first, part)
            return first
        if isinstance(atom, (FloorDiv, Mod)):
            operation = "floordiv" if isinstance(atom, FloorDiv) else "mod"
            return self._compute(operation, self.of(as_index(atom.num)), self.of(as_index(atom.den)))
        if isinstance(atom, Min):
            return self._compute("min", self.of(atom.a), self.of(atom.b))
        assert isinstance(atom, Var)
        raise InternalError(f"{atom} stands outside of its loop")

    def kinds(self) -> int | tuple[str, ...]:
        """What the inputs are, as `_exec.Plan` takes it."""
        kinds = tuple([_kind(val) for val in self.vals])
        return len(kinds) if all(kind == "tensor" for kind in kinds) else kinds

    # ---- the end

    def finished(self, code: list[Instruction], outputs: list[Any]) -> tuple[list[Instruction], list[Any]]:
        """The whole plan with its numbers; registers in place of names."""
        program_of = self.sizes.covering(self.vals, [n for n in self._names.values() if not hasattr(n, "truth")])
        placed = self._program(program_of)
        whole = [*placed.pop(-1, ()), *self._placed(self.code)]
        for instruction in code:
            if instruction[0] != "given":
                whole.append(self._placed(instruction))
                continue
            slots = dict(instruction[1])
            for computed in placed.pop(self.order[instruction[1][0][0]], ()):
                late = computed[0] == "size" and computed[2] in slots
                whole.append((*computed[:2], slots[computed[2]], computed[3]) if late else computed)
        if placed:
            raise InternalError("a number of the graph is computed nowhere")
        return whole, self._placed(outputs)

    def _placed(self, tree: Any) -> Any:
        if isinstance(tree, tuple):
            if len(tree) == 2 and tree[0] in ("s", "f") and isinstance(tree[1], str):
                return self._places[tree[1]]
            return tuple([self._placed(item) for item in tree])
        if isinstance(tree, dict):
            return {name: self._placed(item) for name, item in tree.items()}
        return [self._placed(item) for item in tree] if isinstance(tree, list) else tree

    def _program(self, program_of: Any) -> dict[int, list[Instruction]]:
        """What reads this call's numbers and computes those that the plan named, by the node after which it goes (-1: in front);
        notes where each of them is."""
        program = program_of.program
        when = program_of.when(self.order)
        code: dict[int, list[Instruction]] = {}
        values: list[Any] = []
        given: dict[Any, Any] = {}  # node -> the register of its number
        for position, read in zip(when, program.inputs, strict=False):
            number, self._count = self._count, self._count + 1
            values.append(("f" if self._is_float(read) else "s", number))
            if isinstance(read, tuple):
                index, what, dim = read
                known = (what, number, index, dim) if what in ("size", "stride") else ("number", number, index)
                code.setdefault(position, []).append(known)
            elif read.what == "size":
                code.setdefault(position, []).append(("size", number, read.node, read.dim))
            else:
                given[read.node] = values[-1]
        for position, (name, *operands) in zip(when[len(values) :], program.code, strict=True):
            found = operands if name in _CONSTANTS else [values[i] for i in operands]
            values.append(self._instruction(code.setdefault(position, []), name, found))
        # None: an operation gives it, but nobody reads it.
        self._places: dict[str, Any] = {name: given.get(node) for name, node in self._given.items()}
        for name, number in self._names.items():
            place = program_of.place_of_fact(number) if hasattr(number, "truth") else program_of.place(number)
            self._places[name] = int(number) if place is None else values[program.results[place]]
        return {position: instructions for position, instructions in code.items() if instructions}

    def _is_float(self, read: Any) -> bool:
        """True if the number that a register of the program reads is a float."""
        val = self.vals[read[0]] if isinstance(read, tuple) else read.node.meta["val"]
        return isinstance(val, (torch.SymFloat, float))

    def _instruction(self, code: list[Instruction], name: str, operands: list[Any]) -> Any:
        if name == "const":
            return operands[0]
        if name == "fconst":
            return float_of_bits(operands[0])
        number = self._count
        self._count += 1
        if name in _INT_OPERATIONS:
            code.append(("int", number, name, *operands))
            return ("s", number)
        code.append(("compute", number, name, tuple(operands)))
        like_operand = name == "select" and isinstance(operands[1], tuple) and operands[1][0] == "f"
        return ("f" if name in _FLOAT_RESULT or like_operand else "s", number)


def _kind(val: Any) -> str:
    if hasattr(val, "dtype"):
        return "tensor"
    if isinstance(val, (bool, torch.SymBool)):
        return "bool"
    return "float" if isinstance(val, (float, torch.SymFloat)) else "int"


_CONSTANTS = ("const", "fconst")
_INT_OPERATIONS = frozenset({"add", "sub", "mul", "floordiv", "mod", "min", "max"})
_TO_INT = frozenset({"feq", "flt", "fle", "fisint", "ffloor", "fceil", "ftrunc", "fround"})
_FLOAT_RESULT = (
    frozenset({"tofloat", "truediv", *(name for name in OPS if name.startswith("f"))}) - _TO_INT - {"floordiv"}
)
