"""Comparisons of positions along the lanes with a number that all lanes share.

    k + lane < n     ->     the first n - k lanes:  lanes_before<B>(k, n)

Without it lanes would hold 64-bit positions, and a vector of floats half as many elements. Joined, padded and masked tensors
(`cat`, `pad`, `tril`) ask such questions of every element. What `argmax` along the lanes remembers is held in 32 bits for
the same reason, where it fits.
"""

from __future__ import annotations

from typing import Protocol

from dyncomp.codegen.ir.index import Var, coefficient_of
from dyncomp.codegen.ir.nodes import Accumulate, Op, Position, Store, Value, value_children
from dyncomp.codegen.ir.proofs import as_number, nonnegative
from dyncomp.codegen.ir.ranges import bounds

MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


class Lanes(Protocol):
    vector: Var | None

    def varies(self, value: Value, in_vector: bool) -> bool: ...


def compared_position(value: Value, facts: Lanes) -> tuple[str, Position, Value] | None:
    """(comparison, position that grows by 1 a lane, number that is the same in all lanes), the position on the left."""
    if not isinstance(value, Op) or value.name not in MIRRORED or value.args[0].dtype != "i64":
        return None
    for name, position, number in ((value.name, *value.args), (MIRRORED[value.name], *reversed(value.args))):
        if isinstance(position, Position) and facts.varies(position, True) and not facts.varies(number, True):
            assert facts.vector is not None
            step = coefficient_of(position.index, facts.vector)
            return (name, position, number) if step is not None and as_number(step) == 1 else None
    return None


def mask_text(name: str, index: Position, number: Value, base: str, bound: str) -> str:
    """C++ of the mask. `base`: the position in the first lane; `bound`: the number."""
    if name == "ge" and isinstance(number, Position) and nonnegative(index.index - number.index):
        return "splat_mask<B>(true)"
    if name == "ge" and getattr(number, "value", 1) == 0 and nonnegative(index.index):
        return "splat_mask<B>(true)"
    text = f"lanes_before<B>({base}, {bound}, {'true' if name in ('le', 'gt') else 'false'})"
    return text if name in ("lt", "le") else f"mask_not({text})"


def fits_32_bits(position: Value | None) -> bool:
    """Whether what a best element is remembered by is a place below 2^31 for all sizes."""
    if not isinstance(position, Position):
        return False
    span = bounds(position.index)
    return span is not None and 0 <= span[0] and span[1] < 1 << 31


def narrow_places(statements: list[Accumulate | Store], split: set[str]) -> set[str]:
    """Accumulators that lanes share (`split`) and whose places are held in 32 bits."""
    places: dict[str, bool] = {}
    for stmt in statements:
        if isinstance(stmt, Accumulate) and stmt.position is not None and stmt.acc.name in split:
            places[stmt.acc.name] = places.get(stmt.acc.name, True) and fits_32_bits(stmt.position)
    return {name for name, fits in places.items() if fits}


def not_held(
    values: list[Value], statements: list[Accumulate | Store], facts: Lanes, narrow: set[str]
) -> set[int]:
    """Positions (by id) that lanes never hold in 64 bits: they are compared, or remembered by accumulators of `narrow`."""
    compared: set[int] = set()
    used: set[int] = set()
    for value in values:
        found = compared_position(value, facts)
        if found is not None:
            compared.add(id(found[1]))
        rest = [child for child in value_children(value) if found is None or child is not found[1]]
        used.update(map(id, rest))
    for stmt in statements:
        used.add(id(stmt.value))
        if isinstance(stmt, Store):
            used.add(id(stmt.guard))
        elif stmt.acc.name in narrow:
            compared.add(id(stmt.position))
        else:
            used.add(id(stmt.position))
    return compared - used
