"""What is known about the symbols: substitutions, ranges, and lower bounds of sums.

    learn s1 == 2*s0            substitution  s1 -> 2*s0
    learn s0 % 4 == 0           substitution  s0 -> 4*q0, where q0 is a new symbol
    learn s0 - s2 > 0           bound         s0 - s2 >= 1
    learn s0 < 100              range of s0

Facts are only added. Every addition starts a new `version`, with which all memos of conclusions begin anew.
"""

from __future__ import annotations

import math
from typing import Any

import sympy

from dyncomp.shape.functions import (
    FALSE,
    ONE,
    TRUE,
    ZERO,
    BitAnd,
    Expr,
    FloorDiv,
    IsPositive,
    IsZero,
    Max,
    Min,
    Mod,
    Select,
)
from dyncomp.shape.polynomial import Number, Range, lower_bound
from dyncomp.shape.relation import is_positive, is_zero, negate

_LATE = 2**40  # beyond any count of symbols


class Contradiction(Exception):
    """A new fact cannot hold together with the old ones."""


class Facts:
    def __init__(self) -> None:
        self.version = 0
        self.ranges: dict[Expr, Range] = {}  # of symbols
        self.substitutions: dict[Expr, Expr] = {}  # of symbols and of `Mod` terms
        self.bounds: dict[Expr, int] = {}  # sum without constant -> what it is at least
        self.truths: dict[Expr, bool] = {}  # relations that were answered as a whole
        self.order: dict[Expr, int] = {}  # symbols, oldest first: the younger one is replaced
        self.parts: dict[Expr, tuple[Expr, int]] = {}  # q0 -> (s0, 4): symbols that stand for s0 // 4
        self._exact: dict[Expr, tuple[Expr, Expr]] = {}  # FloorDiv(a, b) with b dividing a -> (a, b)
        self._simplified: dict[Expr, Expr] = {}
        self._ranges: dict[Expr, Range] = {}
        self._lows: dict[Expr, Number] = {}

    # ---- symbols

    def add_symbol(self, symbol: Expr, low: Number, high: Number, late: bool = False) -> None:
        """`late`: its number is known only while the program runs, so it is the one to be replaced by others."""
        self.ranges[symbol] = (low, high)
        self.order[symbol] = len(self.order) + (_LATE if late else 0)

    def is_late(self, symbol: Expr) -> bool:
        return self.order.get(symbol, 0) >= _LATE

    def narrow(self, symbol: Expr, low: Number, high: Number) -> None:
        known_low, known_high = self.ranges[symbol]
        new = max(low, known_low), min(high, known_high)
        if new[0] > new[1]:
            raise Contradiction(f"{symbol} in [{low}, {high}], known [{known_low}, {known_high}]")
        if new == (known_low, known_high):
            return
        self.ranges[symbol] = new
        self._changed()
        if new[0] == new[1] and symbol not in self.substitutions:
            self._substitute(symbol, sympy.Integer(new[0]))

    def _changed(self) -> None:
        self.version += 1
        self._simplified.clear()
        self._ranges.clear()
        self._lows.clear()

    # ---- reading

    def simplify(self, e: Expr) -> Expr:
        """`e` with all substitutions made, expanded again."""
        if not self.substitutions and not self._exact:
            return e
        known = self._simplified.get(e)
        if known is None:
            known = e
            while True:
                new = self._use_exact(known.xreplace(self.substitutions)) if known.args else self._symbol(known)
                if new == known:
                    break
                known = sympy.expand(new)
            self._simplified[e] = known
        return known

    def _symbol(self, e: Expr) -> Expr:
        return self.substitutions.get(e, e)

    def _use_exact(self, e: Expr) -> Expr:
        """`4 * (a // 4)` is `a` where 4 is known to divide `a`."""
        for quotient, (whole, divisor) in self._exact.items():
            if not e.has(quotient):
                continue
            terms = []
            for term in sympy.Add.make_args(e):
                rest = term / (quotient * divisor)
                simple = quotient in term.as_coeff_mul()[1] and rest.as_coeff_Mul()[0].is_Integer
                terms.append(rest * whole if simple and not rest.has(FloorDiv, sympy.Pow) else term)
            e = sympy.Add(*terms)
        return e

    def range_of(self, atom: Expr) -> Range:
        """Of a symbol or one of the functions."""
        known = self._ranges.get(atom)
        if known is None:
            known = self._ranges[atom] = self._range_of(atom)
        return known

    def _range_of(self, atom: Expr) -> Range:
        if atom.is_Symbol:
            return self.ranges.get(atom, (-math.inf, math.inf))
        rule = _RANGES.get(type(atom))
        return rule(*[self.range(arg) for arg in atom.args[-2:]]) if rule is not None else (-math.inf, math.inf)

    def range(self, e: Expr) -> Range:
        if e.is_Integer:
            return int(e), int(e)
        return self.low(e), -self.low(-e)

    def low(self, e: Expr) -> Number:
        """What `e` cannot be below."""
        known = self._lows.get(e)
        if known is None:
            known = self._lows[e] = lower_bound(e, self.range_of)
        return known

    # ---- learning

    def learn(self, truth: Expr, answer: bool) -> None:
        """`truth` (simplified) is `answer` from now on."""
        if truth is TRUE or truth is FALSE:
            if bool(truth) is not answer:
                raise Contradiction(str(truth))
            return
        if not answer and isinstance(truth, IsPositive):
            return self.learn(negate(truth), True)
        if truth.is_Not:
            return self.learn(truth.args[0], not answer)
        self.truths[truth] = answer
        self._changed()
        if isinstance(truth, sympy.And) and answer or isinstance(truth, sympy.Or) and not answer:
            for part in truth.args:
                self.learn(self.simplify_truth(part), answer)
        elif answer and isinstance(truth, IsZero):
            self._learn_zero(truth.args[0])
        elif isinstance(truth, IsPositive):
            self._learn_bound(truth.args[0] - ONE)

    def simplify_truth(self, truth: Expr) -> Expr:
        """The same for a relation, in its one form."""
        if not self.substitutions and not self._exact or truth is TRUE or truth is FALSE:
            return truth
        known = self._simplified.get(truth)
        if known is None:
            known = self._simplified[truth] = self._simplify_truth(truth)
        return known

    def _simplify_truth(self, truth: Expr) -> Expr:
        if isinstance(truth, IsZero):
            return is_zero(self.simplify(truth.args[0]))
        if isinstance(truth, IsPositive):
            return is_positive(self.simplify(truth.args[0]))
        if isinstance(truth, sympy.And | sympy.Or | sympy.Not):
            return truth.func(*[self.simplify_truth(arg) for arg in truth.args])
        return truth.func(*[self.simplify(arg) for arg in truth.args])  # of floats

    def _learn_bound(self, e: Expr) -> None:
        """e >= 0"""
        constant, rest = e.as_coeff_Add()
        low = -int(constant)
        coefficient, atom = rest.as_coeff_Mul()
        if atom.is_Symbol and abs(coefficient) == 1:
            if coefficient == 1:
                self.narrow(atom, low, math.inf)
            else:
                self.narrow(atom, -math.inf, -low)
            return
        self.bounds[rest] = max(low, self.bounds.get(rest, low))
        self._changed()

    def _learn_zero(self, e: Expr) -> None:
        if self._learn_divisible(e):
            return
        symbol = self._replaceable(e)
        if symbol is None:
            self._learn_bound(e)
            self._learn_bound(-e)
            return
        rest = sympy.expand(symbol - e if e.coeff(symbol) == 1 else symbol + e)
        low, high = self.ranges[symbol]
        self._substitute(symbol, rest)
        if low != -math.inf:
            self._learn_more(rest - low)
        if high != math.inf:
            self._learn_more(high - rest)

    def _learn_more(self, e: Expr) -> None:
        """e >= 0, where this says something new."""
        if self.low(e) < 0:
            if e.is_Integer:
                raise Contradiction(f"{e} >= 0")
            self._learn_bound(e)

    def _replaceable(self, e: Expr) -> Expr | None:
        """The youngest symbol that `e` is linear in with coefficient 1 or -1."""
        found = None
        for term in sympy.Add.make_args(e):
            coefficient, atom = term.as_coeff_Mul()
            if atom.is_Symbol and abs(coefficient) == 1 and not (e - term).has(atom):
                if found is None or self.order[atom] > self.order[found]:
                    found = atom
        return found

    def _learn_divisible(self, e: Expr) -> bool:
        """`Mod(a, b) - r == 0`: a symbol in `a` is written by a new one, or the remainder is noted."""
        constant, rest = e.as_coeff_Add()
        coefficient, atom = rest.as_coeff_Mul()
        if not isinstance(atom, Mod) or abs(coefficient) != 1:
            return False
        dividend, divisor = atom.args
        remainder = -constant * coefficient
        symbol = self._replaceable(dividend) if divisor.is_Integer and divisor > 1 else None
        if symbol is None or len(sympy.Add.make_args(dividend)) > 2 or len(dividend.free_symbols) > 1:
            self._substitute(atom, remainder)
            if remainder == ZERO:
                self._exact[FloorDiv(dividend, divisor)] = (dividend, divisor)
                self._changed()
            return True
        shift = dividend.subs(symbol, 0)
        start = (remainder - shift) * dividend.coeff(symbol) % divisor
        self._write_by_parts(symbol, int(divisor), int(start))
        return True

    def _write_by_parts(self, symbol: Expr, step: int, start: int) -> None:
        """symbol = step * part + start"""
        low, high = self.ranges[symbol]
        first = low if low == -math.inf else -((start - low) // step)
        last = high if high == math.inf else (high - start) // step
        if first > last:
            raise Contradiction(f"{symbol} = {step}*n + {start}")
        sign: Any = {"positive": True} if first > 0 else {"nonnegative": True} if first == 0 else {}
        part = sympy.Symbol(f"q{len(self.parts)}", integer=True, **sign)
        self.parts[part] = (symbol, step)
        self.add_symbol(part, first, last)
        self._substitute(symbol, step * part + start)

    def _substitute(self, old: Expr, new: Expr) -> None:
        self.substitutions = {k: sympy.expand(v.xreplace({old: new})) for k, v in self.substitutions.items()}
        self.substitutions[old] = new
        self._changed()
        self.truths = {self.simplify_truth(k): v for k, v in self.truths.items()}
        bounds, self.bounds = self.bounds, {}
        for e, low in bounds.items():
            simple = self.simplify(e) - low
            if not simple.is_Integer:
                self._learn_bound(simple)
            elif simple < 0:
                raise Contradiction(f"{e} >= {low}")


def _floordiv_range(a: Range, b: Range) -> Range:
    if b[0] <= 0:
        return -math.inf, math.inf
    corners = [_floordiv(x, y) for x in a for y in b]
    return min(corners), max(corners)


def _floordiv(x: Number, y: Number) -> Number:
    if y == math.inf:
        return -1 if x < 0 else 0
    return x if abs(x) == math.inf else x // y


def _mod_range(a: Range, b: Range) -> Range:
    if b[0] > 0:
        return 0, min(b[1] - 1, a[1] if a[0] >= 0 else math.inf)
    return (b[0] + 1, 0) if b[1] < 0 else (-math.inf, math.inf)


_RANGES: dict[type, Any] = {
    FloorDiv: _floordiv_range,
    Mod: _mod_range,
    Max: lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    Min: lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    Select: lambda a, b: (min(a[0], b[0]), max(a[1], b[1])),
    BitAnd: lambda a, b: (0, min(a[1], b[1])) if a[0] >= 0 and b[0] >= 0 else (-math.inf, math.inf),
}
