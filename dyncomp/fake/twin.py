"""Functional twins of operations that write their arguments.

aten.add_.Tensor(x, y)             ->   aten.add.Tensor
aten.add.out(x, y, out=z)          ->   aten.add.Tensor
aten._foreach_mul_.Scalar(xs, 2)   ->   aten._foreach_mul.Scalar
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from dyncomp.fake.errors import NoShapeRule

aten = torch.ops.aten

# Twins with another name.
_RENAMED = {
    aten.normal_.default: aten.normal_functional.default,
    aten.bernoulli_.float: aten.bernoulli.p,
}

# Twins that return the new values of the written arguments after the ordinary results.
APPENDING: dict[str, str] = {
    "aten::_native_batch_norm_legit": "_native_batch_norm_legit_functional",
    "aten::_batch_norm_with_update": "_batch_norm_with_update_functional",
    "aten::rrelu_with_noise": "rrelu_with_noise_functional",
    "aten::_fused_moving_avg_obs_fq_helper": "_fused_moving_avg_obs_fq_helper_functional",
}


@functools.cache
def functional_twin(op: torch._ops.OpOverload) -> torch._ops.OpOverload:
    """The operation that returns what `op` writes; NoShapeRule where torch has none."""
    renamed = _RENAMED.get(op)
    if renamed is not None:
        return renamed
    schema = op._schema
    if schema.name in APPENDING:
        return getattr(aten, APPENDING[schema.name]).default
    namespace, name = schema.name.split("::")
    if name.startswith("__i") and name.endswith("__"):
        name = "__" + name[3:]
    elif name.endswith("_"):
        name = name[:-1]
    packet = getattr(getattr(torch.ops, namespace), name, None)
    wanted = [(a.name, str(a.type)) for a in schema.arguments if not a.is_out]
    for overload in packet.overloads() if packet is not None else ():
        twin = getattr(packet, overload)
        arguments = [(a.name, str(a.type)) for a in twin._schema.arguments]
        if arguments == wanted and not twin._schema.is_mutable:
            return twin
    raise NoShapeRule(str(op), "it has no functional form")


def missing_defaults(op: Any, twin: Any, bound: dict[str, Any]) -> dict[str, Any]:
    """Defaults of `op` that the call left out and that its twin does not have (`bernoulli_`'s p)."""
    required = {a.name for a in twin._schema.arguments if not a.has_default_value()}
    return {
        a.name: a.default_value
        for a in op._schema.arguments
        if a.name in required and a.name not in bound and a.has_default_value()
    }
