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
import re
from collections.abc import Callable, Hashable
from typing import Any

import sympy
import torch

from dyncomp import log
from dyncomp.shape import ops
from dyncomp.shape.errors import DataDependent, MarkError
from dyncomp.shape.facts import Contradiction, Facts
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
from dyncomp.shape.relation import equal, is_positive, less_equal

UserLine = tuple[str, int]
_ANY = (-math.inf, math.inf)
SIZE_LIMIT = 2**31  # larger sizes are never symbolic, so that products of two need no check
_LARGEST_SIZE = 2**48  # no tensor in memory has a larger one: what is known of sizes that are symbolic in any case
_INT_LIMIT = 2**63 - 1  # what a register holds


@dataclasses.dataclass(frozen=True)
class Mark:
    """What a user promised about a number: it stays symbolic. `strict`: the user gave the range, so all of it must hold."""

    low: Number = -math.inf
    high: Number = math.inf
    strict: bool = True


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
class Knowledge:
    """Of one number, for people. `guards`: those that pinned or narrowed it."""

    pinned: bool
    equal_to: str | None
    range: str
    guards: tuple[ShapeGuard, ...]


@dataclasses.dataclass(frozen=True)
class RuntimeAssert:
    """Must be checked while the program runs, since it speaks of unbacked symbols.

    `truth` is as it was before it became a fact. `assumed`: eager does not need it; where it fails, another trace would do.
    """

    truth: Expr
    message: str
    line: UserLine | None
    assumed: bool = False


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
        self.closed = False  # no assert can be added any more: the code that would check it is written
        self.memo: dict[Hashable, Any] = {}  # for callers: results in terms of these symbols
        self._ducks: dict[int, list[Expr]] = {}
        self._hints: dict[Expr, Any] = {}
        self._defined: set[Expr] = set()
        self._names = {"s": 0, "u": 0, "z": 0, "uf": 0}

    # ---- symbols

    def create_int(
        self,
        hint: int,
        origin: Hashable,
        low: Number | None = None,
        high: Number = math.inf,
        mark: Mark | None = None,
        duck: bool = True,
        special: bool = True,
        apart: set[Expr] | None = None,
    ) -> torch.SymInt | int:
        """A symbolic int for the number at `origin`, or the number itself where it is specialised.

        `low` is None for sizes. `special=False`: 0 and 1 are numbers like all others. `apart`: symbols that this number
        does not share, however equal; the one that it gets joins them.
        """
        if special and self.specialize_zero_one and hint in (0, 1):
            return hint
        if low is None:
            low = 2 if self.specialize_zero_one else 0
        high = min(high, _INT_LIMIT if low < 0 else SIZE_LIMIT if mark is None else _LARGEST_SIZE)
        low = max(low, -_INT_LIMIT)
        if not low <= hint <= high:
            return hint
        apart = set() if apart is None else apart
        if duck and self.duck and mark is None:
            shared = next((symbol for symbol in self._ducks.get(hint, ()) if symbol not in apart), None)
            if shared is not None:
                apart.add(shared)
                self.equalities.append((origin, shared))
                return self.wrap(shared, int)
        if mark is not None:
            low, high = max(low, mark.low), min(high, mark.high)
        symbol = self._new_symbol("s", low, high)
        self.symbols[symbol] = Symbol(symbol, origin, hint, int, (low, high), self.asker(), mark)
        if duck and mark is None:
            self._ducks.setdefault(hint, []).append(symbol)
            apart.add(symbol)
        return self.wrap(symbol, int)

    def create_marked(self, hint: int, origin: Hashable, low: int | None, high: int | None) -> torch.SymInt | int:
        """A number that the user promised to vary within a range; `check_marks` holds the trace to it."""
        strict = low is not None or high is not None
        if low is None:
            low = 2 if self.specialize_zero_one else 0
        mark = Mark(low, _LARGEST_SIZE if high is None else high, strict)
        if self.specialize_zero_one and hint in (0, 1):
            raise MarkError(f"{origin} was marked as dynamic, but it is {hint} in this call: sizes 0 and 1 are always special")
        if not mark.low <= hint <= mark.high:
            raise MarkError(f"{origin} was marked as dynamic from {mark.low} to {_end(high)}, but it is {hint}")
        return self.create_int(hint, origin, mark=mark)

    def create_hintless(self, origin: Hashable, low: Number = 0, high: Number = _LARGEST_SIZE) -> torch.SymInt:
        """A number of the call that the trace may not look at (`mark_unbacked`)."""
        symbol = self._new_symbol("u", low, high)
        self.symbols[symbol] = Symbol(symbol, origin, None, int, (low, high), self.asker())
        return self.wrap(symbol, int)  # type: ignore[no-any-return]

    def create_float(self, hint: float, origin: Hashable) -> torch.SymFloat:
        symbol = sympy.Symbol(f"z{self._count('z')}", real=True)
        self.symbols[symbol] = Symbol(symbol, origin, hint, float, _ANY, self.asker())
        return self.wrap(symbol, float)

    def create_unbacked(self, low: Number = -math.inf, high: Number = math.inf) -> torch.SymInt:
        """A number that the program computes from data."""
        low, high = max(low, -_INT_LIMIT - 1), min(high, _INT_LIMIT)
        symbol = self._new_symbol("u", low, high, late=True)
        self.symbols[symbol] = Symbol(symbol, None, None, int, (low, high), self.asker())
        return self.wrap(symbol, int)

    def create_unbacked_float(self) -> torch.SymFloat:
        """A float that the program computes from data."""
        symbol = sympy.Symbol(f"uf{self._count('uf')}", real=True)
        self.symbols[symbol] = Symbol(symbol, None, None, float, _ANY, self.asker())
        return self.wrap(symbol, float)

    def learn_bound(self, number: Any, most: Any) -> None:
        """The operation that gives `number` never gives more than `most`."""
        truth = less_equal(expr_of(number), expr_of(most))
        if self.known(truth) is None:
            self.facts.learn(self.facts.simplify_truth(truth), True)

    def _new_symbol(self, letter: str, low: Number, high: Number, late: bool = False) -> Expr:
        sign: Any = {"positive": True} if low > 0 else {"nonnegative": True} if low == 0 else {}
        symbol = sympy.Symbol(f"{letter}{self._count(letter)}", integer=True, **sign)
        self.facts.add_symbol(symbol, low, high, late)
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

    @property
    def has_hintless(self) -> bool:
        """True if there is a number that tracing may not look at."""
        return self._names["u"] + self._names["uf"] > 0

    def needs_running(self, e: Expr) -> bool:
        """True if `e` depends on a number that no origin gives."""
        return any(map(self.is_late, self.facts.simplify(e).free_symbols))

    def is_late(self, symbol: Expr) -> bool:
        """True for a number that only the running program gives."""
        if symbol in self.symbols:
            return self.symbols[symbol].origin is None
        return symbol in self.facts.parts and self.is_late(self.facts.parts[symbol][0])

    def pinned_ducks(self) -> bool:
        """True if a symbol that stands for several numbers of the call was pinned."""
        ducks = {value for _, value in self.equalities if value in self.symbols}
        return any(self.facts.simplify(symbol).is_Integer for symbol in ducks)

    def has_open(self) -> bool:
        """True if a number of the call may have more than one value."""
        return any(
            info.origin is not None and (info.kind is float or not self.facts.simplify(symbol).is_Integer)
            for symbol, info in self.symbols.items()
        )

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

    def _unknown(self, asked: Expr) -> DataDependent:
        """The question, who asked, and which line of the program gave each number in it."""
        whole = {self.facts.parts[s][0] if s in self.facts.parts else s for s in asked.free_symbols}
        made = [self.symbols[s] for s in sorted(whole, key=str) if s in self.symbols]
        told = ", ".join(f"{m.symbol} is made at {m.line[0]}:{m.line[1]}" for m in made if m.hint is None and m.line)
        return DataDependent(describe(asked), self.asker(), told)

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
                    raise self._unknown(simple)
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
            raise self._unknown(e)
        if self.evaluate_bool(equal(e, sympy.Integer(hint))) is not True:
            raise AssertionError(f"{e} is not its own hint {hint}")
        return int(hint)

    def evaluate_float(self, e: Expr) -> float:
        """The number itself, by its bits; pins it."""
        if isinstance(e, FloatConstant):
            return e.value
        hint = self.hint(e)
        if hint is None:
            raise self._unknown(e)
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

    def define(self, e: Expr) -> None:
        """`e` applies a function that Python refuses for some numbers: calls that it refuses fail the guard.

        Raises ops.Undefined if this call is one of them, or if its result is beyond what the engine computes.
        """
        known = self.hint(e)
        if known is None or getattr(e, "op", None) not in ops.PARTIAL or _is_total(e) or e in self._defined:
            return
        self._defined.add(e)
        self.guards.append(ShapeGuard(Defined(self.facts.simplify(e)), self.asker()))

    def fit(self, e: Expr) -> bool:
        """The graph computes with the int `e`, and compiled code has 64 bits for it: calls in which it is beyond
        them fail the guard. False if this call is one of them.
        """
        parts = [p for p in sympy.preorder_traversal(e) if p.is_Add or p.is_Mul or p.is_Pow or getattr(p, "op", "") == "shl"]
        ranges = [self.facts.range(p) for p in parts]
        if all(-_INT_LIMIT <= low and high <= _INT_LIMIT for low, high in ranges) or self.hint(e) is None:
            return True
        if any(self._magnitude(p) > _INT_LIMIT for p in parts):
            return False
        self._fits(e)
        return True

    def _fits(self, e: Expr) -> None:
        if e not in self._defined:
            self._defined.add(e)
            self.guards.append(ShapeGuard(Fits(self.facts.simplify(e)), self.asker()))

    def countable(self, e: Expr) -> bool:
        """A tensor that shares memory among its elements has `e` of them, more than memory holds perhaps: calls in which
        eager's 64 bits cannot count them fail the guard. False if this call is one of them.
        """
        hint = self.hint(e)
        if hint is None or self.facts.range(e)[1] <= _INT_LIMIT:
            return True
        if hint > _INT_LIMIT:
            return False
        self._fits(e)
        return True

    def _magnitude(self, e: Expr) -> Any:
        """What no step of computing `e` from its operands exceeds, in this call."""
        operands = [abs(self.hint(arg)) for arg in e.args]
        if e.is_Add:
            return sum(operands)
        return math.prod([max(1, operand) for operand in operands]) if e.is_Mul else abs(self.hint(e))

    def expect(self, truth: Expr, message: str = "") -> bool:
        """`torch._check`: a guard where hints answer; a fact and a run-time assert for unbacked symbols."""
        answer = self.known(truth)
        if answer is not None:
            return answer
        if self.is_unbacked(truth):
            truth = self.facts.simplify_truth(truth)
            return self._add_assert(truth, message or describe(truth))
        return self.evaluate_bool(truth)

    def assume(self, truth: Expr) -> bool:
        """True, also where only running tells, which is then asserted at run time. For questions whose answer eager does not
        need, and that are nearly always answered so: that a size is not 1 where only such a size would make a difference.
        """
        answer = self.known(truth)
        if answer is not None:
            return answer
        if not self.is_unbacked(truth):
            return self.evaluate_bool(truth)
        truth = self.facts.simplify_truth(truth)
        return self._add_assert(truth, describe(truth), assumed=True)

    def _add_assert(self, truth: Expr, message: str, assumed: bool = False) -> bool:
        if self.closed:
            raise self._unknown(truth)
        self.asserts.append(RuntimeAssert(truth, message, self.asker(), assumed))
        try:
            self.facts.learn(truth, True)
        except Contradiction as error:  # it never holds, which nothing could tell before
            raise self._unknown(truth) from error
        return True

    # ---- the end

    def check_marks(self) -> None:
        """Raises MarkError if the trace pinned a number that was promised to stay open, or narrowed a range that the user gave.

        As in torch.compile, a program that asks something of the number otherwise (`n > 5`, equal to another) is guarded.
        """
        for info in self.symbols.values():
            if info.mark is None:
                continue
            value = self.facts.simplify(info.symbol)
            if value.is_Integer:
                raise MarkError(
                    f"{info.origin} was marked as dynamic, but the program needs it to be {value}{self._because(info.symbol)}"
                )
            low, high = self.facts.range(value)
            if not info.mark.strict:
                continue
            if low > info.range[0] or high < info.range[1]:
                raise MarkError(
                    f"{info.origin} was marked as dynamic from {info.range[0]} to {_end(info.range[1])}, but the "
                    f"program holds only from {low} to {_end(high)}{self._because(info.symbol)}"
                )

    def _because(self, symbol: Expr) -> str:
        """The guards that speak of a symbol, with the lines that asked."""
        asked = [self.named(str(guard)) for guard in self._guards_on(symbol)]
        return "; because of " + ", ".join(asked) if asked else ""

    def named(self, text: str) -> str:
        """Symbols by where their numbers come from."""
        names = {str(info.symbol): str(info.origin) for info in self.symbols.values() if info.origin is not None}
        for part, (whole, divisor) in self.facts.parts.items():
            names[str(part)] = f"({names.get(str(whole), whole)} // {divisor})"
        return re.sub(r"\b[suzq]\d+\b", lambda found: names.get(found[0], found[0]), text)

    def _guards_on(self, symbol: Expr) -> list[ShapeGuard]:
        """Those that speak of a symbol, or of what equalities tie it to."""
        reached, before = {symbol}, 0
        while len(reached) > before:
            before = len(reached)
            for guard in self.guards:
                names = guard.truth.free_symbols
                if isinstance(guard.truth, IsZero) and names & reached:
                    reached |= names
            reached |= {part for part, (whole, _) in self.facts.parts.items() if whole in reached}
        spoken = [guard for guard in self.guards if guard.truth.free_symbols & reached]
        return [guard for guard in spoken if not isinstance(guard.truth, Fits)]  # that holds of nearly all numbers

    def explain(self, origin: Hashable) -> Knowledge:
        """What became of the number of an origin that was created here."""
        tied = [value for other, value in self.equalities if other == origin]
        symbol = tied[0] if tied else next(s for s, info in self.symbols.items() if info.origin == origin)
        guards = tuple(self._guards_on(symbol))
        if self.symbols[symbol].kind is float:
            pinned = any(isinstance(guard.truth, PinnedFloat) and guard.truth.args[0] == symbol for guard in guards)
            return Knowledge(pinned, None, "any float", guards)
        simple = self.facts.simplify(symbol)
        low, high = self.facts.range(simple)
        text = f"from {low} to {high}" if high < SIZE_LIMIT else "any" if low <= -_INT_LIMIT else f"{low} and more"
        equal_to = self.named(str(simple)) if tied or simple != symbol else None
        return Knowledge(bool(simple.is_Integer), equal_to, text, guards)

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
            raise self._unknown(e)
        return hint

    def optimization_hint(self, e: Expr, fallback: Any = None) -> Any:
        hint = self.hint(e)
        return fallback if hint is None else hint

    def is_unbacked_symint(self, symbol: Expr) -> bool:
        info = self.symbols.get(symbol)
        return info is not None and info.origin is None

    def _constrain_range_for_size(self, symbol: Expr, min: int | None = None, max: int | None = None) -> None:
        self.facts.narrow(symbol, min or 0, _LARGEST_SIZE if max is None else max)

    def _constrain_is_bounded(self, symbol: Expr, bound: int) -> None:
        self.facts.narrow(symbol, -math.inf, bound)


def _end(bound: Number | None) -> str:
    return "any" if bound is None or bound >= SIZE_LIMIT else str(bound)


class PinnedFloat(sympy.logic.boolalg.BooleanFunction):  # type: ignore[misc]
    """The float has exactly these bits."""

    nargs = (2,)


class Defined(sympy.logic.boolalg.BooleanFunction):  # type: ignore[misc]
    """The expression has a value: no division by zero, no domain error, no overflow on the way."""

    nargs = (1,)


class Fits(Defined):
    """The expression is within 64 bits, and so is every step of computing it."""


def _is_total(e: Expr) -> bool:
    """Defined whatever the operands: only finite floats come in, or a constant that is allowed."""
    if e.op in ("ffloor", "fceil", "ftrunc", "fround"):
        return getattr(e.args[0], "op", "") in ("truediv", "tofloat")
    if e.op in ("fdiv", "ffloordiv", "fmod"):
        return isinstance(e.args[1], FloatConstant)
    return e.op == "shr" and e.args[1].is_Integer  # type: ignore[no-any-return]


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
    if isinstance(e, Defined):
        return True
    if isinstance(e, PinnedFloat):
        return bits_of_float(operands[0]) == bits_of_float(operands[1])
    return ops.exact(e.op, *operands)


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
    if isinstance(truth, Fits):
        return f"{truth.args[0]} fits in 64 bits"
    if isinstance(truth, Defined):
        return f"{truth.args[0]} is defined"
    if isinstance(truth, PinnedFloat):
        return f"{truth.args[0]} == {truth.args[1].value!r}"
    if isinstance(truth, sympy.And | sympy.Or):
        return (" and " if isinstance(truth, sympy.And) else " or ").join(f"({describe(a)})" for a in truth.args)
    return str(truth)
