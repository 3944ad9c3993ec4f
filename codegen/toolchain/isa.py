"""Which vector extension generated code may use, and the compiler flags that switch it on."""

from __future__ import annotations

import dataclasses
import functools
import platform

import torch

from dyncomp import config
from dyncomp.errors import OptionError


@dataclasses.dataclass(frozen=True)
class Isa:
    """`vector_bytes` is the width that the emitter spreads one vector over."""

    name: str
    vector_bytes: int
    flags: tuple[str, ...]


_AVX2 = ("-mavx2", "-mfma", "-mf16c", "-mbmi2")
_AVX512 = (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mprefer-vector-width=512")

# Explicit features, never -march=native: a cache folder may be shared by machines that differ in the rest.
_ISAS = {
    "avx512": Isa("avx512", 64, _AVX512),
    "avx2": Isa("avx2", 32, _AVX2),
    "scalar": Isa("scalar", 16, ()),
}
_CAPABILITY = {"AVX512": "avx512", "AVX2": "avx2"}
_RANK = ("scalar", "avx2", "avx512")


@functools.cache
def _machine_isa() -> str:
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return "scalar"
    return _CAPABILITY.get(torch.backends.cpu.get_cpu_capability(), "scalar")


def current_isa() -> Isa:
    """The knob `vector_isa`, or the widest extension of this machine."""
    wanted = config.vector_isa
    best = _machine_isa()
    if wanted == "auto":
        return _ISAS[best]
    if _RANK.index(wanted) > _RANK.index(best):
        raise OptionError(f"config.vector_isa={wanted!r}, but this machine has {best!r} at most")
    return _ISAS[wanted]
