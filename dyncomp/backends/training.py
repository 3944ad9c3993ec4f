"""Graphs that autograd goes through: a training plan, its backwards, and what to do when none fits.

trace_joint -> forward graph -> compiled at once
            -> backward graph -> compiled at the first backward (or at once, `config.backward == "ahead"`)

A backward for gradients of the outputs that were prepared for is compiled when it is first asked for. For
gradients of others, and for backwards that are differentiated themselves (`create_graph=True`), the
torch-level graph runs once more under eager's autograd, on the same inputs and random numbers.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch

from dyncomp import aot, config, counters
from dyncomp._frame import _core, _exec
from dyncomp.aot.record import tangent_meta
from dyncomp.backends.casts import taking_casts
from dyncomp.backends.eager import run_graph
from dyncomp.backends.registry import CompileRequest
from dyncomp.backends.rerun import Rerun
from dyncomp.context import COMPILE_LOCK
from dyncomp.fake.levels import put_aside
from dyncomp.fake.tensor import FakeTensor, TensorMeta, make_fake
from dyncomp.shape.layout import is_contiguous, iteration_order, strides_in_order
from dyncomp.shape.symbolic import numbers_in
from dyncomp.values.node_by_node import node_by_node
from dyncomp.values.saved_state import SavedState

Autocast = tuple[tuple[str, torch.dtype], ...]  # (device, to what), where it is on
Layout = list[int] | tuple[str, list[int]]
Ready = tuple[Callable[..., Any], list[Layout], list[bool]]  # the call, its gradients' layouts, which saved values it reads
Key = tuple[tuple[bool, ...], Autocast, aot.Wanted]  # raw outputs with a gradient, autocast, inputs whose gradients are wanted
Build = Callable[[aot.AtenGraph, str], Callable[..., Any]]  # (graph, "forward" or "backward") -> callable


def train_or_run(request: CompileRequest, build: Build) -> Callable[..., Any]:
    """The compiled graph, or where it has no joint form the torch-level graph under eager's autograd."""
    try:
        return compile_training(request, build)
    except aot.Unsupported as reason:
        counters.add_fallback("training-graph-eager")
        counters.add_fallback(f"aot: {reason}")
        return run_graph(request)


def compile_training(request: CompileRequest, build: Build) -> Callable[..., Any]:
    """A callable whose outputs autograd can go through. Raises aot.Unsupported."""
    if not torch.is_grad_enabled():
        raise aot.Unsupported("gradients that are switched on inside the graph")
    fakes = _as_entered(request)
    joint = _wide_enough(aot.trace_joint(request.gm, fakes), request)
    if not joint.repeatable and joint.pattern != tuple(joint.differentiable):
        # Nothing can be computed anew afterwards, so all that may be asked for is kept.
        joint = aot.trace_joint(request.gm, fakes, tuple(joint.differentiable))
    plan = _Trainer(joint, build, request.gradients, request.retire, first=True).plan
    return taking_casts(plan, joint.casts, node_by_node(joint.gm))


def _as_entered(request: CompileRequest) -> list[Any]:
    """The fake inputs as the graph finds them: a tensor that the program has written with a gradient flowing requires one since."""
    fakes = list(request.fake_inputs)
    for index, (fake, real) in enumerate(zip(fakes, request.real_inputs, strict=True)):
        if type(fake) is FakeTensor and fake.requires_grad and isinstance(real, torch.Tensor) and not real.requires_grad:
            fakes[index] = make_fake(fake.meta, fake.fake_storage)
            fakes[index].__dict__.update({name: fake.__dict__[name] for name in ("_is_param", "_is_buffer") if name in fake.__dict__})
    return fakes


def _wide_enough(joint: aot.JointGraph, request: CompileRequest) -> aot.JointGraph:
    """Prepared for all gradients that were asked of earlier versions, if it can be."""
    asked = [pattern for pattern, *_ in request.gradients if len(pattern) == len(joint.pattern)]
    columns = zip(joint.differentiable, joint.pattern, *asked, strict=True)
    union = tuple([yes and any(column) for yes, *column in columns])
    if union == joint.pattern:
        return joint
    try:
        return aot.trace_joint(request.gm, joint.fakes, union, joint.casts)
    except aot.Unsupported as reason:
        counters.add_fallback(f"aot: {reason}")
        return joint


class _Trainer:
    """Makes the training plan, and a wider one when more outputs get gradients than was thought."""

    def __init__(self, joint: aot.JointGraph, build: Build, asked: set[Any], retire: Callable[[], None], first: bool = False):
        self.build = build
        self.state = SavedState()
        self.asked, self.retire = asked, retire
        self.variants: dict[tuple[int, ...], Callable[..., Any]] = {}
        self.plan = self._make_plan(joint, first)

    def _make_plan(self, joint: aot.JointGraph, first: bool = False) -> Any:
        """`first`: the guards are not made yet, so whatever this learns of the sizes is among them."""
        forward = self.build(joint.forward, "forward")
        backward = _Backward(self, joint)
        differentiable = [k for k, yes in enumerate(joint.differentiable) if yes]
        # What a backward relies on about sizes is guarded with the forward, so it is made with it.
        if (config.backward == "ahead" or joint.forward.sizes is not None) and any(joint.pattern):
            backward.compile_likely()
        if first:
            backward.compile_asked(self.asked)
        return _exec.TrainingPlan(
            forward=_hidden(forward),
            original=_hidden(self._original(joint)),
            prepare=_core.without_hook(backward.prepare),
            rerun=_core.without_hook(backward.rerun),
            cut=_core.without_hook(backward.cut),
            inputs=len(joint.fakes),
            raw=joint.raw,
            values=len(joint.forward.outputs),
            requiring=joint.requiring,
            differentiable=differentiable,
            saved=joint.saved,
            written=[index for index, _ in [*joint.forward.mutations, *joint.rebased]],
            rebased=[(index, number, *joint.rewrites[index]) for index, number in joint.rebased],
            outputs=[*joint.outputs, *joint.inner],
            returned=len(joint.outputs),
            draws=joint.random,
            repeatable=joint.repeatable,
            held=joint.held,
            originals=joint.originals,
            sides=joint.sides,
            viewed=joint.viewed,
            for_views=_core.without_hook(functools.partial(self.for_views, joint)),
            **_ends(joint, len(differentiable)),
            likely=[joint.pattern[k] for k in differentiable],
            leaf_order=joint.leaf_orders[joint.pattern],
        )

    def _original(self, joint: aot.JointGraph, reason: str = "inputs-share-memory") -> Callable[..., Any]:
        original = node_by_node(joint.gm)

        def run(*inputs: Any) -> Any:
            results = original(*inputs[: len(inputs) - len(joint.casts)])  # raises where the program writes to what must not be written
            counters.add_fallback(reason)
            return results

        return run

    def for_views(self, joint: aot.JointGraph, viewed: tuple[int, ...]) -> Callable[..., Any]:
        """What runs in calls where these inputs, which the program writes, are views: to autograd they are another program."""
        with COMPILE_LOCK:
            if viewed not in self.variants:
                self.variants[viewed] = self._variant(joint, viewed)
            return self.variants[viewed]

    def _variant(self, joint: aot.JointGraph, viewed: tuple[int, ...]) -> Callable[..., Any]:
        try:
            joint.check_facts()
            other = aot.trace_joint(joint.gm, joint.fakes, joint.pattern, joint.casts, viewed)
            plan: Callable[..., Any] = _Trainer(other, self.build, self.asked, self.retire).plan
            joint.check_facts()  # the guards are made: what this learned of the sizes is not among them
        except aot.Unsupported as reason:
            counters.add_fallback(f"aot: {reason}")
            return _hidden(self._original(joint, "written-views-eager"))
        return plan

    def widen(self, joint: aot.JointGraph, pattern: tuple[bool, ...]) -> None:
        """Calls from now on keep what gradients of these outputs need, too."""
        union = tuple(a or b for a, b in zip(joint.pattern, pattern, strict=True))
        try:
            joint.check_facts()
            with self.state.as_then():  # a backward may run in another block
                wider = aot.trace_joint(joint.gm, joint.fakes, union, joint.casts, joint.viewed)
            plan = self._make_plan(wider)
            joint.check_facts()  # the guards are made: what this learned of the sizes is not among them
        except aot.Unsupported as reason:
            counters.add_fallback(f"aot: {reason}")
            self.begin_anew(joint, (union, (), None))
        else:
            self.asked.add((union, (), None))  # later versions begin with it
            self.plan.become(plan)

    def begin_anew(self, joint: aot.JointGraph, key: Key) -> None:
        """With symbolic sizes a backward may rely on more about them than this version guards. The next call makes a version that
        knows from the start what is asked of it; once is enough to see whether that helps.
        """
        if joint.forward.sizes is not None and key not in self.asked:
            self.asked.add(key)
            self.retire()


class _Backward:
    """The backwards of one joint graph."""

    def __init__(self, trainer: _Trainer, joint: aot.JointGraph):
        self.trainer, self.joint = trainer, joint
        self.ready: dict[Key, Ready] = {}
        again = Rerun(joint, trainer.state)
        self.rerun, self.cut = again.run, again.cut

    def compile_likely(self) -> None:
        self.ready[self.joint.pattern, (), None] = self._compile(self.joint.pattern, (), None)

    def compile_asked(self, asked: set[Key]) -> None:
        """What was asked of earlier versions, while what it relies on about sizes can still be guarded."""
        for key in sorted(asked, key=str):
            pattern = key[0]
            if len(pattern) != len(self.joint.pattern) or key in self.ready:
                continue
            if any(new and not old for new, old in zip(pattern, self.joint.pattern, strict=True)):
                continue
            try:
                self.ready[key] = self._built(*key)
            except aot.Unsupported as reason:
                counters.add_fallback(f"aot: {reason}")
            self.joint.note_facts()

    def prepare(self, asked: tuple[bool, ...], wanted: aot.Wanted, strides: aot.Strides = None) -> Ready | None:
        """The compiled backward for gradients of some differentiable outputs to the `wanted` inputs (None: all), while autocast is
        as it is now; None if there can be none. `strides`: of the gradients that come in, one each; the backward may be for others.
        """
        pattern, autocast = self._asked(asked)
        key = (pattern, autocast, wanted)
        with COMPILE_LOCK, torch.no_grad(), put_aside():
            own = None if strides is None else self._own_form(pattern, strides)
            if own is not None:
                try:
                    return self._compile(*key, own)
                except aot.Unsupported as reason:
                    counters.add_fallback(f"gradients-copied: {reason}")
            if key not in self.ready:
                try:
                    self.ready[key] = self._compile(*key)
                except aot.Unsupported as reason:
                    counters.add_fallback(f"backward-runs-again: {reason}")
                    if any(new and not old for new, old in zip(pattern, self.joint.pattern, strict=True)):
                        self.trainer.widen(self.joint, pattern)
                    else:
                        self.trainer.begin_anew(self.joint, key)
                    return None
            return self.ready[key]

    def graph(self, asked: tuple[bool, ...]) -> tuple[aot.AtenGraph, list[Layout]]:
        """The backward that `prepare` would compile, for who makes it part of a larger graph. Raises aot.Unsupported."""
        pattern, autocast = self._asked(asked)
        with COMPILE_LOCK, torch.no_grad():
            return self.joint.backward(pattern, autocast), self._layouts(pattern)

    def leaf_order(self, asked: tuple[bool, ...]) -> list[int]:
        """In which order eager's backward would come to the inputs that are leaves: positions in `joint.requiring`."""
        pattern, autocast = self._asked(asked)
        with COMPILE_LOCK, torch.no_grad():
            if pattern not in self.joint.leaf_orders:
                self.joint.backward(pattern, autocast)
            return self.joint.leaf_orders[pattern]

    def _asked(self, asked: tuple[bool, ...]) -> tuple[tuple[bool, ...], Autocast]:
        """Which raw outputs have a gradient, and autocast as it is now."""
        given = iter(asked)
        pattern = tuple(yes and next(given) for yes in self.joint.differentiable)
        on = tuple((d, torch.get_autocast_dtype(d)) for d in ("cpu", "cuda") if torch.is_autocast_enabled(d))
        return pattern, on

    def _layouts(self, pattern: tuple[bool, ...]) -> list[Layout]:
        return [_layout(tangent_meta(meta)) for meta in self._asked_metas(pattern)]

    def _asked_metas(self, pattern: tuple[bool, ...]) -> list[TensorMeta]:
        return [meta for meta, asked in zip(self.joint.raw_metas, pattern, strict=False) if asked]

    def _own_form(self, pattern: tuple[bool, ...], strides: tuple[tuple[int, ...], ...]) -> list[Layout] | None:
        """Layouts of gradients that are laid out otherwise than `_layouts` says: eager's own would be, too, where they are handed on.
        None where there is no backward for them alone.
        """
        if any(new and not old for new, old in zip(pattern, self.joint.pattern, strict=True)):
            return None
        own = [_layout_of(meta, one) for meta, one in zip(self._asked_metas(pattern), strides, strict=True)]
        return None if own == self._layouts(pattern) else own

    def _compile(self, pattern: tuple[bool, ...], autocast: Autocast, wanted: aot.Wanted, own: list[Layout] | None = None) -> Ready:
        ready = self._built(pattern, autocast, wanted, own)
        self.joint.check_facts()
        return ready

    def _built(self, pattern: tuple[bool, ...], autocast: Autocast, wanted: aot.Wanted, own: list[Layout] | None = None) -> Ready:
        strides = None if own is None else tuple(map(_strides_of, self._asked_metas(pattern), own))
        graph = self.joint.backward(pattern, autocast, wanted, strides)
        layouts = self._layouts(pattern) if own is None else own
        call = _hidden(self.trainer.build(graph, "backward"))
        given = graph.placeholders[: len(self.joint.saved)]
        handed_on = {rule[1][1] for rule in graph.outputs if rule[0] == "view"} | {
            rule[1] for rule in graph.outputs if rule[0] == "input"
        }
        sized = graph.sizes is not None  # then what is not read may tell a size
        values = [sized and kind == "value" for kind, _ in self.joint.saved]
        return call, layouts, [bool(node.users) or i in handed_on or values[i] for i, node in enumerate(given)]


def _ends(joint: aot.JointGraph, outputs: int) -> dict[str, Any]:
    """What eager's history of the differentiable outputs is like, and who reads what is kept, as the plan takes it."""
    count, ends = len(joint.requiring), joint.ends

    def packed(bits: int, count: int) -> bytes:
        return bits.to_bytes((count + 7) // 8, "little")

    def pairs(given: list[tuple[int, int]]) -> list[tuple[bytes, bytes]]:
        return [(packed(above, outputs), packed(below, count)) for above, below in given]

    # When all nodes that keep values are used up, gradients that never came to one can still be asked for.
    open_ = list(ends.reach)
    for above, below in ends.keepers:
        open_ = [reach & ~below if above >> k & 1 else reach for k, reach in enumerate(open_)]
    sized = joint.forward.sizes is not None
    last = [
        not sized and any(above >> k & 1 and below & one for above, below in pairs_of for k, one in enumerate(open_)) for pairs_of in joint.readers
    ]
    return {
        "reach": [packed(reach, count) for reach in ends.reach],
        "output_order": ends.order,
        "through": ends.through,
        "depth": ends.depth,
        "shown": [(kind, index, -1 if item is None else item) for kind, index, item in ends.shown],
        "keepers": pairs(ends.keepers),
        "readers": [pairs(one) for one in joint.readers],
        "last_needs": last,
        "watched": [
            (one.kind, one.index, one.sizes, one.type, packed(one.outputs, outputs), packed(one.inputs, count), one.origin, one.itself)
            for one in joint.watched
        ],
        "sized": sized,
    }


def _layout(meta: TensorMeta) -> Layout:
    """Plain strides, or where sizes vary the order of the dimensions from the outermost to the innermost."""
    if not any(numbers_in([meta.shape, meta.strides])):
        return list(meta.strides)
    if is_contiguous(meta.shape, meta.strides):
        return "order", list(range(meta.ndim))
    return "order", iteration_order(meta.shape, [meta.strides])[::-1]


def _layout_of(meta: TensorMeta, strides: tuple[int, ...]) -> Layout:
    """The same of a gradient that came in. Where sizes vary, one without memory for each element is copied."""
    if not any(numbers_in([meta.shape, meta.strides])):
        return list(strides)
    if 0 in strides:
        return _layout(tangent_meta(meta))
    return "order", sorted(range(meta.ndim), key=lambda dim: -strides[dim])


def _strides_of(meta: TensorMeta, layout: Layout) -> tuple[int, ...]:
    return strides_in_order(meta.shape, layout[1][::-1]) if isinstance(layout, tuple) else tuple(layout)


def _hidden(call: Callable[..., Any]) -> Callable[..., Any]:
    """Python code of ours must not be compiled itself."""
    return _core.without_hook(call) if isinstance(call, types.FunctionType | types.MethodType) else call
