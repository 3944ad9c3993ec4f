"""What a tensor's body reads and what it costs, found by running the body under a recording scope."""

from __future__ import annotations

import dataclasses

from dyncomp.codegen.ir.index import ZERO
from dyncomp.codegen.ir.nodes import Builder, Load, Op, Param, Value
from dyncomp.codegen.ir.ops import OPS
from dyncomp.codegen.ir.types import compute_type
from dyncomp.codegen.lower.tensor import Indices, Pointwise, Tensor, View, root

_FLAG = Param("flag", "i64", "flag")


@dataclasses.dataclass(frozen=True)
class Read:
    """One element read of a tensor that is not inlined. `picked`: its place depends on data, so it must be
    in memory."""

    tensor: Tensor
    index: Indices
    picked: bool = False


class Recorder:
    """A scope that notes reads. Tensors in `inlined` are looked through, and so are views."""

    def __init__(self, inlined: set[Tensor]):
        self.b = Builder()
        self.inlined = inlined
        self.reads: list[Read] = []
        self._values: dict[tuple[Tensor, Indices], Value] = {}

    def read(self, tensor: Tensor, index: Indices, guard: Value | None = None) -> Value:
        while isinstance(tensor, View):
            index = tensor.to_source(index)
            tensor = tensor.source
        key = (tensor, index)
        found = self._values.get(key)
        if found is None:
            if tensor in self.inlined:
                assert isinstance(tensor, Pointwise)
                found = tensor.body(self, index)
            else:
                self.reads.append(Read(tensor, index))
                found = self._opaque(tensor)
            self._values[key] = found
        return found

    def _opaque(self, tensor: Tensor) -> Value:
        param = Param("x", tensor.dtype, "in")
        return Load(param, ZERO, (), None, compute_type(tensor.dtype))

    def checked(self, value: Value, extent: int) -> Value:
        return self.b.checked(value, extent, _FLAG)

    def pick(self, tensor: Tensor, index: Indices, numbers: dict[int, Value]) -> Value:
        self.reads.append(Read(root(tensor), (), True))
        return self._opaque(tensor)

    def cost(self) -> int:
        return sum(OPS[v.name].cost for v in self.b.values() if isinstance(v, Op))
