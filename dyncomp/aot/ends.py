"""What eager's history of some results is like: which inputs each leads to, and which nodes on the way keep values.

    h = x.exp(); a = h.sum() * w; b = h + y     ->     reach:    a -> x, w    b -> x, y
                                                       keepers:  exp (a, b -> x), mul (a -> x, w)

A backward uses up the nodes that keep values on its way from its results to the inputs that it is asked for; another one that comes to
one of them raises.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import GradientEdge

from dyncomp._frame import _exec

_SLACK = 4  # a history that is made anew begins with views or copies of the inputs


@dataclasses.dataclass
class Ends:
    """Sets are whole numbers, a bit an element; results and inputs go by their positions.

    `reach`: by result, its inputs. `keepers`: (results, inputs) of nodes that keep values, equal ones once. `order`: the results and the
    views that the program returns, the oldest history first; numbers as in `through`. `shown`: the views that the program returns, and what else the history of a result, or of what is shown, comes to of the
    operations that made views:
    ("output" or "input", its index, which result of the operation, None: the view). `through`: by result, and then by what is shown, what its history comes to first:
    numbers of results, and from their count on places in `shown`. `depth`: how many nodes may lie between a result and the inputs.
    """

    reach: list[int]
    keepers: list[tuple[int, int]]
    order: list[int]
    through: list[list[int]]
    shown: list[tuple[str, int, int | None]]
    depth: int


@dataclasses.dataclass
class Keeping:
    """The nodes that may keep values, each after all that use it, and of each (results, inputs) as in `Ends.keepers`."""

    nodes: list[Any]
    ends: list[tuple[int, int]]


View = tuple[str, int, torch.Tensor, bool]


def ends_of(results: Sequence[torch.Tensor], inputs: Sequence[Any], views: Sequence[View] = ()) -> tuple[Ends, Keeping]:
    """`inputs`: tensors that require grad, or their gradient edges; what lies behind them is not looked at. `views`: of results or
    inputs, which the program returns, and inputs that it has written: "output" or "input", its index, the view, and whether all results
    of the operation that made it are made with it.
    """
    leaves: dict[int, int] = {}
    below: dict[Any, int] = {}  # by node: the inputs
    for place, one in enumerate(inputs):
        if isinstance(one, GradientEdge):
            below[one.node] = below.get(one.node, 0) | 1 << place
        else:
            leaves[id(one)] = leaves.get(id(one), 0) | 1 << place
    behind = set(below)
    order = _users_first([result.grad_fn for result in results], behind)
    height: dict[Any, int] = {}  # by node: the longest way down
    for node in reversed(order):
        height[node] = 1 + max([height.get(parent, 0) for parent, _ in node.next_functions], default=0)
        bits = leaves.get(id(node.variable), 0) if hasattr(node, "variable") else 0
        for parent, _ in node.next_functions:
            bits |= below.get(parent, 0)
        below[node] = bits
    above: dict[Any, int] = {}  # by node: the results
    reach = []
    for number, result in enumerate(results):
        above[result.grad_fn] = above.get(result.grad_fn, 0) | 1 << number
        reach.append(below[result.grad_fn])
    for node in order:
        for parent, _ in node.next_functions:
            above[parent] = above.get(parent, 0) | above[node]
    with torch._C._DisableTorchDispatch():  # looking at what a node keeps calls `detach`
        keepers = {(above[node], below[node]) for node in order if below[node] and _keeps_values(node)}
    ages = sorted(range(len(results)), key=lambda number: results[number].grad_fn._sequence_nr())  # type: ignore[union-attr]
    nodes = keeping_nodes(order)
    return Ends(reach, sorted(keepers), ages, *_through(results, views, behind), max(height.values(), default=0) + _SLACK), Keeping(nodes, [(above[node], below[node]) for node in nodes])


def _through(
    results: Sequence[torch.Tensor], views: Sequence[View], behind: set[Any]
) -> tuple[list[list[int]], list[tuple[str, int, int | None]]]:
    makers: dict[Any, tuple[str, int, int | None]] = {}  # by edge
    for kind, index, view, whole in views:
        makers[view.grad_fn, view.output_nr] = kind, index, None
        for item in range(len(view.grad_fn._input_metadata)) if whole else ():  # type: ignore[union-attr]
            makers.setdefault((view.grad_fn, item), (kind, index, item))
    ends: dict[Any, int] = {}
    for number, one in enumerate(results):
        ends.setdefault((one.grad_fn, one.output_nr), number)
    roots = [result.grad_fn for result in results]
    shown: list[tuple[str, int, int | None]] = []
    through: list[list[int]] = []

    def show(edge: Any) -> None:
        if edge not in ends:
            ends[edge] = len(roots)
            roots.append(edge[0])
            shown.append(makers[edge])

    outputs = [edge for edge, (kind, _, item) in makers.items() if kind == "output" and item is None]
    while len(through) < len(roots) or outputs:  # of the results, of the views that are met on the way, and of the others
        if len(through) == len(roots):
            show(outputs.pop(0))
            continue
        met = _met_first(roots[len(through)], ends, makers, behind) if len(results) + len(views) > 1 else ()
        found = set()
        for edge in met:
            show(edge)
            found.add(ends[edge])
        through.append(sorted(found))
    return through, shown


def _met_first(root: Any, ends: Mapping[Any, int], makers: Mapping[Any, Any], behind: set[Any]) -> Iterator[tuple[Any, int]]:
    seen: set[Any] = set(behind)
    todo: list[Any] = [root]
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        for edge in node.next_functions:
            if edge in ends or edge in makers:
                yield edge
            elif edge[0] is not None:
                todo.append(edge[0])


def history_below(results: Sequence[torch.Tensor], inputs: Sequence[Any]) -> list[Any]:
    """The nodes between results and inputs (nodes themselves) that may keep values, in the order of `Keeping.nodes`."""
    return keeping_nodes(_users_first([result.grad_fn for result in results], set(inputs)))


def written_parts_last(results: Sequence[torch.Tensor], inputs: Sequence[Any]) -> None:
    """Of writes through views in a history that was made late: the node of what was written may itself be in the graph of a second
    order, where it gives up what it keeps. In eager the write runs before it, since what uses the results is younger.
    """
    for node in history_below(results, inputs):
        part = keeping_part(node)
        if part is not node:
            part._set_sequence_nr(0)  # what may run runs before it


def keeping_nodes(order: list[Any]) -> list[Any]:
    return [node for node in order if not _keeps_nothing(node.__class__)]


@functools.cache
def _keeps_nothing(node: type) -> bool:
    """Leaves, and nodes of torch's own that have nothing to keep."""
    own = issubclass(node, BackwardCFunction) or node.__name__ == "CopySlices"
    return not own and (node.__name__ == "AccumulateGrad" or _is_generated(node) and not saved_names(node))


@functools.cache
def _is_generated(node: type) -> bool:
    """Made from a formula: such a node shows all that it keeps."""
    return node.__name__.rstrip("0123456789").endswith("Backward") or node.__name__ == "CopyBackwards"


def _users_first(roots: Sequence[Any], behind: set[Any]) -> list[Any]:
    """The nodes below `roots`, but for `behind` and what only they lead to, each after all that use it."""
    found: set[Any] = set(behind)
    order: list[Any] = []
    for root in roots:
        if root in found:
            continue
        found.add(root)
        stack = [(root, iter(root.next_functions))]
        while stack:
            node, rest = stack[-1]
            for parent, _ in rest:
                if parent is not None and parent not in found:
                    found.add(parent)
                    stack.append((parent, iter(parent.next_functions)))
                    break
            else:
                order.append(node)
                stack.pop()
    return order[::-1]


def _keeps_values(node: Any) -> bool:
    """True if the node cannot run twice. Torch's own show what they keep; of writes to views it is hidden."""
    if node.name().endswith("CopySlices"):
        return True
    lists = not isinstance(node, BackwardCFunction)  # an empty list is given up too
    for name in saved_names(node.__class__):
        kept = getattr(node, f"_raw_{name}")
        if (lists or kept) if isinstance(kept, tuple) else getattr(node, f"_{name}") is not None:
            return True
    return False


def hides(node: Any) -> bool:
    """True if the node may keep what it does not show."""
    kind = keeping_part(node).__class__
    return issubclass(kind, BackwardCFunction) or not _is_generated(kind)


def keeping_part(node: Any) -> Any:
    """What keeps the values: of a write through a view the node of what was written, else the node itself."""
    written = _exec.written_part(node)
    return node if written is None else written


@functools.cache
def saved_names(node: type) -> tuple[str, ...]:
    return tuple([name.removeprefix("_raw_") for name in dir(node) if name.startswith("_raw_saved_")])
