"""Which new values of mutated inputs a kernel may write straight into the input's own memory.

    add = p + g  (p := add)     out = scratch; kernel(p, g, out); p.copy_(out)      ->     kernel(p, g, p)

Allowed where nobody can see the difference:
 - the value is computed by one kernel of plain loops over elements, in the layout of the input, and is no output;
 - that kernel reads the input at the very element that it writes, before it writes it (the emitter loads what a store
   needs ahead of it, and keeps what was loaded); nothing later reads the input;
 - nothing from that kernel on can fail because of data, since a graph that raises must not have written yet.
Inputs that share memory with a mutated one never get here (`AtenGraph.overlaps`).
"""

from __future__ import annotations

from collections.abc import Iterator

from dyncomp.codegen.ir.nodes import Kernel, Load, Loop, Param, Stmt, Store, stmt_values
from dyncomp.codegen.lower.graph import LoweredGraph
from dyncomp.codegen.lower.tensor import ExternCall, Pointwise, Storage, Tensor, View, root
from dyncomp.codegen.schedule.kernel import ScheduledKernel
from dyncomp.codegen.schedule.rewrite import walk
from dyncomp.codegen.schedule.scheduler import Schedule


def written_in_place(graph: LoweredGraph, schedule: Schedule, last_use: dict[Tensor, int]) -> dict[Tensor, int]:
    """{computed tensor: position of the input that it is written into}. `last_use`: last step that reads a tensor."""
    targets: dict[Tensor, int] = {}
    for position, tensor in graph.mutations:
        if isinstance(tensor, Pointwise) and tensor not in targets and _fits(graph, position, tensor):
            targets[tensor] = position
    for _, tensor in graph.mutations:  # two inputs of one new value, or a view of it: left to copies
        base = root(tensor)
        if base in targets and (isinstance(tensor, View) or sum(t is tensor for _, t in graph.mutations) > 1):
            del targets[base]
    for tensor in _shown(graph):
        targets.pop(tensor, None)
    shown_inputs = {p for p, s in enumerate(graph.inputs) if s in _shown(graph)}
    found: dict[Tensor, int] = {}
    for step, item in reversed(list(enumerate(schedule.steps))):
        if isinstance(item, ExternCall) or any(buffer is None for buffer in item.buffers):
            break  # it may fail
        for param, tensor in zip(item.kernel.params, item.buffers, strict=True):
            position = targets.get(tensor) if tensor is not None and param.role == "out" else None
            if position is None or position in shown_inputs:
                continue
            source = graph.inputs[position]
            if last_use.get(source, -1) <= step and _same_element(item, param, source):
                found[tensor] = position  # type: ignore[index]
    return found


def _fits(graph: LoweredGraph, position: int, tensor: Pointwise) -> bool:
    source = graph.inputs[position]
    same = source.shape == tensor.shape and source.strides == tensor.strides and source.dtype == tensor.dtype
    return same and all(isinstance(n, int) for n in (*tensor.shape, *tensor.strides))


def _shown(graph: LoweredGraph) -> set[Tensor]:
    """Tensors whose memory the results hand out, or that results are made from."""
    shown = {root(rule[1]) for rule in graph.outputs if rule[0] == "node" and isinstance(rule[1], Tensor)}
    for rule in graph.outputs:
        if rule[0] == "node" and isinstance(rule[1], Storage):
            shown.add(rule[1])
    return shown


def _same_element(item: ScheduledKernel, out: Param, source: Storage) -> bool:
    """True if every read of `source` is of the element that is being written, and comes before the write."""
    ins = {p for p, t in zip(item.kernel.params, item.buffers, strict=True) if t is source}
    store: Store | None = None
    for stmt in _plain(item.kernel):
        if stmt is None:
            return False
        if stmt.buffer == out:
            if store is not None or stmt.guard is not None:
                return False
            store = stmt
    if store is None:
        return False
    before: set[Load] = set()
    after: set[Load] = set()
    seen = False
    for stmt in _plain(item.kernel):
        assert stmt is not None
        loads = {v for v in walk(list(stmt_values(stmt))) if isinstance(v, Load) and v.buffer in ins}
        (after if seen else before).update(loads)
        seen = seen or stmt is store
    if any(load.index != store.index or load.dynamic or load.guard is not None for load in before | after):
        return False
    return after <= before


def _plain(kernel: Kernel) -> Iterator[Store | None]:
    """The stores of a kernel of one loop nest; None where it is something else."""
    body: tuple[Stmt, ...] = kernel.body
    while len(body) == 1 and isinstance(body[0], Loop):
        body = body[0].body
    if kernel.scratch or kernel.tile is not None:
        yield None
    for stmt in body:
        yield stmt if isinstance(stmt, Store) else None
