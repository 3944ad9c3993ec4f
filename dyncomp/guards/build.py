"""Turns guard records and capture sources into the native guard tree.

    records   type(L['self']) is Net;  L['self'].training == False;  tensor_spec(L['x']) == ...
    captures  L['x'], L['self'].weight
    ->
    nodes     0: (-1, local, 1, [tensor])                  cheap and most likely to fail: first
              1: (-1, local, 0, [type])
              2: ( 1, instance_dict, None, [])             common prefixes are shared
              3: ( 2, dict_item, 'training', [equals])
              4: ( 2, dict_item, '_parameters', [])   5: (4, dict_item, 'weight', [])
    captures  [0, 5]

A node stands after its parent, and a node's checks run before its children are reached, so a parent's type
check protects the accesses below it. A relation between two nodes sits on the later of the two.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterable, Sequence
from typing import Any

from dyncomp._frame import _core
from dyncomp.guards.fold import fold_empty_dicts
from dyncomp.guards.record import RELATIONS, GuardRecord
from dyncomp.guards.source import Const, Func, Local, Source
from dyncomp.shape.int_program import Program

Check = tuple[str, Any]

# The order of the checks of one node: what is cheap or implied by nothing else first.
_CHECK_ORDER = {
    kind: place
    for place, kind in enumerate(
        ("id", "type", "equals", "truth", "empty", "len", "range", "tensor", "class_attrs", "type_attrs", "dict_keys",
        "no_item", "item_if_any", "empty_items",
         "same_as", "not_same_as")
    )
}  # fmt: skip
# A fact that holds whenever another fact on the same value holds is not checked again.
_IMPLIES = {
    "id": {"type"},
    "equals": {"type", "truth", "range"},
    "tensor": {"type"},
    "dict_keys": {"len", "empty", "no_item"},
    "len": {"empty"},
}


@dataclasses.dataclass
class TreeNode:
    source: Source
    parent: int
    checks: list[Check]

    def row(self) -> tuple[int, str, Any, list[Check]]:
        return self.parent, self.source.access, self.source.arg, self.checks


@dataclasses.dataclass
class TreePlan:
    """The tree as plain data. `nodes[i].source` tells explain what node i is."""

    nodes: list[TreeNode]
    captures: list[int]

    def places(self) -> tuple[Source, ...]:
        """What each node is, for the words about a failed check."""
        return tuple([node.source for node in self.nodes])

    def index(self, source: Source) -> int:
        return next(i for i, node in enumerate(self.nodes) if node.source == source)


def build_tree(records: Iterable[GuardRecord], captures: Sequence[Source], state: Any = None) -> Any:
    """The `_core.GuardTree` of these facts; `state` defaults to the global state now."""
    return native(plan(records, captures), state)


def native(tree: TreePlan, state: Any = None) -> Any:
    """The `_core.GuardTree` of a plan; `state` defaults to the global state now."""
    return _core.GuardTree(
        [node.row() for node in tree.nodes], tree.captures, _core.global_state() if state is None else state
    )


def plan(records: Iterable[GuardRecord], captures: Sequence[Source]) -> TreePlan:
    facts: dict[Source, list[GuardRecord]] = {}
    relations: list[GuardRecord] = []
    for record in records:
        (relations if record.kind in RELATIONS else facts.setdefault(record.source, [])).append(record)
    needed = [*captures]
    for relation in relations:
        needed += [relation.source, *relation.related()]
    folded = fold_empty_dicts(facts, needed)
    roots = [*facts, *folded, *needed]
    order = _order(roots, facts)
    place = {source: i for i, source in enumerate(order)}
    nodes = [
        TreeNode(
            source,
            -1 if source.base is None else place[source.base],
            _checks(facts.get(source, ()), folded.get(source, ())),
        )
        for source in order
    ]
    for relation in relations:
        if relation.kind == "int_program":
            _add_program(nodes, place, relation.payload)
            continue
        if relation.kind == "distinct":
            _add_distinct(nodes, place, *relation.payload)
            continue
        early, late = sorted((place[relation.source], place[relation.payload]))
        if early != late:
            nodes[late].checks.append((relation.kind, early))
    return TreePlan(nodes, [place[source] for source in captures])


def _add_program(nodes: list[TreeNode], place: dict[Source, int], program: Program) -> None:
    """A program over the numbers of several nodes sits on the last of them."""
    inputs = tuple([(place[number.source], number.what, number.dim) for number in program.inputs])
    last = max(index for index, _, _ in inputs)
    nodes[last].checks.append(("int_program", (inputs, program.code, program.texts)))


def _add_distinct(
    nodes: list[TreeNode], place: dict[Source, int], groups: tuple[tuple[Source, ...], ...], others: tuple[Source, ...]
) -> None:
    """Sits on the last of its nodes; a node counts where it first stands."""
    seen: set[int] = set()

    def fresh(sources: tuple[Source, ...]) -> tuple[int, ...]:
        numbers = dict.fromkeys(place[source] for source in sources)
        found = tuple([number for number in numbers if number not in seen])
        seen.update(found)
        return found

    apart = tuple([numbers for group in groups if (numbers := fresh(group))])
    payload = apart, fresh(others)
    if len(seen) > 1:
        nodes[max(seen)].checks.append(("distinct", payload))


def _order(sources: Iterable[Source], facts: dict[Source, list[GuardRecord]]) -> list[Source]:
    """Parents before children, and of what is ready the node that fails soonest and costs least first."""
    children: dict[Source | None, list[Source]] = {}
    seen: set[Source] = set()
    for source in sources:
        for link in source.chain():
            if link in seen:
                break
            seen.add(link)
            children.setdefault(link.base, []).append(link)
    order: list[Source] = []
    ready: list[tuple[int, int, Source]] = []
    ticket = 0

    def push(parent: Source | None) -> None:
        nonlocal ticket
        for child in children.get(parent, ()):
            heapq.heappush(ready, (_urgency(child, facts), ticket, child))
            ticket += 1

    push(None)
    while ready:
        source = heapq.heappop(ready)[2]
        order.append(source)
        push(source)
    return order


def _urgency(source: Source, facts: dict[Source, list[GuardRecord]]) -> int:
    """Lower is earlier: arguments, then what hangs on them, then the world of the function, then held
    objects.
    """
    if isinstance(source, Local):
        return 0 if source in facts else 1
    depth = min(source.depth, 8)
    if isinstance(source.root, Local):
        return 1 + depth
    return (20 if isinstance(source.root, Func) else 40 if isinstance(source.root, Const) else 30) + depth


def _checks(records: Iterable[GuardRecord], empty: Sequence[tuple[str, type]] = ()) -> list[Check]:
    """The checks of one node: merged, implied ones dropped, cheapest first. `empty`: entries that are empty dicts."""
    kinds: dict[str, Any] = {}
    attributes: dict[str, dict[str, Any]] = {}
    absent: dict[Any, None] = {}
    ranges: list[Check] = []
    for record in records:
        value = record.expected()
        if record.kind in ("class_attrs", "type_attrs"):
            attributes.setdefault(record.kind, {}).update(value)
        elif record.kind == "no_item":
            absent.update(dict.fromkeys(value))
        elif record.kind in ("range", "item_if_any"):
            ranges.append((record.kind, value))
        else:
            kinds.setdefault(record.kind, value)
    for kind, pairs in attributes.items():
        kinds[kind] = tuple(pairs.items())
    if absent:
        kinds["no_item"] = tuple(absent)
    if empty:
        kinds["empty_items"] = tuple(empty)
    implied = set().union(*(_IMPLIES.get(kind, ()) for kind in kinds))
    checks = [(kind, value) for kind, value in [*kinds.items(), *ranges] if kind not in implied]
    return sorted(checks, key=lambda check: _CHECK_ORDER[check[0]])
