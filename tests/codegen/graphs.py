"""From a Python function to an ATen graph, and running its schedule without a C++ compiler."""

import operator

import torch
from torch import fx

from dyncomp import aot
from dyncomp.codegen import lower  # noqa: F401
from dyncomp.codegen.ir.index import Index, evaluate
from dyncomp.codegen.ir.interpret import flat_memory, interpret
from dyncomp.codegen.ir.types import TO_TORCH
from dyncomp.codegen.lower.graph import lower_graph
from dyncomp.codegen.lower.tensor import Tensor, View, root
from dyncomp.codegen.schedule.kernel import ScheduledKernel
from dyncomp.codegen.schedule.scheduler import schedule_graph
from dyncomp.fake import FakeMode
from dyncomp.shape.symbolic import layout_of, new_env

TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 2e-3, torch.float64: 1e-10}


def flat(result):
    """The tensors of a result, in order."""
    if isinstance(result, torch.Tensor):
        return [result]
    return [t for part in result for t in flat(part)]


@torch.no_grad()
def trace(function, *inputs, symbolic=False):
    """The ATen graph of `function(*inputs)`, whose outputs are the tensors that it returns; `symbolic`: for all sizes."""
    count = len(flat(function(*[t.clone() for t in inputs])))
    graph = fx.Graph()
    places = tuple(graph.placeholder(f"x{i}") for i in range(len(inputs)))
    call = graph.call_function(lambda *values: flat(function(*values)), places)
    graph.output(tuple(graph.call_function(operator.getitem, (call, i)) for i in range(count)))
    mode = FakeMode()
    layouts = _layouts(inputs) if symbolic else [None] * len(inputs)
    fakes = [mode.from_real(t, layout) for t, layout in zip(inputs, layouts, strict=True)]
    return aot.trace_inference(fx.GraphModule(torch.nn.Module(), graph), fakes)


def _layouts(inputs):
    env = new_env()
    for number, tensor in enumerate(inputs):
        sizes = [env.create_int(n, origin=(number, "size", d)) for d, n in enumerate(tensor.shape)]
        yield layout_of(env, tensor.shape, tensor.stride(), sizes.__getitem__, lambda d, n=number: (n, "stride", d))


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


@torch.no_grad()
def run_symbolic(function, *calls):
    """As `run_interpreted` for each call's inputs, all with the schedule made for the first one."""
    aten = trace(function, *calls[0], symbolic=True)
    lowered = lower_graph(aten)
    schedule = schedule_graph(lowered)
    symbols = lowered.symbols
    wanted = {name: symbols.env.wrap(meaning, int) for name, meaning in symbols.meaning.items()}
    numbers = aten.sizes.covering([node.meta["val"] for node in aten.placeholders], wanted.values())
    for inputs in calls:
        found = numbers.values(inputs)
        sizes = {name: found[numbers.place(number)] for name, number in wanted.items()}
        values = dict(zip(lowered.inputs, inputs, strict=True))
        for step in schedule.steps:
            if isinstance(step, ScheduledKernel):
                _run_kernel(step, values, sizes)
            else:
                _run_call(step, values, sizes)
        yield [_value(rule[1], values, sizes) for rule in lowered.outputs if rule[0] == "node"]


def _at(tree, sizes):
    """Numbers of one call in place of symbolic ones."""
    if isinstance(tree, (tuple, list)):
        return type(tree)([_at(item, sizes) for item in tree])
    return evaluate(tree, sizes) if isinstance(tree, Index) else tree


def _run_kernel(step, values, sizes=None):
    buffers = []
    for param, tensor in zip(step.kernel.params, step.buffers, strict=True):
        if tensor is None:
            buffers.append(torch.zeros(1, dtype=torch.int64))
            continue
        if param.role == "out":
            values[tensor] = torch.empty_strided(
                _at(tensor.shape, sizes), _at(tensor.strides, sizes), dtype=TO_TORCH[tensor.dtype]
            )
        buffers.append(flat_memory(values[tensor]))
    interpret(step.kernel, buffers, [_at(size, sizes) for size in step.sizes])
    for tensor, buffer in zip(step.buffers, buffers, strict=True):
        if tensor is None and buffer[0]:
            raise IndexError("index out of range in self")


def _run_call(call, values, sizes=None):
    namespace, name = call.name.split("::")
    op = getattr(getattr(getattr(torch.ops, namespace), name), call.overload or "default")
    args, kwargs = _arguments((call.args, call.kwargs), values, sizes)
    results = op(*args, **kwargs)
    results = results if isinstance(results, (tuple, list)) else (results,)
    for result, value in zip(call.results, results, strict=False):
        if result is not None:
            values[result] = value


def _arguments(tree, values, sizes):
    if isinstance(tree, Tensor):
        return _value(tree, values, sizes)
    if isinstance(tree, dict):
        return {k: _arguments(v, values, sizes) for k, v in tree.items()}
    if isinstance(tree, (tuple, list)):
        return type(tree)(_arguments(v, values, sizes) for v in tree)
    return _at(tree, sizes)


def _value(tensor, values, sizes=None):
    if tensor not in values:
        assert isinstance(tensor, View)
        base = values[root(tensor)]
        offset = tensor.offset - getattr(root(tensor), "offset", 0) + base.storage_offset()
        layout = _at((tensor.shape, tensor.strides, offset), sizes)
        values[tensor] = base.as_strided(*layout)
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
