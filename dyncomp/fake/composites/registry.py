"""Where torch's C++ would compose an operation from plain sizes, a form here composes it from symbolic ones.

    aten.kron(x[s0, s1], y)     C++: x.size(0), which pins s0          the form: x.shape[0], which is s0

A form makes the calls that eager's C++ kernel makes, so that values and strides are eager's; it gives NotImplemented for
what it leaves to that kernel (wrong arguments too: the kernel raises the error). Forms are entered where torch has a
place for Python kernels of composed operations. Those are asked only while the Python dispatcher is on, as it is in a
FakeMode with symbolic sizes; calls of anybody else, and those without symbolic numbers, go on to the C++ kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dyncomp.fake.registry import find_op
from dyncomp.fake.tensor import FakeTensor
from dyncomp.shape.symbolic import is_symbolic

_KEY = torch._C.DispatchKey.CompositeImplicitAutograd
Form = Callable[..., Any]
FORMS: dict[torch._ops.OpOverload, Form] = {}


def form(names: str, before_torchs: bool = False) -> Callable[[Form], Form]:
    """Decorator: the form of the space-separated operations, with the signature of their schema.

    `before_torchs`: also where torch has a Python form of its own, which gives other values than eager's kernel; calls with tensors
    that are not ours go on to that one.
    """

    def enter(function: Form) -> Form:
        for op in filter(None, map(find_op, names.split())):
            if op in FORMS:
                raise ValueError(f"two forms for {op}")
            FORMS[op] = function
            # Where torch composes it in Python itself, that form takes symbolic sizes.
            torchs = op.py_kernels.get(_KEY)
            if torchs is None:
                op.py_impl(_KEY)(_kernel(op, function))
            elif before_torchs:
                op.py_kernels[_KEY] = _kernel(op, function, torchs)
        return function

    return enter


def _kernel(op: torch._ops.OpOverload, function: Form, otherwise: Callable[..., Any] | None = None) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        if _has_symbols(args) or _has_symbols(kwargs.values()):
            result = function(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if otherwise is None:
            return op._op_dk(_KEY, *args, **kwargs)
        if not any(type(arg) is FakeTensor for arg in (*args, *kwargs.values())):
            return otherwise(*args, **kwargs)
        with torch._C._DisablePythonDispatcher():
            return op._op_dk(_KEY, *args, **kwargs)

    return kernel


def _has_symbols(values: Any) -> bool:
    for value in values:
        kind = type(value)
        if kind is FakeTensor:
            if any(map(is_symbolic, value.meta.shape)):
                return True
        elif kind is list or kind is tuple:
            if _has_symbols(value):
                return True
        elif is_symbolic(value):
            return True
    return False
