"""ShapeEnv: the symbols of one trace (`symbols.py`), every question that was asked of them (`questions.py`), and what
became of each.

    env = ShapeEnv()
    n = env.create_int(7, origin=("x", "size", 0))      # a torch.SymInt that prints as s0
    n * 2 == 14                                         # True, and from now on guarded: s0 == 7
    env.explain(("x", "size", 0))                       # pinned, and the guard with the user's line that asked

A question is answered from the facts where they suffice. Otherwise the hint (the number that this call brought)
answers, and the answer becomes a guard with the user's line that asked. Symbols without a hint (*unbacked*: their
number is computed by the program itself) raise DataDependent instead, unless `torch._check` told enough.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Hashable
from typing import Any

import sympy

from dyncomp.shape.errors import MarkError
from dyncomp.shape.functions import FALSE, TRUE, Expr, IsZero
from dyncomp.shape.questions import Questions, ShapeGuard
from dyncomp.shape.symbols import INT_LIMIT, LARGEST_SIZE, SIZE_LIMIT, bound_text
from dyncomp.shape.truths import Fits, PinnedFloat
from dyncomp.shape.words import words


@dataclasses.dataclass(frozen=True)
class Knowledge:
    """Of one number, for people. `guards`: those that pinned or narrowed it."""

    pinned: bool
    equal_to: str | None
    range: str
    guards: tuple[ShapeGuard, ...]


class ShapeEnv(Questions):
    """The whole; see `Symbols` for its options."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.memo: dict[Hashable, Any] = {}  # for callers: results in terms of these symbols

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
                    f"{info.origin} was marked as dynamic from {info.range[0]} to {bound_text(info.range[1])}, but the "
                    f"program holds only from {low} to {bound_text(high)}{self._because(info.symbol)}"
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
        text = f"from {low} to {high}" if high < SIZE_LIMIT else "any" if low <= -INT_LIMIT else f"{low} and more"
        equal_to = self.named(words(simple)) if tied or simple != symbol else None
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
        self.facts.narrow(symbol, min or 0, LARGEST_SIZE if max is None else max)

    def _constrain_is_bounded(self, symbol: Expr, bound: int) -> None:
        self.facts.narrow(symbol, -math.inf, bound)
