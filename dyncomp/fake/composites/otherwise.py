"""Operations that torch's own Python forms compute otherwise than eager does: on our fakes its C++ kernels stay in charge.

    dropout(x, 1.0)          in Python: a mask is drawn                   in C++: zeros, and nothing is drawn
    rnn(x, ..., dropout=p)   in Python: never any dropout between layers  in C++: between all of them
    batch_norm(x, ...)       in Python: counted writes to the statistics  in C++: no version counter knows of them
    multilabel_margin_loss   in Python: places after -1 count as well     in C++: they do not
    hardshrink(nan)          in Python: the gradient of nan is kept       in C++: it is 0

An LSTM with symbolic sizes is one call of oneDNN a layer, as in eager, in the Python form alone: it is taken where it is right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dyncomp.fake.errors import NoShapeRule
from dyncomp.fake.registry import find_op
from dyncomp.fake.tensor import FakeTensor
from dyncomp.shape.symbolic import is_symbolic

_KEY = torch._C.DispatchKey.CompositeImplicitAutograd
_PYTHON_KEYS = (_KEY, torch._C.DispatchKey.Autograd)
_OTHERWISE = (
    "native_batch_norm dropout gru.input gru.data rnn_tanh.input rnn_tanh.data rnn_relu.input rnn_relu.data lstm.input lstm.data "
    "multi_margin_loss multilabel_margin_loss_forward hardshrink softshrink"
)


def _fakes(values: Any) -> list[FakeTensor]:
    found = []
    for value in values:
        if type(value) is FakeTensor:
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _fakes(value)
    return found


def _is_plain(
    fakes: list[FakeTensor], input: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> bool:  # fmt: skip
    """True for an LSTM without dropout between layers whose gradient nobody records."""
    return (dropout == 0 or not train or num_layers == 1) and not (
        torch.is_grad_enabled() and any(fake.requires_grad for fake in fakes)
    )


def _kernel(op: torch._ops.OpOverload, theirs: Callable[..., Any]) -> Callable[..., Any]:
    composed = torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), _KEY)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        fakes = _fakes((*args, *kwargs.values()))
        if not fakes:
            return theirs(*args, **kwargs)
        if op._overloadname == "data":
            raise NoShapeRule(str(op), "it reads the lengths of packed sequences")  # behind the back of fakes, in C++
        if op._schema.name == "aten::lstm" and any(is_symbolic(n) for fake in fakes for n in fake.meta.shape):
            if op._overloadname == "input" and _is_plain(fakes, *args, **kwargs):
                return theirs(*args, **kwargs)
            raise NoShapeRule(str(op), "with symbolic sizes it has no form that computes as eager does")
        if composed:
            return op._op_dk(_KEY, *args, **kwargs)
        with torch._C._DisablePythonDispatcher():
            return op(*args, **kwargs)

    return kernel


for _op in filter(None, map(find_op, _OTHERWISE.split())):
    for _key in _PYTHON_KEYS:
        if _key in _op.py_kernels:
            _op.py_kernels[_key] = _kernel(_op, _op.py_kernels[_key])
    _op._dispatch_cache.clear()
