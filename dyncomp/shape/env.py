"""ShapeEnv: the symbols of one trace, what is known of them, and every question that was asked.

    env = ShapeEnv()
    n = env.create_int(7, origin=("x", "size", 0))      # a torch.SymInt that prints as s0
    n * 2 == 14                                         # True, and from now on guarded: s0 == 7

A question is answered from the facts where they suffice. Otherwise the hint (the number that this call brought)
answers, and the answer becomes a guard with the user's line that asked. Symbols without a hint (*unbacked*: their
number is computed by the program itself) raise DataDependent instead, unless `torch._check` told enough.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable
from typing import Any

import sympy
import torch

from dyncomp import log
from dyncomp.shape import ops
from dyncomp.shape.errors import DataDependent, MarkError
from dyncomp.shape.facts import Facts
from dyncomp.shape.functions import (
    FALSE,
    TRUE,
    Expr,
    FloatConstant,
    IsPositive,
    IsZero,
    float_constant,
)
from dyncomp.shape.int_program import bits_of_float
from dyncomp.shape.node import SymNode
from dyncomp.shape.polynomial import Number, Range
from dyncomp.shape.prove import prove
from dyncomp.shape.relation import equal, is_positive

UserLine = tuple[str, int]
_ANY = (-math.inf, math.inf)


@dataclasses.dataclass(frozen=True)
class Mark:
    """What a user promised about a number: it stays symbolic within this range."""

    low: Number = -math.inf
    high: Number = math.inf


@dataclasses.dataclass(frozen=True)
class Symbol:
    """`origin` says where a call's number is read; None for one that the program computes (unbacked)."""

    symbol: Expr
    origin: Hashable | None
    hint: Any
    kind: type
    range: Range
    line: UserLine | None
    mark: Mark | None = None


@dataclasses.dataclass(frozen=True)
class ShapeGuard:
    """`truth` holds for every call that may use the trace; `line` is the user's line that needed to know."""

    truth: Expr
    line: UserLine | None

    def __str__(self) -> str:
        where = f"  ({self.line[0]}:{self.line[1]})" if self.line else ""
        return f"{describe(self.truth)}{where}"


@dataclasses.dataclass(frozen=True)
class RuntimeAssert:
    """Must be checked while the program runs, since it speaks of unbacked symbols."""

    truth: Expr
    message: str
    line: UserLine | None


class ShapeEnv:
    """`asker` gives the user's line for guards. `specialize_zero_one`: numbers 0 and 1 are never symbolic, so
    that broadcasting needs no guard. `duck`: equal numbers share one symbol.
    """

    def __init__(
        self,
        asker: Callable[[], UserLine | None] = lambda: None,
        duck: bool = True,
        specialize_zero_one: bool = True,
    ) -> None:
        self.asker = asker
        self.duck, self.specialize_zero_one = duck, specialize_zero_one
        self.facts = Facts()
        self.symbols: dict[Expr, Symbol] = {}
        self.guards: list[ShapeGuard] = []
        self.equalities: list[tuple[Hashable, Expr]] = []  # what an origin must read, beside symbols' own
        self.asserts: list[RuntimeAssert] = []
        self.memo: dict[Hashable, Any] = {}  # for callers: results in terms of these symbols
        self._ducks: dict[int, Expr] = {}
        self._hints: dict[Expr, Any] = {}
        self._names = {"s": 0, "u": 0, "z": 0}

    # ---- symbols

    def create_int(
        self,
        hint: int,
        origin: Hashable,
        low: Number | None = None,
        high: Number = math.inf,
        mark: Mark | None = None,
        duck: bool = True,
    ) -> torch.SymInt | int:
        """A symbolic int for the number at `origin`, or the number itself where it is specialised."""
        if self.specialize_zero_one and hint in (0, 1):
            return hint
        if low is None:
            low = 2 if self.specialize_zero_one else 0
        if duck and self.duck and mark is None and hint in self._ducks:
            symbol = self._ducks[hint]
            self.equalities.append((origin, symbol))
            return self.wrap(symbol, int)
        if mark is not None:
            low, high = max(low, mark.low), min(high, mark.high)
        symbol = self._new_symbol("s", low, high)
        self.symbols[symbol] = Symbol(symbol, origin, hint, int, (low, high), self.asker(), mark)
        if duck and mark is None:
            self._ducks.setdefault(hint, symbol)
        return self.wrap(symbol, int)

    def create_marked(self, hint: int, origin: Hashable, low: int | None, high: int | None) -> torch.SymInt | int:
        """A number that the user promised to vary within a range; `check_marks` holds the trace to it."""
        if low is None:
            low = 2 if self.specialize_zero_one else 0
        mark = Mark(low, math.inf if high is None else high)
        if self.specialize_zero_one and hint in (0, 1):
            raise MarkError(f"{origin} was marked as dynamic, but it is {hint} in this call: sizes 0 and 1 are always special")
        if not mark.low <= hint <= mark.high:
            raise MarkError(f"{origin} was marked as dynamic from {mark.low} to {mark.high}, but it is {hint}")
        return self.create_int(hint, origin, mark=mark)

    def create_hintless(self, origin: Hashable, low: Number = 0) -> torch.SymInt:
        """A number of the call that the trace may not look at (`mark_unbacked`)."""
        symbol = self._new_symbol("u", low, math.inf)
        self.symbols[symbol] = Symbol(symbol, origin, None, int, (low, math.inf), self.asker())
        return self.wrap(symbol, int)  # type: ignore[no-any-return]

    def create_float(self, hint: float, origin: Hashable) -> torch.SymFloat:
        symbol = sympy.Symbol(f"z{self._count('z')}", real=True)
        self.symbols[symbol] = Symbol(symbol, origin, hint, float, _ANY, self.asker())
        return self.wrap(symbol, float)

    def create_unbacked(self, low: Number = -math.inf, high: Number = math.inf) -> torch.SymInt:
        """A number that the program computes from data."""
        symbol = self._new_symbol("u", low, high)
        self.symbols[symbol] = Symbol(symbol, None, None, int, (low, high), self.asker())
        return self.wrap(symbol, int)

    def _new_symbol(self, letter: str, low: Number, high: Number) -> Expr:
        sign: Any = {"positive": True} if low > 0 else {"nonnegative": True} if low == 0 else {}
        symbol = sympy.Symbol(f"{letter}{self._count(letter)}", integer=True, **sign)
        self.facts.add_symbol(symbol, low, high)
        return symbol

    def _count(self, letter: str) -> int:
        self._names[letter] += 1
        return self._names[letter] - 1

    def require_equal(self, origin: Hashable, value: Any) -> None:
        """The number at `origin` must be `value` (an int or SymInt) in every call."""
        self.equalities.append((origin, expr_of(value)))

    def wrap(self, expr: Expr, kind: type) -> Any:
        """The torch number of an expression."""
        node = SymNode(expr, self, kind)
        return torch.SymInt(node) if kind is int else torch.SymFloat(node) if kind is float else torch.SymBool(node)

    def needs_running(self, e: Expr) -> bool:
        """True if `e` depends on a number that no origin gives."""
        simple = self.facts.simplify(e)
        return any(s in self.symbols and self.symbols[s].origin is None for s in simple.free_symbols)

    def pinned_ducks(self) -> bool:
        """True if a symbol that stands for several numbers of the call was pinned."""
        ducks = {value for _, value in self.equalities if value in self.symbols}
        return any(self.facts.simplify(symbol).is_Integer for symbol in ducks)

    def number_at(self, origin: Hashable) -> Any:
        """The number that was created for an origin."""
        symbol = next(info.symbol for info in self.symbols.values() if info.origin == origin)
        return self.wrap(symbol, self.symbols[symbol].kind)

    @staticmethod
    def expr_of(value: Any) -> Expr:
        """The expression of a number, symbolic or plain."""
        return expr_of(value)

    def is_unbacked(self, e: Expr) -> bool:
        """True if `e` depends on a number that only running the program tells."""
        simple = self.facts.simplify(e)
        return any(self._hint_of_symbol(symbol) is None for symbol in simple.free_symbols)

    # ---- hints

    def hint(self, e: Expr) -> Any:
        """What `e` is in this call; None if unbacked symbols are in it."""
        known = self._hints.get(e, self)
        if known is self:
            known = self._hints[e] = self._compute_hint(e)
        return known

    def _compute_hint(self, e: Expr) -> Any:
        if e.is_Integer:
            return int(e)
        if e is TRUE or e is FALSE:
            return bool(e)
        if isinstance(e, FloatConstant):
            return e.value
        if e.is_Symbol:
            return self._hint_of_symbol(e)
        operands = [self.hint(arg) for arg in e.args]
        if None in operands:
            return None
        return compute(e, operands)

    def _hint_of_symbol(self, symbol: Expr) -> Any:
        info = self.symbols.get(symbol)
        if info is not None:
            if info.hint is None and symbol in self.facts.substitutions:
                return self.hint(self.facts.simplify(symbol))
            return info.hint
        whole, divisor = self.facts.parts[symbol]
        known = self._hint_of_symbol(whole)
        return None if known is None else known // divisor

    # ---- questions

    def known(self, truth: Expr) -> bool | None:
        """What the facts alone say."""
        return prove(self.facts, truth)

    def evaluate_bool(self, truth: Expr, fallback: bool | None = None) -> bool:
        """The answer, guarded if it came from the hint. `fallback` answers for unbacked symbols."""
        answer = self.known(truth)
        if answer is not None:
            return answer
        answer = self.hint(truth)
        if answer is None:
            simple = self.facts.simplify_truth(truth)
            answer = self.hint(simple)
            if answer is None:
                if fallback is None:
                    raise DataDependent(describe(simple), self.asker())
                return fallback
        self._guard(truth, answer)
        return bool(answer)

    def evaluate_int(self, e: Expr) -> int:
        """The number itself; pins whatever it depends on."""
        e = self.facts.simplify(e)
        if e.is_Integer:
            return int(e)
        hint = self.hint(e)
        if hint is None:
            raise DataDependent(describe(e), self.asker())
        if self.evaluate_bool(equal(e, sympy.Integer(hint))) is not True:
            raise AssertionError(f"{e} is not its own hint {hint}")
        return int(hint)

    def evaluate_float(self, e: Expr) -> float:
        """The number itself, by its bits; pins it."""
        if isinstance(e, FloatConstant):
            return e.value
        hint = self.hint(e)
        if hint is None:
            raise DataDependent(describe(e), self.asker())
        constant = float_constant(hint)
        self._guard(PinnedFloat(e, constant), True)
        return float(hint)

    def _guard(self, truth: Expr, answer: bool) -> None:
        truth = self.facts.simplify_truth(truth)
        line = self.asker()
        guard = ShapeGuard(truth if answer else sympy.Not(truth) if not isinstance(truth, IsPositive)
                           else is_positive(1 - truth.args[0]), line)  # fmt: skip
        if isinstance(truth, PinnedFloat) and any(g.truth == truth for g in self.guards):
            return
        self.guards.append(guard)
        log.write("dynamic", "guard %s", guard)
        if not isinstance(truth, PinnedFloat):
            self.facts.learn(truth, answer)

    def expect(self, truth: Expr, message: str = "") -> bool:
        """`torch._check`: a guard where hints answer; a fact and a run-time assert for unbacked symbols."""
        answer = self.known(truth)
        if answer is not None:
            return answer
        if self.is_unbacked(truth):
            truth = self.facts.simplify_truth(truth)
            if all(self.symbols[symbol].origin is not None for symbol in truth.free_symbols):
                self.guards.append(ShapeGuard(truth, self.asker()))  # the call brings the numbers
            else:
                self.asserts.append(RuntimeAssert(truth, message or describe(truth), self.asker()))
            self.facts.learn(truth, True)
            return True
        return self.evaluate_bool(truth)

    # ---- the end

    def check_marks(self) -> None:
        """Raises MarkError if the trace pinned or narrowed a number that was promised to stay open."""
        for info in self.symbols.values():
            if info.mark is None:
                continue
            value = self.facts.simplify(info.symbol)
            if value.is_Integer:
                raise MarkError(f"{self._who(info)} was marked as dynamic, but the program needs it to be {value}")
            low, high = self.facts.range(value)
            if info.symbol != value and not value.is_Add and self.symbols.get(value) is not None:
                raise MarkError(f"{self._who(info)} was marked as dynamic, but it must be equal to {self.symbols[value].origin}")
            if low > info.range[0] or high < info.range[1]:
                raise MarkError(
                    f"{self._who(info)} was marked as dynamic from {info.range[0]} to {info.range[1]}, but the program "
                    f"holds only from {low} to {high}"
                )

    def _who(self, info: Symbol) -> str:
        """The number and the guards that speak of it."""
        asked = [str(guard) for guard in self.guards if info.symbol in guard.truth.free_symbols]
        because = "; because of " + ", ".join(asked) if asked else ""
        return f"{info.origin}{because}:"

    # ---- what torch's own helpers call on an env

    def evaluate_sym_node(self, node: Any, size_oblivious: bool = False, fallback_value: Any = None) -> bool:
        return self.evaluate_bool(node.expr, fallback_value)

    def _maybe_evaluate_static(self, e: Expr, **_options: Any) -> Expr | None:
        if isinstance(e, sympy.logic.boolalg.Boolean) and not e.is_Symbol:
            answer = self.known(e)
            return None if answer is None else TRUE if answer else FALSE
        e = self.facts.simplify(e)
        return e if e.is_Integer else None

    def guarding_hint_or_throw(self, e: Expr) -> Any:
        hint = self.hint(e)
        if hint is None:
            raise DataDependent(describe(e), self.asker())
        return hint

    def optimization_hint(self, e: Expr, fallback: Any = None) -> Any:
        hint = self.hint(e)
        return fallback if hint is None else hint

    def is_unbacked_symint(self, symbol: Expr) -> bool:
        info = self.symbols.get(symbol)
        return info is not None and info.origin is None

    def _constrain_range_for_size(self, symbol: Expr, min: int | None = None, max: int | None = None) -> None:
        self.facts.narrow(symbol, min or 0, math.inf if max is None else max)

    def _constrain_is_bounded(self, symbol: Expr, bound: int) -> None:
        self.facts.narrow(symbol, -math.inf, bound)


class PinnedFloat(sympy.logic.boolalg.BooleanFunction):  # type: ignore[misc]
    """The float has exactly these bits."""

    nargs = (2,)


def compute(e: Expr, operands: list[Any]) -> Any:
    """One step of an evaluation: `e`'s function on numbers."""
    if e.is_Add:
        return sum(operands)
    if e.is_Mul:
        return math.prod(operands)
    if e.is_Pow:
        return operands[0] ** operands[1]
    if isinstance(e, IsZero):
        return operands[0] == 0
    if isinstance(e, IsPositive):
        return operands[0] > 0
    if e.is_Not:
        return not operands[0]
    if isinstance(e, sympy.And):
        return all(operands)
    if isinstance(e, sympy.Or):
        return any(operands)
    if isinstance(e, PinnedFloat):
        return bits_of_float(operands[0]) == bits_of_float(operands[1])
    return ops.apply(e.op, *operands)


def expr_of(value: Any) -> Expr:
    """The expression of a number, symbolic or plain."""
    node = getattr(value, "node", None)
    if node is not None:
        return node.expr
    if isinstance(value, bool):
        return TRUE if value else FALSE
    return sympy.Integer(value) if isinstance(value, int) else float_constant(value)


def describe(truth: Expr) -> str:
    """A relation as a person would write it."""
    if isinstance(truth, IsZero | IsPositive):
        constant, rest = truth.args[0].as_coeff_Add()
        positive = [t for t in sympy.Add.make_args(rest) if not t.could_extract_minus_sign()]
        left, right = sympy.Add(*positive), sympy.Add(*positive) - rest
        left, right = (left + constant, right) if constant > 0 else (left, right - constant)
        return f"{left} {'==' if isinstance(truth, IsZero) else '>'} {right}"
    if truth.is_Not:
        inner = describe(truth.args[0])
        return inner.replace(" == ", " != ") if isinstance(truth.args[0], IsZero) else f"not ({inner})"
    if isinstance(truth, sympy.And | sympy.Or):
        return (" and " if isinstance(truth, sympy.And) else " or ").join(f"({describe(a)})" for a in truth.args)
    return str(truth)
