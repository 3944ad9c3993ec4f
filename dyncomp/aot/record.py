"""One recording of a function and its gradient, on one tape.

f(x, w) = relu(mm(x, w))   ->   mm, relu | tangent, threshold_backward, t, mm, t, mm
                                forward  | backward

Torch's own autograd runs over the fakes, so the backward is what eager's would be, operation by operation.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from dyncomp._frame import _exec
from dyncomp.aot.casts import Casts, cached_dtypes, found_in_cache, remember
from dyncomp.aot.ends import Ends, ends_of
from dyncomp.aot.epilogue import check_written, exact_node, writes_to
from dyncomp.aot.errors import Unsupported
from dyncomp.aot.interpret import enter_inputs, flat, interpret, state_restored, typed_errors
from dyncomp.aot.kept import kept_nodes
from dyncomp.aot.lazy import check_result
from dyncomp.aot.outputs import Outputs, plan_outputs
from dyncomp.aot.sides import Sides, enter
from dyncomp.aot.sizes import env_of_inputs
from dyncomp.aot.store import Recorder, Store, Track, track_of
from dyncomp.aot.tape import Input, Node, Tape, is_random
from dyncomp.aot.tracer import TraceMode
from dyncomp.aot.undisturbed import undisturbed
from dyncomp.aot.watched import Memory, Watched, watched_tensors
from dyncomp.fake.derivatives import as_eager
from dyncomp.fake.tensor import FakeTensor, TensorMeta, make_fake
from dyncomp.shape.layout import contiguous_strides, is_dense

if TYPE_CHECKING:  # sympy comes with it, and static shapes never need it
    from dyncomp.shape.env import ShapeEnv

Rule = tuple[Any, ...]
Pattern = tuple[bool, ...]  # one a raw output: a gradient comes in there
Autocast = tuple[tuple[str, torch.dtype], ...]  # (device, to what), where it is on
Wanted = tuple[bool, ...] | None
Strides = tuple[tuple[int, ...], ...] | None  # of the gradients that come in, one each; None: as `tangent_meta` says


@dataclasses.dataclass
class Recording:
    """`tape[:boundary]` is the forward.

    `gradients`: a rule for each input of `requiring`, as in `aot.epilogue`, where ("input", k) is tangent k
    and ("node", n) a node of the tape; `sides` tells which inputs these are, and where each gradient goes. `rebased`: (input, raw output that is its new value), for inputs that
    were written with a gradient flowing; `mutations`: inputs written without. `leaf_order`: positions in `requiring` of the
    leaves, in the order in which eager's backward comes to them. `ends`: what eager's history is like.
    `kept`: by node of that history that may keep values its name and what it keeps, and `kept_ends` as in `Ends.keepers`; None: not known.
    `watched`: what of it must not be written before a backward; `memory`: of which inputs and raw outputs it keeps the memory.
    `writes`: what version counters rise by, as in `Epilogue`; of what is rebased, `rewrites` says it by input.
    `cached`: inputs that are read as casts from autocast's cache (`aot.casts`).
    """

    recorder: Recorder
    env: ShapeEnv | None
    boundary: int
    inputs: list[Any]
    outputs: Outputs
    raw: list[Node]
    rebased: list[tuple[int, int]]
    mutations: list[tuple[int, Node]]
    pattern: Pattern
    tangents: list[Node]
    gradients: list[Rule]
    leaf_order: list[int]
    ends: Ends
    kept: list[tuple[str, list[Node | None]]] | None
    kept_ends: list[tuple[int, int]]
    watched: list[Watched]
    memory: Memory
    writes: dict[tuple[str, int], int]
    rewrites: dict[int, tuple[int, str]]
    sides: Sides
    cached: Casts

    @property
    def requiring(self) -> list[int]:
        return self.sides.inputs

    @property
    def tape(self) -> Tape:
        return self.recorder.tape


def record(
    gm: torch.fx.GraphModule,
    inputs: Sequence[Any],
    pattern: Pattern | None = None,
    autocast: Autocast = (),
    after: Pattern | None = None,
    wanted: Wanted = None,
    strides: Strides = None,
    casts: Casts = (),
    viewed: Collection[int] = (),
) -> Recording:
    """Runs `gm` and its backward for gradients that come in where `pattern` says; None: the likely ones.

    `autocast`: what is on while the backward runs. `strides`: of the gradients that come in. `casts`: of weights, which are the last inputs. `viewed`: inputs that are views (`aot.sides`). `wanted`: which of the inputs that require grad get a gradient; None: all. `after`: the backward for that pattern is on the tape before it, at the
    places where a recording for that pattern alone has it.
    """
    env = env_of_inputs(inputs)
    mode = TraceMode(env)
    fakes = enter_inputs(mode, inputs)
    sides = enter(mode, fakes, list(inputs), viewed)
    roots, sought = sides.roots, sides.sought
    for (index, _), cast in zip(casts, fakes[len(fakes) - len(casts) :], strict=True):
        remember(fakes[index], cast)
    before = [(root.requires_grad, root.grad_fn) if type(root) is FakeTensor else None for root in roots]
    with typed_errors(), undisturbed(), state_restored(), torch.enable_grad():
        dtypes = cached_dtypes()
        with mode:
            results = flat(interpret(gm, fakes, mode))
        cached = found_in_cache(mode, fakes, dtypes) if dtypes and not casts else ()
        torch.set_grad_enabled(True)
        written = _rebased(roots, before)
        sides.add_after(mode, fakes, written)
        with mode:  # a view of what was written since is put into the history when it is asked for its own
            outputs = plan_outputs(fakes, results, roots)
        with torch._C._AutoDispatchBelowAutograd():
            raw = [exact_node(mode.recorder, fake) for fake in outputs.raw]
            raw += [mode.recorder.read(fakes[index]) for index in written]
        rebased = outputs.add_written(roots, written)
        mutations = _mutations(fakes, written)
        writes = {("output", k): track_of(fake).writes.count for k, fake in enumerate(outputs.raw) if k < len(raw) - len(written)}
        writes = {key: count for key, count in {**writes, **writes_to(fakes)}.items() if count}
        rewrites = {i: (writes.pop(("input", i), 1), _through_itself(fakes[i])) for i in written}
        boundary = len(mode.recorder.tape)
        asked = [fake for fake, yes in zip(outputs.raw, outputs.differentiable, strict=True) if yes]
        views = outputs.views()
        looked_at = [("output", place, results[place], outputs.has_siblings(place, results[place])) for place in views]
        with mode:
            looked_at += [("input", index, fakes[index], False) for index in sides.viewed if index in written]
            ends, keeping = ends_of(asked, sought, looked_at)
            ends.order = outputs.by_age(results, rebased, ends)
            kept = kept_nodes(mode.recorder, keeping.nodes)
            between = dict(zip(keeping.nodes, keeping.ends, strict=True))
            watched, memory = watched_tensors(asked, between, fakes, outputs.raw)
        pattern = pattern if pattern is not None else likely_pattern(outputs, ends)
        metas = outputs.metas()
        if after is not None:
            earlier = [fake for fake, wanted in zip(outputs.raw, after, strict=True) if wanted]
            given = [meta for meta, wanted in zip(metas, after, strict=True) if wanted]
            incoming = [_tangent(mode, len(fakes) + k, meta) for k, meta in enumerate(given)]
            _backward(mode, earlier, incoming, sought, (), again=True)
        chosen = [fake for fake, wanted in zip(outputs.raw, pattern, strict=True) if wanted]
        laid = strides or [None] * len(chosen)
        given = [meta for meta, wanted in zip(metas, pattern, strict=True) if wanted]
        tangents = [_tangent(mode, len(fakes) + k, meta, one) for k, (meta, one) in enumerate(zip(given, laid, strict=True))]
        leaf_order = _leaf_order(chosen, [fakes[i] for i in sides.inputs])
        places = [place for place in range(len(sought)) if wanted is None or wanted[place]]
        grads: list[Any] = [None] * len(sought)
        for place, grad in zip(places, _backward(mode, chosen, tangents, [sought[i] for i in places], autocast), strict=True):
            grads[place] = grad
    rules = _gradient_rules(mode.recorder, grads, tangents)
    if any(is_random(node) for node in mode.recorder.tape[boundary:]):
        raise Unsupported("a backward that draws random numbers")
    nodes = [track_of(t).node for t in tangents]
    return Recording(
        mode.recorder, env, boundary, fakes, outputs, raw, rebased, mutations, pattern, nodes, rules, leaf_order, ends,
        kept, keeping.ends, watched, memory, writes, rewrites, sides, cached,
    )  # fmt: skip


def _through_itself(fake: FakeTensor) -> str:
    through = track_of(fake).writes.through
    return "never" if id(fake) not in through else "last" if through[-1] == id(fake) else "earlier"


def _leaf_order(outputs: list[FakeTensor], requiring: list[FakeTensor]) -> list[int]:
    places = {id(fake): place for place, fake in enumerate(requiring)}
    leaves = [node.variable for node in _exec.backward_order(tuple(outputs)) if hasattr(node, "variable")]
    return [places[id(leaf)] for leaf in leaves if id(leaf) in places]


def likely_pattern(outputs: Outputs, ends: Ends) -> Pattern:
    """Where there is a differentiable scalar, it is the loss, and the rest is for looking at; but what has nothing in common with
    any loss, not an input, gets its gradient from elsewhere.
    """
    losses = tuple(wanted and scalar for wanted, scalar in zip(outputs.differentiable, outputs.are_scalars(), strict=True))
    if not any(losses):
        return tuple(outputs.differentiable)
    reach = dict(zip([k for k, yes in enumerate(outputs.differentiable) if yes], ends.reach, strict=True))
    seen = functools.reduce(operator.or_, [reach[k] for k, loss in enumerate(losses) if loss])
    return tuple(loss or bool(reach.get(k)) and not reach[k] & seen for k, loss in enumerate(losses))


def tangent_meta(meta: TensorMeta) -> TensorMeta:
    """How an incoming gradient is laid out: as its output where that is dense."""
    strides = meta.strides if is_dense(meta.shape, meta.strides) else contiguous_strides(meta.shape)
    return TensorMeta(meta.shape, strides, meta.dtype, meta.device)


def _rebased(roots: list[Any], before: list[Any]) -> list[int]:
    """Inputs that were written in place with a gradient flowing: to autograd they are results of the graph now."""
    found = []
    for index, fake in enumerate(roots):
        if before[index] is None:
            continue
        if fake.is_inference():
            raise Unsupported("gradients beside inference tensors")
        required, history = before[index]
        if fake.requires_grad is required and fake.grad_fn is history:
            continue
        if fake.grad_fn is None or not track_of(fake).store.version:
            raise Unsupported("an input that is detached in place, or whose requires_grad is set")
        found.append(index)
    return found


def _mutations(fakes: list[Any], rebased: list[int]) -> list[tuple[int, Node]]:
    tensors = [(i, fake) for i, fake in enumerate(fakes) if type(fake) is FakeTensor]
    written = [(i, fake) for i, fake in tensors if track_of(fake).store.version]
    for index, fake in written:
        if any(other.fake_storage is fake.fake_storage for i, other in tensors if i != index):
            raise Unsupported("an in-place write to an input that shares memory with another input")
        check_written(fake.meta)
    return [(i, track_of(fake).store.value) for i, fake in written if i not in rebased]


def _tangent(mode: TraceMode, index: int, output: TensorMeta, strides: tuple[int, ...] | None = None) -> FakeTensor:
    meta = tangent_meta(output) if strides is None else TensorMeta(output.shape, strides, output.dtype, output.device)
    node = mode.recorder.emit(Input, (index,), meta=meta)
    fake = make_fake(meta)
    fake.__dict__["track"] = Track(Store(node, meta), (), node)
    return fake


def _backward(
    mode: TraceMode,
    outputs: list[FakeTensor],
    tangents: list[FakeTensor],
    inputs: list[Any],
    autocast: Autocast,
    again: bool = False,
) -> list[Any]:
    """`again`: another backward will follow."""
    if not outputs or not inputs:
        return [None] * len(inputs)
    mode.recorder.line = None
    mode.under_autocast = bool(autocast)
    torch.set_autocast_cache_enabled(False)
    on = {device for device, _ in autocast}
    for device in ("cpu", "cuda"):
        torch.set_autocast_enabled(device, device in on)
    for device, dtype in autocast:
        torch.set_autocast_dtype(device, dtype)
    # `torch.autograd.grad` is this call behind checks that import more than we want.
    run = torch.autograd.Variable._execution_engine.run_backward
    with mode, as_eager(outputs):
        return list(run(tuple(outputs), tuple(tangents), again, False, tuple(inputs), True, accumulate_grad=False))


def _gradient_rules(recorder: Recorder, grads: list[Any], tangents: list[FakeTensor]) -> list[Rule]:
    """A gradient may be a tangent, a view of one, or another gradient, as in eager."""
    owner = {id(track_of(t).store): k for k, t in enumerate(tangents)}
    same = {id(t): ("input", k) for k, t in enumerate(tangents)}
    rules: list[Rule] = []
    for position, grad in enumerate(grads):
        if grad is None:
            rules.append(("const", None))
            continue
        rule: Rule | None = same.get(id(grad))
        if rule is None:
            store, meta = track_of(grad).store, grad.meta
            tangent = owner.get(id(store))
            if tangent is not None and store.version == 0 and meta.dtype == store.meta.dtype:
                rule = ("view", ("input", tangent), meta.shape, meta.strides, meta.offset - store.meta.offset)
            else:
                with torch._C._AutoDispatchBelowAutograd():
                    # Gaps come from an input with gaps; nobody looks at them in a gradient.
                    check_result(grad)
                    dense = is_dense(meta.shape, meta.strides)
                    rule = ("node", exact_node(recorder, grad) if dense else recorder.read(grad))
        same.setdefault(id(grad), ("output", position))
        rules.append(rule)
    return rules
