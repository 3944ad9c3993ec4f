"""NumPy's random numbers in compiled code, one at a time: from the same stream as in eager, which is left as eager leaves it."""

import pytest
import torch

import dyncomp
from tests.support import assert_same, outcome

np = pytest.importorskip("numpy")
X = torch.arange(4.0)
OWN = np.random.RandomState(3)


def floats(x):
    return x * np.random.rand() + np.random.uniform(0, 1) + np.random.randn() + np.random.normal(1, 2), np.random.random()


def ints(x):
    return x + np.random.randint(0, 5), x[: np.random.randint(1, 3)], np.random.randint(4)


def own_stream(x):
    return x * OWN.uniform(low=0.5) * np.random.random_sample() + OWN.beta(1, 2)


def caught(x):
    try:
        return x[torch.tensor([9])] * np.random.rand()
    except IndexError:
        return x * np.random.rand()


def sizes(x):
    return x + np.random.uniform(0, x.shape[0])


def branches(x):
    return x * 2 if np.random.rand() < 0.5 else x + np.random.rand()


def arrays(x):
    return x * float(np.random.rand(4).sum())


def seeded(x):
    np.random.seed(3)
    return x * np.random.rand()


def wrong(x):
    return x * np.random.normal(0, -1)


@pytest.mark.parametrize(
    "function, graphs, breaks",
    [
        (floats, 1, 0), (ints, 1, 0), (own_stream, 1, 0), (caught, 1, 0), (sizes, 1, 0), (branches, 2, 1), (arrays, None, None),
        (seeded, None, 1), (wrong, None, 1),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_as_eager(function, graphs, breaks):
    before = dyncomp.stats()
    kept = np.random.get_state()
    runs = []
    for one in (function, dyncomp.optimize(function)):
        np.random.seed(1)
        OWN.seed(2)
        run = []
        for _ in range(8):
            result, error = outcome(one, (X,))
            states = [(*map(str, (state[0], state[1].tolist())), *state[2:]) for state in (np.random.get_state(), OWN.get_state())]
            run.append((result, repr(error), states))
        runs.append(run)
    np.random.set_state(kept)
    assert_same(runs[1], runs[0])
    after = dyncomp.stats()
    assert graphs is None or after.graphs - before.graphs == graphs
    assert breaks is None or after.graph_breaks - before.graph_breaks == breaks, after.break_reasons
