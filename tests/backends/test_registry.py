import pytest
import torch

import dyncomp
from dyncomp import errors
from dyncomp.backends import registry


def plus(x):
    return x + 1


@pytest.fixture
def clean_registry(monkeypatch):
    monkeypatch.setattr(registry, "_backends", dict(registry._backends))
    monkeypatch.setattr(registry, "_default", registry._default)


def test_known_backends():
    assert {"codegen", "aot_eager", "eager", "inductor"} <= set(dyncomp.list_backends())


def test_register_by_name_and_by_decorator(clean_registry):
    calls = []

    @dyncomp.register_backend(name="mine")
    def mine(graph, example_inputs):
        calls.append([type(x) for x in example_inputs])
        return graph.forward

    assert "mine" in dyncomp.list_backends()
    assert torch.equal(dyncomp.optimize(plus, backend="mine")(torch.zeros(2)), torch.ones(2))
    assert calls == [[torch.Tensor]]
    with pytest.raises(errors.OptionError, match="already registered"):
        dyncomp.register_backend(mine, name="mine")
    dyncomp.register_backend(mine, name="mine", replace=True)


def test_any_callable_is_a_backend():
    seen = []

    def count(graph, example_inputs):
        seen.append(len([n for n in graph.graph.nodes if n.op == "call_function"]))
        return graph.forward

    fast = dyncomp.optimize(lambda x: (x * 2).sin(), backend=count)
    assert torch.allclose(fast(torch.ones(3)), torch.sin(torch.tensor(2.0)))
    assert len(seen) == 1


def test_default_backend(clean_registry):
    used = []

    def mine(graph, example_inputs):
        used.append(1)
        return graph.forward

    dyncomp.set_default_backend(mine)
    dyncomp.optimize(lambda x: x - 1)(torch.ones(1))
    assert used == [1]
    with pytest.raises(errors.UnknownBackendError):
        dyncomp.set_default_backend("nobody")


def test_a_backend_that_raises_is_named():
    def broken(graph, example_inputs):
        raise ValueError("out of ideas")

    with pytest.raises(errors.BackendError, match="'broken'.*out of ideas") as caught:
        dyncomp.optimize(lambda x: x + 3, backend=broken)(torch.ones(1))
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_backend_that_returns_no_callable():
    with pytest.raises(errors.OptionError, match="must return a callable"):
        dyncomp.optimize(lambda x: x + 4, backend=lambda graph, inputs: 5)(torch.ones(1))


def test_entry_points(clean_registry, monkeypatch):
    class Entry:
        name = "from_a_package"

        def load(self):
            return lambda graph, inputs: graph.forward

    monkeypatch.setattr(registry, "_entry_points", lambda: {"from_a_package": Entry()})
    assert "from_a_package" in dyncomp.list_backends()
    assert torch.equal(dyncomp.optimize(plus, backend="from_a_package")(torch.zeros(2)), torch.ones(2))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
def test_own_backends_agree(backend):
    def f(x, y):
        return torch.nn.functional.gelu(x @ y).sum(0), x.t()

    x, y = torch.randn(3, 4), torch.randn(4, 5)
    got, want = dyncomp.optimize(f, backend=backend)(x, y), f(x, y)
    torch.testing.assert_close(got, want)
    assert got[1].data_ptr() == x.data_ptr()
