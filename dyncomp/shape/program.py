"""From expressions and guards to integer programs (`int_program.py`).

    guard_program(env)              all that a later call must fulfil
    value_program(env, [2*s0, s1])  computes sizes from a call's numbers
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import sympy

from dyncomp.shape.env import ShapeEnv
from dyncomp.shape.functions import FALSE, TRUE, Expr, FloatConstant, IsPositive, IsZero, float_constant
from dyncomp.shape.int_program import Instruction, Program, Readings
from dyncomp.shape.questions import ShapeGuard
from dyncomp.shape.relation import equal
from dyncomp.shape.symbols import SIZE_LIMIT
from dyncomp.shape.truths import Defined, PinnedFloat
from dyncomp.shape.words import words

_REGISTER = 2**63 - 2  # any number that an input can hold is within

class Compiler:
    """Builds one program; equal expressions are computed once. `readings`: see `symbolic.value_program`. `whole`: nothing is
    read but through them.
    """

    def __init__(self, env: ShapeEnv, readings: Readings | None = None, whole: bool = False):
        self.env, self.readings, self.whole = env, readings, whole
        self.inputs: dict[Any, int] = {}
        self.body: list[Instruction] = []  # operands: ("in", i) or ("at", i), numbered when all inputs are known
        self.texts: list[str] = []
        self._known: dict[Any, Instruction] = {}

    def input(self, origin: Hashable) -> Instruction:
        return ("in", self.inputs.setdefault(origin, len(self.inputs)))

    def emit(self, name: str, *operands: Any) -> Instruction:
        key = (name, *operands)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = ("at", len(self.body))
            self.body.append(key)
        return known

    def require(self, text: str, name: str, *operands: Any) -> None:
        self.body.append((name, *operands))
        self.texts.append(text)

    def finish(self, results: Sequence[Instruction] = ()) -> Program:
        count = len(self.inputs)

        def place(operand: Any) -> Any:
            if not isinstance(operand, tuple):
                return operand
            return operand[1] if operand[0] == "in" else count + operand[1]

        code = tuple([(name, *map(place, operands)) for name, *operands in self.body])
        return Program(tuple(self.inputs), code, tuple(map(place, results)), tuple(self.texts))

    # ---- expressions

    def value(self, e: Expr) -> Instruction:
        """The register of an expression."""
        if e.is_Integer:
            return self.emit("const", int(e))
        if e.is_Symbol:
            return self._symbol(e)
        if e.is_Add:
            return self._sum(e)
        if e.is_Mul:
            return self._fold("mul", [self.value(arg) for arg in e.args])
        if e.is_Pow:
            return self._fold("mul", [self.value(e.base)] * int(e.exp))
        if isinstance(e, FloatConstant):
            return self.emit("fconst", int(e.args[0]))
        if isinstance(e, sympy.logic.boolalg.Boolean):
            return self._truth(e)
        return self.emit(e.op, *[self.value(arg) for arg in e.args])

    def _symbol(self, symbol: Expr) -> Instruction:
        if self.readings is not None and symbol in self.readings:
            return self._reading(*self.readings[symbol])
        part = self.env.facts.parts.get(symbol)
        if part is not None:
            return self.emit("floordiv", self._symbol(part[0]), self.emit("const", part[1]))
        origin = self.env.symbols[symbol].origin
        if origin is None or self.whole:
            return self.value(self._backed(symbol))
        return self.input(origin)

    def _reading(self, origin: Hashable, scale: int, shift: int) -> Instruction:
        value = self.input(origin)
        if shift:
            value = self.emit("sub", value, self.emit("const", shift))
        return value if scale == 1 else self.emit("floordiv", value, self.emit("const", scale))

    def _backed(self, symbol: Expr) -> Expr:
        simple = self.env.facts.simplify(symbol)
        if simple == symbol:
            raise KeyError(f"{symbol} is known at run time only")
        return simple

    def _sum(self, e: Expr) -> Instruction:
        up, down = _signs(e)
        total = self._total(up)
        return total if not down else self.emit("sub", total, self._total(down))

    def _total(self, terms: Sequence[Expr]) -> Instruction:
        return self._fold("add", [self.value(term) for term in terms]) if terms else self.emit("const", 0)

    def _fold(self, name: str, operands: Sequence[Instruction]) -> Instruction:
        result = operands[0]
        for operand in operands[1:]:
            result = self.emit(name, result, operand)
        return result

    def _truth(self, e: Expr) -> Instruction:
        if e is TRUE or e is FALSE:
            return self.emit("const", int(bool(e)))
        if isinstance(e, IsZero | IsPositive):
            up, down = _signs(e.args[0])
            more, less = self._total(up), self._total(down)
            return self.emit("eq", more, less) if isinstance(e, IsZero) else self.emit("lt", less, more)
        if isinstance(e, sympy.And | sympy.Or):
            return self._fold("and" if isinstance(e, sympy.And) else "or", [self.value(arg) for arg in e.args])
        if e.is_Not:
            return self.emit("not", self.value(e.args[0]))
        return self.emit(e.op, *[self.value(arg) for arg in e.args])


def _signs(e: Expr) -> tuple[list[Expr], list[Expr]]:
    """The terms that are added, and the negatives of those that are subtracted."""
    up: list[Expr] = []
    down: list[Expr] = []
    for term in sympy.Add.make_args(e):
        if term.as_coeff_Mul()[0] < 0:
            down.append(-term)
        else:
            up.append(term)
    return up, down


def guard_program(env: ShapeEnv) -> Program | None:
    """All that a later call's numbers must fulfil to use what was traced; None if nothing."""
    program = _guard_program(env, env.guards)
    if program is None or _holds_now(env, program):
        return program
    return _guard_program(env, [g for guard in env.guards for g in _computable(env, guard)])


def _holds_now(env: ShapeEnv, program: Program) -> bool:
    """False if a step of it is beyond registers for the very call that was traced."""
    hints: dict[Any, Any] = {info.origin: info.hint for info in env.symbols.values()}
    hints.update((origin, env.hint(value)) for origin, value in env.equalities)
    numbers = [hints[origin] for origin in program.inputs]
    return None in numbers or program.run(numbers) is not None


def _computable(env: ShapeEnv, guard: ShapeGuard) -> list[ShapeGuard]:
    """The guard, or where its numbers are too large to be computed, guards that pin each symbol of it."""
    compiler = Compiler(env)
    _require(compiler, guard)
    if _holds_now(env, compiler.finish()):
        return [guard]
    whole = {env.facts.parts[s][0] if s in env.facts.parts else s for s in guard.truth.free_symbols}
    pins = [(symbol, env.symbols[symbol]) for symbol in sorted(whole, key=str)]
    return [
        ShapeGuard(
            equal(symbol, sympy.Integer(info.hint))
            if info.kind is int
            else PinnedFloat(symbol, float_constant(info.hint)),
            guard.line,
        )
        for symbol, info in pins
    ]


def _guard_program(env: ShapeEnv, guards: Sequence[ShapeGuard]) -> Program | None:
    compiler = Compiler(env)
    lows, highs, others = _fold_ranges(env, guards)
    for symbol, info in env.symbols.items():
        if info.origin is None or info.early or info.kind is not int:
            continue
        low, high = lows[symbol], highs[symbol]
        text = f"{_end(low)} <= {symbol} <= {_end(high)}  ({info.origin})"
        if low is not None or high is not None:
            compiler.require(text, "require_range", compiler.input(info.origin), low, high)
    for origin, value in env.equalities:
        text = f"{origin} == {words(value)}"
        if value.is_Integer:
            compiler.require(text, "require_range", compiler.input(origin), int(value), int(value))
        else:
            compiler.require(text, "require_eq", compiler.input(origin), compiler.value(value))
    for guard in others:
        _require(compiler, guard)
    return compiler.finish() if compiler.body else None


def _require(compiler: Compiler, guard: ShapeGuard) -> None:
    truth, text = guard.truth, str(guard)
    if isinstance(truth, PinnedFloat):
        compiler.require(text, "require_bits", compiler.value(truth.args[0]), int(truth.args[1].args[0]))
    elif isinstance(truth, Defined):
        compiler.value(truth.args[0])  # ends the program where it has no result
        compiler.require(text, "require", compiler.emit("const", 1))
    elif isinstance(truth, IsZero):
        up, down = _signs(truth.args[0])
        compiler.require(text, "require_eq", compiler._total(up), compiler._total(down))
    else:
        compiler.require(text, "require", compiler.value(truth))


def _fold_ranges(env: ShapeEnv, guards: Sequence[ShapeGuard]) -> tuple[dict[Expr, Any], dict[Expr, Any], list[ShapeGuard]]:
    """Guards on one symbol alone join its range: (lows, highs, the other guards)."""
    lows = {symbol: _finite(info.range[0]) for symbol, info in env.symbols.items()}
    highs = {symbol: _finite(info.range[1]) for symbol, info in env.symbols.items()}
    others = []
    for guard in guards:
        bound = _bound_of(guard.truth)
        if bound is None or bound[0] not in lows:
            others.append(guard)
            continue
        symbol, low, high = bound
        if low is not None:
            known = lows[symbol]
            lows[symbol] = low if known is None else max(low, known)
        if high is not None:
            known = highs[symbol]
            highs[symbol] = high if known is None else min(high, known)
    return lows, highs, others


def _bound_of(truth: Expr) -> tuple[Expr, int | None, int | None] | None:
    if not isinstance(truth, IsZero | IsPositive):
        return None
    constant, rest = truth.args[0].as_coeff_Add()
    coefficient, symbol = rest.as_coeff_Mul()
    if not symbol.is_Symbol or abs(coefficient) != 1:
        return None
    if isinstance(truth, IsZero):
        return symbol, int(-constant * coefficient), int(-constant * coefficient)
    return (symbol, int(1 - constant), None) if coefficient == 1 else (symbol, None, int(constant - 1))


def _finite(bound: Any) -> int | None:
    return None if abs(bound) > _REGISTER else int(bound)


def _end(bound: int | None) -> str:
    return "..." if bound is None or bound >= SIZE_LIMIT else str(bound)


def value_program(env: ShapeEnv, values: Sequence[Expr], readings: Readings | None = None) -> Program:
    """Computes expressions (of backed symbols) from the numbers of a call."""
    compiler = Compiler(env, readings)
    return compiler.finish([compiler.value(env.facts.simplify(value)) for value in values])


def fact_program(
    env: ShapeEnv, values: Sequence[Expr], facts: Sequence[Expr], readings: Readings, whole: bool = False
) -> Program:
    """The same, followed by truths that are facts by now: these are compiled as they were before they were learned, since by now
    they simplify to true. `whole`: the readings cover all symbols. Raises KeyError for a symbol that nothing gives.
    """
    compiler = Compiler(env, readings, whole)
    results = [compiler.value(env.facts.simplify(value)) for value in values]
    return compiler.finish([*results, *[compiler.value(fact) for fact in facts]])


def reading_of(e: Expr) -> tuple[Expr, int, int] | None:
    """(symbol, scale, shift) of `scale * symbol + shift`; None for any other expression."""
    shift, rest = e.as_coeff_Add()
    scale, symbol = rest.as_coeff_Mul()
    return (symbol, int(scale), int(shift)) if symbol.is_Symbol and shift.is_Integer and scale.is_Integer else None
