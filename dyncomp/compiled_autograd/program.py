"""The backward of one structure, written as a Python function.

    def backward(g0, n0_k0, n1_k0, n1_k1, n2_leaf, n3_leaf, n2_h0, n2_t0):
        b0_0 = g0
        r0 = node0(b0_0, n0_k0)                        SumBackward0
        b1_0 = r0[0]
        r1 = node1(b1_0, n1_k0, n1_k1)                 MulBackward0
        b2_0 = r1[0]
        b3_0 = r1[1]
        b2_0 = tensor_hooks(present(n2_h0, n2_t0, 0), b2_0)
        accumulate(n2_leaf, b2_0)
        accumulate(n3_leaf, b3_0)

One statement an action of the engine, in its order. As plain Python the function does what the engine does; compiled it is one
graph, unless a hook or a node breaks it.
"""

from __future__ import annotations

import dataclasses
import itertools
import linecache
import types
import weakref
from collections.abc import Callable
from typing import Any

from dyncomp.compiled_autograd import steps
from dyncomp.compiled_autograd.formula import Formula
from dyncomp.compiled_autograd.live_hooks import present, retained

_HELPERS = ("tensor_hooks", "pre_hooks", "post_hooks", "accumulated_hooks", "joined", "accumulate")
_numbers = itertools.count()


@dataclasses.dataclass
class Structure:
    """`roots` and `nodes` as `_exec.backward_walk` details them; `kinds` a letter a node; `kept`: by node how many arguments it
    has besides its gradients; `leaf_order(node, which gradients come in)`: for compiled code, in which order eager would come to
    the leaves that follow it (its results). Compiled code gives all its results at once, operations one after the other.
    `captures`: (node, input) of the gradients that were asked for, which the function returns.
    """

    roots: list[tuple[int, int]]
    nodes: list[tuple[Any, ...]]
    kinds: str
    kept: list[int]
    leaf_order: Callable[[int, tuple[bool, ...]], list[int]]
    captures: list[tuple[int, int]] = dataclasses.field(default_factory=list)

    def retained_at_end(self) -> list[tuple[int, int]]:
        """(node, input) of gradients that results keep, where it makes no difference that they get them at the end: no Python
        code runs before. Else an empty list: they get them in their turn.
        """
        found = [(n, place) for n, (_, _, slots) in enumerate(self.nodes) for what, place in slots if what == "k"]
        others = any(what != "k" for _, _, slots in self.nodes for what, _ in slots)
        return [] if others or "p" in self.kinds else found


def write(structure: Structure) -> types.FunctionType:
    """The function, which takes the gradients of the roots, by node what it keeps, then tuples and dicts of hooks."""
    writer = _Writer(structure)
    text = writer.text()
    filename = f"<dyncomp backward {next(_numbers)}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    namespace: dict[str, Any] = {name: getattr(steps, name) for name in _HELPERS}
    namespace.update(writer.formulas, present=present, retained=retained)
    namespace["__name__"] = __name__ + ".written"
    exec(compile(text, filename, "exec"), namespace)
    function: types.FunctionType = namespace["backward"]
    weakref.finalize(function, linecache.cache.pop, filename, None)
    return function


class _Writer:
    def __init__(self, structure: Structure):
        self.structure = structure
        self.formulas: dict[str, Formula] = {}
        self.lines: list[str] = []
        self.known: set[str] = set()  # gradients that have a value
        # In the order of the nodes, whatever order they are written in.
        self.hooks = [[(f"n{n}_h{i}", f"n{n}_t{i}") for i in range(len(slots))] for n, (_, _, slots) in enumerate(structure.nodes)]
        self.kept_gradients = structure.retained_at_end()
        places = itertools.count(0, 2)
        self.places = [[next(places) for _ in pairs] for pairs in self.hooks]

    def text(self) -> str:
        structure = self.structure
        heads = [f"g{i}" for i in range(len(structure.roots))]
        kept = [name for n in range(len(structure.nodes)) for name in self._kept(n)]
        for name, (node, place) in zip(heads, structure.roots, strict=True):
            if node >= 0:  # else nothing that is wanted lies below
                self._arrive(node, place, name)
        n = 0
        while n < len(structure.nodes):
            self._node(n)
            n += 1
            if structure.kinds[n - 1] == "c":
                for leaf in (leaves := self._leaves_after(n - 1)):
                    self._node(leaf)
                n += len(leaves)
        hooks = [name for pairs in self.hooks for pair in pairs for name in pair]
        found = [f"c{i}" if f"c{i}" in self.known else "None" for i in range(len(structure.captures))]
        found += [f"k{n}_{place}" if f"k{n}_{place}" in self.known else "None" for n, place in self.kept_gradients]
        self.lines.append(f"return {_tuple(found)}")
        return "".join(
            [
                f"def backward({', '.join([*heads, *kept, *hooks])}):\n",
                *(f"    {line}\n" for line in self.lines),
            ]
        )

    def _leaves_after(self, n: int) -> list[int]:
        """The leaves that are complete once compiled code has run (they come before all other nodes), in eager's order."""
        nodes, kinds = self.structure.nodes, self.structure.kinds
        end = n + 1
        while end < len(nodes) and kinds[end] == "a":
            end += 1
        inputs, edges, _ = nodes[n]
        order = self.structure.leaf_order(n, tuple([f"b{n}_{i}" in self.known for i in range(len(inputs))]))
        place = {edges[result][0]: rank for rank, result in enumerate(order)}
        return sorted(range(n + 1, end), key=lambda leaf: place.get(leaf, len(order)))

    def _kept(self, n: int) -> list[str]:
        return [f"n{n}_k{i}" for i in range(self.structure.kept[n])]

    def _arrive(self, node: int, place: int, value: str) -> None:
        name = f"b{node}_{place}"
        if name in self.known:
            value = f"joined({name}, {value})"
        self.known.add(name)
        self.lines.append(f"{name} = {value}")

    def _node(self, n: int) -> None:
        inputs, edges, slots = self.structure.nodes[n]
        kind = self.structure.kinds[n]
        names = [f"b{n}_{i}" for i in range(len(inputs))]
        for name in names:
            if name not in self.known:
                self.lines.append(f"{name} = None")
        found = zip(slots, self.hooks[n], self.places[n], strict=True)
        hooks = [(what, i, f"present({', '.join(names)}, {place})") for (what, i), names, place in found]
        if kind == "x":  # what comes to it was asked for, hooks on it included, and it does not run itself
            self._tensor_hooks(n, hooks, names)
            self._capture(n, names)
            return
        self._capture(n, names)
        self._before(n, hooks, names)
        result = f"r{n}"
        if kind == "a":
            self.lines.append(f"accumulate(n{n}_k0, {names[0]})")
            for what, _, hook in hooks:
                if what == "g":
                    self.lines.append(f"accumulated_hooks({hook}, n{n}_k0)")
            result = "()"
        elif kind == "r":
            self.lines.append(f"{result} = {_tuple(names)}")
        else:
            formula = f"node{n}"
            self.formulas[formula] = Formula(n, kind, len(inputs))
            self.lines.append(f"{result} = {formula}({', '.join([*names, *self._kept(n)])})")
        for what, _, hook in hooks:
            if what == "z":
                given = f"{_tuple(names)}"
                self.lines.append(f"r{n} = post_hooks({hook}, {result}, {given})")
                result = f"r{n}"
        for i, (node, place) in enumerate(edges):
            if node >= 0:
                self._arrive(node, place, f"{result}[{i}]")
        if names:
            self.lines.append(f"del {', '.join(names)}{', ' + result if result != '()' else ''}")

    def _capture(self, n: int, names: list[str]) -> None:
        for i, (node, place) in enumerate(self.structure.captures):
            if node == n:
                self.known.add(f"c{i}")
                self.lines.append(f"c{i} = {names[place]}")

    def _before(self, n: int, hooks: list[tuple[str, int, str]], names: list[str]) -> None:
        self._tensor_hooks(n, hooks, names)
        for what, _, hook in hooks:
            if what == "b":
                self.lines.append(f"{', '.join(names)}, = pre_hooks({hook}, {_tuple(names)})")

    def _tensor_hooks(self, n: int, hooks: list[tuple[str, int, str]], names: list[str]) -> None:
        for what, place, hook in hooks:
            if what == "t":
                self.lines.append(f"{names[place]} = tensor_hooks({hook}, {names[place]})")
        for what, place, _ in hooks:
            if what != "k" or names[place] not in self.known:
                continue
            if (n, place) in self.kept_gradients:
                self.known.add(f"k{n}_{place}")
                self.lines.append(f"k{n}_{place} = {names[place]}")
            else:
                self.lines.append(f"retained({n}, {place}, {names[place]})")


def _tuple(names: list[str]) -> str:
    return f"({', '.join(names)},)" if names else "()"
