"""The symbols of one trace: where each number comes from, its range, and its hint (what it is in this call).

    symbols.create_int(7, origin=("x", "size", 0))      # a torch.SymInt that prints as s0
    symbols.create_unbacked(low=0)                      # u0: the program computes it, so it has no hint
    symbols.hint(s0 * 2)                                # 14
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable
from typing import Any

import sympy
import torch

from dyncomp.shape.errors import MarkError
from dyncomp.shape.facts import Facts
from dyncomp.shape.functions import FALSE, TRUE, Expr, FloatConstant
from dyncomp.shape.node import SymNode
from dyncomp.shape.polynomial import Number, Range
from dyncomp.shape.truths import compute, expr_of

UserLine = tuple[str, int]
_ANY = (-math.inf, math.inf)
SIZE_LIMIT = 2**31  # larger sizes are never symbolic, so that products of two need no check
LARGEST_SIZE = 2**48  # no tensor in memory has a larger one: what is known of sizes that are symbolic in any case
INT_LIMIT = 2**63 - 1  # what a register holds


@dataclasses.dataclass(frozen=True)
class Mark:
    """What a user promised about a number: it stays symbolic. `strict`: the user gave the range, so all of it must hold."""

    low: Number = -math.inf
    high: Number = math.inf
    strict: bool = True


@dataclasses.dataclass(frozen=True)
class Symbol:
    """`origin` says where a call's number is read; None for one that the program computes (unbacked). `early`: it is made before
    the graph runs, after the guards were checked."""

    symbol: Expr
    origin: Hashable | None
    hint: Any
    kind: type
    range: Range
    line: UserLine | None
    mark: Mark | None = None
    early: bool = False


class Symbols:
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
        self.equalities: list[tuple[Hashable, Expr]] = []  # what an origin must read, beside symbols' own
        self._ducks: dict[int, list[Expr]] = {}
        self._hints: dict[Expr, Any] = {}
        self._names = {"s": 0, "u": 0, "z": 0, "uf": 0}

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
        high = min(high, INT_LIMIT if low < 0 else SIZE_LIMIT if mark is None else LARGEST_SIZE)
        low = max(low, -INT_LIMIT)
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
        mark = Mark(low, LARGEST_SIZE if high is None else high, strict)
        if self.specialize_zero_one and hint in (0, 1):
            raise MarkError(f"{origin} was marked as dynamic, but it is {hint} in this call: sizes 0 and 1 are always special")
        if not mark.low <= hint <= mark.high:
            raise MarkError(f"{origin} was marked as dynamic from {mark.low} to {bound_text(high)}, but it is {hint}")
        return self.create_int(hint, origin, mark=mark)

    def create_hintless(self, origin: Hashable, low: Number = 0, high: Number = LARGEST_SIZE) -> torch.SymInt:
        """A number of the call that the trace may not look at (`mark_unbacked`)."""
        symbol = self._new_symbol("u", low, high)
        self.symbols[symbol] = Symbol(symbol, origin, None, int, (low, high), self.asker())
        return self.wrap(symbol, int)  # type: ignore[no-any-return]

    def create_early(self, kind: type, origin: Hashable, low: Number = -math.inf, high: Number = math.inf) -> Any:
        """An int or a float that each call makes anew before the graph runs: the trace may not look at it, nor may a guard."""
        if kind is float:
            symbol = sympy.Symbol(f"uf{self._count('uf')}", real=True)
            low, high = _ANY
        else:
            low, high = max(low, -INT_LIMIT - 1), min(high, INT_LIMIT)
            symbol = self._new_symbol("u", low, high, late=True)
        self.symbols[symbol] = Symbol(symbol, origin, None, kind, (low, high), self.asker(), early=True)
        return self.wrap(symbol, kind)

    def create_float(self, hint: float, origin: Hashable) -> torch.SymFloat:
        symbol = sympy.Symbol(f"z{self._count('z')}", real=True)
        self.symbols[symbol] = Symbol(symbol, origin, hint, float, _ANY, self.asker())
        return self.wrap(symbol, float)

    def create_unbacked(self, low: Number = -math.inf, high: Number = math.inf) -> torch.SymInt:
        """A number that the program computes from data."""
        low, high = max(low, -INT_LIMIT - 1), min(high, INT_LIMIT)
        symbol = self._new_symbol("u", low, high, late=True)
        self.symbols[symbol] = Symbol(symbol, None, None, int, (low, high), self.asker())
        return self.wrap(symbol, int)

    def create_unbacked_float(self) -> torch.SymFloat:
        """A float that the program computes from data."""
        symbol = sympy.Symbol(f"uf{self._count('uf')}", real=True)
        self.symbols[symbol] = Symbol(symbol, None, None, float, _ANY, self.asker())
        return self.wrap(symbol, float)

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
            info.origin is not None and not info.early and (info.kind is float or not self.facts.simplify(symbol).is_Integer)
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


def bound_text(bound: Number | None) -> str:
    """A bound for people."""
    return "any" if bound is None or bound >= SIZE_LIMIT else str(bound)
