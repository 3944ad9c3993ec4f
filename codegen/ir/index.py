"""Integer index algebra: what an address, a bound or a loop extent is made of.

An `Index` is a polynomial with integer coefficients over atoms: loop variables, sizes, divisions, remainders, minima
(`polynomial`). It is kept normal at all times: divisions and remainders are simplified by the variables' ranges
(`division`, `ranges`). So equal expressions are equal objects for `==`, and affine ones are recognised by looking at
the atoms. Plain integers are accepted wherever an `Index` is.

Comparing (`<`, `bool`, `int`...) answers what holds for all sizes, and raises `Undecided` where sizes decide;
`==` asks for the same normal form. The proofs are in `proofs`; what walks through an index is in `terms`.
"""

from dyncomp.codegen.ir.division import floordiv, minimum, mod
from dyncomp.codegen.ir.polynomial import (
    ONE,
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
    var,
)
from dyncomp.codegen.ir.ranges import bounds
from dyncomp.codegen.ir.terms import (
    atoms,
    coefficient_of,
    evaluate,
    hint,
    runs_by_one,
    sizes_in,
    substitute,
    variables,
)

__all__ = [
    "ONE",
    "ZERO",
    "Atom",
    "FloorDiv",
    "Index",
    "IndexLike",
    "Min",
    "Mod",
    "Product",
    "Size",
    "Undecided",
    "Var",
    "as_index",
    "atoms",
    "bounds",
    "coefficient_of",
    "const",
    "evaluate",
    "floordiv",
    "hint",
    "minimum",
    "mod",
    "runs_by_one",
    "sizes_in",
    "substitute",
    "var",
    "variables",
]
