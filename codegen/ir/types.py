"""Element types of the loop IR, and how they meet torch's dtypes.

`bf16` and `f16` are storage types alone: they are loaded as `f32`, computed in `f32` and rounded to
nearest even when stored. `bool` is stored as one byte, 0 or 1; any other byte counts as true when loaded.
"""

from __future__ import annotations

import torch

FLOATS = frozenset({"f32", "f64"})
SIGNED = frozenset({"i8", "i16", "i32", "i64"})
INTS = SIGNED | {"u8"}
HALVES = frozenset({"bf16", "f16"})
COMPUTE = FLOATS | INTS | {"bool"}
STORAGE = COMPUTE | HALVES

SIZE = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "u8": 1, "bool": 1}

FROM_TORCH: dict[torch.dtype, str] = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "bool",
}
TO_TORCH: dict[str, torch.dtype] = {name: dtype for dtype, name in FROM_TORCH.items()}


def compute_type(storage: str) -> str:
    """The type in which elements of a storage type are computed."""
    return "f32" if storage in HALVES else storage
