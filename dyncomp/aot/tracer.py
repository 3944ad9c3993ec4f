"""TraceMode: runs torch operations on fakes and records them, functional, on a tape.

It works below autograd, so that composite operations arrive whole: the kept ones are recorded as they are,
the others are taken apart by torch's own C++ kernels, exactly as eager would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from dyncomp.aot import lazy, normalize
from dyncomp.aot.drawing import record_bernoulli
from dyncomp.aot.errors import Unsupported
from dyncomp.aot.late import CHECK
from dyncomp.aot.leaf import keeps_whole
from dyncomp.aot.optimizer_ops import LIST_PREFIXES, expand
from dyncomp.aot.overlap import check_overlap
from dyncomp.aot.store import Recorder, Store, Track, ViewStep, track_of
from dyncomp.aot.tape import Constant, Input, Node
from dyncomp.fake import constant, inplace, known_number, tangents
from dyncomp.fake.facts import HIDDEN_WRITES, OpFacts, facts_of
from dyncomp.fake.infer import infer
from dyncomp.fake.mode import FakeMode
from dyncomp.fake.real import meta_of_real
from dyncomp.fake.tensor import FakeStorage, FakeTensor, TensorMeta, make_fake
from dyncomp.fake.twin import APPENDING, functional_twin, missing_defaults
from dyncomp.shape.layout import known_equal
from dyncomp.shape.symbolic import is_symbolic

if TYPE_CHECKING:  # sympy comes with it, and static shapes never need it
    from dyncomp.shape.env import ShapeEnv

aten = torch.ops.aten

# "A view, but tell autograd nothing", as eager spells it: the schema hides that the result lies in the memory of its
# argument. Graphs must know, so there they are views like others.
_UNSAFE_VIEWS = {
    aten._unsafe_view.default: aten.view.default,
    aten.unsafe_split.Tensor: aten.split.Tensor,
    aten.unsafe_split_with_sizes.default: aten.split_with_sizes.default,
}


def _spread(meta: TensorMeta, shape: Sequence[Any]) -> TensorMeta | None:
    """An expanded tensor that only its elements matter of: dimensions that grow step by 0, also where they grow to 1 only, which
    for symbolic sizes would have to be asked. None where that does not come up.
    """
    new = len(shape) - meta.ndim
    if new < 0 or not any(map(is_symbolic, shape)):
        return None
    strides: list[Any] = []
    for wanted, have, stride in zip(shape, (*[1] * new, *meta.shape), (*[0] * new, *meta.strides), strict=True):
        grows = type(have) is int and have == 1
        if not grows and not known_equal(have, wanted):
            return None
        strides.append(0 if grows else stride)
    return TensorMeta(tuple(shape), tuple(strides), meta.dtype, meta.device, meta.offset)


class TraceMode(FakeMode):
    records = True

    def __init__(self, env: ShapeEnv | None = None) -> None:
        super().__init__(env)
        self.recorder = Recorder(env)
        self.under_autocast = False  # the program's state; in dispatch itself autocast is always off
        # Real tensors met on the way: they must live until the graph holds them.
        self._kept: list[torch.Tensor] = []

    # ---- tensors that enter

    def add_input(self, fake: FakeTensor, index: int, storage: FakeStorage) -> FakeTensor:
        """A fresh fake for a graph input (never the caller's: autocast caches casts by tensor identity)."""
        meta = fake.meta
        if is_symbolic(meta.offset):  # offsets in this graph count from the inputs' own; the program's number is an input by itself
            meta = TensorMeta(meta.shape, meta.strides, meta.dtype, meta.device, meta.offset.node.hint)  # type: ignore[attr-defined]
        node = self.recorder.emit(Input, (index,), meta=meta)
        own = make_fake(meta, storage, fake.requires_grad)
        for mark in ("_is_param", "_is_buffer"):
            if mark in fake.__dict__:
                own.__dict__[mark] = fake.__dict__[mark]
        own.__dict__["track"] = Track(Store(node, meta, input=index), (), node)
        return own

    def _fake_of(self, tensor: torch.Tensor, meta: TensorMeta, storage: FakeStorage) -> FakeTensor:
        self._kept.append(tensor)
        fake = make_fake(meta, storage, tensor.requires_grad and tensor.is_leaf)
        if isinstance(tensor, torch.nn.Parameter):
            fake.__dict__["_is_param"] = True
        node = self.recorder.emit(Constant, (tensor,), meta=meta)
        fake.__dict__["track"] = Track(Store(node, meta, frozen=True), (), node)
        return fake

    def _lift(self, literal: torch.Tensor) -> FakeTensor:
        """A literal such as `torch.tensor([1, 2])`: a private constant, copied afresh on each run."""
        with torch._C._DisableTorchDispatch(), torch._C._AutoDispatchBelowAutograd():
            own = literal.clone()
        meta = meta_of_real(own)
        node = self.recorder.emit(Constant, (own,), meta=meta)
        fresh = self.recorder.emit(aten.clone.default, (node,), meta=meta)
        fake = self._track_fresh(meta, fresh)
        constant.remember(fake, own)
        return fake

    # ---- operations

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if op._schema.name.startswith(LIST_PREFIXES):
            expanded = expand(self, facts_of(op), args, kwargs or {})
            if expanded is not None:
                return expanded[0]
        return super().__torch_dispatch__(op, types, args, kwargs)

    def _composite(self, facts: OpFacts, args: Any, kwargs: Any) -> Any:
        if keeps_whole(facts.op):
            return self._functional(facts, args, kwargs)
        return super()._composite(facts, args, kwargs)

    def _functional(self, facts: OpFacts, args: Any, kwargs: Any) -> Any:
        if facts.op in tangents.FORMS:
            formed = self._form(facts, args, kwargs)
            if formed is not NotImplemented:
                return formed
        known = constant.evaluate(facts, args, kwargs)
        if known is None:
            known = self._known_item(facts, args)
        if known is not None:
            literal = known.constant if type(known) is FakeTensor else None
            return known if literal is None else self._lift(literal)
        if facts.op is CHECK:
            return self._check(*args)
        late = self._late_result(facts, args, kwargs)
        if late is not None:
            return self._record_late(facts, args, kwargs, late)
        if facts.op is tangents.ZEROS_WITHOUT_MEMORY:
            return self._zeros(args[0], kwargs)
        if facts.op._schema.name in HIDDEN_WRITES:
            return normalize.batch_norm(self, facts, args, kwargs)
        result = infer(facts.op, self.metas(args), self.metas(kwargs))
        node = self._record(_UNSAFE_VIEWS.get(facts.op, facts.op), args, kwargs, result)
        fakes = self._track_results(result, node)
        constant.follow(facts, fakes, args, kwargs)
        if self.env is not None:
            known_number.follow(facts, fakes, args, kwargs)
        return fakes

    def _zeros(self, sizes: Any, options: dict[str, Any]) -> FakeTensor:
        """In the graph they are zeros like others, for the operations that take memory."""
        given = {name: value for name, value in options.items() if name in ("dtype", "device") and value is not None}
        result = infer(aten.zeros.default, (sizes,), given)
        return self._track_fresh(result, self._record(aten.zeros.default, (sizes,), given, result), zero=True)

    def _record_late(self, facts: OpFacts, args: Any, kwargs: Any, result: Any) -> Any:
        """An operation that gives a number which the rest of the graph computes with; `result`: its metadata, or the number."""
        node = self._record(facts.op, args, kwargs, result)
        if node.meta is not result:
            raise Unsupported(f"{facts.op} of memory that was written in place")
        results = self._track_results(result, node)
        self.recorder.late.bind_value(result, node)
        for fake in results if isinstance(results, tuple) else (results,):
            if type(fake) is FakeTensor:
                self.recorder.late.bind_sizes(fake.meta.shape, track_of(fake).node)
        return results

    def _check(self, truth: Any, message: str) -> None:
        """A check of the torch-level graph: a fact from here on, and a check of this graph."""
        if isinstance(truth, torch.SymBool):
            truth = self.env.expect(truth.node.expr, message) if self.env is not None else bool(truth)
        if not truth:
            raise Unsupported(f"a check that never holds: {message}")

    def _view(self, facts: OpFacts, args: Any, kwargs: Any) -> Any:
        base = args[0] if args else kwargs[facts.names[0]]
        if facts.op is aten._conj.default and type(base) is complex:  # a number where a tensor is expected
            with torch._C._DisableTorchDispatch():
                return self._lift(torch.scalar_tensor(base.conjugate(), dtype=torch.complex128))
        if type(base) is not FakeTensor:
            if constant.is_lift(facts):
                return self._lift(base)
            base = self.from_real(base)
        if facts.op in lazy.VALUES:
            return lazy.value_of(self.recorder, facts.op, base)
        rest = tuple(args[1:]) if args else ()
        more = kwargs if args else {k: v for k, v in kwargs.items() if k != facts.names[0]}
        result = infer(facts.op, (base.meta, *self.metas(rest)), self.metas(more))
        fakes = self._view_results(facts, base, rest, more, result)
        constant.view(facts, base, fakes, (base, *rest), more)
        if self.env is not None:
            known_number.follow(facts, fakes, (base, *rest), more)
        return fakes

    def _view_results(self, facts: OpFacts, base: FakeTensor, rest: Any, kwargs: Any, result: Any) -> Any:
        recorder = self.recorder
        node = recorder.read(base)
        self._check_as_strided(facts, base, node, rest, kwargs)
        # The value of an input that was written in place begins at the start of its own memory.
        exact = node.meta is base.meta or node.meta.same_layout(base.meta) and known_equal(
            node.meta.offset, base.meta.offset
        )
        if type(result) is TensorMeta:
            step = ViewStep(facts.op, rest, kwargs, None)
            if exact:
                view = recorder.emit(facts.op, (node, *rest), kwargs, result)
            else:
                view = recorder.apply_view(node, step)
            return self._track_view(result, base, step, view)
        whole = recorder.emit(facts.op, (node, *rest), kwargs, result if exact else None)
        return type(result)(
            self._track_view(meta, base, ViewStep(facts.op, rest, kwargs, i), recorder.item(whole, i))
            for i, meta in enumerate(result)
        )

    def _check_as_strided(self, facts: OpFacts, base: FakeTensor, node: Node, rest: Any, kwargs: Any) -> None:
        """`as_strided` sees memory, not values: only where the graph's memory is eager's memory."""
        if facts.op is not aten.as_strided.default:
            return
        explicit = len(rest) > 2 and rest[2] is not None or kwargs.get("storage_offset") is not None
        store = track_of(base).store
        if not node.meta.same_layout(base.meta) or (explicit and (store.input is not None or store.frozen)):
            raise Unsupported("as_strided with an absolute offset, or on memory that was written in place")
        if store.version and (track_of(base).chain or not store.exact):
            raise Unsupported("as_strided on a view of memory that was written in place")

    def _in_place(self, facts: OpFacts, args: Any, kwargs: Any) -> Any:
        op = facts.op
        if torch.Tag.inplace_view in op.tags:
            return self._change_metadata(facts, args, kwargs)
        args = inplace.with_fakes(self, args)
        bound = inplace.bind(facts, args, kwargs)
        if op is aten.detach_.default:
            return args[0]
        check_overlap(facts, bound)
        # The fake run makes eager's checks; it must see the versions as they were.
        result = inplace.run(self, facts, args, kwargs, wrap=False)
        if op is aten.copy_.default:
            self._write(args[0], self._copied(args[0], args[1]))
            return args[0]
        if op._schema.name in ("aten::zero_", "aten::fill_"):
            self._write(args[0], self._filled(args[0], args[1] if len(args) > 1 else 0))
            return args[0]
        if op is aten.bernoulli_.float and bound.get("generator") is None:
            drawn = record_bernoulli(
                self.recorder, self.recorder.read(args[0]), args[0].meta, bound.get("p", 0.5)
            )
            self._write(args[0], drawn)
            return args[0]
        return self._by_twin(facts, bound, args, kwargs, result)

    def _out(self, facts: OpFacts, args: Any, kwargs: Any) -> Any:
        kwargs = {name: inplace.with_fakes(self, (value,))[0] for name, value in kwargs.items()}
        bound = inplace.bind(facts, args, kwargs)
        check_overlap(facts, bound)
        result = inplace.run_out(self, facts, args, kwargs, wrap=False)
        inputs = {
            name: value
            for name, value in kwargs.items()
            if name not in {facts.names[p] for p in facts.written}
        }
        return self._by_twin(facts, bound, args, inputs, result)

    def _by_twin(self, facts: OpFacts, bound: dict[str, Any], args: Any, kwargs: Any, result: Any) -> Any:
        """Runs the functional form and writes its results to the written arguments."""
        twin = functional_twin(facts.op)
        node = self._record(twin, args, {**missing_defaults(facts.op, twin, bound), **kwargs}, None)
        targets = [t for p in facts.written for t in inplace.targets_of(bound.get(facts.names[p]))]
        fresh: list[Any] = []
        if type(node.meta) is TensorMeta:
            values = [node]
        else:
            values = [self.recorder.item(node, i) for i in range(len(node.meta))]
        if facts.op._schema.name in APPENDING:
            count = len(values) - len(targets)
            fresh, values = values[:count], values[count:]
            fresh = [self._track_fresh(value.meta, value) for value in fresh]
        for target, value in zip(targets, values, strict=True):
            if facts.random and value.meta.strides != target.meta.strides:
                raise Unsupported(
                    f"{facts.op} on a tensor that is not row-major: it would draw in another order"
                )
            self._write(target, value)
        if fresh:
            return fresh[0] if len(fresh) == 1 else tuple(fresh)
        return inplace.returned(self, facts, bound, result)

    def _copied(self, target: FakeTensor, source: Any) -> Node:
        node = self.recorder.read(source) if type(source) is FakeTensor else None
        if node is None:
            return self._filled(target, source)
        emit = self.recorder.emit
        if node.meta.dtype != target.meta.dtype or node.meta.device != target.meta.device:
            cast = {"dtype": target.meta.dtype, "device": target.meta.device}
            node = emit(aten._to_copy.default, (node,), cast)
        if node.meta.shape != target.meta.shape:
            node = emit(aten.expand.default, (node, list(target.meta.shape)), meta=_spread(node.meta, target.meta.shape))
        return node

    def _filled(self, target: FakeTensor, value: Any) -> Node:
        emit = self.recorder.emit
        meta = target.meta
        if type(value) is FakeTensor:
            return self._copied(target, value)
        options = {"dtype": meta.dtype, "device": meta.device, "pin_memory": False}
        return emit(aten.full.default, (list(meta.shape), value), options)

    def _change_metadata(self, facts: OpFacts, args: Any, kwargs: Any) -> FakeTensor:
        target = args[0]
        track = track_of(target)
        if track.store.input is not None and not track.chain:
            raise Unsupported(f"{facts.op} on a graph input")
        view = inplace.view_twin(facts.op)
        rest = tuple(args[1:])
        result = infer(view, (target.meta, *rest), kwargs)
        twin = self._view_results(facts_of(view), target, rest, kwargs, result)
        inplace.set_metadata(target, result)
        target.__dict__["track"] = track_of(twin)
        if facts.op is not aten.detach_.default:
            track_of(twin).writes.rise()
        return target

    # ---- between fakes and nodes

    def _record(self, op: Any, args: Any, kwargs: Any, result: Any) -> Node:
        """Emits `op` on the nodes behind the fakes. `result` holds while their memory is laid out as in
        eager.
        """
        exact = True
        if self.under_autocast and facts_of(op).opaque:
            raise Unsupported(f"{op} under autocast: what it calls inside would be cast")

        def lower(value: Any) -> Any:
            nonlocal exact
            kind = type(value)
            if kind is FakeTensor:
                node = self.recorder.read(value)
                if node.meta is not value.meta and not node.meta.same_layout(value.meta):
                    exact = False
                return node
            if kind is list or kind is tuple:
                return kind([lower(item) for item in value])
            if isinstance(value, torch.Tensor):
                return self.recorder.read(self.from_real(value))
            return value

        nodes = tuple([lower(value) for value in args])
        named = {name: lower(value) for name, value in kwargs.items()}
        return self.recorder.emit(op, nodes, named, result if exact else None)

    def _write(self, target: FakeTensor, node: Node) -> None:
        self.recorder.write(target, node)

    def _track_results(self, result: Any, node: Node) -> Any:
        if type(result) is TensorMeta:
            return self._track_fresh(result, node)
        if type(result) in (tuple, list):
            return type(result)(
                self._track_fresh(meta, self.recorder.item(node, i)) if type(meta) is TensorMeta else meta
                for i, meta in enumerate(result)
            )
        return result

    def _track_fresh(self, meta: TensorMeta, node: Node, zero: bool = False) -> FakeTensor:
        fake = make_fake(meta, zero=zero)
        fake.__dict__["track"] = Track(Store(node, meta), (), node)
        return fake

    def _track_view(self, meta: TensorMeta, base: FakeTensor, step: ViewStep, node: Node) -> FakeTensor:
        fake = make_fake(meta, base.fake_storage, zero=base._is_zerotensor())
        track = track_of(base)
        fake.__dict__["track"] = Track(track.store, (*track.chain, step), node, track.writes, track.ages)
        return fake
