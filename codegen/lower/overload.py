"""Which overload of an operation takes a number where the graph has a symbolic one for a tensor.

aten.mul.Tensor(x, s0)  ->  aten.mul.Scalar
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from dyncomp.shape.symbolic import is_symbolic


class NotPlannable(Exception):
    """The executor has no instruction for something in the graph."""


def with_number(node: fx.Node) -> Any:
    """The node's target, or its form for a number. Raises NotPlannable if there is none."""
    target: Any = node.target
    arguments = target._schema.arguments
    tensors = [
        a
        for a, value in zip(arguments, node.args, strict=False)
        if isinstance(a.type, torch.TensorType) and is_symbolic(value)
    ]
    if not tensors:
        return target
    scalar = target._overloadname.replace("Tensor", "Scalar")
    packet = target.overloadpacket
    if scalar == target._overloadname or scalar not in packet.overloads():
        raise NotPlannable(f"{target} of a number")
    return getattr(packet, scalar)
