"""What happens when a compiled graph raises: the frame runs again, as plain Python.

An index out of range, a singular matrix: such errors depend on the data, so they come out of the compiled graph, at a moment
when no side effect was replayed and no input was written. If the program could tell the difference, because it catches the
error, had done something before it, or would see another error, the whole frame is run by Python from its start, which does all
that eager does, with the same random numbers.

    states = stream_states(...)    # where random numbers are drawn
    try: outs = graph(...)         # a row of the exception table: costs nothing until it raises
    except: return rerun(error, states, function, <argument slots>)
"""

from __future__ import annotations

import inspect
import operator
import types
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from dyncomp import counters
from dyncomp._frame import _core
from dyncomp.bytecode.continuation import throw_code
from dyncomp.interp.failed_checks import note_failure
from dyncomp.interp.streams import keep, put_back
from dyncomp.values.node_by_node import wrote

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


# Of these, the ones that kernels check in words of their own.
_CHECKED_OTHERWISE = frozenset({"getitem", "__getitem__", "gather"})


def raises_otherwise(fn: Any) -> bool:
    """True where compiled code names another error than eager does, so that only plain Python raises the right one."""
    return (fn if isinstance(fn, str) else getattr(fn, "__name__", "")) in _CHECKED_OTHERWISE


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


def stream_states(torch_too: bool, *streams: Any) -> list[tuple[Any, Any]]:
    """(setter, state) of streams of random numbers, to be put back by `rerun`: torch's default generator, `random.Random` objects."""
    states: list[tuple[Any, Any]] = [(put_back, keep(stream)) for stream in streams]
    if torch_too:
        states.append((torch.default_generator.set_state, torch.default_generator.get_state()))
    return states


def throw_into(error: BaseException, function: types.FunctionType, slots: Sequence[Any]) -> Any:
    """Raises `error` where the function's frame begins: in a resumed frame that may be inside the user's `try` or `with`, whose
    blocks then run as plain Python. Returns what the frame does, if they catch it."""
    code = throw_code(function.__code__)
    if code is None:
        raise error
    thrower = types.FunctionType(code, function.__globals__, code.co_name, None, function.__closure__)
    return _core.without_hook(thrower)(*slots, error)


def rerun(error: BaseException, states: Sequence[tuple[Any, Any]], function: types.FunctionType, *slots: Any) -> Any:
    """Calls the function as plain Python with the argument slots of its frame, after its graph raised `error`.

    An interruption goes on as it is, and so does an error of a graph that may have written to an input; both go through what is
    around the place where a resumed frame began.
    """
    if not isinstance(error, Exception) or wrote(error):
        return throw_into(error, function, slots)
    counters.add_fallback("graph-raised")
    note_failure(error, function.__code__)
    for setter, state in states:
        setter(state)
    code = function.__code__
    count, named = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    args, rest = slots[:count], slots[named:]
    kwargs = dict(zip(code.co_varnames[count:named], slots[count:named], strict=True))
    if code.co_flags & inspect.CO_VARARGS:
        args, rest = (*args, *rest[0]), rest[1:]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        kwargs.update(rest[0])
    return _core.without_hook(function)(*args, **kwargs)


for _function in (rerun, throw_into):  # tracebacks show the frame that ran again alone
    _core.own(_function.__code__)
