"""The graph of a trace: its inputs, its nodes, and what operations give on tensors without data.

graph_call(torch.sin, [x])   ->   the value of a new node; its fake is what torch.sin gives for the fake of x
"""

from __future__ import annotations

import abc
import operator
import types
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import fx

from dyncomp import config
from dyncomp.errors import GraphBreak, InternalError
from dyncomp.fake import DataDependentShape, DataDependentValue, FakeMode, NoShapeRule, OtherLayout
from dyncomp.fake.errors import is_own_fault
from dyncomp.fake.refusal import is_eagers
from dyncomp.fake.tensor import FakeTensor
from dyncomp.guards.number import pinned_offset
from dyncomp.guards.source import Early, Source
from dyncomp.interp import warned
from dyncomp.interp.early_calls import EarlyCalls
from dyncomp.interp.machine import Frame
from dyncomp.interp.number_nodes import NumberNodes
from dyncomp.interp.rerun import may_fail, raises_otherwise
from dyncomp.interp.runtime_checks import RuntimeChecks
from dyncomp.interp.sizes import Sizes
from dyncomp.shape.errors import DataDependent
from dyncomp.shape.symbolic import PLAIN_TYPES, is_symbolic, numbers_in, unread_origins
from dyncomp.values import number_calls, registry
from dyncomp.values.base import Value
from dyncomp.values.instance import InstanceValue
from dyncomp.values.sequence import ListValue, TupleValue
from dyncomp.values.tensor_numbers import KNOB_HINT


class TraceGraph(abc.ABC):
    """Holds the graph; the trace that extends it knows the frames, the guards and how plain values look."""

    def __init__(self, context: Any, code: types.CodeType, duck: bool) -> None:
        self.context = context
        self.graph = fx.Graph()
        self.fake_mode = FakeMode()
        self.fake_mode.takes_late = True
        self.sizes = Sizes(context, code, self.user_line, self.fake_mode, duck)
        self._numbers = NumberNodes(self.graph, self._tensor_node, self._int_node)
        self.checks = RuntimeChecks(self.graph, self._numbers, self.sizes)
        self._wrote = False  # some operation so far wrote to an input
        self.early = EarlyCalls()
        self.frames: list[Frame] = []
        self.inputs: list[tuple[fx.Node, Source, Any, Any]] = []  # node, source, real tensor, fake
        self.may_fail = False  # the graph holds an operation whose errors depend on data
        self.raises_otherwise = False  # one of those is checked in other words than eager's
        self.may_be_caught = False  # it holds one inside a `try` or `with`
        self._by_source: dict[Source, Value] = {}

    @abc.abstractmethod
    def user_line(self) -> tuple[str, int]:
        """The user's line that is being traced."""

    @abc.abstractmethod
    def guard(self, source: Source, kind: str, payload: Any = None) -> None:
        """Records a guard."""

    @abc.abstractmethod
    def constant(self, obj: Any) -> Value:
        """The value of an object that is the same in every call."""

    @abc.abstractmethod
    def raise_real(self, error: BaseException) -> NoReturn:
        """Raises inside the traced program what an operation raised."""

    def placeholder(self, obj: Any, source: Source, fake: Any) -> fx.Node:
        with self.graph.inserting_before(self._first_call()):
            node = self.graph.placeholder(f"arg_{len(self.inputs)}")
        node.meta["example_value"] = fake
        node.meta["user_line"] = self.user_line()
        self.inputs.append((node, source, obj, fake))
        return node

    def number_node(self, number: Any) -> Any:
        return self._numbers.of(number)

    def bind_number(self, number: Any, node: fx.Node) -> None:
        self._numbers.bind(number, node)

    def bind_sizes(self, sizes: Sequence[Any], node: fx.Node) -> None:
        self._numbers.bind_sizes(sizes, node)

    def _tensor_node(self, source: Source) -> fx.Node:
        return self._by_source[source].fx_arg(self)  # type: ignore[arg-type, no-any-return]

    def _int_node(self, source: Source, number: Any) -> fx.Node:
        """The graph input of a number of the call."""
        return self.placeholder(source.example if isinstance(source, Early) else number.node.hint, source, number)

    def givers_of_numbers(self, fakes: Sequence[Any]) -> set[fx.Node]:
        """Inputs beside these that the graph needs: an equality may have written sizes of these in terms of numbers that only other
        tensors of the call have, such as `y.size(0) % 3`.
        """
        if self.sizes.env is None:
            return set()
        return {
            self._int_node(origin.value_source(), number) if origin.stands_alone else self._tensor_node(origin.source)
            for origin, number in unread_origins(self.sizes.env, fakes)
        }

    def _first_call(self) -> fx.Node:
        """Placeholders stand together before everything else."""
        return next((n for n in self.graph.nodes if n.op != "placeholder"), self.graph._root)

    def read_layout(self, value: Value | None = None, offset: bool = True) -> None:
        """The program reads strides of `value`, or where it starts in its storage; without a value, of any tensor so far.

        Offsets that are plain numbers in this trace are guarded: those of the outside tensors whose memory is meant.
        """
        tensors = [(source, real, fake) for _, source, real, fake in self.inputs if isinstance(real, torch.Tensor)]
        storage = None
        if value is not None:
            storage = getattr(value.fake(self), "fake_storage", None)  # type: ignore[attr-defined]
            if value.source is not None:
                tensors.append((value.source, value.real(), value.fake(self)))  # type: ignore[attr-defined]
        for source, real, fake in tensors:
            if storage is not None and fake.fake_storage is not storage:
                continue
            if not offset:
                self.sizes.note_strides(source)
            elif not is_symbolic(fake.meta.offset):
                self.guard(source, "int_program", pinned_offset(source, int(real.storage_offset())))
                self.sizes.note_offset(real, source)

    def graph_call(self, fn: Any, args: Sequence[Value], kwargs: dict[str, Value] | None = None) -> Value:
        if len(self.graph.nodes) > config.graph_limit:
            raise GraphBreak("graph-too-large", f"more than {config.graph_limit} operations")
        rewritten = number_calls.rewrite(self, fn, args, kwargs or {})  # type: ignore[arg-type]
        if rewritten is not None:
            return rewritten
        fx_args = tuple(arg.fx_arg(self) for arg in args)  # type: ignore[arg-type]
        fx_kwargs = {name: arg.fx_arg(self) for name, arg in (kwargs or {}).items()}  # type: ignore[arg-type]
        if self.fake_mode.levels and "as_strided" in str(_name(fn)):
            self.read_layout()  # what torch makes of it there counts from the start of the storage
        result = self._run_on_fakes(fn, fx_args, fx_kwargs)
        self.add_checks(fn)
        if not self._wrote and _may_write(fn, kwargs):
            self._wrote = self.writes()
        kind = "call_method" if isinstance(fn, str) else "call_function"
        node = self.graph.create_node(kind, fn, fx_args, fx_kwargs)
        self._note_failing(may_fail(fn, fx_args), fn)
        value = self.result(node, result)  # later users of what was written hang on this node
        return args[0] if isinstance(result, list | tuple) and _gives_back_first(fn) else value

    def add_checks(self, fn: Any) -> None:
        """Run-time checks come before the operation that relies on them. Where one fails the frame runs again, which needs that
        nothing was written yet: graphs that are run node by node write as they go.
        """
        made = self.checks.made
        self.checks.add()
        if self.checks.made > made and self.wrote_for_good():
            raise GraphBreak("data-dependent-shape", f"a run-time check for {_name(fn)} after a write to an input")

    def wrote_for_good(self) -> bool:
        """True if a graph that raises from here on may have written to an input, so that the frame cannot run again. Writes to
        tensors of inference mode are not counted, so nobody can tell afterwards (`node_by_node`).
        """
        return self._may_run_node_by_node() and (self.writes() or torch.is_inference_mode_enabled())

    def _may_run_node_by_node(self) -> bool:
        if not getattr(getattr(self.context, "backend", None), "writes_last", False):
            return True
        return torch.is_grad_enabled() and any(isinstance(f, FakeTensor) and f.requires_grad for *_, f in self.inputs)

    def _note_failing(self, may_fail: bool, fn: Any) -> None:
        caught = any(frame.op.handler is not None and not _only_leaves_levels(frame) for frame in self.frames)
        backend = getattr(self.context, "backend", None)
        if may_fail and caught and self.writes() and not getattr(backend, "writes_last", False):
            raise GraphBreak("caught-error", f"{_name(fn)} may raise inside a try or with, after a write to an input")
        self.may_fail = self.may_fail or may_fail
        self.raises_otherwise = self.raises_otherwise or may_fail and raises_otherwise(fn)
        self.may_be_caught = self.may_be_caught or caught

    def writes(self) -> bool:
        """True if the graph so far writes to a tensor that it was given."""
        fakes = (fake for *_, fake in self.inputs)
        return any(isinstance(fake, FakeTensor) and fake.fake_storage.version > 0 for fake in fakes)

    def result(self, node: fx.Node, fake: Any) -> Value:
        """The value of a node; tuples and lists are taken apart."""
        node.meta["example_value"] = fake
        node.meta["user_line"] = self.user_line()
        node.meta["stack"] = tuple(frame.where() for frame in self.frames)
        rule = registry.result_rule(fake)
        if rule is not None:
            return rule(self, node, fake)  # type: ignore[no-any-return]
        if isinstance(fake, tuple | list):
            items = [self._part(node, i, part) for i, part in enumerate(fake)]
            return self.sequence_like(type(fake), items)
        return self.constant(fake)

    def _part(self, node: fx.Node, index: int, fake: Any) -> Value:
        if registry.result_rule(fake) is None and not isinstance(fake, tuple | list):
            return self.constant(fake)
        part = self.graph.call_function(operator.getitem, (node, index))
        return self.result(part, fake)

    def sequence_like(self, cls: type, items: list[Value]) -> Value:
        if cls is list:
            return ListValue(items)
        if cls in (tuple, torch.Size):
            return TupleValue(items, cls)
        return InstanceValue(cls, storage=TupleValue(items, tuple))

    def _run_on_fakes(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        fake_args = fx.map_arg(args, _example)
        fake_kwargs = fx.map_arg(kwargs, _example)

        def run() -> Any:
            return warned.run_quietly(self, str(_name(fn)), _may_write(fn, kwargs), call)

        def call() -> Any:
            if isinstance(fn, str):
                return self.fake_mode.run(getattr(fake_args[0], fn), tuple(fake_args[1:]), dict(fake_kwargs))
            return self.fake_mode.run(fn, tuple(fake_args), dict(fake_kwargs))

        try:
            try:
                return run()
            except (DataDependentShape, DataDependentValue) as error:
                if not error.needs_env or self.sizes.env is not None:
                    raise
                self.sizes.begin()
                return run()
            except TypeError:
                # torch's parser takes no symbolic number in some places, such as lists of floats: the numbers themselves may fit.
                if not any(True for _ in numbers_in([list(fake_args), dict(fake_kwargs)])):
                    raise
                fake_args, fake_kwargs = _pinned(fake_args), _pinned(fake_kwargs)
                return run()
        except GraphBreak:
            raise
        except DataDependentShape as error:
            raise GraphBreak("data-dependent-shape", str(error), _knob_hint(error)) from error
        except DataDependent as error:
            raise GraphBreak("data-dependent-shape", str(error), error.cure) from error
        except DataDependentValue as error:
            raise GraphBreak("data-dependent-value", str(error), _knob_hint(error)) from error
        except OtherLayout as error:
            raise GraphBreak("unsupported-tensor", f"{_name(fn)}: {error}") from error
        except NoShapeRule as error:
            raise GraphBreak("fake-failed", f"{_name(fn)}: {error}") from error
        except Exception as error:  # eager raises it too: the program may catch it
            if isinstance(error, NotImplementedError) and not is_eagers(error):
                raise GraphBreak("fake-failed", f"{_name(fn)}: {error}") from error
            if is_own_fault(error):
                raise InternalError(f"{_name(fn)} on tensors without data: {type(error).__name__}: {error}") from error
            self.raise_real(error)


def _gives_back_first(fn: Any) -> bool:
    """In-place foreach functions return the very list that they were given."""
    name = str(_name(fn)).rpartition(".")[2]
    return name.startswith("_foreach_") and name.endswith("_")


def _may_write(fn: Any, kwargs: Any) -> bool:
    """By its name: in-place methods and operators, assignments to items, `out=`."""
    name = str(_name(fn))
    return name.endswith("_") or name == "setitem" or getattr(operator, name, None) is fn and name.startswith("i") or bool(kwargs and "out" in kwargs)


def _only_leaves_levels(frame: Frame) -> bool:
    """True in torch's code of function transforms: its `with` blocks put back what a graph that raises puts back anyway."""
    return str(frame.function.globals.get("__name__")).startswith("torch._functorch.")


def _example(node: fx.Node) -> Any:
    return node.meta["example_value"]


def _pinned(value: Any) -> Any:
    """Arguments with the numbers of this call in place of symbolic ones."""
    if isinstance(value, tuple | list):
        return type(value)([_pinned(item) for item in value])
    if isinstance(value, dict):
        return {key: _pinned(item) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*map(_pinned, (value.start, value.stop, value.step)))
    return PLAIN_TYPES[type(value)](value) if is_symbolic(value) else value


def _knob_hint(error: DataDependentShape | DataDependentValue) -> str:
    """The cure where a knob lets the operation into the graph; empty: the reason's own."""
    if isinstance(error, DataDependentValue):
        return KNOB_HINT if error.op == "aten._local_scalar_dense.default" else ""
    if not error.op.startswith("aten."):
        return ""
    return (
        "Use a masked computation of fixed shape (torch.where) instead of selecting elements, or set "
        "dyncomp.config.capture_dynamic_output_shape_ops = True to take the operation into the graph."
    )


def _name(fn: Any) -> str:
    return fn if isinstance(fn, str) else getattr(fn, "__qualname__", repr(fn))
