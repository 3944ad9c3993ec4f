"""SymNode: what torch.SymInt, SymFloat and SymBool hold. Torch calls these methods by name, from C++ and Python.

    torch.SymInt(SymNode(s0, env, int)) + 1     ->     node.add(node.wrap_int(1))     ->     SymInt of s0 + 1

Integers keep Python's meaning: `//` and `%` round down, division by zero raises, a question about an order or an
equality becomes a SymBool that is answered (and guarded) only when somebody needs its truth.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import sympy
import torch
import torch.fx.experimental.sym_node

from dyncomp.shape import layout, ops
from dyncomp.shape.functions import (
    FALSE,
    FLOAT_FUNCTIONS,
    TRUE,
    ZERO,
    BitAnd,
    BitOr,
    BitXor,
    Expr,
    FloatConstant,
    FloatSelect,
    FloorDiv,
    Max,
    Min,
    Mod,
    PowNatural,
    Select,
    ShiftLeft,
    ShiftRight,
    float_constant,
)
from dyncomp.shape.relation import equal, less, less_equal, negate

Text = str  # SymNode has a method of that name
_F = FLOAT_FUNCTIONS
_memo: dict[tuple[str, Expr, Expr], Expr] = {}
_MEMO_LIMIT = 100_000
_EXPANDED = 4  # powers of sums up to here are multiplied out


class SymNode:
    """An expression of one env. Never changed; `expr` is the expression after all that was learned since."""

    __slots__ = ("_expr", "shape_env", "pytype", "_version", "__weakref__")
    constant = None

    def __init__(self, expr: Expr, env: Any, kind: type):
        self._expr = expr
        self.shape_env = env
        self.pytype = kind
        self._version = env.facts.version

    @property
    def expr(self) -> Expr:
        facts = self.shape_env.facts
        if self._version != facts.version:
            is_truth = self.pytype is bool
            self._expr = facts.simplify_truth(self._expr) if is_truth else facts.simplify(self._expr)
            self._version = facts.version
        return self._expr

    @property
    def hint(self) -> Any:
        return self.shape_env.hint(self._expr)

    _hint = hint

    def has_hint(self) -> bool:
        return self.hint is not None

    def require_hint(self, fallback: Any = None) -> Any:
        hint = self.hint
        return fallback if hint is None else hint

    # ---- kinds

    def is_int(self) -> bool:
        return self.pytype is int

    def is_float(self) -> bool:
        return self.pytype is float

    def is_bool(self) -> bool:
        return self.pytype is bool

    def is_nested_int(self) -> bool:
        return False

    def nested_int(self) -> None:
        return None

    def is_symbolic(self) -> bool:
        return True

    def is_constant(self) -> bool:
        expr = self.expr
        return expr.is_Integer or expr is TRUE or expr is FALSE or isinstance(expr, FloatConstant)

    def maybe_as_int(self) -> int | None:
        return int(self.expr) if self.expr.is_Integer else None

    def maybe_as_float(self) -> float | None:
        return self.expr.value if isinstance(self.expr, FloatConstant) else None

    def maybe_as_bool(self) -> bool | None:
        return bool(self.expr) if self.expr in (TRUE, FALSE) else None

    def _make(self, expr: Expr, kind: type) -> SymNode:
        return SymNode(expr, self.shape_env, kind)

    def wrap_int(self, value: int) -> SymNode:
        return self._make(sympy.Integer(value), int)

    def wrap_float(self, value: float) -> SymNode:
        return self._make(float_constant(value), float)

    def wrap_bool(self, value: bool) -> SymNode:
        return self._make(TRUE if value else FALSE, bool)

    def clone(self) -> SymNode:
        return self

    def str(self) -> Text:
        return repr(self.expr)

    def __str__(self) -> Text:
        return repr(self.expr)

    __repr__ = __str__

    def _graph_repr(self) -> Text:
        return repr(self.expr)

    # ---- answers

    def bool_(self) -> bool:
        """Of a float too: -0.0 is false, whatever its bits."""
        truth = self if self.pytype is bool else self.ne(self.wrap_int(0) if self.pytype is int else self.wrap_float(0.0))
        return truth.guard_bool("", 0)

    def int_(self) -> int:
        return self.guard_int("", 0)

    def guard_bool(self, file: Text, line: int) -> bool:
        return self.shape_env.evaluate_bool(self.expr)  # type: ignore[no-any-return]

    def guard_int(self, file: Text, line: int) -> int:
        return self.shape_env.evaluate_int(self.expr)  # type: ignore[no-any-return]

    def guard_float(self, file: Text, line: int) -> float:
        return self.shape_env.evaluate_float(self.expr)  # type: ignore[no-any-return]

    def expect_true(self, file: Text, line: int) -> bool:
        return self.shape_env.expect(self.expr)  # type: ignore[no-any-return]

    def guard_or_false(self, file: Text, line: int) -> bool:
        return self.shape_env.evaluate_bool(self.expr, False)  # type: ignore[no-any-return]

    guard_size_oblivious = guard_or_false

    def guard_or_true(self, file: Text, line: int) -> bool:
        return self.shape_env.evaluate_bool(self.expr, True)  # type: ignore[no-any-return]

    def statically_known_true(self, file: Text, line: int) -> bool:
        return self.shape_env.known(self.expr) is True

    def expect_size(self, file: Text, line: int) -> bool:
        return self.shape_env.expect(less_equal(ZERO, self.expr))  # type: ignore[no-any-return]

    # ---- arithmetic; operands have one kind, torch sees to that

    def _binary(self, name: Text, other: SymNode, integers: Callable[..., Expr], floats: Text = "") -> SymNode:
        if float in (self.pytype, other.pytype):
            return self._float(floats, self, other)
        a, b = self.expr, other.expr
        key = (name, a, b)
        result = _memo.get(key)
        if result is None:
            if len(_memo) > _MEMO_LIMIT:
                _memo.clear()
            result = _memo[key] = integers(a, b)
        if name in ops.PARTIAL:
            self.shape_env.define(result)
        return self._make(result, int)

    def _float(self, name: Text, *operands: SymNode) -> SymNode:
        """A function of floats (or of ints, to a float). Raises ops.Undefined where this call has no such float."""
        exprs = [operand.expr for operand in operands]
        result = _F[name](*exprs)
        if all(isinstance(arg, FloatConstant) or arg.is_Integer for arg in exprs):
            return self.wrap_float(self.shape_env.hint(result))
        self.shape_env.define(result)
        return self._make(result, float)

    def add(self, other: SymNode) -> SymNode:
        return self._binary("add", other, lambda a, b: a + b, "fadd")

    def sub(self, other: SymNode) -> SymNode:
        return self._binary("sub", other, lambda a, b: a - b, "fsub")

    def mul(self, other: SymNode) -> SymNode:
        return self._binary("mul", other, _product, "fmul")

    def _nonzero(self, divide: Callable[[int, int], Any]) -> None:
        """Python's own error for a division of this kind by this; its words differ by kind and by version."""
        if self.shape_env.evaluate_bool(equal(self.expr, ZERO)):
            divide(1, 0)

    def int_floordiv(self, other: SymNode) -> SymNode:
        other._nonzero(operator.floordiv)
        return self._known_division(other, self._binary("floordiv", other, FloorDiv), ZERO)

    def floordiv(self, other: SymNode) -> SymNode:
        if float in (self.pytype, other.pytype):
            return self._float("ffloordiv", self, other)
        return self.int_floordiv(other)

    def mod(self, other: SymNode) -> SymNode:
        if float in (self.pytype, other.pytype):
            return self._float("fmod", self, other)
        other._nonzero(operator.mod)
        return self._known_division(other, self._binary("mod", other, Mod), self.expr)

    def _known_division(self, other: SymNode, result: SymNode, small: Expr) -> SymNode:
        """`small` where the facts say 0 <= dividend < divisor."""
        if not isinstance(result._expr, FloorDiv | Mod):
            return result
        env = self.shape_env
        if env.known(less_equal(ZERO, self.expr)) and env.known(less(self.expr, other.expr)):
            return self._make(small, int)
        return result

    def int_truediv(self, other: SymNode) -> SymNode:
        other._nonzero(operator.truediv)
        return self._float("truediv", self, other)

    def float_truediv(self, other: SymNode) -> SymNode:
        return self._float("fdiv", self, other)

    truediv = float_truediv

    def float_pow(self, other: SymNode) -> SymNode:
        return self._float("fpow", self, other)

    def pow_by_natural(self, other: SymNode) -> SymNode:
        return self._binary("pow", other, _power)

    def pow(self, other: SymNode) -> SymNode:
        return self.float_pow(other) if float in (self.pytype, other.pytype) else self.pow_by_natural(other)

    def sym_max(self, other: SymNode) -> SymNode:
        return self._extreme(other, Max, "fmax")

    def sym_min(self, other: SymNode) -> SymNode:
        return self._extreme(other, Min, "fmin")

    def _extreme(self, other: SymNode, function: Any, of_floats: Text) -> SymNode:
        if float in (self.pytype, other.pytype):
            return self._float(of_floats, self, other)
        greater = self.shape_env.known(less_equal(other.expr, self.expr))
        if greater is not None:
            return self if greater is (function is Max) else other
        return self._binary(function.op, other, function)

    def lshift(self, other: SymNode) -> SymNode:
        return self._binary("shl", other, ShiftLeft)

    def rshift(self, other: SymNode) -> SymNode:
        return self._binary("shr", other, ShiftRight)

    def bitwise_and(self, other: SymNode) -> SymNode:
        return self.and_(other) if self.pytype is bool else self._binary("bitand", other, BitAnd)

    def bitwise_or(self, other: SymNode) -> SymNode:
        return self.or_(other) if self.pytype is bool else self._binary("bitor", other, BitOr)

    def bitwise_xor(self, other: SymNode) -> SymNode:
        if self.pytype is bool:
            return self.eq(other).sym_not()
        return self._binary("bitxor", other, BitXor)

    def sym_sum(self, operands: Any) -> SymNode:
        return self._make(sympy.Add(*[operand.expr for operand in operands]), int)

    def neg(self) -> SymNode:
        return self._float("fneg", self) if self.pytype is float else self._make(-self.expr, int)

    def pos(self) -> SymNode:
        return self

    def abs(self) -> SymNode:
        return self._float("fabs", self) if self.pytype is float else self.sym_max(self.neg())

    # ---- between integers and floats

    def sym_float(self) -> SymNode:
        return self if self.pytype is float else self._float("tofloat", self)

    def _whole(self, name: Text) -> SymNode:
        if self.pytype is int:
            return self
        expr = _F[name](self.expr)
        if isinstance(self.expr, FloatConstant):
            return self.wrap_int(self.shape_env.hint(expr))
        self.shape_env.define(expr)
        return self._make(expr, int)

    def floor(self) -> SymNode:
        return self._whole("ffloor")

    def ceil(self) -> SymNode:
        return self._whole("fceil")

    def trunc(self) -> SymNode:
        return self._whole("ftrunc")

    sym_int = trunc

    def round(self, ndigits: int | None = None) -> SymNode:
        if self.pytype is int:
            return self if ndigits is None or ndigits >= 0 else self._round_tens(10**-ndigits)
        if ndigits is None:
            return self._whole("fround")
        # Python rounds the decimal text; only the number itself tells that.
        return self.wrap_float(round(self.guard_float("", 0), ndigits))

    def _round_tens(self, step: int) -> SymNode:
        """round(n, -k) with step = 10**k: to the nearest multiple, halves to the even one."""
        unit = self.wrap_int(step)
        below = self.int_floordiv(unit)
        rest = self.mod(unit).mul(self.wrap_int(2))
        up = rest.gt(unit).or_(rest.eq(unit).and_(below.mod(self.wrap_int(2)).eq(self.wrap_int(1))))
        return up.sym_ite(below.add(self.wrap_int(1)), below).mul(unit)

    def is_integer(self) -> SymNode:
        if self.pytype is int:
            return self.wrap_bool(True)
        return self._make(_F["fisint"](self.expr), bool)

    # ---- truth

    def _compare(self, other: SymNode, integers: Callable[..., Expr], floats: Callable[..., Expr]) -> SymNode:
        if float in (self.pytype, other.pytype):
            truth = floats(self.expr, other.expr)
            if self.is_constant() and other.is_constant():
                truth = TRUE if self.shape_env.hint(truth) else FALSE
            return self._make(truth, bool)
        key = (integers.__name__, self.expr, other.expr)
        truth = _memo.get(key)
        if truth is None:
            truth = _memo[key] = integers(self.expr, other.expr)
        return self._make(truth, bool)

    def eq(self, other: SymNode) -> SymNode:
        if self.pytype is bool:
            a, b = self.expr, other.expr
            return self._make(sympy.Or(sympy.And(a, b), sympy.And(negate(a), negate(b))), bool)
        return self._compare(other, equal, _F["feq"])

    def ne(self, other: SymNode) -> SymNode:
        return self.eq(other).sym_not()

    def lt(self, other: SymNode) -> SymNode:
        return self._compare(other, less, _F["flt"])

    def le(self, other: SymNode) -> SymNode:
        return self._compare(other, less_equal, _F["fle"])

    def gt(self, other: SymNode) -> SymNode:
        return other.lt(self)

    def ge(self, other: SymNode) -> SymNode:
        return other.le(self)

    def and_(self, other: SymNode) -> SymNode:
        return self._make(sympy.And(self.expr, other.expr), bool)

    def or_(self, other: SymNode) -> SymNode:
        return self._make(sympy.Or(self.expr, other.expr), bool)

    sym_and, sym_or = and_, or_

    def sym_not(self) -> SymNode:
        return self._make(negate(self.expr), bool)

    def sym_ite(self, then: SymNode, other: SymNode) -> SymNode:
        answer = self.shape_env.known(self.expr)
        if answer is not None:
            return then if answer else other
        if then.pytype is bool:
            return self.and_(then).or_(self.sym_not().and_(other))
        choose = FloatSelect if then.pytype is float else Select
        return self._make(choose(self.expr, then.expr, other.expr), then.pytype)

    # ---- layouts: C++ asks them of the first symbolic size

    def _layout(self, question: Callable[..., bool], sizes: Any, strides: Any) -> SymNode:
        numbers = [[torch.SymInt(node) for node in nodes] for nodes in (sizes, strides)]
        return self.wrap_bool(question(*[[_plain(n) for n in ns] for ns in numbers]))

    def is_contiguous(self, sizes: Any, strides: Any) -> SymNode:
        return self._layout(layout.is_contiguous, sizes, strides)

    def is_channels_last_contiguous_2d(self, sizes: Any, strides: Any) -> SymNode:
        return self._layout(lambda a, b: len(a) == 4 and layout.is_channels_last(a, b), sizes, strides)

    def is_channels_last_contiguous_3d(self, sizes: Any, strides: Any) -> SymNode:
        return self._layout(lambda a, b: len(a) == 5 and layout.is_channels_last(a, b), sizes, strides)

    def is_channels_last_strides_2d(self, sizes: Any, strides: Any) -> SymNode:
        return self._layout(lambda a, b: len(a) == 4 and layout.has_channels_last_order(a, b), sizes, strides)

    def is_channels_last_strides_3d(self, sizes: Any, strides: Any) -> SymNode:
        return self._layout(lambda a, b: len(a) == 5 and layout.has_channels_last_order(a, b), sizes, strides)

    def is_non_overlapping_and_dense(self, sizes: Any, strides: Any) -> SymNode:
        return self._layout(layout.is_dense, sizes, strides)

    is_non_overlapping_and_dense_indicator = is_non_overlapping_and_dense


def _plain(number: torch.SymInt) -> Any:
    known = number.node.maybe_as_int()
    return number if known is None else known


def _product(a: Expr, b: Expr) -> Expr:
    return sympy.expand(a * b) if a.is_Add or b.is_Add else a * b


def _power(a: Expr, b: Expr) -> Expr:
    return sympy.expand(a**b) if b.is_Integer and b <= (_EXPANDED if a.is_Add else 63) else PowNatural(a, b)


def _math_method(name: str) -> Callable[[SymNode], SymNode]:
    def method(self: SymNode) -> SymNode:
        return self._float(f"f{name}", self.sym_float())

    return method


for _name in ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "log2", *ops.OTHER_MATH):
    setattr(SymNode, f"sym_{_name}", _math_method(_name))
