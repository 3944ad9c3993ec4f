"""`associative_scan` in inference: one node whatever the length (`scan_node`), and a graph for the function that combines two elements.

    associative_scan(lambda l, r: l * r, x, dim=1)      x: f32[4, s0, 8]

    movedim -> torch.ops.dyncomp.associative_scan([x], [], 0) -> movedim        program 0, on f32[4, 8]: mul(l, r)

torch's own is a recursion over halves, so its operations depend on the length; inlined it would be compiled anew for each. With gradients
it is inlined all the same: then the operations are what is differentiated.
"""

from __future__ import annotations

import dis
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.associative_scan import associative_scan as torchs_scan

from dyncomp.errors import GraphBreak
from dyncomp.fake.tensor import TensorMeta, make_fake
from dyncomp.shape.layout import contiguous_strides
from dyncomp.values import registry
from dyncomp.values.base import Tracer, Value
from dyncomp.values.builtin import BuiltinValue
from dyncomp.values.constant import ConstantValue
from dyncomp.values.context_state import sets_state
from dyncomp.values.function import BoundMethodValue, FunctionValue
from dyncomp.values.klass import ClassValue
from dyncomp.values.scan_node import add_program, associative_scan
from dyncomp.values.sequence import ListValue, TupleValue
from dyncomp.values.sym_number import SymNumberValue
from dyncomp.values.torch_tensor import TensorValue, tensors_of

_UNCHANGING = (ConstantValue, TensorValue, ClassValue, BuiltinValue, SymNumberValue)
_NAMES = ("combine_fn", "xs", "dim", "reverse", "combine_mode")


@registry.on_call(torchs_scan)
def scan(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    given = {**dict(zip(_NAMES, args, strict=False)), **kwargs}
    leaves = _leaves(given.get("xs"))
    if leaves is None or set(given) - set(_NAMES) or not _is_for_one_node(tx, given, leaves):
        return tx.inline(tx.constant(torchs_scan), args, kwargs)
    dim, back = given["dim"].as_constant(), given.get("reverse", tx.constant(False)).as_constant()
    start, end = tx.constant(0), tx.constant(dim % leaves[0].fake(tx).ndim)
    moved = [tx.graph_call(torch.movedim, [x, end, start]) for x in leaves]
    if back:
        moved = [tx.graph_call(torch.flip, [x, tx.tuple_of([start])]) for x in moved]
    lifted, program = _combine(tx, given["combine_fn"], given["xs"], moved)
    found = tx.graph_call(associative_scan, [tx.list_of(moved), tx.list_of(lifted), tx.constant(program)]).unpack(tx)
    if back:
        found = [tx.graph_call(torch.flip, [x, tx.tuple_of([start])]) for x in found]
    return _packed(given["xs"], [tx.graph_call(torch.movedim, [x, start, end]) for x in found])


def _leaves(xs: Value | None) -> list[TensorValue] | None:
    items = xs.items if isinstance(xs, ListValue | TupleValue) and xs.python_type() in (list, tuple) else [xs]
    tensors = [item for item in items if isinstance(item, TensorValue)]
    return tensors if tensors and len(tensors) == len(items) else None


def _packed(like: Value, items: list[Value]) -> Value:
    if isinstance(like, ListValue):
        return ListValue(items)
    return TupleValue(items, tuple) if isinstance(like, TupleValue) else items[0]


def _is_for_one_node(tx: Tracer, given: dict[str, Value], leaves: list[TensorValue]) -> bool:
    """True for a call that eager runs as its generic scan, without errors and gradients."""
    settings = [given.get(name) for name in ("dim", "combine_mode")]
    if any(one is None or not one.is_constant() for one in settings) or settings[1].as_constant() != "generic":  # type: ignore[union-attr]
        return False
    if tx.fake_mode.levels or torch._C._is_any_autocast_enabled():
        return False
    fakes, dim = [leaf.fake(tx) for leaf in leaves], settings[0].as_constant()  # type: ignore[union-attr]
    if torch.is_grad_enabled() and any(fake.requires_grad for fake in fakes):
        return False
    if not _keeps_to_itself(tx, given.get("combine_fn")):
        return False
    if any(fake.device.type != "cpu" or fake.ndim != fakes[0].ndim for fake in fakes) or not 0 <= dim < fakes[0].ndim:
        return False
    length = fakes[0].shape[dim]
    return all(fake.shape[dim] == length for fake in fakes) and bool(length >= 2)


def _keeps_to_itself(tx: Tracer, function: Value | None) -> bool:
    """True for a function that can change nothing that was made in this trace: changes of that leave no mark on the graph. What
    comes from outside of the frame is watched by the effects."""
    if isinstance(function, BoundMethodValue):
        return function.receiver.source is not None and _keeps_to_itself(tx, function.function)
    if not isinstance(function, FunctionValue):
        return isinstance(function, BuiltinValue)
    names = set(function.code.co_freevars)
    if any(op.opname in ("STORE_DEREF", "DELETE_DEREF") and op.argval in names for op in dis.get_instructions(function.code)):
        return False
    kept = [*[cell.contents for cell in function.cells(tx)], *function.made_defaults, *function.made_kwdefaults.values()]
    return all(
        one is None or one.source is not None or isinstance(one, _UNCHANGING) or _keeps_to_itself(tx, one)
        for one in kept
    )


def _combine(tx: Tracer, function: Value, xs: Value, moved: list[Value]) -> tuple[list[Value], int]:
    """Follows the function on two elements, takes its operations out of the graph again, and makes a program of them."""
    last = next(iter(reversed(tx.graph.nodes)))
    zero, mode, effects = tx.constant(0), tx.fake_mode, len(tx.effects) + len(tx.early)
    drew, mode.draws = mode.draws, False
    versions = {id(value): value.fake(tx).fake_storage.version for value in tensors_of(tx)}
    left = [tx.graph_call("contiguous", [tx.graph_call("clone", [tx.graph_call("select", [x, zero, zero])])]) for x in moved]
    right = [tx.graph_call("contiguous", [tx.graph_call("clone", [tx.graph_call("select", [x, zero, zero])])]) for x in moved]
    result = tx.call(function, [_packed(xs, list(left)), _packed(xs, list(right))])
    outputs = _leaves(result)
    changed = any(versions.get(id(value), 0) != value.fake(tx).fake_storage.version for value in tensors_of(tx) if id(value) in versions)
    if mode.draws or changed or len(tx.effects) + len(tx.early) != effects:
        raise _refusal("draws random numbers, writes to a tensor or has side effects")
    mode.draws = drew
    shapes = [(fake.shape, fake.dtype) for fake in (one.fake(tx) for one in left)]  # type: ignore[attr-defined]
    if outputs is None or [(one.fake(tx).shape, one.fake(tx).dtype) for one in outputs] != shapes:
        raise _refusal("gives other shapes or dtypes than it takes")
    if any(one.fake(tx).requires_grad for one in outputs):
        raise _refusal("needs gradients of tensors from outside")
    return _cut(tx, last, [*left, *right], outputs)


def _cut(tx: Tracer, last: fx.Node, arguments: list[Value], outputs: list[TensorValue]) -> tuple[list[Value], int]:
    nodes: list[fx.Node] = []
    node = last.next
    while node.op != "root":
        nodes.append(node)
        node = node.next
    inside = set(nodes)
    given: list[fx.Node] = [value.fx_arg(tx) for value in arguments]
    keep = [one for one in nodes if one not in _ancestors(given, inside)]
    if any(one.meta.get("number") or not isinstance(one.meta.get("example_value"), torch.Tensor) for one in keep):
        raise _refusal("computes with sizes")
    lifted = list(dict.fromkeys(n for one in keep for n in one.all_input_nodes if n not in inside))
    graph = fx.Graph()
    made = {one: graph.placeholder(f"element_{i}") for i, one in enumerate([*given, *lifted])}
    for one in keep:
        made[one] = graph.node_copy(one, made.__getitem__)
    graph.output(tuple([made[one.fx_arg(tx)] for one in outputs]))
    gm = fx.GraphModule(torch.nn.Module(), graph, "Combine")
    if sets_state(graph):
        raise _refusal("changes torch's state")
    by_node = {value.fx_arg(tx): value for value in tensors_of(tx) if value.is_graph_input() or value.source is None}
    if any(one not in by_node for one in lifted):
        raise _refusal("computes with numbers of the call")
    found: list[Value] = [by_node[one] for one in lifted]
    fakes = [_as_folded(one.meta["example_value"]) for one in (*given, *lifted)]
    for one in reversed(nodes):
        tx.graph.erase_node(one)
    return found, add_program(gm, fakes)


def _ancestors(nodes: list[fx.Node], inside: set[fx.Node]) -> set[fx.Node]:
    found: set[fx.Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node in inside and node not in found:
            found.add(node)
            stack.extend(node.all_input_nodes)
    return found


def _as_folded(fake: Any) -> Any:
    meta = fake.meta
    return make_fake(TensorMeta(meta.shape, contiguous_strides(meta.shape), meta.dtype, meta.device))


def _refusal(why: str) -> GraphBreak:
    return GraphBreak("unsupported-call", f"associative_scan with a combine function that {why}")
