"""Changes that do not matter to the captured code must not compile again, or not without end."""

import dataclasses

import pytest
import torch
import torch.nn as nn

from dyncomp import config
from tests.programs.program import ones, program


@pytest.fixture
def automatic_dynamic():
    """Changed sizes and ints become symbolic; off by default while such graphs run on ATen kernels."""
    with config.patch(automatic_dynamic=True):
        yield


@program(graphs=2)
def test_counter_in_a_global_dict(C):
    stats = {"calls": 0}

    def f(x):
        stats["calls"] += 1
        return x + 1

    fast = C(f)
    return [fast(ones()) for _ in range(8)], stats


@program(graphs=1)
def test_append_to_a_growing_list(C):
    log = []

    def f(x):
        log.append(x.shape[0])
        return x * 2

    fast = C(f)
    return [fast(ones()) for _ in range(10)], log


@program(graphs=1)
def test_growing_dict_of_results(C):
    cache = {}

    def f(x, name):
        cache[name] = x + 1
        return x * 2

    fast = C(f)
    return [fast(ones(), f"k{i}") for i in range(6)], cache


@program(graphs=1)
def test_string_only_returned(C):
    fast = C(lambda x, name: (x + 1, name, f"<{name}>" if False else None))
    return [fast(ones(), n) for n in ("a", "b", "c", "d")]


@program(graphs=1)
def test_unused_arguments_of_all_kinds(C):
    fast = C(lambda x, meta: x + 1)
    return [fast(ones(), m) for m in (1, "s", None, [1], {"k": 2}, object, 3.5, ones())]


@program(graphs=1)
def test_object_identity_of_configs(C):
    @dataclasses.dataclass
    class Cfg:
        scale: float = 2.0

    fast = C(lambda x, c: x * c.scale)
    return [fast(ones(), Cfg()) for _ in range(5)]


@program(graphs=1)
def test_new_closure_each_time_same_code(C):
    def make():
        def inner(x):
            return x + 1

        return inner

    fast = C(lambda x, fn: fn(x))
    return [fast(ones(), make()) for _ in range(5)]


@program(graphs=1)
def test_new_module_each_time(C):
    fast = C(lambda x, m: m(x))
    out = []
    for _ in range(5):
        m = nn.Linear(2, 2)
        nn.init.ones_(m.weight)
        nn.init.zeros_(m.bias)
        out.append(fast(ones(), m).detach())
    return out


@program(graphs=1)
def test_layers_share_one_graph(C):
    class Layer(nn.Module):
        def __init__(self, index):
            super().__init__()
            self.index, self.name = index, f"layer{index}"
            self.lin = nn.Linear(2, 2)

        def forward(self, x):
            return torch.relu(self.lin(x))

    layers = [Layer(i) for i in range(4)]
    fast = [C(layer) for layer in layers]
    del fast
    run = C(lambda layer, x: layer(x))
    return [run(layer, ones()).detach() for layer in layers]


@pytest.mark.usefixtures("automatic_dynamic")
@program(graphs=3)
def test_changing_int_argument(C):
    fast = C(lambda x, step: x * step)
    return [fast(ones(), step) for step in range(2, 14)]


@pytest.mark.usefixtures("automatic_dynamic")
@program(graphs=3)
def test_changing_float_argument(C):
    fast = C(lambda x, lr: x - lr * x)
    return [fast(ones(), 0.1 * k) for k in range(1, 12)]


@pytest.mark.usefixtures("automatic_dynamic")
@program(graphs=3)
def test_changing_int_attribute(C):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.step = 1

        def forward(self, x):
            self.step += 1
            return x * self.step

    fast = C(M())
    return [fast(ones()) for _ in range(10)]


@pytest.mark.usefixtures("automatic_dynamic")
@program(graphs=3)
def test_changing_float_attribute(C):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.ema = 0.5

        def forward(self, x):
            self.ema = self.ema * 0.9
            return x * self.ema

    fast = C(M())
    return [fast(ones()) for _ in range(8)]


@pytest.mark.usefixtures("automatic_dynamic")
@program(graphs=3)
def test_growing_batch(C):
    fast = C(lambda x: torch.relu(x).sum() + x.shape[0])
    return [fast(torch.ones(n, 3)) for n in range(2, 12)]


@program(graphs=2)
def test_grad_mode_switches(C):
    lin = nn.Linear(2, 2)
    fast = C(lin)
    out = []
    for i in range(6):
        with torch.set_grad_enabled(i % 2 == 0):
            out.append(fast(ones()).requires_grad)
    return out


@program(graphs=2)
def test_train_eval_switches(C):
    m = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0))
    fast = C(m)
    out = []
    for i in range(6):
        m.train(i % 2 == 0)
        out.append(fast(ones()).detach())
    return out


@program(graphs=1)
def test_kwargs_order(C):
    def f(x, **kw):
        return x * kw["a"] + kw["b"]

    fast = C(f)
    return fast(ones(), a=2, b=3), fast(ones(), b=3, a=2)


@program(graphs=1)
def test_equal_but_distinct_containers(C):
    fast = C(lambda x, opts: x * opts["scale"] + len(opts["dims"]))
    return [fast(ones(), {"scale": 2, "dims": [1, 2]}) for _ in range(5)]


@program(graphs=1)
def test_big_int_that_is_only_stored(C):
    seen = {}

    def f(x, stamp):
        seen["at"] = stamp
        return x + 1

    fast = C(f)
    return [fast(ones(), 2**62 + k) for k in range(5)], seen


@program(graphs=2)
def test_optional_argument_alternates(C):
    fast = C(lambda x, mask=None: x if mask is None else x * mask + 0)

    def g(x, mask=None):
        y = x + 1
        return y if mask is None else y * mask

    fast = C(g)
    return [fast(ones(), None if k % 2 else ones()) for k in range(6)]


@program(graphs=1)
def test_requires_grad_input_under_no_grad(C):
    fast = C(lambda x: x * 2)
    with torch.no_grad():
        return [fast(ones()) for _ in range(3)]


@program(graphs=1)
def test_iteration_number_in_a_print_free_log(C):
    class Meter:
        def __init__(self):
            self.total, self.count = 0.0, 0

        def update(self, n):
            self.count += n

    meter = Meter()

    def f(x):
        meter.update(x.shape[0])
        return x + 1

    fast = C(f)
    return [fast(ones()) for _ in range(6)], meter.count


@program(graphs=2)
def test_strides_of_size_one_dims(C):
    fast = C(lambda x: x + 1)
    a = torch.ones(1, 4)
    b = torch.ones(4, 1).t()
    return fast(a), fast(b.contiguous()), fast(a.clone())
