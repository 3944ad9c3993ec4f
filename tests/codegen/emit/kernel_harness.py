"""Builds small kernels by hand, compiles and runs them; buffers may end at a page that must not be
touched."""

import ctypes
import math
import mmap

import torch

from dyncomp import config
from dyncomp.codegen import toolchain
from dyncomp.codegen.emit.cpp import emit
from dyncomp.codegen.ir import index as ix
from dyncomp.codegen.ir.nodes import Builder, Kernel, Param, Store
from dyncomp.codegen.ir.types import FROM_TORCH
from dyncomp.codegen.ir.verify import verify
from dyncomp.codegen.toolchain.isa import current_isa
from dyncomp.errors import OptionError

SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_libc = ctypes.CDLL(None, use_errno=True)
_kept = []  # mappings that tensors point into


def available_isas():
    names = []
    for name in ("avx512", "avx2", "scalar"):
        try:
            with config.patch(vector_isa=name):
                current_isa()
            names.append(name)
        except OptionError:
            pass
    return names


def guarded(tensor, at_end=True):
    """A contiguous copy that ends (or starts) right at an unreadable page: one element too far is a crash."""
    tensor = tensor.contiguous()
    size = max(tensor.numel() * tensor.element_size(), 1)
    page = mmap.PAGESIZE
    pages = -(-size // page)
    memory = mmap.mmap(-1, (pages + 2) * page)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for guard in (base, base + (pages + 1) * page):
        assert _libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(page), 0) == 0
    start = page + (pages * page - size if at_end else 0)
    count = tensor.numel()
    out = torch.frombuffer(memory, dtype=tensor.dtype, count=max(count, 1), offset=start)[:count].view(
        tensor.shape
    )
    out.copy_(tensor)
    _kept.append(memory)
    return out


def function(kernel, isa=None):
    verify(kernel)
    with config.patch(vector_isa=isa or config.vector_isa):
        source = emit(kernel)
        built = toolchain.build([source])
    return SIGNATURE(built.addresses[source.symbol]), source


def units_of(kernel, sizes):
    values = dict(zip(kernel.sizes, sizes, strict=True))
    return math.prod(ix.evaluate(axis.extent, values) for axis in kernel.axes)


def run(kernel, *tensors, sizes=(), isa=None, cuts=()):
    """Runs all units, cut into ranges at `cuts`; results are in the output tensors. Returns the C++ text."""
    compiled, source = function(kernel, isa)
    pointers = (ctypes.c_void_p * max(1, len(tensors)))(*[t.data_ptr() for t in tensors])
    numbers = (ctypes.c_int64 * max(1, len(sizes)))(*sizes)
    edges = [0, *sorted(cuts), units_of(kernel, sizes)]
    for begin, end in zip(edges, edges[1:], strict=False):
        compiled(ctypes.addressof(pointers), ctypes.addressof(numbers), begin, end)
    return source.text


def pointwise(function_of_values, *inputs, out_dtype=None, isa=None):
    """Applies `function_of_values(builder, *loads) -> value` to flat tensors of equal length."""
    b = Builder()
    n = ix.as_index(ix.Size("n"))
    i = ix.Var("i", n)
    at = ix.as_index(i)
    params = [Param(f"x{k}", FROM_TORCH[t.dtype], "in") for k, t in enumerate(inputs)]
    value = function_of_values(b, *[b.load(p, at) for p in params])
    dtype = out_dtype or {v: k for k, v in FROM_TORCH.items()}[value.dtype]
    y = Param("y", FROM_TORCH[dtype], "out")
    kernel = Kernel((*params, y), (), ("n",), (i,), i, None, (Store(y, at, value),))
    count = inputs[0].numel()
    out = guarded(torch.zeros(count, dtype=dtype))
    run(kernel, *[guarded(t) for t in inputs], out, sizes=(count,), isa=isa)
    return out


def multi_pointwise(values_of, out_dtypes, *inputs, isa=None):
    """One kernel with several outputs: `values_of(builder, *loads) -> [value, ...]`."""
    b = Builder()
    i = ix.Var("i", ix.as_index(ix.Size("n")))
    at = ix.as_index(i)
    params = [Param(f"x{k}", FROM_TORCH[t.dtype], "in") for k, t in enumerate(inputs)]
    values = values_of(b, *[b.load(p, at) for p in params])
    outs = [Param(f"y{k}", FROM_TORCH[d], "out") for k, d in enumerate(out_dtypes)]
    stores = tuple(Store(y, at, v) for y, v in zip(outs, values, strict=True))
    count = inputs[0].numel()
    results = [guarded(torch.zeros(count, dtype=d)) for d in out_dtypes]
    run(
        Kernel((*params, *outs), (), ("n",), (i,), i, None, stores),
        *inputs,
        *results,
        sizes=(count,),
        isa=isa,
    )
    return results
