"""What happens when a compiled graph raises: the frame runs again, as plain Python.

An index out of range, a singular matrix: such errors depend on the data, so they come out of the compiled graph, at a moment
when no side effect was replayed and no input was written. If the program could tell the difference, because it catches the
error or had done something before it, the whole frame is run by Python from its start, which does all that eager does.

    outs = graph(...)              # None: it raised
    if outs is None: return rerun(function, <argument slots>)
"""

from __future__ import annotations

import inspect
import operator
import types
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from dyncomp import counters
from dyncomp._frame import _core

# Operations whose errors depend on the values in tensors, by the name of the function or method.
_FAILING = frozenset(
    {
        "index_select", "index_add", "index_add_", "index_copy", "index_copy_", "index_fill", "index_fill_", "index_put",
        "index_put_", "gather", "take", "take_along_dim", "put", "put_", "scatter", "scatter_", "scatter_add", "scatter_add_",
        "scatter_reduce", "scatter_reduce_", "embedding", "embedding_bag", "one_hot", "nll_loss", "cross_entropy", "ctc_loss",
        "bincount", "bucketize", "multinomial", "bernoulli", "bernoulli_", "normal", "poisson", "binomial", "repeat_interleave",
        "cholesky", "cholesky_inverse", "cholesky_solve", "inv", "inverse", "solve", "lstsq", "eig", "eigh", "eigvals",
        "eigvalsh", "svd", "svdvals", "lu_factor", "matrix_power", "tensorinv", "tensorsolve", "slogdet", "_assert_async",
        "linalg_cholesky", "linalg_inv", "linalg_solve", "linalg_eigh", "linalg_svd", "linalg_lstsq", "fractional_max_pool2d",
        "max_unpool1d", "max_unpool2d", "max_unpool3d", "unflatten", "masked_scatter", "masked_scatter_", "isin",
    }
)  # fmt: skip
_MUTATING_OPERATORS = frozenset(
    getattr(operator, name)
    for name in ("setitem", "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor")
)


def may_fail(fn: Any, args: Sequence[Any]) -> bool:
    """True for a graph call whose success depends on the values in its tensors."""
    if fn in (operator.getitem, operator.setitem, "__getitem__", "__setitem__"):
        return _holds_node(args[1])
    name = fn if isinstance(fn, str) else getattr(fn, "__name__", "")
    return name in _FAILING


def _holds_node(key: Any) -> bool:
    if isinstance(key, tuple | list):
        return any(map(_holds_node, key))
    return isinstance(key, fx.Node)


def writes_in_place(graph: fx.Graph) -> bool:
    """True if running the graph node by node changes tensors on the way; only a native backend writes them all at the end."""
    return any(
        node.op in ("call_function", "call_method")
        and (
            node.target in _MUTATING_OPERATORS
            or "out" in node.kwargs
            or (name := str(getattr(node.target, "__name__", node.target))).endswith("_")
            and not name.endswith("__")
        )
        for node in graph.nodes
    )


def none_on_failure(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """The same graph, returning None where it raises."""

    def call(*inputs: Any) -> Any:
        try:
            return compiled(*inputs)
        except Exception:  # noqa: BLE001  the program gets whatever plain Python raises when the frame runs again
            counters.add_fallback("graph-raised")
            return None

    return call


def rerun(function: types.FunctionType, *slots: Any) -> Any:
    """Calls the function as plain Python with the argument slots of its frame."""
    code = function.__code__
    count, named = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    args, rest = slots[:count], slots[named:]
    kwargs = dict(zip(code.co_varnames[count:named], slots[count:named], strict=True))
    if code.co_flags & inspect.CO_VARARGS:
        args, rest = (*args, *rest[0]), rest[1:]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        kwargs.update(rest[0])
    return _core.without_hook(function)(*args, **kwargs)
