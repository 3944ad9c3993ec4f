"""Questions about symbolic numbers: answered from the facts, else from the hints, and what the answers oblige to.

    questions.evaluate_bool(IsZero(s0 - 7))     ->  True, and from now on guarded: s0 == 7
    questions.expect(IsPositive(u0), "...")     ->  True, and checked while the program runs

An answer that no fact gives becomes a guard with the user's line that asked. Of numbers without a hint it becomes a
run-time assert where the caller allows one, else DataDependent.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import sympy

from dyncomp import log
from dyncomp.shape import ops
from dyncomp.shape.errors import DataDependent
from dyncomp.shape.facts import Contradiction
from dyncomp.shape.functions import Expr, FloatConstant, IsPositive, float_constant
from dyncomp.shape.prove import prove
from dyncomp.shape.relation import equal, is_positive, less_equal
from dyncomp.shape.symbols import INT_LIMIT, Symbols, UserLine
from dyncomp.shape.truths import Defined, Fits, PinnedFloat, expr_of, is_total
from dyncomp.shape.words import describe


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
    """Must be checked while the program runs, since it speaks of unbacked symbols.

    `truth` is as it was before it became a fact. `assumed`: eager does not need it; where it fails, another trace would do.
    """

    truth: Expr
    message: str
    line: UserLine | None
    assumed: bool = False


class Questions(Symbols):
    """See `Symbols` for what it is made of."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.guards: list[ShapeGuard] = []
        self.asserts: list[RuntimeAssert] = []
        self.closed = False  # no assert can be added any more: the code that would check it is written
        self.doubtful = False  # a number without a hint is computed that may have no result, or none in 64 bits
        self._defined: set[Expr] = set()

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
        if getattr(e, "op", None) not in ops.PARTIAL or is_total(e) or e in self._defined:
            return
        if known is None:
            self.doubtful = True
            return
        self._defined.add(e)
        self.guards.append(ShapeGuard(Defined(self.facts.simplify(e)), self.asker()))

    def fit(self, e: Expr) -> bool:
        """The graph computes with the int `e`, and compiled code has 64 bits for it: calls in which it is beyond
        them fail the guard. False if this call is one of them.
        """
        parts = [p for p in sympy.preorder_traversal(e) if p.is_Add or p.is_Mul or p.is_Pow or getattr(p, "op", "") == "shl"]
        ranges = [self.facts.range(p) for p in parts]
        if all(-INT_LIMIT <= low and high <= INT_LIMIT for low, high in ranges):
            return True
        if self.hint(e) is None:
            self.doubtful = True
            return True
        if any(self._magnitude(p) > INT_LIMIT for p in parts):
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
        if hint is None or self.facts.range(e)[1] <= INT_LIMIT:
            return True
        if hint > INT_LIMIT:
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

    def _unknown(self, asked: Expr) -> DataDependent:
        """The question, who asked, and which line of the program gave each number in it."""
        whole = {self.facts.parts[s][0] if s in self.facts.parts else s for s in asked.free_symbols}
        made = [self.symbols[s] for s in sorted(whole, key=str) if s in self.symbols]
        told = ", ".join(f"{m.symbol} is made at {m.line[0]}:{m.line[1]}" for m in made if m.hint is None and m.line)
        return DataDependent(describe(asked), self.asker(), told)

    def learn_bound(self, number: Any, most: Any) -> None:
        """The operation that gives `number` never gives more than `most`."""
        truth = less_equal(expr_of(number), expr_of(most))
        if self.known(truth) is None:
            self.facts.learn(self.facts.simplify_truth(truth), True)
