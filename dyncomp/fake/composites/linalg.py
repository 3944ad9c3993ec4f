"""Products of more than two matrices, and matrices made of products.

    multi_dot([x[s0, 4], y[4, s0], z[s0, 2]])   ->   mm(x, mm(y, z))     the order is guarded, the sizes are not pinned
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dyncomp.fake.composites.registry import form

aten = torch.ops.aten


@form("kron")
def _kron(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    rank = max(x.dim(), y.dim())
    rows, columns = ((1,) * (rank - t.dim()) + tuple(t.shape) for t in (x, y))
    spread = aten._unsafe_view.default(x, [n for size in rows for n in (size, 1)])
    repeated = aten._unsafe_view.default(y, [n for size in columns for n in (1, size)])
    return aten._unsafe_view.default(torch.mul(spread, repeated), [a * b for a, b in zip(rows, columns, strict=True)])


@form("linalg_multi_dot")
def _multi_dot(tensors: Sequence[torch.Tensor]) -> Any:
    first, *middle, last = tensors if len(tensors) > 1 else (None, None)
    if first is None or last is None or first.dim() not in (1, 2) or last.dim() not in (1, 2):
        return NotImplemented
    if any(t.dim() != 2 for t in middle) or any((t.dtype, t.device) != (first.dtype, first.device) for t in tensors):
        return NotImplemented
    shape = [*first.shape[: first.dim() - 1], *last.shape[1:]]
    factors = [first.unsqueeze(0) if first.dim() == 1 else first, *middle]
    factors.append(last.unsqueeze(-1) if last.dim() == 1 else last)
    return _chain(factors, _order(factors), 0, len(factors) - 1).view(shape)


def _order(factors: Sequence[torch.Tensor]) -> list[list[int]]:
    """Where to cut each run of factors; for three of them, and for more, as eager weighs it."""
    p = [*[t.shape[0] for t in factors], factors[-1].shape[1]]
    n = len(factors)
    cuts = [[0] * n for _ in factors]
    if n == 2:
        return cuts
    if n == 3:
        a, b, c, d = p
        cuts[0][2], cuts[1][2] = (0, 1) if (a * c) * (b + d) > (b * d) * (a + c) else (1, 1)
        return cuts
    costs: list[list[Any]] = [[0] * n for _ in factors]
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            best: Any = None
            for k in range(i, j):
                cost = costs[i][k] + costs[k + 1][j] + p[i] * p[k + 1] * p[j + 1]
                if best is None or cost < best:
                    best, cuts[i][j] = cost, k
            costs[i][j] = best
    return cuts


def _chain(factors: Sequence[torch.Tensor], cuts: list[list[int]], i: int, j: int) -> torch.Tensor:
    if i == j:
        return factors[i]
    k = cuts[i][j]
    return torch.mm(_chain(factors, cuts, i, k), _chain(factors, cuts, k + 1, j))


@form("vander")
def _vander(x: torch.Tensor, N: Any = None, increasing: bool = False) -> Any:
    if x.dim() != 1:
        return NotImplemented
    columns = x.shape[0] if N is None else N
    if columns < 0:
        return NotImplemented
    result = torch.empty(
        (x.shape[0], columns), dtype=torch.promote_types(x.dtype, torch.int64), layout=x.layout, device=x.device
    )
    if columns > 0:
        result.select(1, 0).fill_(1)
    if columns > 1:
        powers = result[:, 1:]
        powers.copy_(x.unsqueeze(1))
        powers.copy_(torch.cumprod(powers, 1))
    return result if increasing else torch.flip(result, [1])


@form("bilinear")
def _bilinear(x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, bias: Any = None) -> Any:
    if x.dim() != y.dim() or x.dim() < 1 or weight.dim() != 3 or any(a != b for a, b in zip(x.shape[:-1], y.shape, strict=False)):
        return NotImplemented
    if x.shape[-1] != weight.shape[1] or y.shape[-1] != weight.shape[2]:
        return NotImplemented
    if bias is not None and (bias.dim() != 1 or bias.shape[0] != weight.shape[0]):
        return NotImplemented
    rows, others = (t.reshape([-1, t.shape[-1]]) for t in (x, y))
    result = aten._trilinear.default(rows, weight, others, [1, 3], [0], [1, 2], [2, 3])
    result = result.reshape([*x.shape[:-1], weight.shape[0]])
    return result if bias is None else result + bias


@form("chain_matmul")
def _chain_of_matrices(matrices: Sequence[torch.Tensor]) -> Any:
    return _multi_dot(matrices) if all(t.dim() == 2 for t in matrices) else NotImplemented
