"""Passes on the tape that only remove work. Each takes the tape and the nodes that must stay and returns
both, rewritten.

drop_no_ops     y = permute(permute(x, [1, 0]), [1, 0])      ->  y is x
                y = view(view(x, [6]), [2, 3])               ->  y = view(x, [2, 3])
                y = clone(x) with the same layout            ->  y is x; but views and results of a copy lie in memory of its own
merge_equal     a = add(x, y); b = add(x, y)                 ->  b is a
drop_dead       nodes that nobody reads and that draw no random numbers go
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from dyncomp.aot.tape import (
    Constant,
    Input,
    Node,
    Tape,
    is_random,
    is_view,
    memory_root,
    node_facts,
    parents,
    replace_inputs,
)
from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.layout import known_equal, known_row_major, numel, view_strides
from dyncomp.shape.symbolic import is_symbolic, number_key

aten = torch.ops.aten
_COPIES = frozenset({aten.clone.default, aten._to_copy.default})


def clean(tape: Tape, kept: list[Node]) -> tuple[Tape, list[Node]]:
    """All passes, in order."""
    for run_pass in (drop_no_ops, merge_equal, drop_dead):
        tape, kept = run_pass(tape, kept)
    return tape, kept


def drop_no_ops(tape: Tape, kept: list[Node]) -> tuple[Tape, list[Node]]:
    places = {id(memory_root(node)) for node in [*kept, *[node for node in tape if is_view(node)]]}
    return _substitute(tape, kept, lambda node: _simpler(node, id(node) in places))


def merge_equal(tape: Tape, kept: list[Node]) -> tuple[Tape, list[Node]]:
    """Common subexpressions. Random operations are never merged."""
    seen: dict[Any, Node] = {}

    def earlier(node: Node) -> Node:
        if is_random(node) or node.op is Input or node.op is Constant or has_effect(node) or _is_late(node):
            return node
        try:
            return seen.setdefault((node.op, _key(node.args), _key(node.kwargs)), node)
        except TypeError:  # an argument without a hash
            return node

    return _substitute(tape, kept, earlier)


def drop_dead(tape: Tape, kept: list[Node]) -> tuple[Tape, list[Node]]:
    live = set(map(id, kept))
    result = []
    for node in reversed(tape):
        if id(node) in live or node.op is Input or has_effect(node):
            live.update(map(id, parents(node)))
            result.append(node)
    result.reverse()
    return result, kept


def has_effect(node: Node) -> bool:
    """True if eager would notice that it did not run: it moves a generator, returns nothing and so exists to
    check, or is somebody's own operation, which may print or count.
    """
    facts = node_facts(node)
    return facts is not None and (facts.random or facts.opaque or not facts.aliased)


def _is_late(node: Node) -> bool:
    """True if the node gives a number of its own."""
    facts = node_facts(node)
    return facts is not None and (facts.data_value or facts.data_shape)


def _substitute(tape: Tape, kept: list[Node], choose: Callable[[Node], Node]) -> tuple[Tape, list[Node]]:
    """Walks forward; `choose` may name an earlier node that stands for this one."""
    chosen: dict[int, Node] = {}

    def current(node: Node) -> Node:
        return chosen.get(id(node), node)

    result = []
    for node in tape:
        replace_inputs(node, current)
        other = choose(node)
        if other is node:
            result.append(node)
        else:
            chosen[id(node)] = other
    # The tape itself stays alive in the caller until here, so ids are unique.
    return result, [current(node) for node in kept]


def _simpler(node: Node, is_place: bool) -> Node:
    """`is_place`: others lie in the memory of this one, and their offsets are told by it."""
    meta = node.meta
    if type(meta) is not TensorMeta:
        return node
    if node.op in _COPIES:
        source = node.args[0]
        return source if source.meta.same_layout(meta) and (not is_place or _begins_alike(source, meta)) else node
    if not is_view(node) and not _is_view_item(node):
        return node
    ancestor = node
    while is_view(ancestor) or _is_view_item(ancestor):
        ancestor = ancestor.args[0] if is_view(ancestor) else ancestor.args[0].args[0]
        if type(ancestor.meta) is TensorMeta and ancestor.meta.key == meta.key:
            return ancestor
    if node.op is aten.view.default and node.args[0].op is aten.view.default:
        source = node.args[0].args[0]
        if _views_as(source.meta, meta):
            node.args = (source, list(meta.shape))
    return node


def _begins_alike(source: Node, copy: TensorMeta) -> bool:
    """Whether views of `source` lie where those of a copy with memory of its own do; of a part, that memory is smaller than the whole."""
    whole = memory_root(source).meta
    return known_equal(source.meta.offset, copy.offset) and (whole is source.meta or known_equal(numel(whole.shape), numel(copy.shape)))


def _views_as(source: TensorMeta, result: TensorMeta) -> bool:
    """Whether a view of `source` to the sizes of `result` is laid out as that is; where sizes vary, by what is known."""
    if any(map(is_symbolic, (*source.shape, *source.strides, *result.shape, *result.strides))):
        return all(known_row_major(meta.shape, meta.strides) for meta in (source, result))
    return view_strides(source.shape, source.strides, result.shape) == result.strides


def _is_view_item(node: Node) -> bool:
    return node.op is operator.getitem and is_view(node.args[0])


def _key(value: Any) -> Any:
    kind = type(value)
    if kind is Node:
        return id(value)
    if kind is list or kind is tuple:
        return tuple([_key(item) for item in value])
    if kind is dict:
        return tuple(sorted((name, _key(item)) for name, item in value.items()))
    if kind is float:
        return ("float", value.hex())
    return (kind, number_key(value))
