"""FakeMode: runs torch operations on FakeTensors, computing shapes and never values.

mode = FakeMode()
x = mode.from_real(torch.ones(2, 3))
with mode:
    y = x.t() @ x          # FakeTensor of shape (3, 3)
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dyncomp.fake import composites as _composites  # noqa: F401  (fills torch's place for them)
from dyncomp.fake import constant, inplace, known_number, late, number_forms, plain_ints, tangents
from dyncomp.fake.autocast import autocast_as_called
from dyncomp.fake.errors import DataDependentShape, DataDependentValue, NoShapeRule
from dyncomp.fake.facts import QUERIES, Kind, OpFacts, facts_of
from dyncomp.fake.infer import infer
from dyncomp.fake.levels import Levels
from dyncomp.fake.real import check_supported, meta_of_real
from dyncomp.fake.stand_in import stand_in
from dyncomp.fake.tensor import FakeStorage, FakeTensor, TensorMeta, as_result, make_fake
from dyncomp.shape.layout import Ints

if TYPE_CHECKING:  # sympy comes with it, and static shapes never need it
    from dyncomp.shape.env import ShapeEnv

# torch composes them otherwise for tensors without data, or from plain sizes: they have shape rules, and stay whole in graphs too.
_WHOLE = frozenset({torch.ops.aten.one_hot.default, torch.ops.aten.affine_grid_generator_backward.default})
_RNN_LAYER = torch.ops.aten.mkldnn_rnn_layer.default
_ITEM = torch.ops.aten._local_scalar_dense.default
_COMPOSITE_KEY = torch._C.DispatchKey.CompositeImplicitAutograd


class FakeMode(TorchDispatchMode):
    """One world of fakes. Real tensors that meet fakes inside become constants."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True would wrap the dispatch function in a decorator that imports torch._dynamo.
        return False

    @classmethod
    def is_infra_mode(cls) -> bool:
        return True

    records = False  # operations go into a graph
    _asked_directly: Any = None  # an operation that comes not from torch's dispatcher: autocast is still as it was

    def __init__(self, env: ShapeEnv | None = None) -> None:
        """`env` owns the symbolic sizes, if there are any."""
        super().__init__()
        self.env = env
        self.takes_late = False  # numbers that only running the program gives may be in the graph
        self.levels = Levels()  # of the program that is traced: what `run` calls, runs in them
        self.draws = False  # an operation ran that draws random numbers, or may do so out of sight
        self.runs_python = False  # an operation ran of which nobody knows what else it does
        self._dispatchers: list[Any] = []
        # Weak in the tensors, so that a mode never keeps a user's data alive.
        self._known: dict[int, tuple[weakref.ref[torch.Tensor], FakeTensor]] = {}
        self._storages: dict[int, tuple[weakref.ref[torch.Tensor], FakeStorage]] = {}

    # ---- real tensors

    def from_real(self, tensor: torch.Tensor, layout: tuple[Ints, Ints] | None = None, offset: Any = None) -> FakeTensor:
        """The fake of a real tensor: always the same one. Tensors that share memory share a storage
        identity. `layout`: symbolic (sizes, strides) in place of the tensor's own; so `offset`.
        """
        if type(tensor) is FakeTensor:
            return tensor
        known = self._known.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        check_supported(tensor)
        meta = meta_of_real(tensor)
        if layout is not None or offset is not None:
            sizes, strides = (meta.shape, meta.strides) if layout is None else layout
            meta = TensorMeta(sizes, strides, meta.dtype, meta.device, meta.offset if offset is None else offset)
        fake = self._fake_of(tensor, meta, self._storage_of(tensor))
        self._known[id(tensor)] = (weakref.ref(tensor), fake)
        return fake

    def _storage_of(self, tensor: torch.Tensor) -> FakeStorage:
        address = tensor.untyped_storage()._cdata
        known = self._storages.get(address)
        if known is not None:
            owner = known[0]()
            if owner is not None and owner.untyped_storage()._cdata == address:
                return known[1]
        storage = FakeStorage()
        self._storages[address] = (weakref.ref(tensor), storage)
        return storage

    def _fake_of(self, tensor: torch.Tensor, meta: TensorMeta, storage: FakeStorage) -> FakeTensor:
        if tensor.requires_grad and not tensor.is_leaf:
            # Only an operation's result is a non-leaf, so the fake is one too.
            fake = as_result(make_fake(meta, storage, requires_grad=True))
        else:
            fake = make_fake(meta, storage, requires_grad=tensor.requires_grad)
        if isinstance(tensor, torch.nn.Parameter):
            fake.__dict__["_is_param"] = True
        elif getattr(tensor, "_is_buffer", False):
            fake.__dict__["_is_buffer"] = True
        return fake

    # ---- running

    def run(
        self, fn: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Calls `fn` under this mode."""
        whole = self.whole(fn, args, kwargs or {})
        if whole is not None:
            return whole
        formed = self.formed(fn, args, kwargs or {})
        if formed is not NotImplemented:
            return formed
        fn = stand_in(fn)
        if self.levels.concern(fn):
            with self.levels.entered(), self:
                return fn(*args, **(kwargs or {}))
        with self:
            return fn(*args, **(kwargs or {}))

    def whole(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call that would pin a number of the call in torch's argument parser; None for all others."""
        if self.env is None and not self.records or self.levels:
            return None
        call = plain_ints.operation(fn, args, kwargs, self.records)
        if call is None:
            return None
        self._asked_directly = call[0]
        try:
            return self.__torch_dispatch__(call[0], (), call[1], call[2])
        finally:
            self._asked_directly = None

    def formed(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The same for calls that are made in another form; NotImplemented for all others."""
        form = None if self.env is None or self.levels else number_forms.form_of(fn, args, kwargs)
        if form is None:
            return NotImplemented
        with self:
            return form(self)

    def __enter__(self) -> FakeMode:
        if self.env is not None:
            # C++ kernels that torch composes would ask for plain sizes; its Python ones go first here.
            dispatcher = torch._C._EnablePythonDispatcher()
            dispatcher.__enter__()
            self._dispatchers.append(dispatcher)
        super().__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        super().__exit__(kind, error, trace)
        if self.env is not None:
            self._dispatchers.pop().__exit__(kind, error, trace)
        if kind is RuntimeError and "data is not allocated yet" in str(error):
            # A C++ kernel that torch composes looked at the data.
            raise DataDependentValue("C++ kernel", "it reads tensor data") from error

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        facts = facts_of(op)
        if facts.random or facts.opaque:
            self.draws = True
            self.runs_python = self.runs_python or facts.opaque
        return getattr(self, _METHODS[facts.kind])(facts, args, kwargs or {})

    def _query(self, facts: OpFacts, args: Any, kwargs: Any) -> Any:
        return QUERIES[facts.op](*args, **kwargs)

    def _composite(self, facts: OpFacts, args: Any, kwargs: Any) -> Any:
        if facts.op in _WHOLE:
            return self._functional(facts, args, kwargs)
        # The C++ kernel itself: `op.decompose` would prefer Python decompositions, which compute otherwise.
        directly, self._asked_directly = self._asked_directly is facts.op, None
        with nullcontext() if directly else autocast_as_called(facts.op), self:
            python = facts.op.py_kernels.get(_COMPOSITE_KEY) if self.env is not None else None
            if python is not None:
                return python(*args, **kwargs)
            return facts.op._op_dk(_COMPOSITE_KEY, *args, **kwargs)

    def _functional(self, facts: OpFacts, args: Any, kwargs: Any) -> Any:
        if facts.op in tangents.FORMS:
            formed = self._form(facts, args, kwargs)
            if formed is not NotImplemented:
                return formed
        known = constant.evaluate(facts, args, kwargs)
        if known is None:
            known = self._known_item(facts, args)
        if known is not None:
            return known
        result = self._late_result(facts, args, kwargs)
        if result is not None:
            return self._wrap(result, None)
        for position in facts.hidden:
            if position < len(args) and type(args[position]) is FakeTensor:
                args[position].fake_storage.version += 1
        result = self._wrap(infer(facts.op, self.metas(args), self.metas(kwargs)), None, facts.op is tangents.ZEROS_WITHOUT_MEMORY)
        constant.follow(facts, result, args, kwargs)
        if self.env is not None:
            known_number.follow(facts, result, args, kwargs)
        return result

    def _form(self, facts: OpFacts, args: Any, kwargs: Any) -> Any:
        """The operation as others that the mode sees; NotImplemented where it stays what it is."""
        with self:
            return tangents.FORMS[facts.op](*args, **kwargs)

    def _known_item(self, facts: OpFacts, args: Any) -> Any:
        """The number that reading a tensor gives, where it follows from the numbers of the call."""
        if facts.op is not _ITEM or self.env is None or type(args[0]) is not FakeTensor:
            return None
        number = known_number.number_of(args[0])
        if number is not None:
            return bool(number) if isinstance(number, torch.SymBool) else number
        return None if self.takes_late and late.allowed(facts) else known_number.pinned_item(args[0])

    def _view(self, facts: OpFacts, args: Any, kwargs: Any) -> Any:
        base = args[0] if args else kwargs[facts.names[0]]
        if type(base) is not FakeTensor:
            known = constant.lift(facts, base)
            if known is not None:
                return known
            base = self.from_real(base)
            args = (base, *args[1:])
        result = infer(facts.op, self.metas(args), self.metas(kwargs))
        fake = self._wrap(result, base.fake_storage, base._is_zerotensor())
        constant.view(facts, base, fake, args, kwargs)
        if self.env is not None:
            known_number.follow(facts, fake, args, kwargs)
        return fake

    def _in_place(self, facts: OpFacts, args: Any, kwargs: Any) -> Any:
        return inplace.run(self, facts, args, kwargs)

    def _out(self, facts: OpFacts, args: Any, kwargs: Any) -> Any:
        return inplace.run_out(self, facts, args, kwargs)

    def _late_result(self, facts: OpFacts, args: Any, kwargs: Any) -> Any:
        """Metadata of a result with a number that only running the operation gives; None for all other operations."""
        if facts.op is _RNN_LAYER and torch.is_grad_enabled() and any(type(a) is FakeTensor and a.requires_grad for a in args):
            raise NoShapeRule(str(facts.op), "how much a recurrent layer keeps for its backward shows when it runs")
        if not facts.data_value and (not facts.data_shape or constant.has_static_shape(facts, args)):
            return None
        can = self.takes_late and late.allowed(facts)
        if can and self.env is not None:
            return late.infer_late(self.env, facts, args, kwargs, self.metas)
        kind = DataDependentValue if facts.data_value else DataDependentShape
        what = "the result depends" if facts.data_value else "the shape of the result depends"
        raise kind(str(facts.op), f"{what} on tensor data", needs_env=can)

    # ---- between fakes and their metadata

    def metas(self, value: Any) -> Any:
        """`value` with every tensor, in nested containers too, replaced by its `TensorMeta`."""
        kind = type(value)
        if kind is FakeTensor:
            return value.meta
        if kind is tuple:
            return tuple([self.metas(item) for item in value])
        if kind is list:
            return [self.metas(item) for item in value]
        if kind is dict:
            return {name: self.metas(item) for name, item in value.items()}
        if isinstance(value, torch.Tensor):
            return self.from_real(value).meta
        return value

    def _wrap(self, result: Any, storage: FakeStorage | None, zero: bool = False) -> Any:
        kind = type(result)
        if kind is TensorMeta:
            return make_fake(result, storage, zero=zero)
        if kind is tuple:
            return tuple([self._wrap(item, storage, zero) for item in result])
        if kind is list:
            return [self._wrap(item, storage, zero) for item in result]
        return result


_METHODS = {
    Kind.QUERY: "_query",
    Kind.COMPOSITE: "_composite",
    Kind.FUNCTIONAL: "_functional",
    Kind.VIEW: "_view",
    Kind.IN_PLACE: "_in_place",
    Kind.OUT: "_out",
}
