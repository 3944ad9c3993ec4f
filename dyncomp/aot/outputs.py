"""How the results of a function that autograd goes through become the user's outputs.

The graph computes *raw* outputs: fresh memory, one tensor for each group of results that share memory, whole
where a result is a view of it. The user's outputs follow from those and from the inputs, under autograd, so that views stay views to it:

    def f(x):              raw:      y                       (a node of autograd is behind it)
        y = x * 2          outputs:  y[0]     = view of raw 0, differentiable
        return y[0], y.t()           y.t()    = another

Rules, one a user output:
    ("raw", k)            a raw output
    ("input", i)          the input object itself
    ("output", j)         the very object of an earlier output
    ("view", ("input", i) | ("raw", k) | ("output", j), sizes, strides, offset, differentiable, calls, stale, first)
                          alias; that of another output (or inner view, numbered after the outputs), a view too, where its history comes to that; `offset` counts from the base's own first element; where it is not
                          differentiable, autograd is told nothing of it; the numbers may be symbolic. `calls`: the program's own
                          views from the base, as (operator, overload, arguments after the base, which of several results or
                          None), so that gradients go through their formulas; () where they are not known. `stale`: the memory was written since autograd
                          knew the view, which makes a node of its own of it. `first`: the first output
                          that is another result of the last of them (itself, if this one is the first of several), or None
    ("number", n)         a number that follows from the sizes of the inputs
    ("const", value)      anything else
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

from dyncomp.aot.ends import Ends
from dyncomp.aot.errors import Unsupported
from dyncomp.aot.inner_views import inner_views
from dyncomp.aot.store import Store, ViewStep, track_of
from dyncomp.fake.tensor import FakeTensor, TensorMeta
from dyncomp.shape.layout import contiguous_strides, is_dense
from dyncomp.shape.symbolic import SYMBOLIC, numbers_in

Rule = tuple[Any, ...]

_PARTS = frozenset({"aten::select", "aten::slice", "aten::split", "aten::split_with_sizes", "aten::unbind", "aten::diagonal", "aten::unfold"})


@dataclasses.dataclass
class Outputs:
    """`differentiable[k]`: a gradient flows into raw output k. `inner`: rules of views that the program does not return, after its outputs."""

    raw: list[FakeTensor]
    differentiable: list[bool]
    rules: list[Rule]
    inner: list[Rule] = dataclasses.field(default_factory=list)

    def views(self) -> list[int]:
        """The outputs that are views with a gradient."""
        return [place for place, rule in enumerate(self.rules) if rule[0] == "view" and rule[5]]

    def are_scalars(self) -> list[bool]:
        """By raw output, whether all that the user gets of it is without dimensions."""
        found = [not fake.meta.shape for fake in self.raw]
        viewed: set[int] = set()
        for place in self.views():
            kind, number = base_of_view([*self.rules, *self.inner], place)
            if kind == "raw" and ("raw", number) not in self.rules:
                is_scalar = not self.rules[place][2]
                found[number] = is_scalar and (found[number] or number not in viewed)
                viewed.add(number)
        return found

    def metas(self) -> list[TensorMeta]:
        """What gradients of the raw outputs are laid out like: as these, but row-major where the user only gets parts, whose formulas make zeros."""
        metas = [fake.meta for fake in self.raw]
        calls: dict[int, list[Any]] = {}  # by raw output, what is called on it
        for rule in [*self.rules, *self.inner]:
            if rule[0] == "view" and rule[1][0] == "raw":
                calls.setdefault(rule[1][1], []).append(rule[6][0][0] if rule[6] else None)
        for number, names in calls.items():
            if ("raw", number) not in self.rules and _PARTS.issuperset(names):
                meta = metas[number]
                metas[number] = TensorMeta(meta.shape, contiguous_strides(meta.shape), meta.dtype, meta.device)
        return metas

    def has_siblings(self, place: int, view: Any) -> bool:
        """Whether the call that makes the output makes all results of the operation that it was one of."""
        calls = self.rules[place][6]
        return bool(calls) and calls[-1][3] == view.output_nr

    def by_age(self, results: list[Any], rebased: list[tuple[int, int]], ends: Ends) -> list[int]:
        """`Ends.order`: each view after what it is a view of."""
        asked = [k for k, yes in enumerate(self.differentiable) if yes]
        ages = {("raw", k): (self.raw[k].grad_fn._sequence_nr(), number) for number, k in enumerate(asked)}  # type: ignore[union-attr]
        ages.update({("input", index): ages["raw", k] for index, k in rebased})
        order = [ages["raw", k] for k in asked]
        for number, (kind, place, item) in enumerate(ends.shown, len(asked)):
            if kind == "output" and item is None:
                own = (results[place].grad_fn._sequence_nr(), number)
                order.append(max(own, (ages.get(base_of_view([*self.rules, *self.inner], place), own)[0], number)))
        return [number for _, number in sorted(order)]

    def add_written(self, inputs: list[Any], written: list[int]) -> list[tuple[int, int]]:
        """New values of inputs that autograd goes through: raw outputs more, as pairs (input, raw output)."""
        first = len(self.raw)
        self.raw += [inputs[index] for index in written]
        self.differentiable += [True] * len(written)
        return [(index, first + k) for k, index in enumerate(written)]


def base_of_view(rules: list[Rule], place: int) -> tuple[str, int]:
    """The raw output or input that an output which is a view comes from, by way of others."""
    base: tuple[str, int] = rules[place][1]
    while base[0] == "output":
        base = rules[base[1]][1]
    return base


def plan_outputs(inputs: list[Any], results: list[Any], roots: list[Any]) -> Outputs:
    """`roots`: as in `aot.sides`."""
    return _Planner(inputs, results, roots).run()


class _Planner:
    def __init__(self, inputs: list[Any], results: list[Any], roots: list[Any]):
        self.inputs, self.results, self.roots_of_inputs = inputs, results, roots
        self.input_index = {id(t): i for i, t in enumerate(inputs) if type(t) is FakeTensor}
        self.groups: dict[int, list[FakeTensor]] = {}
        self.roots: dict[int, int] = {}  # by store: the raw output
        self.plan = Outputs([], [], [])

    def run(self) -> Outputs:
        for value in self.results:
            if self._is_fresh(value):
                members = self.groups.setdefault(id(track_of(value).store), [])
                if all(value is not other for other in members):
                    members.append(value)
        seen: dict[int, int] = {}
        for position, value in enumerate(self.results):
            if isinstance(value, SYMBOLIC):
                rule: Rule = ("number", value)
            elif not isinstance(value, torch.Tensor):
                rule = ("const", value)
            elif id(value) in self.input_index:
                rule = ("input", self.input_index[id(value)])
            elif id(value) in seen:
                rule = ("output", seen[id(value)])
            else:
                rule = self._tensor_rule(value)
            seen.setdefault(id(value), position)
            self.plan.rules.append(rule)
        places = {(self.results[place].grad_fn, self.results[place].output_nr): place for place in self.plan.views()}
        if len(places) > 1:
            self._views_of_views(places)
            self._parts_of_one_call(places)
        if places:
            self.plan.inner = inner_views(self.plan.rules, self.results, self._base_for_inner)
        return self.plan

    def _views_of_views(self, places: dict[Any, int]) -> None:
        """`places`: the outputs that are views, by where their history begins."""
        rules, results = self.plan.rules, self.results
        bases = {place: _nearest(results[place], places) for place in places.values()}
        for place, base in bases.items():
            if base is not None and track_of(results[base]).store is track_of(results[place]).store:
                rules[place] = _view(("output", base), results[base], results[place])

    def _parts_of_one_call(self, places: dict[Any, int]) -> None:
        together: dict[Any, list[int]] = {}
        for place in places.values():
            name, calls = self.plan.rules[place][1], self.plan.rules[place][6]
            if calls and calls[-1][3] is not None:
                together.setdefault((self.results[place].grad_fn, name), []).append(place)
        for some in together.values():
            for place in some if len(some) > 1 else ():
                self.plan.rules[place] = (*self.plan.rules[place][:-1], some[0])

    def _base_for_inner(self, name: tuple[str, int]) -> Any:
        """What inner views may be made of: no input that is written, whose node from before the write they would have to know."""
        kind, number = name
        base = (self.plan.raw if kind == "raw" else self.inputs if kind == "input" else self.results)[number]
        store = track_of(base).store
        return None if store.input is not None and store.version else base

    def _is_fresh(self, value: Any) -> bool:
        if type(value) is not FakeTensor or id(value) in self.input_index:
            return False
        store = track_of(value).store
        return store.input is None and not store.frozen

    def _tensor_rule(self, value: Any) -> Rule:
        if type(value) is not FakeTensor:
            return ("const", value)
        _check_history(value)
        store = track_of(value).store
        if store.input is not None:
            return self._input_view(value, store.input)
        if store.frozen:
            if track_of(value).chain or value.requires_grad:
                raise Unsupported("an output that is a view of a constant")
            return ("const", store.value.args[0])
        return self._fresh(value, store)

    def _input_view(self, value: FakeTensor, index: int) -> Rule:
        base, root = self.inputs[index], self.roots_of_inputs[index]
        if value.requires_grad and _base_of(value) is not root:
            raise Unsupported("an output that aliases an input in a way that autograd does not know as a view")
        return _view(("input", index), base, value, root)

    def _fresh(self, value: FakeTensor, store: Store) -> Rule:
        number = self.roots.get(id(store))
        if number is None:
            root = _root(self.groups[id(store)], store)
            number = self.roots[id(store)] = len(self.plan.raw)
            self.plan.raw.append(root)
            self.plan.differentiable.append(root.requires_grad)
        root = self.plan.raw[number]
        if value is root:
            return ("raw", number)
        if not store.exact:
            raise Unsupported("outputs that share memory with gaps that was written in place")
        return _view(("raw", number), root, value)


def _root(members: list[FakeTensor], store: Store) -> FakeTensor:
    """The tensor of a group that the others are views of, as far as autograd is concerned."""
    asking = [m for m in members if m.requires_grad]
    if not asking:
        return next((m for m in members if not track_of(m).chain), members[0])
    root = _base_of(asking[0])
    if len(members) == 1:
        return root if root is members[0] or _can_stand_for(root, members[0], store) else members[0]
    _check_history(root)
    if any(_base_of(m) is not root for m in asking) or track_of(root).store is not store:
        raise Unsupported("outputs that share memory in a way that autograd does not know as views")
    return root


def _can_stand_for(base: FakeTensor, view: FakeTensor, store: Store) -> bool:
    """Whether a result that is a view can be made of its base as in eager, with no other result of that memory. Else it comes out as
    if it were none.
    """
    if track_of(base).store is not store or not store.exact or not is_dense(base.meta.shape, base.meta.strides):
        return False
    if any(step.op is torch.ops.aten.as_strided.default for step in track_of(view).chain):
        return False  # it may look beyond the memory, and what raises does so before anything is written
    return base.grad_fn is not None and _why_no_view(base, view) is None


def _base_of(value: FakeTensor) -> Any:
    return value._base if value._is_view() and value._base is not None else value


def _check_history(value: FakeTensor) -> None:
    if value.requires_grad and value.grad_fn is None:
        raise Unsupported(
            "an output that requires grad and has no history: a leaf made inside, or a view under no_grad"
        )


def _view(name: tuple[str, int], base: FakeTensor, value: FakeTensor, root: FakeTensor | None = None) -> Rule:
    """`root`: what the base is a view of, if that is another: where it was written since, the history leads there at once."""
    reason = _why_no_view(base, value)
    if reason is not None and root is not None and root is not base:
        reason = _why_no_view(root, value)
    if reason is not None:
        raise Unsupported(reason)
    meta = value.meta
    calls = _calls(track_of(base).chain, track_of(value).chain) if value.requires_grad else ()
    stale = bool(calls) and track_of(value).writes.count > track_of(value).born
    return ("view", name, meta.shape, meta.strides, meta.offset - base.meta.offset, value.requires_grad, calls, stale, None)


def _why_no_view(base: FakeTensor, value: FakeTensor) -> str | None:
    """Why there is no rule for a view; None where there is."""
    if value.meta.dtype != base.meta.dtype and not (value.requires_grad and _calls(track_of(base).chain, track_of(value).chain)):
        return "an output that aliases memory under another dtype"
    if value.requires_grad and not _leads_to(value, base):
        return "an output that is a view of a view made under no_grad, which cuts its history"
    if value.requires_grad and _has_custom_backward(value, base):
        return "an output that is a view with the backward of a custom function"
    return None


def _nearest(value: FakeTensor, places: dict[Any, int]) -> int | None:
    """The output that a view was made of, by way of views."""
    node = value.grad_fn
    while node is not None and len(node.next_functions) == 1:
        edge = node.next_functions[0]
        if edge in places:
            return places[edge]
        node = edge[0]
    return None


def _leads_to(value: FakeTensor, base: FakeTensor) -> bool:
    """Whether a backward from the view comes to its base. To autograd it is a view of the base also where it is not."""
    todo: list[Any] = [value.grad_fn]
    seen = set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        if node is base.grad_fn or base.is_leaf and getattr(node, "variable", None) is base:
            return True
        seen.add(node)
        todo += [one for one, _ in node.next_functions]
    return False


def _has_custom_backward(value: FakeTensor, base: FakeTensor) -> bool:
    """Whether a custom function made the view, or a view that it was made of: its history is more than formulas of views."""
    node = value.grad_fn
    while node is not None and node is not base.grad_fn and len(node.next_functions) == 1:
        if isinstance(node, BackwardCFunction):
            return True
        node = node.next_functions[0][0]
    return isinstance(node, BackwardCFunction) and node is not base.grad_fn


def _calls(base: tuple[ViewStep, ...], chain: tuple[ViewStep, ...]) -> tuple[Any, ...]:
    """The views that lead from one chain to a longer one; numbers among their arguments may vary."""
    steps = chain[len(base) :]
    if any(a is not b for a, b in zip(base, chain, strict=False)) or len(chain) <= len(base):
        return ()
    if any(step.kwargs or not all(isinstance(n, torch.SymInt) for n in numbers_in([step.args])) for step in steps):
        return ()
    return tuple([(step.op._schema.name, step.op._schema.overload_name, step.args, step.item) for step in steps])
