"""Views that results are made of and that the program does not return, where autograd's nodes tell: several results are made of one, or
its memory was written before the next view was made of it, which gives it another node.

    t = h.t()                   t[0]:   view of output 2
    return t[0], t[1]           t[1]:   view of output 2
                                inner:  view of raw 0

Inner views are made once and numbered after the outputs. Where one operation makes several views, all that are made of one of them share its call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dyncomp.aot.store import track_of

Rule = tuple[Any, ...]
Edge = tuple[Any, int]


def inner_views(rules: list[Rule], results: list[Any], base_of: Callable[[Any], Any]) -> list[Rule]:
    """The rules of the inner views; those of the results made of them are changed. `base_of`: the tensor that a rule names,
    or None for one that there are no inner views of.
    """
    paths: dict[int, list[Edge]] = {}  # by output: the views that lead to it, its own last
    for place, rule in enumerate(rules):
        if rule[0] == "view" and rule[5] and rule[6]:
            base = base_of(rule[1])
            edges = None if base is None else _edges(results[place], base, len(rule[6]))
            if edges is not None:
                paths[place] = edges
    stale = {edge for place, edges in paths.items() for edge in _written_between(results[place], edges)}
    inner = _inner(list(paths.values()), stale)
    if not inner:
        return []
    numbers = {edge: len(rules) + k for k, edge in enumerate(inner)}
    made: dict[int, tuple[Rule, list[Edge]]] = {}
    for place, edges in paths.items():
        for count, edge in enumerate(edges[:-1], 1):
            if edge in numbers:
                rule = _rule(rules[place], edges[:count], numbers)
                made.setdefault(numbers[edge], (("view", rule[1], (), (), 0, True, rule[6], edge in stale, None), edges[:count]))
        made[place] = _rule(rules[place], edges, numbers), edges
    _join_calls(made)
    for place in paths:
        rules[place] = made[place][0]
    return [made[number][0] for number in numbers.values()]


def _edges(value: Any, base: Any, count: int) -> list[Edge] | None:
    """Where the history of a view comes to the `count` views from its base, from the base on; None if it is another history."""
    edges: list[Edge] = [(value.grad_fn, value.output_nr)]
    while len(edges) <= count:
        node = edges[-1][0]
        if node is None or len(node.next_functions) != 1:
            return None
        edges.append(node.next_functions[0])
    node, number = edges.pop()
    if node is None or (node, number) != (base.grad_fn, base.output_nr) and getattr(node, "variable", None) is not base:
        return None
    return edges[::-1]


def _written_between(value: Any, edges: list[Edge]) -> list[Edge]:
    """Of the views that one is made of, those whose memory was written before the next one was made."""
    ages = track_of(value).ages[-len(edges) :]
    return [edge for edge, made, used in zip(edges, ages, ages[1:], strict=False) if made < used]


def _inner(paths: list[list[Edge]], stale: set[Edge]) -> list[Edge]:
    """What several views are made of, or comes of an operation that makes several of them, or is `stale`; each after what it is made of."""
    after: dict[Edge, set[Any]] = {}  # by view: the nodes of views of it
    used: dict[Any, set[int]] = {}  # by node: which of its results
    for edges in paths:
        for edge, (node, _) in zip(edges, edges[1:], strict=False):
            after.setdefault(edge, set()).add(node)
        for node, number in edges:
            used.setdefault(node, set()).add(number)
    results = {edges[-1] for edges in paths}
    return [edge for edge, nodes in after.items() if edge not in results and (len(nodes) > 1 or len(used[edge[0]]) > 1 or edge in stale)]


def _rule(rule: Rule, edges: list[Edge], numbers: dict[Edge, int]) -> Rule:
    """From the nearest inner view on."""
    start = max([count for count, edge in enumerate(edges[:-1], 1) if edge in numbers], default=0)
    kind, base, *layout = rule[:6]  # the layout is for views without calls
    return (kind, ("output", numbers[edges[start - 1]]) if start else base, *layout, rule[6][start : len(edges)], rule[7], None)


def _join_calls(made: dict[int, tuple[Rule, list[Edge]]]) -> None:
    together: dict[Any, list[int]] = {}
    for number, (rule, edges) in made.items():
        if rule[6][-1][3] is not None:
            together.setdefault((edges[-1][0], rule[1]), []).append(number)
    for some in together.values():
        for number in some if len(some) > 1 else ():
            rule, edges = made[number]
            made[number] = (*rule[:-1], min(some)), edges
