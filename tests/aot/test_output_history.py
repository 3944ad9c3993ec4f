"""What autograd knows of outputs made without gradients: requires_grad, leaf, view and base, as in eager."""

import contextlib

import pytest
import torch
import torch.fx

import dyncomp
from dyncomp import aot, config
from dyncomp.codegen.compile import Options, compile_graph
from tests.support import assert_same

PROGRAMS = {
    "view": lambda x: x.view(-1),
    "transpose": lambda x: x.t(),
    "select": lambda x: x[0],
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "view of detached": lambda x: x.detach().view(-1),
    "detached view": lambda x: x[0].detach(),
    "itself": lambda x: x,
    "another object": lambda x: x.view_as(x),
    "fresh": lambda x: x * 2,
    "view of fresh": lambda x: (x * 2).view(-1),
    "contiguous": lambda x: x.contiguous(),
    "split": lambda x: x.split(1)[0],
    "expand": lambda x: x.expand(4, 2, 3),
}
INPUTS = {
    "parameter": lambda: torch.nn.Parameter(torch.randn(2, 3)),
    "plain": lambda: torch.randn(2, 3),
    "part": lambda: torch.randn(4, 3)[1:3],
    "result": lambda: torch.randn(2, 3, requires_grad=True) * 1,
}
MODES = {"plain": contextlib.nullcontext, "no_grad": torch.no_grad, "inference": torch.inference_mode}


def history(output, given):
    base = output._base
    return {
        "requires_grad": output.requires_grad,
        "leaf": output.is_leaf,
        "view": output._is_view(),
        "of the input's base": base is given or base is given._base and base is not None,
        "inference": output.is_inference(),
        "the input": output is given,
        "shared": output.untyped_storage()._cdata == given.untyped_storage()._cdata,
    }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_outputs_have_eagers_history(name, kind, mode):
    given = INPUTS[kind]()
    if mode == "plain" and given.requires_grad:
        pytest.skip("autograd goes through this graph")
    program = PROGRAMS[name]
    module = torch.fx.symbolic_trace(program)
    with MODES[mode]():
        want = history(program(given), given)
        graph = aot.trace_inference(module, [given])
        plan = compile_graph(graph, Options(fallback=module))
        for run in (graph.run, plan):
            [output] = run(given)
            if name == "view of detached":  # its base is a detached object that only eager's call has
                assert output._base is not given and not output._base.requires_grad
                want["of the input's base"] = history(output, given)["of the input's base"]
            assert history(output, given) == want
            assert torch.equal(output, program(given))


def under_no_grad(x):
    with torch.no_grad():
        part = x[..., ::2]
    return part[None]


def beside_its_base(x):
    y = x * 2
    with torch.no_grad():
        row = y[0]
    return y, row.unsqueeze(0), y[1]


@pytest.mark.parametrize("leaf", [True, False])
@pytest.mark.parametrize("program", [under_no_grad, beside_its_base])
def test_a_view_of_a_view_made_under_no_grad_has_no_way_to_its_base(program, leaf, fresh):
    found = []
    for side in (dyncomp.optimize(program), program):
        x = torch.arange(12.0).view(3, 4).clone().requires_grad_()
        with config.patch(strict=True):
            results = side(x if leaf else x * 1)
        results = results if isinstance(results, tuple) else (results,)
        assert all(one.requires_grad for one in results)
        sum((one * 2).sum() for one in results).backward()
        found.append((results, x.grad))
    (ours, our_gradient), (theirs, gradient) = found
    assert_same(ours, theirs)
    assert (our_gradient is None) is (gradient is None)
    if gradient is not None:
        assert_same(our_gradient, gradient)
