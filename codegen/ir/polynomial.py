"""Polynomials with integer coefficients over atoms, in normal form: terms sorted, like terms added, zero terms dropped.

    Var(name, extent)      a loop variable, 0 <= var < extent
    Size(name, low)        an integer parameter of the kernel, >= low (symbolic sizes and strides)
    FloorDiv(num, den)     num // den, rounds down, den > 0
    Mod(num, den)          num % den, 0 <= result < den
    Min(a, b)              the smaller one (extents of last blocks)
    Product(atoms)         two or more atoms multiplied (only where symbolic sizes occur)

    2*i + i + 4 - 4   ->   Index((i, 3), const 0)

The operators of `Index` ask `division` and `proofs` for what is more than adding and multiplying.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from functools import cached_property
from typing import Union


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
        return division.floordiv(self, as_index(other))

    def __mod__(self, other: IndexLike) -> Index:
        return division.mod(self, as_index(other))

    def __rfloordiv__(self, other: int) -> Index:
        return division.floordiv(as_index(other), self)

    def __rmod__(self, other: int) -> Index:
        return division.mod(as_index(other), self)

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
    """Sorts, drops zero terms and joins what a division took apart (see `division`)."""
    if sum(isinstance(a, (Mod, FloorDiv)) for a in collected) > 1:
        joined = division.join_parts(collected)
        if joined is not None:
            return _normal(collected, const) + joined
    if len(collected) > 1 and any(type(a) is Product for a in collected):
        collected = {a: c for a, c in collected.items() if c}
        joined = division.join_symbolic(collected)
        if joined is not None:
            return _normal(collected, const) + joined
    terms = [t for t in collected.items() if t[1]]
    if len(terms) > 1:
        terms.sort(key=_sort_key)
    return Index(tuple(terms), const)


def product(parts: Iterable[Atom]) -> Index:
    """The atoms multiplied."""
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


# Division, comparison and simplification are built on the polynomials above, which in turn need them.
from dyncomp.codegen.ir import division, proofs  # noqa: E402
