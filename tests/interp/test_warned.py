"""Warnings of operations: category, text, line and number are eager's, under every filter."""

import warnings

import pytest
import torch
import torch.nn.functional as F

import dyncomp
from tests.interp.tracing import X


def copies(x):
    return torch.tensor(x) + 1


def implicit(x):
    return F.softmax(x)


def broadcasts(x):
    return F.mse_loss(x, x[:1])


def seen(function, action, calls=3):
    with warnings.catch_warnings(record=True) as found:
        warnings.resetwarnings()
        warnings.simplefilter(action)
        for _ in range(calls):
            try:
                function(X)
            except UserWarning as error:
                found.append(str(error))
    return [w if isinstance(w, str) else (w.category, str(w.message), w.filename, w.lineno) for w in found]


@pytest.mark.parametrize("backend", ["codegen", "eager"])
@pytest.mark.parametrize("action", ["always", "default", "once", "error", "ignore"])
@pytest.mark.parametrize("function", [copies, implicit, broadcasts])
def test_as_in_eager(function, action, backend):
    globals().pop("__warningregistry__", None)
    expected = seen(function, action)
    globals().pop("__warningregistry__", None)
    dyncomp.reset()
    assert seen(dyncomp.optimize(function, backend=backend), action) == expected
    assert bool(expected) is (action != "ignore")


def test_one_graph_where_no_python_runs_in_it():
    before = dyncomp.stats().graphs
    fast = dyncomp.optimize(implicit, fullgraph=True)
    assert len(seen(fast, "always")) == 3
    assert dyncomp.stats().graphs - before == 1


def test_caught_where_the_program_catches():
    def function(x):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            y = torch.tensor(x) + 1
        return y.sum().item(), [(str(w.message), w.filename, w.lineno) for w in found]

    fast = dyncomp.optimize(function)
    for _ in range(2):
        assert fast(X) == function(X)


def test_compiling_does_not_forget_what_was_shown_once():
    """The registries of the program's modules stay as they are, so that "default" still means once a line."""

    def warns(x):
        warnings.warn("mine", UserWarning, stacklevel=1)
        return x

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        warns(X)
        dyncomp.optimize(lambda x: x * 3, backend="eager")(X)
        warns(X)
    assert len(found) == 1


def test_a_text_that_tells_a_size_that_varies():
    fast = dyncomp.optimize(broadcasts, backend="codegen")
    for n in (2, 3, 4):
        x = torch.ones(n, 3)
        with warnings.catch_warnings(record=True) as got:
            warnings.simplefilter("always")
            fast(x)
        with warnings.catch_warnings(record=True) as expected:
            warnings.simplefilter("always")
            broadcasts(x)
        assert [str(w.message) for w in got] == [str(w.message) for w in expected]
