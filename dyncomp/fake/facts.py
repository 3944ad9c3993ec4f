"""What the schema of an operation says, read once: how its results relate to its arguments."""

from __future__ import annotations

import enum
from typing import Any

import torch

aten = torch.ops.aten


class Kind(enum.Enum):
    QUERY = "query"  # answers from metadata alone
    COMPOSITE = "composite"  # torch's own kernel calls other operations
    FUNCTIONAL = "functional"  # fresh results
    VIEW = "view"  # results alias an argument
    IN_PLACE = "in place"  # writes an argument and returns it (or nothing)
    OUT = "out"  # writes `out=` arguments and returns them


# Metadata queries that reach Python dispatch: answered from the plain fields.
QUERIES: dict[Any, Any] = {
    aten.size.default: lambda x: list(x.meta.shape),
    aten.sym_size.default: lambda x: list(x.meta.shape),
    aten.size.int: lambda x, dim: x.meta.shape[dim],
    aten.sym_size.int: lambda x, dim: x.meta.shape[dim],
    aten.stride.default: lambda x: list(x.meta.strides),
    aten.sym_stride.default: lambda x: list(x.meta.strides),
    aten.stride.int: lambda x, dim: x.meta.strides[dim],
    aten.sym_stride.int: lambda x, dim: x.meta.strides[dim],
    aten.storage_offset.default: lambda x: x.meta.offset,
    aten.sym_storage_offset.default: lambda x: x.meta.offset,
    torch.ops.prim.device.default: lambda x: x.meta.device,
    torch.ops.prim.layout.default: lambda x: torch.strided,
}

TORCH_NAMESPACES = frozenset({"aten", "prim", "prims", "quantized", "torchvision", "mkldnn", "onednn"})

# Not marked as mutable, yet they write their running statistics in training mode: argument positions.
HIDDEN_WRITES: dict[str, tuple[int, ...]] = {
    "aten::native_batch_norm": (3, 4),
    "aten::cudnn_batch_norm": (3, 4),
    "aten::miopen_batch_norm": (3, 4),
}


class OpFacts:
    """`aliased[i]`: the argument position that result i aliases, or None. `written`: positions of
    arguments; `hidden`: of those written without a mark. `opaque`: somebody's own operation; what it does
    beyond its schema is unknown.
    """

    __slots__ = ("op", "kind", "written", "hidden", "aliased", "random", "opaque", "data_value", "data_shape", "names")

    def __init__(self, op: torch._ops.OpOverload):
        schema = op._schema
        self.op = op
        self.names = [argument.name for argument in schema.arguments]
        self.written = tuple(
            i for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write
        )
        self.hidden = HIDDEN_WRITES.get(schema.name, ())
        self.aliased = tuple(self._aliased_argument(result) for result in schema.returns)
        self.random = torch.Tag.nondeterministic_seeded in op.tags
        self.opaque = schema.name.split("::")[0] not in TORCH_NAMESPACES
        self.data_value = torch.Tag.data_dependent_output in op.tags
        self.data_shape = torch.Tag.dynamic_output_shape in op.tags
        self.kind = self._kind()

    def _aliased_argument(self, result: Any) -> int | None:
        for i, argument in enumerate(self.op._schema.arguments):
            info = argument.alias_info
            if info is None:
                continue
            # `Tensor(a -> *) self ... -> Tensor(a)[]`: torch keeps no alias set on a list of views.
            if "*" in info.after_set and not info.is_write and isinstance(result.type, torch.ListType):
                return i
            if result.alias_info is not None and info.before_set & result.alias_info.before_set:
                return i
        return None

    def _kind(self) -> Kind:
        op = self.op
        if op in QUERIES:
            return Kind.QUERY
        if self.written:
            is_out = all(op._schema.arguments[i].is_out for i in self.written)
            if is_out:
                return Kind.OUT
            return Kind.COMPOSITE if _is_composite(op) else Kind.IN_PLACE
        if _is_composite(op):
            return Kind.COMPOSITE
        return Kind.VIEW if any(a is not None for a in self.aliased) else Kind.FUNCTIONAL


def _is_composite(op: torch._ops.OpOverload) -> bool:
    """Composed for every device: an operation that also has a CPU kernel of its own is not taken apart."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return has_kernel(op.name(), "CompositeImplicitAutograd") and not has_kernel(op.name(), "CPU")


_facts: dict[Any, OpFacts] = {}


def facts_of(op: torch._ops.OpOverload) -> OpFacts:
    facts = _facts.get(op)
    if facts is None:
        facts = _facts[op] = OpFacts(op)
    return facts
