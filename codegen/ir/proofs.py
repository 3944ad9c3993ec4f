"""What holds for all symbolic sizes: signs, comparisons, and exact quotients of polynomials.

    i*b + j  with i < a, j < b      ->  not negative, and below a*b
    a*b*12 over 4*b                 ->  3*a

`polynomial` and `division` ask these questions themselves: `polynomial` imports this module at its end.
"""

from __future__ import annotations

import functools

from dyncomp.codegen.ir import ranges, terms
from dyncomp.codegen.ir.polynomial import (
    ZERO,
    Atom,
    FloorDiv,
    Index,
    IndexLike,
    Min,
    Mod,
    Product,
    Size,
    Undecided,
    Var,
    as_index,
    const,
    product,
)


def upper_bound(index: IndexLike) -> int | None:
    """A number that the index never exceeds, if the extents give one; the least of several for a minimum."""
    index = as_index(index)
    if len(index.terms) == 1 and isinstance(index.terms[0][0], Min) and index.terms[0][1] == 1:
        atom = index.terms[0][0]
        found = [b for b in (upper_bound(atom.a), upper_bound(atom.b)) if b is not None]
        return min(found) + index.const if found else None
    span = ranges.bounds(index)
    return None if span is None else span[1]


def at_least(a: Index, b: Index) -> bool:
    """a >= b, decided."""
    gap = a - b
    if nonnegative(gap):
        return True
    if nonnegative(-gap - 1):
        return False
    raise Undecided(f"{a} >= {b}")


@functools.lru_cache(maxsize=4096)
def nonnegative(index: Index) -> bool:
    """True if the ranges of variables and the least values of sizes keep the index from being negative.

    Divisions and minima are replaced by a bound, variables by an end of their range, and sizes by their least value
    plus a rest: what then has no negative coefficient is not negative.
    """
    span = ranges.bounds(index)
    if span is not None:
        return span[0] >= 0
    try:
        return _nonnegative(index)
    except _Unbounded:
        return False


class _Unbounded(Exception):
    pass


def _nonnegative(index: Index) -> bool:
    for _ in range(64):
        step = _without_function(index)
        if step is None:
            step = _without_variable(index)
        if step is None:
            break
        index = step
    sizes = {a: as_index(a) + a.low for a in terms.sizes_in(index)}
    if any(not isinstance(part, Size) for term, _ in index.terms for part in _parts(term)):
        return False
    shifted = terms.substitute(index, sizes)
    return shifted.const >= 0 and all(coef >= 0 for _, coef in shifted.terms)


def _parts(term: Atom) -> tuple[Atom, ...]:
    return term.atoms if isinstance(term, Product) else (term,)


def _without_function(index: Index) -> Index | None:
    """A lower bound of the index without one of its divisions or minima; None if it has none."""
    for term, coef in index.terms:
        parts = _parts(term)
        for part in parts:
            if isinstance(part, (Var, Size)):
                continue
            rest = list(parts)
            rest.remove(part)
            if any(isinstance(a, Size) and a.low < 0 for a in rest):
                raise _Unbounded
            others = product(rest) * coef
            return index - Index(((term, coef),), 0) + (_least(part, others) if coef > 0 else _most(part, others))
    return None


def _least(part: Atom, factor: Index) -> Index:
    """At most part * factor, for a factor that is not negative."""
    if isinstance(part, Mod):
        return ZERO
    if isinstance(part, FloorDiv) and nonnegative(part.num):
        return ZERO
    if isinstance(part, Min) and nonnegative(part.a) and nonnegative(part.b):
        return ZERO
    raise _Unbounded


def _most(part: Atom, factor: Index) -> Index:
    """At most part * factor, for a factor that is not positive."""
    if isinstance(part, Mod):
        whole = nonnegative(part.num) and ranges.bounds(part.num) is not None and ranges.bounds(part.den) is None
        return (part.num if whole else part.den - 1) * factor
    if isinstance(part, FloorDiv):  # den * (num // den) <= num
        times, rest = divided(factor, part.den)
        if rest == ZERO:
            return part.num * times
        if nonnegative(part.num):
            return part.num * factor
    if isinstance(part, Min):
        return (part.a if upper_bound(part.b) is None or part.b.terms else part.b) * factor
    raise _Unbounded


def _without_variable(index: Index) -> Index | None:
    """A lower bound without one of the variables, innermost first; None if there is none."""
    found = terms.variables(index)
    for var in sorted(found, key=lambda v: v.name):
        if any(var in terms.variables(other.extent) for other in found if other is not var):
            continue
        factor = terms.coefficient_of(index, var)
        if factor is None:
            raise _Unbounded
        if nonnegative(factor):
            return terms.substitute(index, {var: ZERO})
        if nonnegative(-factor):
            return terms.substitute(index, {var: var.extent - 1})
        raise _Unbounded
    return None


# ---- quotients of polynomials


def divided(num: Index, den: Index) -> tuple[Index, Index]:
    """(quotient, rest) with num == quotient * den + rest: division by the leading term of `den`."""
    lead, scale = _leading(den)
    quotient, rest = ZERO, num
    for _ in range(64):
        found = next((f for f in (_over(a, c, lead, scale) for a, c in rest.terms) if f is not None), None)
        if found is None and not lead and rest.const and rest.const % scale == 0:
            found = const(rest.const // scale)
        if found is None:
            break
        quotient, rest = quotient + found, rest - found * den
    return quotient, rest


def quotient(num: IndexLike, den: IndexLike) -> IndexLike | None:
    """num / den where den divides it whatever the sizes are; None otherwise. A plain int if it is one."""
    if isinstance(num, int) and isinstance(den, int):
        return num // den if den and num % den == 0 else None
    if den == 0:
        return None
    out, rest = divided(as_index(num), as_index(den))
    return as_number(out) if rest == ZERO else None


def as_number(value: IndexLike) -> IndexLike:
    """A plain int where the index is one."""
    return value if isinstance(value, int) else value.const if not value.terms else value


def _leading(den: Index) -> tuple[tuple[Atom, ...], int]:
    """Atoms and coefficient of the term of highest degree."""
    if not den.terms:
        return (), den.const
    term, coef = max(den.terms, key=lambda t: (len(_parts(t[0])), t[0].key))
    return _parts(term), coef


def _over(term: Atom, coef: int, lead: tuple[Atom, ...], scale: int) -> Index | None:
    """The quotient of two terms."""
    rest = list(_parts(term))
    if not scale or coef % scale:
        return None
    for part in lead:
        if part not in rest:
            return None
        rest.remove(part)
    return product(rest) * (coef // scale)
