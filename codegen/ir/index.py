"""Integer index algebra: what an address, a bound or a loop extent is made of.

An `Index` is a polynomial with integer coefficients over atoms:

    Var(name, extent)      a loop variable, 0 <= var < extent
    Size(name, low)        an integer parameter of the kernel, >= low (symbolic sizes and strides)
    FloorDiv(num, den)     num // den, rounds down, den > 0
    Mod(num, den)          num % den, 0 <= result < den
    Min(a, b)              the smaller one (extents of last blocks)
    Product(atoms)         two or more atoms multiplied (only where symbolic sizes occur)

Kept normal at all times: terms sorted, like terms added, zero terms dropped, divisions and remainders
simplified by the variables' ranges. So equal expressions are equal objects for `==`, and affine ones are
recognised by looking at the atoms. Plain integers are accepted wherever an `Index` is.

Comparing (`<`, `bool`, `int`...) answers what holds for all sizes, and raises `Undecided` where sizes decide;
`==` asks for the same normal form. The proofs are in `proofs`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Union


class Undecided(Exception):
    """A question about symbolic sizes has different answers for different sizes."""


class Atom:
    """Base of what an `Index` is a polynomial of. `key` orders atoms and prints them. Arithmetic gives an
    `Index`."""

    __slots__ = ()

    def __add__(self, other: IndexLike | Atom) -> Index:
        return as_index(self) + as_index(other)

    def __mul__(self, other: IndexLike | Atom) -> Index:
        return as_index(self) * as_index(other)

    def __sub__(self, other: IndexLike | Atom) -> Index:
        return as_index(self) - as_index(other)

    def __floordiv__(self, other: IndexLike | Atom) -> Index:
        return as_index(self) // as_index(other)

    def __mod__(self, other: IndexLike | Atom) -> Index:
        return as_index(self) % as_index(other)

    __radd__ = __add__
    __rmul__ = __mul__

    @property
    def key(self) -> str:
        raise NotImplementedError

    def __str__(self) -> str:
        return self.key


@dataclasses.dataclass(frozen=True)
class Var(Atom):
    """A loop variable that runs from 0 to `extent` - 1."""

    name: str
    extent: Index

    @property
    def key(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"Var({self.name!r}, {self.extent!r})"


@dataclasses.dataclass(frozen=True)
class Size(Atom):
    """A named integer parameter of the kernel, at least `low`. `hint`: what it was when the graph was traced; it
    chooses between forms that are all right."""

    name: str
    low: int = 0
    hint: int = dataclasses.field(default=64, compare=False, repr=False)

    @property
    def key(self) -> str:
        return self.name


@dataclasses.dataclass(frozen=True)
class FloorDiv(Atom):
    num: Index
    den: Index

    @cached_property
    def key(self) -> str:  # type: ignore[override]
        return f"({self.num})//({self.den})"

    def __hash__(self) -> int:
        return hash((self.num, self.den, 1))


@dataclasses.dataclass(frozen=True)
class Mod(Atom):
    num: Index
    den: Index

    @cached_property
    def key(self) -> str:  # type: ignore[override]
        return f"({self.num})%({self.den})"

    def __hash__(self) -> int:
        return hash((self.num, self.den, 2))


@dataclasses.dataclass(frozen=True)
class Min(Atom):
    a: Index
    b: Index

    @cached_property
    def key(self) -> str:  # type: ignore[override]
        return f"minimum({self.a}, {self.b})"


@dataclasses.dataclass(frozen=True)
class Product(Atom):
    atoms: tuple[Atom, ...]

    @cached_property
    def key(self) -> str:  # type: ignore[override]
        return "*".join(a.key for a in self.atoms)


IndexLike = Union["Index", int]


class Index:
    """A polynomial over atoms, in normal form. Build it with `const`, `var`, and the operators."""

    __slots__ = ("terms", "const", "_hash")
    terms: tuple[tuple[Atom, int], ...]
    const: int

    def __init__(self, terms: tuple[tuple[Atom, int], ...], const: int):
        self.terms = terms
        self.const = const
        self._hash = hash((terms, const))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Index):
            return self._hash == other._hash and self.const == other.const and self.terms == other.terms
        return isinstance(other, int) and not self.terms and self.const == other

    def __repr__(self) -> str:
        return f"Index<{self}>"

    def __str__(self) -> str:
        if not self.terms:
            return str(self.const)
        parts = [a.key if c == 1 else f"{c}*{a.key}" for a, c in self.terms]
        if self.const:
            parts.append(str(self.const))
        return " + ".join(parts).replace("+ -", "- ")

    def __add__(self, other: IndexLike | Atom) -> Index:
        if isinstance(other, Atom):
            other = as_index(other)
        if isinstance(other, int):
            return Index(self.terms, self.const + other) if other else self
        if not other.terms:
            return Index(self.terms, self.const + other.const) if other.const else self
        if not self.terms:
            return Index(other.terms, self.const + other.const) if self.const else other
        collected = dict(self.terms)
        for atom, coef in other.terms:
            collected[atom] = collected.get(atom, 0) + coef
        return _normal(collected, self.const + other.const)

    __radd__ = __add__

    def __neg__(self) -> Index:
        return self * -1

    def __sub__(self, other: IndexLike | Atom) -> Index:
        return self + as_index(other) * -1

    def __rsub__(self, other: IndexLike) -> Index:
        return (-self) + other

    def __mul__(self, other: IndexLike | Atom) -> Index:
        if isinstance(other, Atom):
            other = as_index(other)
        if isinstance(other, Index):
            if other.terms and self.terms:
                return _multiply(self, other)
            if not other.terms:
                other = other.const
            else:
                self, other = other, self.const
        if other == 1:
            return self
        if other == 0:
            return ZERO
        return Index(tuple((a, c * other) for a, c in self.terms), self.const * other)

    __rmul__ = __mul__

    def __floordiv__(self, other: IndexLike) -> Index:
        return floordiv(self, as_index(other))

    def __mod__(self, other: IndexLike) -> Index:
        return mod(self, as_index(other))

    def __rfloordiv__(self, other: int) -> Index:
        return floordiv(as_index(other), self)

    def __rmod__(self, other: int) -> Index:
        return mod(as_index(other), self)

    def __lt__(self, other: IndexLike) -> bool:
        return not proofs.at_least(self, as_index(other))

    def __ge__(self, other: IndexLike) -> bool:
        return proofs.at_least(self, as_index(other))

    def __le__(self, other: IndexLike) -> bool:
        return proofs.at_least(as_index(other), self)

    def __gt__(self, other: IndexLike) -> bool:
        return not proofs.at_least(as_index(other), self)

    def __bool__(self) -> bool:
        if not self.terms:
            return self.const != 0
        if proofs.nonnegative(self - 1) or proofs.nonnegative(-self - 1):
            return True
        raise Undecided(f"{self} may be 0")

    def __int__(self) -> int:
        if self.terms:
            raise Undecided(f"{self} is no number")
        return self.const

    __index__ = __int__

    def __float__(self) -> float:
        return float(int(self))

    @property
    def is_const(self) -> bool:
        return not self.terms

    def as_int(self) -> int:
        if self.terms:
            raise ValueError(f"{self} is not a constant")
        return self.const

    def coefficient(self, atom: Atom) -> int:
        """The integer factor of one atom (0 where it does not occur as a term of its own)."""
        for a, c in self.terms:
            if a == atom:
                return c
        return 0

    @property
    def is_affine(self) -> bool:
        """Every term is a variable or a size times an integer."""
        return all(isinstance(a, (Var, Size)) for a, _ in self.terms)


def _sort_key(term: tuple[Atom, int]) -> str:
    return term[0].key


def _normal(collected: dict[Atom, int], const: int) -> Index:
    """Sorts, drops zero terms and joins what a division took apart (see `_join_parts`)."""
    if sum(isinstance(a, (Mod, FloorDiv)) for a in collected) > 1:
        joined = _join_parts(collected)
        if joined is not None:
            return _normal(collected, const) + joined
    if len(collected) > 1 and any(type(a) is Product for a in collected):
        collected = {a: c for a, c in collected.items() if c}
        joined = _join_symbolic(collected)
        if joined is not None:
            return _normal(collected, const) + joined
    terms = [t for t in collected.items() if t[1]]
    if len(terms) > 1:
        terms.sort(key=_sort_key)
    return Index(tuple(terms), const)


def _join_parts(collected: dict[Atom, int]) -> Index | None:
    """Takes one pair of terms out of a sum and gives what they make together:

    c*d*(x//d) + c*(x%d)        ->  c*x
    c*d*((x//d)%e) + c*(x%d)    ->  c*(x%(d*e))
    """
    for low in [a for a in collected if isinstance(a, Mod) and a.den.is_const and collected[a]]:
        coef, den = collected[low], low.den.const
        whole = FloorDiv(low.num, low.den)
        if collected.get(whole) == coef * den:
            del collected[low], collected[whole]
            return low.num * coef
        for high in [a for a in collected if isinstance(a, Mod) and a.den.is_const and collected[a] == coef * den]:
            if high.num == floordiv(low.num, low.den):
                del collected[low], collected[high]
                return mod(low.num, Index((), den * high.den.const)) * coef
    return None


def _join_symbolic(collected: dict[Atom, int]) -> Index | None:
    """The same with symbolic divisors, whose terms are products."""
    for term, coef in list(collected.items()):
        parts = term.atoms if isinstance(term, Product) else (term,)
        for low in [a for a in parts if isinstance(a, Mod) and not a.den.is_const]:
            rest = list(parts)
            rest.remove(low)
            factor = _product(rest) * coef
            for upper, joined in _partners(low, collected):
                pair = [(term, coef), *(factor * low.den * upper).terms]
                if all(collected.get(a) == c for a, c in pair):
                    for atom, _ in pair:
                        del collected[atom]
                    return factor * joined
    return None


def _partners(low: Mod, collected: Mapping[Atom, int]) -> Iterator[tuple[Index, Index]]:
    """What `low.den` times, plus `low`, is something simpler; and what it is."""
    yield as_index(FloorDiv(low.num, low.den)), low.num
    above = floordiv(low.num, low.den)
    for term in collected:
        for high in term.atoms if isinstance(term, Product) else (term,):
            if isinstance(high, Mod) and high.num == above:
                yield as_index(high), mod(low.num, low.den * high.den)


def _product(parts: Iterable[Atom]) -> Index:
    out = ONE
    for part in parts:
        out = out * part
    return out


def _multiply(a: Index, b: Index) -> Index:
    collected: dict[Atom, int] = {}

    def put(atoms: tuple[Atom, ...], coef: int) -> None:
        atom = atoms[0] if len(atoms) == 1 else Product(tuple(sorted(atoms, key=lambda t: t.key)))
        collected[atom] = collected.get(atom, 0) + coef

    def parts(atom: Atom) -> tuple[Atom, ...]:
        return atom.atoms if isinstance(atom, Product) else (atom,)

    for atom_a, coef_a in a.terms:
        if b.const:
            put((atom_a,), coef_a * b.const)
        for atom_b, coef_b in b.terms:
            put(parts(atom_a) + parts(atom_b), coef_a * coef_b)
    if a.const:
        for atom_b, coef_b in b.terms:
            put((atom_b,), coef_b * a.const)
    return _normal(collected, a.const * b.const)


def const(value: int) -> Index:
    return Index((), value)


ZERO = const(0)
ONE = const(1)


def as_index(value: IndexLike | Atom) -> Index:
    if isinstance(value, Index):
        return value
    if isinstance(value, Atom):
        return Index(((value, 1),), 0)
    return Index((), value)


def var(name: str, extent: IndexLike) -> Index:
    """The index that is one loop variable; a variable of extent 1 is the constant 0."""
    bound = as_index(extent)
    return ZERO if bound == 1 else as_index(Var(name, bound))


def bounds(index: IndexLike) -> tuple[int, int] | None:
    """Smallest and largest value that the ranges of the variables allow; None when a symbolic size leaves
    it open."""
    index = as_index(index)
    low = high = index.const
    for atom, coef in index.terms:
        span = _atom_bounds(atom)
        if span is None:
            return None
        low += coef * (span[0] if coef > 0 else span[1])
        high += coef * (span[1] if coef > 0 else span[0])
    return low, high


def _atom_bounds(atom: Atom) -> tuple[int, int] | None:
    if isinstance(atom, Var):
        extent = bounds(atom.extent)
        return (0, max(extent[1] - 1, 0)) if extent else None
    if isinstance(atom, Mod):
        den = bounds(atom.den)
        num = bounds(atom.num)
        if den is None:
            return None
        return (0, min(den[1] - 1, num[1])) if num and num[0] >= 0 else (0, den[1] - 1)
    if isinstance(atom, FloorDiv):
        num, den = bounds(atom.num), bounds(atom.den)
        if num is None or den is None or den[0] != den[1] or den[0] <= 0:
            return None
        return num[0] // den[0], num[1] // den[0]
    if isinstance(atom, Min):
        a, b = bounds(atom.a), bounds(atom.b)
        return (min(a[0], b[0]), min(a[1], b[1])) if a and b else None
    return None


def _within(index: Index, den: Index) -> bool:
    span = bounds(index)
    if span is not None and den.is_const:
        return 0 <= span[0] and span[1] < den.const
    return proofs.nonnegative(index) and proofs.nonnegative(den - 1 - index)


def floordiv(num: Index, den: Index) -> Index:
    """`num // den`: terms that den divides leave the division, the rest vanishes where it stays below den."""
    if not den.is_const:
        return _floordiv_symbolic(num, den)
    d = den.const
    if d == 1:
        return num
    if num.is_const:
        return const(num.const // d)
    out = Index(tuple((a, c // d) for a, c in num.terms if c % d == 0), num.const // d)
    rest = Index(tuple((a, c) for a, c in num.terms if c % d), num.const % d)
    if rest == ZERO or _within(rest, den):
        return out
    common = math.gcd(d, *(c for _, c in rest.terms))
    if common > 1:  # the remainder of the constant never carries over
        rest = Index(tuple((a, c // common) for a, c in rest.terms), rest.const // common)
        return out + floordiv(rest, const(d // common))
    if len(rest.terms) == 1 and rest.const == 0 and rest.terms[0][1] == 1:
        inner = rest.terms[0][0]
        if isinstance(inner, FloorDiv) and inner.den.is_const:
            return out + floordiv(inner.num, inner.den * den)
    return out + as_index(FloorDiv(rest, den))


def _floordiv_symbolic(num: Index, den: Index) -> Index:
    out, rest = proofs.divided(num, den)
    if rest == ZERO or _within(rest, den):
        return out
    if len(rest.terms) == 1 and rest.const == 0 and rest.terms[0][1] == 1:
        inner = rest.terms[0][0]
        if isinstance(inner, FloorDiv):
            return out + floordiv(inner.num, inner.den * den)
    return out + as_index(FloorDiv(rest, den))


def mod(num: Index, den: Index) -> Index:
    """`num % den`: multiples of den leave, the rest stands alone where it stays below den."""
    if not den.is_const:
        rest = proofs.divided(num, den)[1]
        return rest if rest == ZERO or _within(rest, den) else as_index(Mod(rest, den))
    d = den.const
    if d == 1:
        return ZERO
    rest = Index(tuple((a, c % d) for a, c in num.terms if c % d), num.const % d)
    if rest.is_const or _within(rest, den):
        return rest
    common = math.gcd(d, *(c for _, c in rest.terms))
    if common > 1:
        scaled = Index(tuple((a, c // common) for a, c in rest.terms), rest.const // common)
        return mod(scaled, const(d // common)) * common + rest.const % common
    if len(rest.terms) == 1 and rest.const == 0 and rest.terms[0][1] == 1:
        inner = rest.terms[0][0]
        if isinstance(inner, Mod) and inner.den.is_const and inner.den.const % d == 0:
            return mod(inner.num, den)
    return as_index(Mod(rest, den))


def minimum(a: IndexLike, b: IndexLike) -> Index:
    a, b = as_index(a), as_index(b)
    if a == b:
        return a
    if proofs.nonnegative(b - a):
        return a
    if proofs.nonnegative(a - b):
        return b
    return as_index(Min(a, b))


def atoms(index: Index) -> Iterator[Atom]:
    """All atoms, those inside divisions too."""
    for atom, _ in index.terms:
        yield from _with_parts(atom)


def _with_parts(atom: Atom) -> Iterator[Atom]:
    yield atom
    if isinstance(atom, (FloorDiv, Mod)):
        yield from atoms(atom.num)
        yield from atoms(atom.den)
    elif isinstance(atom, Min):
        yield from atoms(atom.a)
        yield from atoms(atom.b)
    elif isinstance(atom, Product):
        for part in atom.atoms:
            yield from _with_parts(part)


def variables(index: Index) -> set[Var]:
    return {a for a in atoms(index) if isinstance(a, Var)}


def substitute(index: Index, mapping: Mapping[Any, Index]) -> Index:
    """Replaces variables and sizes, simplifying again."""
    out = const(index.const)
    for atom, coef in index.terms:
        out = out + _substitute_atom(atom, mapping) * coef
    return out


def _substitute_atom(atom: Atom, mapping: Mapping[Any, Index]) -> Index:
    if isinstance(atom, (Var, Size)):
        found = mapping.get(atom)
        return as_index(atom) if found is None else found
    if isinstance(atom, FloorDiv):
        return floordiv(substitute(atom.num, mapping), substitute(atom.den, mapping))
    if isinstance(atom, Mod):
        return mod(substitute(atom.num, mapping), substitute(atom.den, mapping))
    if isinstance(atom, Min):
        return minimum(substitute(atom.a, mapping), substitute(atom.b, mapping))
    if isinstance(atom, Product):
        out = ONE
        for part in atom.atoms:
            out = out * _substitute_atom(part, mapping)
        return out
    return as_index(atom)


def evaluate(index: IndexLike, values: Mapping[str, int]) -> int:
    """The value under an assignment of names (works on anything with integer arithmetic, numpy arrays
    too)."""
    index = as_index(index)
    total = index.const
    for atom, coef in index.terms:
        total = total + _evaluate_atom(atom, values) * coef
    return total


def _evaluate_atom(atom: Atom, values: Mapping[str, int]) -> int:
    if isinstance(atom, (Var, Size)):
        return values[atom.name]
    if isinstance(atom, FloorDiv):
        return evaluate(atom.num, values) // evaluate(atom.den, values)
    if isinstance(atom, Mod):
        return evaluate(atom.num, values) % evaluate(atom.den, values)
    if isinstance(atom, Min):
        return min(evaluate(atom.a, values), evaluate(atom.b, values))
    if isinstance(atom, Product):
        return math.prod(_evaluate_atom(part, values) for part in atom.atoms)
    raise TypeError(f"not an atom: {atom!r}")


def hint(index: IndexLike) -> int:
    """The value for the sizes that the graph was traced with; 0 where it has none (a division by an empty size)."""
    index = as_index(index)
    if not index.terms:
        return index.const
    try:
        return evaluate(index, {a.name: a.hint for a in atoms(index) if isinstance(a, Size)})
    except ZeroDivisionError:
        return 0


def sizes_in(index: IndexLike) -> set[Size]:
    """The sizes in an index; those in the extents of its variables are not looked for."""
    return {a for a in atoms(as_index(index)) if isinstance(a, Size)}


def coefficient_of(index: Index, var: Var) -> Index | None:
    """What a variable is multiplied with, other terms apart; None where it stands inside a division, a minimum, or in
    a power."""
    out = ZERO
    for atom, coef in index.terms:
        if atom == var:
            out = out + coef
        elif isinstance(atom, Product) and var in atom.atoms:
            rest = list(atom.atoms)
            rest.remove(var)
            if var in rest or any(var in variables(as_index(a)) for a in rest):
                return None
            out = out + _product(rest) * coef
        elif not isinstance(atom, (Var, Size)) and var in variables(as_index(atom)):
            return None
    return out


# What follows for all sizes is proved with the algebra above, which in turn asks about remainders and comparisons.
from dyncomp.codegen.ir import proofs  # noqa: E402
