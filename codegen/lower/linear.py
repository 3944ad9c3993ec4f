"""Which library runs a matrix product with a large float32 matrix.

    mm(x, t(w))  ->  mkldnn::_linear_pointwise(x, w, None, "none", [], "")
    addmm(b, x, t(w))  ->  mkldnn::_linear_pointwise(x, w, b, "none", [], "")

ATen hands float32 products on the CPU to its BLAS, mostly MKL. oneDNN, which comes with torch too, keeps its speed where
BLAS loses up to half of it: few rows against a large matrix, the shape of a language model's layers and of its head. On
Intel's own processors MKL loses less: there oneDNN gains only with a large matrix that lies transposed, as in nn.Linear.
It computes in float32 as BLAS does, sums in another order, and obeys the same precision settings.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from dyncomp.codegen.ir.index import hint
from dyncomp.codegen.lower.tensor import Tensor, View

# Below these, starting oneDNN costs more than it gains; with a row or two nothing beats BLAS's matrix-vector product.
LEAST_ROWS = 4
LEAST_PRODUCTS = 1 << 22  # multiplications
LEAST_MATRIX_ON_INTEL = 1 << 21  # elements; measured on Sapphire Rapids

Call = tuple[str, str, tuple[Any, ...]]  # qualified name, overload, arguments


def better_product(node: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    """The call to make in place of this one, or None."""
    name = str(node.target)
    if name == "aten.mm.default" and not kwargs:
        x, matrix, bias = *args, None
    elif name == "aten.addmm.default" and all(scale == 1 for scale in kwargs.values()):
        bias, x, matrix = args
    else:
        return None
    return linear_call(x, matrix, bias) if _is_plain(node) else None


def linear_call(x: Tensor, matrix: Tensor, bias: Tensor | None) -> Call | None:
    """The same for x @ matrix + bias, all of them float32 on the CPU."""
    (rows, inner), columns = x.shape, matrix.shape[1]
    if hint(rows) < LEAST_ROWS or hint(rows * inner * columns) < LEAST_PRODUCTS:
        return None
    if x.strides not in ((inner, 1), (1, rows)):
        return None
    if matrix.strides not in ((1, inner), (columns, 1)):
        return None
    if _mkl_is_at_home() and (matrix.strides != (1, inner) or hint(inner * columns) < LEAST_MATRIX_ON_INTEL):
        return None
    if bias is not None and (bias.shape, bias.strides) != ((columns,), (1,)):
        return None
    if not _has_onednn():
        return None
    return "mkldnn::_linear_pointwise", "", (x, _transposed(matrix), bias, "none", (), "")


def _is_plain(node: Any) -> bool:
    """Float32 on the CPU throughout."""
    operands = [arg.meta["val"] for arg in node.args if isinstance(arg, torch.fx.Node)]
    return all(v.dtype == torch.float32 and v.device.type == "cpu" for v in (*operands, node.meta["val"]))


@functools.cache
def _mkl_is_at_home() -> bool:
    """Whether MKL takes its fastest paths: it does so on Intel's processors alone."""
    return torch.backends.mkl.is_available() and str(torch.cpu.get_capabilities().get("cpu_name")).startswith("Intel")


def _has_onednn() -> bool:
    return (
        torch.backends.mkldnn.is_available()
        and torch._C._get_mkldnn_enabled()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def _transposed(matrix: Tensor) -> View:
    return View(
        matrix.shape[::-1],
        matrix.dtype,
        matrix.strides[::-1],
        matrix.name,
        ("transposed",),
        source=matrix,
        to_source=lambda index: index[::-1],
        offset=getattr(matrix, "offset", 0),
    )
