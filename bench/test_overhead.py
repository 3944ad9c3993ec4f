"""What a call costs when the graph itself costs nothing: a backend that returns a constant; and a tiny real graph."""

import pytest
import torch

import dyncomp


def constant_backend(graph, example_inputs):
    value = (torch.zeros(1),)
    return lambda *inputs: value


def sides_of(target, peer, backend):
    sides = {"eager": target, "dyncomp": dyncomp.optimize(target, backend=backend)}
    if peer:
        kwargs = {} if backend is None else {"backend": backend}
        sides["torch.compile"] = torch.compile(target, **kwargs)
    return sides


@pytest.mark.parametrize("count", [1, 10])
def test_tensor_arguments(compare, peer, count):
    def add(*tensors):
        return sum(tensors[1:], tensors[0])

    names = ", ".join(f"a{i}" for i in range(count))
    scope = {}
    exec(f"def add({names}):\n    return {' + '.join(f'a{i}' for i in range(count))} + 1\n", scope)
    tensors = [torch.ones(4) + i for i in range(count)]
    sides = sides_of(scope["add"], peer, constant_backend)
    compare(f"{count} tensor arguments", {n: lambda f=f: f(*tensors) for n, f in sides.items()}, inner=2000)


class Hundred(torch.nn.Module):
    """100 parameters, each used once."""

    def __init__(self):
        super().__init__()
        self.weights = torch.nn.ParameterList(
            [torch.nn.Parameter(torch.ones(4), requires_grad=False) for _ in range(100)]
        )

    def forward(self, x):
        for weight in self.weights:
            x = x + weight
        return x


def test_module_parameters(compare, peer):
    model, x = Hundred(), torch.ones(4)
    sides = sides_of(model, peer, constant_backend)
    compare("module with 100 parameters", {n: lambda f=f: f(x) for n, f in sides.items()}, inner=500)


def test_tiny_graph(compare, peer):
    def sin_cos(x):
        return torch.sin(torch.cos(x))

    x = torch.ones(4)
    compare(
        "sin(cos(x)) on 4 elements", {n: lambda f=f: f(x) for n, f in sides_of(sin_cos, peer, None).items()}, inner=2000
    )
