"""A call of a training plan once more, under eager's autograd: for gradients of gradients, and for backwards that are not compiled.

    Rerun(joint, state).run(inputs, gradients, ...)      ->      gradients of the inputs, the raw outputs in the new history
    Rerun(joint, state).cut(inputs, ...)                 ->      the same in parts, from each result to those that it is made of
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from dyncomp import aot, counters
from dyncomp._frame import _core, _exec
from dyncomp.aot.interpret import state_restored
from dyncomp.context import COMPILE_LOCK
from dyncomp.fake.levels import put_aside
from dyncomp.fake.tensor import TensorMeta
from dyncomp.shape.symbolic import numbers_in
from dyncomp.values.node_by_node import node_by_node
from dyncomp.values.saved_state import SavedState

Kept = tuple[tuple[int, ...], tuple[Any, ...], tuple[int, ...]]  # stand-ins among the inputs, saved values (None: gone), used keepers


class _Before(torch.autograd.Function):
    """Zeros of these sizes, with the history behind a tensor of others: gradients go there as they are."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, meta: TensorMeta) -> torch.Tensor:
        return torch.empty_strided(meta.shape, meta.strides, dtype=meta.dtype, device=meta.device).zero_()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient, None


class Rerun:
    """`state`: torch's own when the forward was compiled."""

    def __init__(self, joint: aot.JointGraph, state: SavedState):
        self.joint, self.state = joint, state

    def run(
        self,
        inputs: tuple[Any, ...],
        tangents: tuple[Any, ...],
        generator_state: Any,
        create_graph: bool,
        retain: bool,
        wanted: tuple[bool, ...],
        kept: Kept | None,
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Gradients by eager's autograd through the torch-level graph, which runs once more; and the differentiable raw outputs in
        that graph (None: not known). `kept`: what is left of the call where it runs on other inputs.
        """
        counters.add_fallback("double-backward-eager" if create_graph else "backward-eager")
        raw, views, sought = self._history(inputs, generator_state, create_graph, kept)
        outputs, given = zip(*[(one, t) for one, t in zip(raw, tangents, strict=True) if t is not None], strict=True)
        run = torch.autograd.Variable._execution_engine.run_backward
        places = [place for place, yes in enumerate(wanted) if yes]
        gradients: list[Any] = [None] * len(wanted)
        edges = tuple(sought[place] for place in places)
        found = run(outputs, given, retain, create_graph, edges, True, accumulate_grad=False)
        for place, gradient in zip(places, found, strict=True):
            gradients[place] = gradient
        return tuple(gradients), (*raw, *views)

    def _history(
        self, inputs: tuple[Any, ...], generator_state: Any, create_graph: bool, kept: Kept | None
    ) -> tuple[tuple[Any, ...], list[Any], list[Any]]:
        """The differentiable raw outputs with eager's history, the views of `Ends.shown`, and where the history comes to the inputs."""
        joint = self.joint
        if kept is not None and not joint.shows:
            _check_unchanged(joint, kept[0])
        if generator_state is None and joint.random:
            generator_state = torch.get_rng_state()  # what was drawn is among what is kept
        with put_aside(), torch.enable_grad(), _generator_at(generator_state), state_restored(), self.state.as_then():
            torch.autocast_increment_nesting()  # a block of its own: weights that are cast for it are forgotten after it
            again, bases, after = self._aliases(inputs, create_graph, kept[0] if kept is not None else ())
            self._cast_as_then(again)
            sides = list(zip(joint.requiring, joint.sides, strict=True))
            places = [bases if side == "base" else again for _, side in sides]
            sought = [get_gradient_edge(tensors[index]) for tensors, (index, _) in zip(places, sides, strict=True)]
            count = len(again) - len(joint.casts)
            results = node_by_node(joint.gm)(*again[:count])
            results = results if isinstance(results, tuple | list) else (results,)
            for place, (index, side) in enumerate(sides):
                if side == "after":
                    sought[place] = get_gradient_edge(again[index])
                    _exec.lead_on(again[index], after[index] if create_graph else None)
        behind = [edge.node for edge in sought]
        asked = [k for k, yes in enumerate(joint.differentiable) if yes]
        moved = {number: bases.get(index, again[index]) for index, number in joint.rebased}
        raw = tuple(moved[k] if k in moved else self._raw(results, k) for k in asked)
        if kept is not None and joint.shows:
            missing, saved, used = kept
            written = {index for index, _ in joint.forward.mutations} - set(joint.originals) if not joint.repeatable else set()
            with COMPILE_LOCK, torch.no_grad():
                aot.put_right(joint, [one for one in raw if one is not None], behind, inputs[: len(joint.fakes)], {*missing, *written}, saved, used)
        if create_graph:
            aot.written_parts_last([one for one in raw if one is not None], behind)
        return raw, [(results if kind == "output" else again)[index] for kind, index, _ in joint.ends.shown], sought

    def cut(self, inputs: tuple[Any, ...], generator_state: Any, create_graph: bool, kept: Kept | None) -> tuple[Any, Any, tuple[Any, ...], Any]:
        """How gradients go on where each result hands them to the results and views that it is made of:
        (position of a result, its gradient) -> gradients of those in `Ends.through`, and
        (gradients of the results, which inputs are wanted) -> gradients of the inputs, past no other result;
        the raw outputs and views in that history; and () -> None, after which it is whole.
        """
        counters.add_fallback("backward-by-results-eager")
        raw, views, sought = self._history(inputs, generator_state, create_graph, kept)
        items = [item for *_, item in self.joint.ends.shown]
        shown = [GradientEdge(view.grad_fn, view.output_nr if item is None else item) for view, item in zip(views, items, strict=True)]
        parts = _Parts(raw, shown, sought, self.joint.ends, create_graph)
        calls = [_core.without_hook(one) for one in (parts.to_results, parts.to_inputs, parts.close)]
        return calls[0], calls[1], (*raw, *views), calls[2]

    def _aliases(self, inputs: tuple[Any, ...], create_graph: bool, missing: tuple[int, ...]) -> tuple[list[Any], dict[int, Any], dict[int, Any]]:
        """Stand-ins for the inputs whose gradients can be asked for, and whose writes nobody sees; and for those that are views
        (`aot.sides`) by input what stands for their bases, and what leads to their nodes of after the call. `inputs`: after the
        inputs two more for each view, which lead to its base and to its node of after the call.
        """
        count, viewed = len(self.joint.fakes), self.joint.viewed
        parts, after = dict(zip(viewed, inputs[count::2], strict=True)), dict(zip(viewed, inputs[count + 1 :: 2], strict=True))
        inputs = inputs[:count]
        bases: dict[int, Any] = {}
        written = {index for index, _ in self.joint.forward.mutations}
        moved = {index for index, _ in self.joint.rebased}
        reached = functools.reduce(operator.or_, self.joint.ends.reach, 0)
        # Gradients go to their casts alone.
        weights = {index for index, _ in self.joint.casts if not reached >> self.joint.requiring.index(index) & 1}
        again = []
        for index, tensor in enumerate(inputs):
            if not isinstance(tensor, torch.Tensor):  # a number
                again.append(tensor)
                continue
            tensor = self._as_it_came(index, tensor, index in missing)
            if index in self.joint.requiring and not tensor.requires_grad:  # it was detached in place since
                tensor = tensor.detach().requires_grad_()
            if index in parts:
                part, last = [self._as_it_came(index, one[index], index in missing) for one in (parts, after)]
                bases[index], tensor = _as_view(tensor, part)
                after[index] = last.view_as(last)
            elif index in moved:
                with torch.enable_grad():
                    tensor = _copy(tensor)  # no view: what is written to it is not to be told of another
            elif index in written:
                given = tensor if create_graph else tensor.detach()
                tensor = _copy(given).requires_grad_(tensor.requires_grad)
            elif create_graph and tensor.requires_grad and index not in weights:
                tensor = tensor.view_as(tensor)
            else:
                tensor = tensor.detach().requires_grad_(tensor.requires_grad)
            again.append(tensor)
        return again, bases, after

    def _as_it_came(self, index: int, tensor: torch.Tensor, stands_in: bool) -> torch.Tensor:
        """An input that the program has given other sizes in place since (`unsqueeze_`), with those that it had. What stands in for one
        leads to its history from before that.
        """
        meta = self.joint.fakes[index].meta
        if next(numbers_in([meta.shape, meta.strides]), None) is not None or tensor.layout is not torch.strided:
            return tensor
        steps = zip(tensor.shape, tensor.stride(), meta.strides, strict=False)
        same = tensor.shape == meta.shape and all(size < 2 or now == then for size, now, then in steps)
        if same:
            return tensor
        return _Before.apply(tensor, meta) if stands_in else tensor.as_strided(meta.shape, meta.strides)  # type: ignore[no-untyped-call, no-any-return]

    def _cast_as_then(self, again: list[Any]) -> None:
        """Weights are not cast once more: the casts that came in are what autocast has in its cache for the stand-ins."""
        casts = self.joint.casts
        for place, (index, _) in enumerate(casts, len(again) - len(casts)):
            if not again[index].requires_grad or not again[index].is_leaf:
                continue  # not cached; or cast once more in its own history, and gradients are summed there
            cast = torch.empty_like(again[place], requires_grad=False)
            aot.remember(again[index], cast)
            again[place] = cast.copy_(again[place])  # its history, where it has one

    def _raw(self, results: Any, number: int) -> Any:
        """A raw output among the results: itself, or what one of them is a view of."""
        rules = self.joint.outputs
        if ("raw", number) in rules:
            return results[rules.index(("raw", number))]
        for place, (result, rule) in enumerate(zip(results, rules, strict=True)):
            if rule[0] == "view" and rule[5] and aot.base_of_view([*rules, *self.joint.inner], place) == ("raw", number):
                return result._base
        raise RuntimeError("dyncomp: an output without a gradient was asked for one")


class _Parts:
    """A history of eager's that ends at results, and at the views that are `shown`, for all gradients but their own."""

    def __init__(self, raw: tuple[Any, ...], shown: list[GradientEdge], sought: list[Any], ends: aot.Ends, create_graph: bool):
        self.raw, self.sought, self.through, self.create_graph = raw, sought, ends.through, create_graph
        self.youngest_first = [place for place in reversed(ends.order) if place < len(raw)]  # as gradients come in, in eager
        met = {place for others in ends.through for place in others}
        self.ends = {place: get_gradient_edge(raw[place]) if place < len(raw) else shown[place - len(raw)] for place in met}
        self.root: Any = None
        self.stops = [edge.node.register_prehook(functools.partial(self._stop, place)) for place, edge in self.ends.items()]

    def close(self) -> None:
        for one in self.stops:
            one.remove()

    def _stop(self, place: int, gradients: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """What comes to a result inside is handed to its own node by who asked."""
        if place == self.root:
            return None
        return tuple([None if number == self.ends[place].output_nr else one for number, one in enumerate(gradients)])

    def _run(self, place: int, gradient: Any, edges: tuple[Any, ...]) -> tuple[Any, ...]:
        self.root = place
        run = torch.autograd.Variable._execution_engine.run_backward
        return run((self.raw[place],), (gradient,), True, self.create_graph, edges, True, accumulate_grad=False)  # type: ignore[no-any-return]

    def to_results(self, place: int, gradient: Any) -> tuple[Any, ...]:
        return self._run(place, gradient, tuple([self.ends[other] for other in self.through[place]]))

    def to_inputs(self, gradients: tuple[Any, ...], wanted: tuple[bool, ...]) -> tuple[Any, ...]:
        places = [place for place, yes in enumerate(wanted) if yes]
        results: list[Any] = [None] * len(wanted)
        for number in self.youngest_first if places else ():
            gradient = gradients[number]
            if gradient is None:
                continue
            found = self._run(number, gradient, tuple([self.sought[place] for place in places]))
            for place, one in zip(places, found, strict=True):
                if one is not None:
                    results[place] = one if results[place] is None else results[place] + one
        return tuple(results)


def _as_view(tensor: torch.Tensor, part: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(base, view of all of it): the one has the history of `part`, the other that of `tensor` until it is written."""
    with torch.enable_grad():
        base = _copy(part)
        view = base.view_as(base)
        if tensor.requires_grad:
            _exec.set_history(view, tensor.view_as(tensor))
    return base, view


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """With its strides, gaps included: they decide what of it are views."""
    copied = tensor.clone()
    if tensor.layout is not torch.strided or copied.stride() == tensor.stride():
        return copied
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _check_unchanged(joint: aot.JointGraph, missing: tuple[int, ...]) -> None:
    """Raises for inputs that the program reads and does not write, and that were written since: what eager keeps of them is not known."""
    written = {index for index, _ in [*joint.forward.mutations, *joint.rebased]}
    for index in missing:
        if index in joint.held and index not in written:
            raise RuntimeError(
                f"one of the variables needed for gradient computation has been modified by an inplace operation: input {index} of a compiled function"
            )


@contextlib.contextmanager
def _generator_at(state: Any) -> Iterator[None]:
    """The default generator as it was then, put back afterwards; None leaves it alone."""
    if state is None:
        yield
        return
    now = torch.get_rng_state()
    torch.set_rng_state(state)
    try:
        yield
    finally:
        torch.set_rng_state(now)
