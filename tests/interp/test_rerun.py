"""Graphs that raise because of data: the frame runs again as plain Python, from its start and with the same random numbers."""

import pytest
import torch
import torch.nn.functional as F

import dyncomp
from tests.support import check

BACKENDS = ("eager", "aot_eager", "codegen")
X, W = torch.randn(3, 4), torch.nn.Parameter(torch.randn(4, 4))


def writes_then_catches(x, i):
    x.add_(1)
    try:
        y = x[i]
    except IndexError:
        y = x
    return y * 2


def trains_and_catches(x, i):
    x.add_(1)
    try:
        y = (x @ W)[i]
    except IndexError:
        y = x @ W
    return y * 2


def writes_and_raises(x, i):
    x.mul_(2)
    return x[i]


def draws_and_raises(x, i):
    y = F.dropout(x, 0.5)
    return y[i]


def draws_and_catches(x, i):
    y = torch.rand(3) + torch.randn(3)
    try:
        return (y + 1)[i]
    except IndexError:
        return torch.rand(2)


def divides(x, i):
    try:
        return torch.tensor([7]) // (i - 1)
    except RuntimeError as error:
        return str(error)


def raises_in_a_block(x, i):
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        return (x @ W)[i]


def batch_norm_then_catches(x, i):
    mean, var = torch.zeros(4), torch.ones(4)
    y = F.batch_norm(x, mean, var, training=True)
    try:
        return y[i], mean, var
    except IndexError:
        return y, mean, var


def finally_runs(x, i):
    seen = []
    try:
        return x[i], seen
    except IndexError:
        seen.append("except")
    finally:
        seen.append("finally")
    return x, seen


PROGRAMS = (
    writes_then_catches, trains_and_catches, writes_and_raises, draws_and_raises, draws_and_catches, divides, raises_in_a_block,
    batch_norm_then_catches, finally_runs,
)  # fmt: skip


@pytest.mark.parametrize("index", [2, 9])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_program(function, backend, index):
    check(function, X, torch.tensor([index]), backend=backend, graphs=None, breaks=None, calls=3)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("backend", BACKENDS)
def test_running_statistics_are_updated_once(backend):
    norm = torch.nn.BatchNorm1d(4)

    def f(norm, x, i):
        y = norm(x)
        try:
            return y[i]
        except IndexError:
            return y

    check(f, norm, X, torch.tensor([9]), backend=backend, graphs=None, breaks=None)


def test_it_is_counted(fresh):
    fast = dyncomp.optimize(finally_runs)
    fast(X, torch.tensor([9]))
    assert dyncomp.stats().fallbacks["graph-raised"] == 1


def test_an_interruption_is_not_run_again(fresh):
    calls = []

    def backend(gm, inputs):
        def run(*args):
            calls.append(1)
            raise KeyboardInterrupt

        return run

    fast = dyncomp.optimize(finally_runs, backend=backend)
    with pytest.raises(KeyboardInterrupt):
        fast(X, torch.tensor([1]))
    assert len(calls) == 1


# -- errors that are not the program's own, in a resumed frame inside `with` and `try`

LOG: list[str] = []


def broken_in_autocast(x):
    with torch.autocast("cpu"):
        print(end="")
        y = x @ x
        y = y + 1
    return y


def broken_in_no_grad_loop(x):
    for _ in range(2):
        with torch.no_grad():
            print(end="")
            x = x @ x
    return x


def broken_in_try(x):
    try:
        print(end="")
        y = x @ x
    except KeyboardInterrupt:
        LOG.append("caught")
        return x
    finally:
        LOG.append("finally")
    return y


def state():
    return torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")


INTERRUPTED = ((broken_in_autocast, None, []), (broken_in_no_grad_loop, None, []), (broken_in_try, "x", ["caught", "finally"]))


@pytest.mark.parametrize("function, result, log", INTERRUPTED, ids=lambda f: getattr(f, "__name__", None))
@pytest.mark.parametrize("when", ["compile", "run"])
def test_an_interruption_runs_the_users_cleanup(function, result, log, when, monkeypatch):
    raises = [False]

    def backend(gm, example_inputs):
        if when == "compile":
            raise KeyboardInterrupt

        def run(*args):
            if raises[0]:
                raise KeyboardInterrupt
            return gm(*args)

        return run

    x = torch.randn(3, 3)
    compiled = dyncomp.optimize(function, backend=backend)
    if when == "run":
        compiled(x), compiled(x)
    raises[0] = True
    LOG.clear()
    before = state()
    if result is None:
        with pytest.raises(KeyboardInterrupt):
            compiled(x)
    else:
        assert compiled(x) is x
    assert LOG == log and state() == before


def test_an_error_after_a_write_runs_the_users_cleanup():
    def f(x, i):
        with torch.autocast("cpu"):
            print(end="")
            x.add_(1)
            return x[i]

    x = torch.zeros(3)
    compiled = dyncomp.optimize(f, backend="eager")
    compiled(x, torch.tensor([0]))
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([7]))
    assert x.tolist() == [2.0, 2.0, 2.0] and state() == (True, False)


OUT_OF_RANGE = {
    "index": lambda x, i: x[i],
    "index of a result": lambda x, i: (x * 2)[i] + 1,
    "index of a later dimension": lambda x, i: x[..., i],
    "two indices": lambda x, i: x[i, i],
    "gather": lambda x, i: x[:, 0].gather(0, i),
    "torch.gather": lambda x, i: torch.gather(x[0], 0, i) * 2,
    "index_select": lambda x, i: x.index_select(0, i),
    "embedding": lambda x, i: F.embedding(i, x),
    "take": lambda x, i: x.take(i * 3),
    "index_add": lambda x, i: x[0].index_add(0, i, torch.ones(2)),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_the_error_is_eagers(fresh, name, dynamic):
    function = OUT_OF_RANGE[name]
    compiled = dyncomp.optimize(function, dynamic=dynamic)
    right, wrong = torch.tensor([0, 1]), torch.tensor([0, 7])
    assert torch.equal(compiled(X, right), function(X, right))
    with pytest.raises(Exception) as expected:
        function(X, wrong)
    with pytest.raises(Exception) as found:
        compiled(X, wrong)
    assert type(found.value) is type(expected.value)
    assert str(found.value) == str(expected.value)
    assert torch.equal(compiled(X, right), function(X, right))
