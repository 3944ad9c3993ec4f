"""Operations over lists of tensors become operations on each tensor, with the results of ATen's own kernels."""

import pytest
import torch

import dyncomp
from dyncomp import aot

OPTIONS = {"amsgrad": False, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8, "maximize": False}


def tensors(count=2, dtype=torch.float32):
    generator = torch.Generator().manual_seed(count)
    return [torch.randn(3, 4, generator=generator).to(dtype) for _ in range(count)]


def ops_of(function, *inputs):
    seen = []

    def backend(gm, example_inputs):
        graph = aot.trace_inference(gm, example_inputs)
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.run

    dyncomp.optimize(function, backend=backend)(*inputs)
    return seen


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b: torch._foreach_add(a, b, alpha=2),
        lambda a, b: torch._foreach_mul(a, [2.0, 3.0]),
        lambda a, b: torch._foreach_norm(a, 2),
        lambda a, b: torch._foreach_lerp(a, b, 0.3),
        lambda a, b: torch._foreach_addcdiv(a, b, b, [1.0, 2.0]),
        lambda a, b: torch._foreach_max(a),
    ],
)
def test_foreach(fresh, call):
    inputs = tensors(4)

    def function(p, q, r, s):
        return call([p, q], [r, s])

    torch.testing.assert_close(dyncomp.optimize(function)(*inputs), function(*inputs))
    assert not any("foreach" in name for name in ops_of(function, *inputs))


def test_foreach_in_place(fresh):
    def function(p, q, r, s):
        torch._foreach_mul_([p, q], 0.5)
        torch._foreach_addcmul_([p, q], [r, s], [r, s], value=0.1)

    expected, got = tensors(4), tensors(4)
    function(*expected)
    dyncomp.optimize(function, fullgraph=True)(*got)
    torch.testing.assert_close(got, expected)


def adam(name, lists, step, lr, **changes):
    params, grads, means, squares, largest = lists
    options = {**OPTIONS, **changes}
    getattr(torch, name)(params, grads, means, squares, largest if options["amsgrad"] else [], step, lr=lr, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", ["_fused_adam_", "_fused_adamw_"])
@pytest.mark.parametrize("changes", [{}, {"amsgrad": True, "maximize": True}, {"weight_decay": 0.0}], ids=str)
def test_fused_adam(fresh, name, changes, dtype):
    def function(p, g, m, v, w, step):
        adam(name, ([p], [g], [m], [v], [w]), [step], 0.01, **changes)

    outcome = []
    for run in (function, dyncomp.optimize(function, fullgraph=True)):
        p, g, m, v, w = tensors(5, dtype)
        v, w = v.abs(), w.abs()
        run(p, g, m, v, w, torch.tensor(3.0))
        outcome.append((p, g, m, v, w))
    close = {"rtol": 1e-2, "atol": 1e-3} if dtype is torch.bfloat16 else {"rtol": 3e-6, "atol": 1e-7}
    torch.testing.assert_close(outcome[1], outcome[0], **close)
    names = ops_of(function, *outcome[0], torch.tensor(3.0))
    assert not any("fused" in one for one in names)


@pytest.mark.parametrize("first", [True, False])
def test_fused_sgd(fresh, first):
    def function(p, g, b):
        options = {"weight_decay": 0.1, "momentum": 0.9, "lr": 0.1, "dampening": 0.2, "nesterov": True, "maximize": True}
        torch._fused_sgd_([p], [g], [b], **options, is_first_step=first)

    expected, got = tensors(3), tensors(3)
    function(*expected)
    dyncomp.optimize(function, fullgraph=True)(*got)
    torch.testing.assert_close(got, expected, rtol=2e-6, atol=1e-7)


def test_a_gradient_scaler_is_left_to_aten(fresh):
    def function(p, g, m, v, step, scale, found):
        adam("_fused_adam_", ([p], [g], [m], [v], []), [step], 0.01, grad_scale=scale, found_inf=found)

    def inputs():
        p, g, m, v = tensors(4)
        return p, g, m, v.abs(), torch.tensor(3.0), torch.tensor(2.0), torch.tensor(0.0)

    expected, got = inputs(), inputs()
    function(*expected)
    dyncomp.optimize(function)(*got)
    torch.testing.assert_close(got, expected)
    assert any("gradient scaler" in name for name in dyncomp.stats().fallbacks)
