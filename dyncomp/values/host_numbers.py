"""Branches on numbers that lie in the CPU's memory when the call begins: step counts, counters of modules.

    step_t += 1; step = step_t.item()      the number in step_t at the start, plus one (`host_graph`)
    if rho(step) > 5:                      answered for this call's number; that the answer stays so is a guard
    if self.n_averaged == 0:               likewise

The graph so far is followed only once somebody asks. A number that was written by anything that is not followed is unknown, and the
branch breaks the graph as any other. A tensor counts if nobody else holds its memory (`_exec.host_number`), and if it belongs to the
world around the call: what comes as an argument may differ from call to call, and each way to answer is compiled by itself.
"""

from __future__ import annotations

from typing import Any

from dyncomp._frame import _exec
from dyncomp.guards.number import Number
from dyncomp.guards.source import Call, DictItem, ListItem, Local, Source, TupleItem
from dyncomp.shape.int_program import Instruction, Program, bits_of_float
from dyncomp.values.base import Tracer, Value
from dyncomp.values.host_graph import COMPARE, EXACT, Expr, Followed, const, equal, follow, negation

_GIVEN = (Local, DictItem, TupleItem, ListItem)
_MOST_ASKED = 4  # by one line about one tensor: a loop that counts would be unrolled, once for each length


def tensor_truth(tx: Tracer, tensor: Any) -> bool | None:
    """What `if tensor:` asks, or None where only the running graph tells."""
    expr = _expr_of(tx, tensor)
    if expr is None or any(_is_given(source) for source in _sources(expr)):
        return None
    return _answer(tx, expr if expr.kind is bool else negation(equal(expr, const(expr.kind(0)))))


def compare(tx: Tracer, op: str, left: Any, right: Any) -> bool | None:
    """`left op right` of Python floats, each a 0-d float64 tensor of the graph or a plain number; None where only the running graph tells."""
    sides = [_expr_of(tx, one) if isinstance(one, Value) else const(float(one)) for one in (left, right)]
    if None in sides:
        return None
    return _answer(tx, COMPARE[op](*sides))  # type: ignore[arg-type]


def _is_given(source: Source) -> bool:
    """Part of the call's arguments: an argument, or an item of a container in them."""
    return all(isinstance(link, _GIVEN) for link in source.chain())


def _expr_of(tx: Tracer, tensor: Any) -> Expr | None:
    followed: Followed = tx.state.setdefault(__name__, Followed())
    follow(tx, followed)
    cell = followed.cells.get(tensor.fx_arg(tx))
    if cell is None or cell.fake.fake_storage.version != cell.writes:
        return None
    return cell.expr


def _answer(tx: Tracer, expr: Expr) -> bool | None:
    followed: Followed = tx.state[__name__]
    if expr in followed.answers:
        return followed.answers[expr]
    sources = _sources(expr)
    place = (tx.user_line(), tuple(sources))
    followed.asked[place] = followed.asked.get(place, 0) + 1
    if sources and followed.asked[place] > _MOST_ASKED:
        return None
    values = [_exec.host_number(followed.inputs[source]) for source in sources]
    writer = _Writer(sources, values)
    register = writer.lower(expr)
    results = writer.program((register,)).run(values)
    if results is None:
        return None
    line = "{}:{}".format(*tx.user_line())
    writer.require(register if results[0] else writer.emit("not", register), f"the branch at {line} goes the same way")
    if sources:
        tx.guard(sources[0], "int_program", writer.program())
    followed.answers[expr] = bool(results[0])
    return followed.answers[expr]


def _sources(expr: Expr) -> list[Source]:
    """Of the tensors that it reads, each once, in order."""
    if expr.op == "input":
        return [expr.operands[0]]
    return list(dict.fromkeys(source for one in expr.operands if isinstance(one, Expr) for source in _sources(one)))


class _Writer:
    """An expression as a program over the numbers in some tensors."""

    def __init__(self, sources: list[Source], values: list[Any]):
        self._inputs = tuple(
            Number(Call(source, _exec.host_number), "float" if isinstance(value, float) else "int")
            for source, value in zip(sources, values, strict=True)
        )
        self._places = {source: place for place, source in enumerate(sources)}
        self._code: list[Instruction] = []
        self._texts: list[str] = []
        self._made: dict[Expr, int] = {}

    def program(self, results: tuple[int, ...] = ()) -> Program:
        return Program(self._inputs, tuple(self._code), results, tuple(self._texts))

    def emit(self, op: str, *operands: Any) -> int:
        self._code.append((op, *operands))
        return len(self._inputs) + len(self._code) - 1

    def require(self, register: int, text: str) -> None:
        self.emit("require", register)
        self._texts.append(text)

    def lower(self, expr: Expr) -> int:
        if expr not in self._made:
            self._made[expr] = self._lower(expr)
        return self._made[expr]

    def _lower(self, expr: Expr) -> int:
        if expr.op == "input":
            return self._places[expr.operands[0]]
        if expr.op == "const":
            value = expr.operands[0]
            return self.emit("fconst", bits_of_float(value)) if expr.kind is float else self.emit("const", int(value))
        registers = [self.lower(one) for one in expr.operands]
        if expr.op != "small":
            return self.emit(expr.op, *registers)
        text = "a whole number that float32 holds"
        self.require(self.emit("fisint", registers[0]), text)
        self.require(self.emit("fle", self.emit("fabs", registers[0]), self.emit("fconst", bits_of_float(EXACT))), text)
        return registers[0]
