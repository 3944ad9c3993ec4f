"""One trace in progress: the `Tracer` that values and handlers talk to.

Trace(func, args, context, stop).run()  ->  the value that the frame returns, the graph, guards and effects
"""

from __future__ import annotations

import builtins
import re
import sys
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from dyncomp import marks
from dyncomp.bytecode.canonical import canonical
from dyncomp.bytecode.continuation import is_resume, locate
from dyncomp.bytecode.handled import handled_slots
from dyncomp.errors import GraphBreak, SkipFrame
from dyncomp.guards.record import GuardList
from dyncomp.guards.source import ClassAttr, Const, Func, FuncCode, FuncGlobals, Local, SlotAttr, Source, Type, Weak
from dyncomp.interp.effects import Effects
from dyncomp.interp.inline import inline
from dyncomp.interp.lifetimes import Watch, kept_variables
from dyncomp.interp.machine import Frame, StopTracing, UnreadArgument
from dyncomp.interp.trace_graph import TraceGraph
from dyncomp.shape.symbolic import is_symbolic
from dyncomp.values import registry
from dyncomp.values.base import PyRaise, Value
from dyncomp.values.builtin import BuiltinValue
from dyncomp.values.class_facts import HEAP_TYPE
from dyncomp.values.constant import ConstantValue, fold_call
from dyncomp.values.exception import ExceptionValue
from dyncomp.values.function import BoundMethodValue, FunctionValue
from dyncomp.values.klass import ClassValue
from dyncomp.values.mapping import DictValue
from dyncomp.values.opaque import OpaqueValue
from dyncomp.values.pymodule import PyModuleValue
from dyncomp.values.sequence import ListValue, TupleValue
from dyncomp.values.set_layout import Layout, is_orderly
from dyncomp.values.sets import SetValue
from dyncomp.values.slices import SliceValue
from dyncomp.values.sym_number import wrap_number

# Values without an identity that a program could rely on: never shared between two sources.
_NO_IDENTITY = (tuple, torch.Size, frozenset, int, range)
# Immutable objects of the language that are constants as they are.
_FIXED_TYPES = (
    slice, range, types.CodeType, property, classmethod, staticmethod, types.GenericAlias, types.UnionType,
    types.GetSetDescriptorType, types.MemberDescriptorType,
)  # fmt: skip
_PINNED_ROOTS = (Const, Weak, FuncGlobals)


class Trace(TraceGraph):
    def __init__(
        self,
        func: types.FunctionType,
        args: tuple[Any, ...],
        context: Any,
        stop: int | None = None,
        duck: bool = True,
    ):
        self.func, self.args, self.stop = func, args, stop
        super().__init__(context, func.__code__, duck)
        self.guards = GuardList()
        self.effects = Effects()
        self.state: dict[str, Any] = {}
        self.top_step = -1
        self.top: Frame | None = None
        self.break_stack: tuple[tuple[str, int, str], ...] = ()
        self._by_id: dict[int, Value] = {}
        self._object_of: dict[Source, Any] = {}
        self._fixed: dict[int, Value] = {}
        self._trusted: set[int] = set()
        self._alive: list[Any] = []  # so that no id is used twice

    # -- running --------------------------------------------------------------------------------------------
    def run(self) -> Value | None:
        """What the frame returns, or None if it stopped before step `stop`."""
        function = FunctionValue(
            self.func.__code__, self.func.__globals__, FuncGlobals(Func()), self.func, Func(), self
        )  # type: ignore[arg-type]
        names = self.func.__code__.co_varnames
        variables: dict[str, Value] = {
            names[i]: UnreadArgument(arg, Local(i, names[i])) for i, arg in enumerate(self.args)
        }
        self.top = Frame(self, function, variables, top=True)
        self._watch = Watch(self.top, self.args)
        try:
            value = self._run_top(self.top)
            registry.end_graph(self)
            return value
        finally:
            registry.end_trace(self)

    @staticmethod
    def _run_top(top: Frame) -> Value | None:
        try:
            return top.run()
        except StopTracing:
            return None

    def before_top_step(self, frame: Frame) -> None:
        if self._watch:
            self._check_lifetimes(frame)
        self.top_step += 1
        if self.top_step == self.stop:
            raise StopTracing

    def _check_lifetimes(self, frame: Frame) -> None:
        try:
            self._watch.check(frame, self._by_id)
        except GraphBreak as error:
            self.note_break(error)
            raise

    def kept_variables(self) -> frozenset[str]:
        """Variables of the top frame that its rest must hold although it may not read them."""
        assert self.top is not None
        return kept_variables(self.top, self._by_id, self._alive)

    def may_be_gone(self, obj: Any) -> bool:
        return self.top is not None and self._watch.may_be_gone(obj, self.top, self._by_id)

    def step(self) -> int:
        return self.top_step

    def close(self) -> None:
        """Lets go of the user's objects now, not when the garbage collector meets the cycles among values."""
        for value in (*self._by_source.values(), *self._by_id.values(), *self._fixed.values()):
            vars(value).clear()
        if self.top is not None:
            vars(self.top).clear()
        vars(self).clear()

    def last_stack(self) -> tuple[tuple[str, int, str], ...]:
        return (self.top.where(),) if self.top is not None else ()

    def guard_identities(self) -> None:
        """What changed was taken for another object than everything else of its type; so it must be in later
        calls."""
        changed = {id(value): value for value in map(_object_of, self.effects.changed()) if value.source is not None}
        kinds: dict[Any, list[Source]] = {}
        for value in changed.values():
            kinds.setdefault((type(value), value.python_type()), []).append(value.source)  # type: ignore[arg-type]
        if not kinds:
            return
        others: dict[Any, dict[Source, None]] = {kind: {} for kind in kinds}
        for other in map(_object_of, list(self._by_id.values())):
            if id(other) in changed or other.source is None or isinstance(other.source, Const):
                continue
            kind = (type(other), other.python_type())
            if kind in others:
                others[kind][other.source] = None
        for kind, sources in kinds.items():
            if len(sources) > 1 or others[kind]:
                self.guard(sources[0], "distinct", (tuple([(s,) for s in sources]), tuple(others[kind])))

    def user_line(self) -> tuple[str, int]:
        if not self.frames:
            return self.func.__code__.co_filename, self.func.__code__.co_firstlineno
        return self.frames[-1].where()[:2]

    def note_break(self, error: GraphBreak) -> None:
        """The innermost frame that a break passes first tells where it is."""
        if getattr(error, "stack", None) is None:
            error.stack = tuple(frame.where() for frame in self.frames)  # type: ignore[attr-defined]

    def note_raise(self, value: ExceptionValue) -> None:
        if not hasattr(value, "stack"):
            value.stack = tuple(frame.where() for frame in self.frames)  # type: ignore[attr-defined]

    # -- values of objects -----------------------------------------------------------------------------------
    def guard(self, source: Source, kind: str, payload: Any = None) -> None:
        subjects = [one for group in payload[0] for one in group] if kind == "distinct" else [source]
        if all(isinstance(one.root, Const) and id(one.root.value) in self._trusted for one in subjects):
            return
        self.guards.add(source, kind, payload, self.user_line())

    def trust(self, obj: Any) -> Value:
        """A fixed object that nobody changes: what is read of it needs no guard."""
        self._trusted.add(id(obj))
        self._alive.append(obj)
        return self.constant(obj)

    def wrap(self, obj: Any, source: Source) -> Value:
        found = self._by_source.get(source)
        if found is not None:
            return found
        self._object_of[source] = obj
        value = self._by_id.get(id(obj)) if not isinstance(obj, _NO_IDENTITY) else None
        if value is None:
            value = self._wrap_new(obj, source)
        elif not isinstance(value, ConstantValue):
            self._guard_same(obj, value, source)
        self._by_source[source] = value
        return value

    def _wrap_new(self, obj: Any, source: Source) -> Value:
        factory = registry.wrap_rule(obj)
        if factory is None:
            raise GraphBreak("unsupported-object", f"{source}: a {type(obj).__qualname__} object")
        if isinstance(obj, slice | range) and not isinstance(source.root, _PINNED_ROOTS):
            return self._wrap_bounds(obj, source)
        if isinstance(obj, _FIXED_TYPES):
            self.guard(source, "id", obj)
            return ConstantValue(obj)
        try:
            value: Value = factory(self, obj, source)
        except GraphBreak:  # nothing to look into, but it can be passed on
            value = OpaqueValue(obj, source)
        if isinstance(value, ConstantValue):
            return value
        self._guard_kind(obj, value, source)
        if not isinstance(obj, _NO_IDENTITY):
            self._by_id[id(obj)] = value
            self._alive.append(obj)
        return value

    def _wrap_bounds(self, obj: slice | range, source: Source) -> Value:
        """By what they hold: programs make them anew for each call."""
        self.guard(source, "type", type(obj))
        bounds = [SlotAttr(source, name) for name in ("start", "stop", "step")]
        if isinstance(obj, slice):
            value = SliceValue([self.wrap(getattr(obj, bound.index), bound) for bound in bounds], source)
            self._by_id[id(obj)] = value
            self._alive.append(obj)
            return value
        for bound in bounds:
            self.guard(bound, "equals", getattr(obj, bound.index))
        known = ConstantValue(obj)
        known.source = source  # it is still this object that is handed on, and asked with `is`
        return known

    def _guard_kind(self, obj: Any, value: Value, source: Source) -> None:
        """What choosing this kind of value relied on."""
        cls = obj if isinstance(obj, type) else type(obj)
        if self.sizes.is_made_anew(cls, source) and not issubclass(cls, torch.nn.Module):
            raise SkipFrame("unsupported-object", f"the class {cls.__qualname__}, which is another one in each call")
        if (
            isinstance(source, Const | Weak | Func | FuncGlobals)
            or isinstance(source, ClassAttr)
            and isinstance(source.base, Type)
        ):
            return
        if (
            isinstance(value, FunctionValue)
            and not isinstance(source.root, _PINNED_ROOTS)
            and not _from_globals(source)
        ):
            self.guard(source, "type", types.FunctionType)
            self.guard(FuncCode(source), "id", obj.__code__)
        elif isinstance(value, ClassValue | BuiltinValue | PyModuleValue | FunctionValue):
            self.guard(source, "id", obj)
        else:
            self.guard(source, "type", type(obj))

    def _guard_same(self, obj: Any, value: Value, source: Source) -> None:
        """One object under a second source."""
        if isinstance(source, Const | Weak | Func) or value.source is None:
            return
        if isinstance(value, ClassValue | BuiltinValue | PyModuleValue | FunctionValue):
            if not (isinstance(source, ClassAttr) and isinstance(source.base, Type)):
                self.guard(source, "id", obj)
        else:
            self.guard(source, "same_as", value.source)

    def are_same(self, left: Source, right: Source) -> bool | None:
        """Whether two outside values are one object, guarded; None where that is not known."""
        if left not in self._object_of or right not in self._object_of:
            return None
        same = self._object_of[left] is self._object_of[right]
        self.guard(left, "same_as" if same else "not_same_as", right)
        return same

    def constant(self, obj: Any) -> Value:
        rule = registry.WRAP_TYPE.get(type(obj))
        if type(obj) in _PLAIN_CONSTANTS or isinstance(obj, _FIXED_TYPES):
            return ConstantValue(obj)
        if rule is not None and type(obj) in _CONTAINERS:
            return self._constant_container(obj)
        found = self._fixed.get(id(obj))
        if found is None:
            found = self._fixed[id(obj)] = self._new_fixed(obj)
            self._alive.append(obj)
        return found

    def _constant_container(self, obj: Any) -> Value:
        if type(obj) is list:
            return ListValue([self.constant(item) for item in obj])
        if type(obj) in (tuple, torch.Size):
            return TupleValue([self.constant(item) for item in obj], type(obj))
        if type(obj) in (set, frozenset):
            layout = Layout(obj, ("constant", obj)) if type(obj) is frozenset and is_orderly(obj) else None
            return SetValue(_first_wins(self, [self.constant(item) for item in obj]), type(obj), layout=layout)
        pairs = [(self.constant(key), self.constant(value)) for key, value in obj.items()]
        return self.dict_of_pairs(pairs)

    def _new_fixed(self, obj: Any) -> Value:
        if is_symbolic(obj):
            return wrap_number(self, obj)  # type: ignore[arg-type]
        if isinstance(obj, type):
            # Attributes of built-in classes never change; others are guarded through the class.
            return ClassValue(
                obj, Weak(weakref.ref(obj), obj.__qualname__) if obj.__flags__ & HEAP_TYPE else None
            )
        if isinstance(obj, types.FunctionType):
            source = Weak(weakref.ref(obj), obj.__qualname__)
            return FunctionValue(
                obj.__code__, obj.__globals__, self.globals_source(obj, source), obj, source, self
            )  # type: ignore[arg-type]
        if isinstance(obj, types.MethodType):
            return BoundMethodValue(self.constant(obj.__func__), self.constant(obj.__self__))
        known = self._by_id.get(id(obj))
        if known is not None:
            return known
        factory = registry.wrap_rule(obj)
        if factory is None:
            raise GraphBreak("unsupported-object", f"a {type(obj).__qualname__} object")
        value: Value = factory(self, obj, Const(obj))
        if isinstance(value, ConstantValue):
            return ConstantValue(obj)
        self._by_id[id(obj)] = value
        return value

    def tuple_of(self, items: list[Value]) -> TupleValue:
        return TupleValue(items, tuple)

    def list_of(self, items: list[Value]) -> ListValue:
        return ListValue(items)

    def slice_of(self, bounds: list[Value]) -> Value:
        if all(bound.is_constant() and not bound.symbolic for bound in bounds):
            return ConstantValue(slice(*[bound.as_constant() for bound in bounds]))
        return SliceValue(bounds)

    def dict_of_pairs(self, pairs: Sequence[tuple[Value, Value]]) -> DictValue:
        return DictValue({key.key(self): (key, value) for key, value in pairs})

    def set_of(self, items: Sequence[Value]) -> SetValue:
        return SetValue(_first_wins(self, items))

    # -- namespaces ------------------------------------------------------------------------------------------
    def globals_source(self, fn: types.FunctionType, source: Source | None) -> Source:
        """Functions of one imported module share one root."""
        module = sys.modules.get(fn.__globals__.get("__name__", ""))
        if source is None or module is not None and vars(module) is fn.__globals__:
            return Const(fn.__globals__, f"globals of {fn.__globals__.get('__name__')}")
        return FuncGlobals(source)

    def globals_of(self, function: FunctionValue) -> DictValue:
        source = function.globals_source
        assert source is not None
        return self.wrap(function.globals, source)  # type: ignore[return-value]

    def builtins_of(self, function: FunctionValue) -> DictValue:
        found = function.globals.get("__builtins__", builtins)
        namespace = vars(found) if isinstance(found, types.ModuleType) else found
        return self.wrap(namespace, Const(namespace, "builtins"))  # type: ignore[return-value]

    # -- calls and errors ------------------------------------------------------------------------------------
    def inline(self, function: Value, args: Sequence[Value], kwargs: dict[str, Value] | None = None) -> Value:
        assert isinstance(function, FunctionValue)
        return inline(self, function, args, kwargs or {})

    def call(self, fn: Value, args: Sequence[Value], kwargs: dict[str, Value] | None = None) -> Value:
        mark = marks.of(fn.real()) if fn.is_constant() else None
        if mark is not None:
            return self._call_marked(mark, fn, args, kwargs or {})
        return fn.call(self, args, kwargs or {})  # type: ignore[arg-type]

    def _call_marked(
        self, mark: marks.Mark, fn: Value, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        """What the user asked for this very function."""
        if mark.kind == "allow_in_graph":
            self.fake_mode.runs_python = True
            return self.graph_call(fn.real(), args, kwargs)
        if mark.kind == "substitute":
            return self.call(self.constant(mark.payload), args, kwargs)
        if mark.kind == "constant":
            return fold_call(self, fn.real(), args, kwargs)  # type: ignore[arg-type]
        raise GraphBreak(
            "disabled-function",
            f"{fn.describe()} is disabled" + (f": {mark.payload}" if mark.payload else ""),
        )

    def bind_method(self, raw: types.FunctionType, receiver: Value) -> BoundMethodValue:
        return BoundMethodValue(self.constant(raw), receiver)

    def has_attribute(self, value: Value, name: str) -> bool:
        try:
            value.getattr(self, name)  # type: ignore[arg-type]
        except PyRaise as error:
            if issubclass(error.value.python_type(), AttributeError):
                return False
            raise
        return True

    def catch_stop(self, next_: Callable[[], Value]) -> Value | None:
        try:
            return next_()
        except PyRaise as error:
            if issubclass(error.value.python_type(), StopIteration):
                return None
            raise

    def raise_(self, cls: type[BaseException], *args: Any) -> NoReturn:
        values = [arg if isinstance(arg, Value) else self.constant(arg) for arg in args]
        self.raise_value(ExceptionValue(cls, values))

    def raise_value(self, value: ExceptionValue) -> NoReturn:
        current = self.frames[-1].current_exception() if self.frames else None
        if current is not None:
            value.linked_to(self, current)  # type: ignore[arg-type]
        if current is None and self._resumed_in_handler():
            raise GraphBreak("exception", "raising in an except block that began before a graph break")
        raise PyRaise(value)

    def _resumed_in_handler(self) -> bool:
        """True inside an `except` or `finally` block that was entered before this frame resumed: what it handles is unknown."""
        top = self.top
        if top is None or not is_resume(top.code):
            return False
        user, index = locate(top.code, top.op.index)
        return len(handled_slots(canonical(user))[index] or ()) > len(top.handled)

    def raise_real(self, error: BaseException) -> NoReturn:
        if self.fake_mode.env is not None and _NAMES_A_SYMBOL.search(str(error)):
            raise GraphBreak("eager-error", f"{type(error).__name__}, whose text tells a size that varies") from error
        try:
            args = [self.constant(arg) for arg in error.args]
        except GraphBreak:
            raise GraphBreak("eager-error", f"{type(error).__name__}: {error}") from error
        value = ExceptionValue(type(error), args)
        value.real_error = error.with_traceback(None)
        self.raise_value(value)


_NAMES_A_SYMBOL = re.compile(r"\b[su]\d+\b")  # as shapes print sizes that vary
_PLAIN_CONSTANTS = frozenset(
    {int, float, bool, complex, str, bytes, type(None), type(...), type(NotImplemented)}
)
_CONTAINERS = frozenset({list, tuple, torch.Size, set, frozenset, dict})


def _object_of(value: Value) -> Value:
    """The object itself for a `__dict__` that belongs to one."""
    owner = getattr(value, "owner", None)
    return owner if isinstance(owner, Value) else value


def _from_globals(source: Source) -> bool:
    """Module variables hold one function for the life of the program; arguments and cells a new one each
    time."""
    return any(isinstance(part, FuncGlobals) for part in source.chain())


def _first_wins(trace: Trace, items: Sequence[Value]) -> dict[Any, Value]:
    out: dict[Any, Value] = {}
    for item in items:
        out.setdefault(item.key(trace), item)  # type: ignore[arg-type]
    return out
