"""Backends: what turns a captured graph into something to call."""

from dyncomp.backends import aot_eager, codegen, eager, interop
from dyncomp.backends.registry import (
    Backend,
    CompileRequest,
    default_backend,
    list_backends,
    lookup_backend,
    register_backend,
    set_default_backend,
)

for _backend in (codegen.BACKEND, aot_eager.BACKEND, eager.BACKEND, interop.BACKEND):
    register_backend(_backend)

__all__ = [
    "Backend",
    "CompileRequest",
    "default_backend",
    "list_backends",
    "lookup_backend",
    "register_backend",
    "set_default_backend",
]
