"""From a Python function to an ATen graph, and running its schedule without a C++ compiler."""

import operator

import torch
from torch import fx

from dyncomp import aot
from dyncomp.codegen import lower  # noqa: F401
from dyncomp.codegen.ir.interpret import flat_memory, interpret
from dyncomp.codegen.ir.types import TO_TORCH
from dyncomp.codegen.lower.graph import lower_graph
from dyncomp.codegen.lower.tensor import Tensor, View, root
from dyncomp.codegen.schedule.kernel import ScheduledKernel
from dyncomp.codegen.schedule.scheduler import schedule_graph
from dyncomp.fake import FakeMode

TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 2e-3, torch.float64: 1e-10}


def flat(result):
    """The tensors of a result, in order."""
    if isinstance(result, torch.Tensor):
        return [result]
    return [t for part in result for t in flat(part)]


@torch.no_grad()
def trace(function, *inputs):
    """The ATen graph of `function(*inputs)`, whose outputs are the tensors that it returns."""
    count = len(flat(function(*[t.clone() for t in inputs])))
    graph = fx.Graph()
    places = tuple(graph.placeholder(f"x{i}") for i in range(len(inputs)))
    call = graph.call_function(lambda *values: flat(function(*values)), places)
    graph.output(tuple(graph.call_function(operator.getitem, (call, i)) for i in range(count)))
    mode = FakeMode()
    return aot.trace_inference(fx.GraphModule(torch.nn.Module(), graph), [mode.from_real(t) for t in inputs])


def schedule_of(function, *inputs):
    return schedule_graph(lower_graph(trace(function, *inputs)))


def kernels_of(function, *inputs):
    return [s for s in schedule_of(function, *inputs).steps if isinstance(s, ScheduledKernel)]


@torch.no_grad()
def run_interpreted(function, *inputs):
    """The outputs: every kernel interpreted, ATen called for the rest. Mutations are not written back."""
    aten = trace(function, *inputs)
    lowered = lower_graph(aten)
    values = dict(zip(lowered.inputs, inputs, strict=True))
    values.update({storage: aten.constants[target] for target, storage in lowered.constants.items()})
    for step in schedule_graph(lowered).steps:
        if isinstance(step, ScheduledKernel):
            _run_kernel(step, values)
        else:
            _run_call(step, values)
    return [_value(rule[1], values) for rule in lowered.outputs if rule[0] == "node"]


def _run_kernel(step, values):
    buffers = []
    for param, tensor in zip(step.kernel.params, step.buffers, strict=True):
        if tensor is None:
            buffers.append(torch.zeros(1, dtype=torch.int64))
            continue
        if param.role == "out":
            values[tensor] = torch.empty_strided(tensor.shape, tensor.strides, dtype=TO_TORCH[tensor.dtype])
        buffers.append(flat_memory(values[tensor]))
    interpret(step.kernel, buffers)
    for tensor, buffer in zip(step.buffers, buffers, strict=True):
        if tensor is None and buffer[0]:
            raise IndexError("index out of range in self")


def _run_call(call, values):
    namespace, name = call.name.split("::")
    op = getattr(getattr(getattr(torch.ops, namespace), name), call.overload or "default")
    args, kwargs = _arguments((call.args, call.kwargs), values)
    results = op(*args, **kwargs)
    results = results if isinstance(results, (tuple, list)) else (results,)
    for result, value in zip(call.results, results, strict=False):
        if result is not None:
            values[result] = value


def _arguments(tree, values):
    if isinstance(tree, Tensor):
        return _value(tree, values)
    if isinstance(tree, dict):
        return {k: _arguments(v, values) for k, v in tree.items()}
    if isinstance(tree, (tuple, list)):
        return type(tree)(_arguments(v, values) for v in tree)
    return tree


def _value(tensor, values):
    if tensor not in values:
        assert isinstance(tensor, View)
        base = values[root(tensor)]
        offset = tensor.offset - getattr(root(tensor), "offset", 0) + base.storage_offset()
        values[tensor] = base.as_strided(tensor.shape, tensor.strides, offset)
    return values[tensor]


def assert_close(got, want, scale=1.0):
    """Equal types and strides; values as near as the type allows."""
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        if w.numel() > 1 and 1 not in w.shape:
            assert g.stride() == w.stride()
        tolerance = TOLERANCE.get(w.dtype, 2e-5) * scale
        torch.testing.assert_close(g, w, rtol=tolerance, atol=tolerance, equal_nan=True)
