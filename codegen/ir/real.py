"""A float that the call brings: an argument that varies, or one made of sizes (an attention's scale, a mean's divisor).

    Real(Size("x0"), number)   in a kernel:  float_of_bits(x0), where the plan puts the double's 64 bits among the kernel's ints

A lowering may only compute with it in the loop IR; whatever would have to know its value raises `Undecided`.
"""

from __future__ import annotations

from typing import Any, NoReturn

from dyncomp.codegen.ir.index import Index, Undecided


class Real:
    """`index`: the one `Size` that stands for the bits; `number`: the torch.SymFloat."""

    __slots__ = ("index", "number")

    def __init__(self, index: Index, number: Any):
        self.index, self.number = index, number

    def __repr__(self) -> str:
        return f"Real({self.index})"

    def __hash__(self) -> int:
        return hash(self.index)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Real):
            return self.index == other.index
        if isinstance(other, (int, float, Index)):
            self._undecided()
        return False

    def _undecided(self, *others: object) -> NoReturn:
        raise Undecided(f"{self} is known in the call only")

    __bool__ = __float__ = __int__ = __neg__ = __abs__ = _undecided
    __lt__ = __le__ = __gt__ = __ge__ = _undecided
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = _undecided
