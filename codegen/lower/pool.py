"""max_pool2d without its indices: the largest of a few rows, then the largest of a few columns of those.

    max_pool2d(x, 3, 2)  ->  rows[h, w] = max(x[2h, w], x[2h+1, w], x[2h+2, w])
                             out[h, w] = max(rows[h, 2w], rows[h, 2w+1], rows[h, 2w+2])

Rows first: they lie side by side in memory, so all but the last step goes over whole vectors. NaN wins, as in eager.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from dyncomp.codegen.ir.index import as_index
from dyncomp.codegen.ir.nodes import Value
from dyncomp.codegen.ir.proofs import nonnegative
from dyncomp.codegen.ir.types import FLOATS, compute_type
from dyncomp.codegen.lower.builder import Lowering, number
from dyncomp.codegen.lower.registry import lowering
from dyncomp.codegen.lower.tensor import Indices, Scope, Tensor, contiguous_strides

MOST_TAPS = 8  # reads of one pass that are written out one by one


@lowering("aten.max_pool2d_with_indices.default")
def max_pool2d(
    lx: Lowering,
    node: Any,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Any:
    values = node.meta["val"][0]
    windows, pads, spreads = _pair(kernel), _pair(padding), _pair(dilation)
    steps = _pair(stride) if stride else windows
    # Another layout than row-major: ATen's kernel goes over channels, which is as quick.
    plain = x.strides == contiguous_strides(x.shape) and tuple(values.stride()) == contiguous_strides(values.shape)
    if not plain or _reads_indices(node) or compute_type(x.dtype) not in FLOATS or max(windows) > MOST_TAPS:
        return None
    for dim, window, step, pad, spread in reversed(
        list(zip((-1, -2), windows[::-1], steps[::-1], pads[::-1], spreads[::-1], strict=True))
    ):
        shape = (*x.shape[:dim], values.shape[dim], *(x.shape[dim + 1 :] if dim + 1 else ()))
        x = _slide(lx, x, len(shape) + dim, shape, [tap * spread - pad for tap in range(window)], step)
    return x, None


def _slide(lx: Lowering, x: Tensor, dim: int, shape: Sequence[int], taps: list[int], step: int) -> Tensor:
    """out[i] = max over taps of x[i * step + tap] along `dim`; places outside count as -inf."""
    kind = compute_type(x.dtype)
    extent, last = x.shape[dim], (shape[dim] - 1) * step

    def body(scope: Scope, index: Indices) -> Value:
        b = scope.b
        best: Value | None = None
        for tap in taps:
            place = index[dim] * step + tap
            inside: Value | None = None
            for needed, test, bound in (
                (tap < 0, "ge", 0),
                (not nonnegative(as_index(extent) - 1 - last - tap), "lt", extent),
            ):
                if needed:
                    holds = b.op(test, b.position(place), b.integer(bound))
                    inside = holds if inside is None else b.op("and", inside, holds)
            value = scope.read(x, (*index[:dim], place, *index[dim + 1 :]), inside)
            if inside is not None:
                value = b.op("where", inside, value, number(b, -math.inf, kind))
            best = value if best is None else b.op("maximum", best, value)
        assert best is not None
        return best

    return lx.compute(shape, x.dtype, body, [x], streaming=len(taps) <= step)


def _pair(setting: Sequence[int]) -> list[int]:
    return list(setting) * 2 if len(setting) == 1 else list(setting)


def _reads_indices(node: Any) -> bool:
    return any(user.target is not operator.getitem or user.args[1] != 0 for user in node.users)
