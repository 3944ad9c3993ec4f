"""nn.Module objects: ordinary instances whose tables of members are looked up without inlining torch's code.

    self.weight     class attribute, else instance __dict__ (may shadow), else _parameters, _buffers, _modules
    self(x)         no hooks anywhere: self.forward(x); forward hooks: torch's own __call__ is inlined
    self.buf = y    an entry of _buffers; any other plain value goes to the instance __dict__

Guards are on structure (classes, dictionary items, absences), never on the identity of a module, so that the
layers of a model and the copies of a module share one graph. A class that overrides __getattr__, __setattr__
or __call__ is followed like any Python object.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.modules import module as torch_module

from dyncomp import marks
from dyncomp.errors import GraphBreak
from dyncomp.guards.source import ClassAttr, Const, Source, Type, Weak
from dyncomp.values import registry
from dyncomp.values.base import Tracer, Value
from dyncomp.values.class_facts import class_lookup
from dyncomp.values.constant import ConstantValue
from dyncomp.values.function import BoundMethodValue
from dyncomp.values.instance import InstanceValue
from dyncomp.values.instance_storage import outside_storage
from dyncomp.values.mapping import DictValue
from dyncomp.values.torch_tensor import TensorValue

_MEMBER_TABLES = ("_parameters", "_buffers", "_modules")
_FORWARD_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")
_GLOBAL_FORWARD_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks")
_GLOBAL_BACKWARD_HOOKS = ("_global_backward_hooks", "_global_backward_pre_hooks")
# `__call__` of a plain module is these, one calling the next.
_CALL_CHAIN = {
    "__call__": torch.nn.Module.__call__,
    "_call_impl": torch.nn.Module._call_impl,
    "_compiled_call_impl": None,
}


class ModuleValue(InstanceValue):
    """An outside module."""

    # -- attributes
    def generic_getattr(self, tx: Tracer, name: str) -> Value:
        if class_lookup(self.cls, "__getattr__") is not torch.nn.Module.__getattr__:
            return super().generic_getattr(tx, name)
        found = self.find_attribute(tx, name)
        if found is None:
            self.class_attribute(tx, "__getattr__")
            found = self._member(tx, name)
        if found is None:
            tx.raise_(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")
        return found

    def _member(self, tx: Tracer, name: str) -> Value | None:
        for table_name in _MEMBER_TABLES:
            table = self._table(tx, table_name)
            found = None if table is None else table.find_name(tx, name)
            if found is not None:
                return found
        return None

    def _table(self, tx: Tracer, name: str) -> DictValue | None:
        table = self.namespace.find_name(tx, name)
        if table is None or isinstance(table, DictValue):
            return table
        raise GraphBreak("unsupported-object", f"{self.describe()}.{name} is not a plain dictionary")

    def setattr(self, tx: Tracer, name: str, value: Value) -> None:
        if class_lookup(self.cls, "__setattr__") is not torch.nn.Module.__setattr__:
            super().setattr(tx, name, value)
        elif not self._set_plainly(tx, name, value):
            super().setattr(tx, name, value)

    def _set_plainly(self, tx: Tracer, name: str, value: Value) -> bool:
        """The common cases of Module.__setattr__; False: leave it to the original."""
        if issubclass(value.python_type(), torch.nn.Module) or value.isinstance_of(tx, torch.nn.Parameter):
            return False
        parameters, buffers, modules = (self._table(tx, table_name) for table_name in _MEMBER_TABLES)
        if parameters is None or buffers is None or modules is None:
            return False
        if parameters.find_name(tx, name) is not None or modules.find_name(tx, name) is not None:
            return False
        self.class_attribute(tx, "__setattr__")
        if buffers.find_name(tx, name) is None:
            if isinstance(value, TensorValue) and value.isinstance_of(tx, torch.nn.Buffer):
                return False
            self.generic_setattr(tx, name, value)
            return True
        if not isinstance(value, TensorValue) and not _is_none(value):
            return False
        if not self._keeps_buffers_plainly(tx):
            return False
        buffers.store(tx, tx.constant(name), value)
        return True

    def _keeps_buffers_plainly(self, tx: Tracer) -> bool:
        """Neither the class nor a global hook takes part when a registered buffer gets a new tensor."""
        if self.class_attribute(tx, "register_buffer") is not torch.nn.Module.register_buffer:
            return False
        return _empty_for_good(tx, "_global_buffer_registration_hooks")

    # -- calls
    def call(self, tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if not self._calls_forward(tx):
            return super().call(tx, args, kwargs)
        return self.call_method(tx, "forward", args, kwargs)

    def _calls_forward(self, tx: Tracer) -> bool:
        """True if calling the module is calling `forward`; hooks on gradients break the graph."""
        if any(class_lookup(self.cls, name) is not standard for name, standard in _CALL_CHAIN.items()):
            return False
        for name in _CALL_CHAIN:
            self.class_attribute(tx, name)
            if name != "__call__" and self.namespace.find_name(tx, name) is not None:
                return False
        if self._has_hooks(tx, _BACKWARD_HOOKS, _GLOBAL_BACKWARD_HOOKS):
            raise GraphBreak("module-hook", f"{self.describe()} has backward hooks")
        return not self._has_hooks(tx, _FORWARD_HOOKS, _GLOBAL_FORWARD_HOOKS)

    def _has_hooks(self, tx: Tracer, own: Sequence[str], everywhere: Sequence[str]) -> bool:
        for name in own:
            hooks = self._table(tx, name)
            if hooks is None or hooks.length(tx).truth(tx):
                return True
        return not all([_empty_for_good(tx, name) for name in everywhere])


@registry.on_call(torch.nn.Parameter)
def _make_parameter(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """A leaf of autograd that the program can keep: made by Python, so that its history and its gradient are eager's."""
    raise GraphBreak("unsupported-object", "an nn.Parameter made inside the compiled function", "Make parameters, and modules that have some, in __init__.")


class OptimizedModuleValue(ModuleValue):
    """What `dyncomp.optimize(module)` returned, inside captured code: the module itself, traced like any other.

    Both share one `__dict__`, so all that is read and written goes through the value of the original.
    """

    def original(self, tx: Tracer) -> Value:
        assert self.source is not None
        module = vars(self.cls)[marks.ORIGINAL]
        return tx.wrap(module, ClassAttr(Type(self.source), marks.ORIGINAL))

    def getattr(self, tx: Tracer, name: str) -> Value:
        if name == "__class__":
            return self.class_value(tx)
        original = self.original(tx)
        found = original.getattr(tx, name)
        if isinstance(found, BoundMethodValue) and found.receiver is original:
            return BoundMethodValue(found.function, self)
        return found

    def setattr(self, tx: Tracer, name: str, value: Value) -> None:
        self.original(tx).setattr(tx, name, value)

    def delattr(self, tx: Tracer, name: str) -> None:
        self.original(tx).delattr(tx, name)

    def call(self, tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return tx.call(self.original(tx), args, kwargs)


def _empty_for_good(tx: Tracer, name: str) -> bool:
    """True, and guarded, if torch's global table of hooks `name` is empty."""
    table = getattr(torch_module, name)
    if table:
        return False
    tx.guard(Const(table, f"torch.nn.modules.module.{name}"), "empty")
    return True


def _is_none(value: Value) -> bool:
    return isinstance(value, ConstantValue) and value.python_type() is type(None)


def _is_followed(obj: Any) -> bool:
    return isinstance(obj, torch.nn.Module) and not isinstance(obj, torch.jit.ScriptModule)


@registry.wrap_if(_is_followed, priority=20)
def wrap_module(tx: Tracer, obj: Any, source: Source) -> Value:
    if isinstance(source, Const):  # a part of something fixed, such as a bound method in a folded constant
        source = Weak(weakref.ref(obj))
    kind = OptimizedModuleValue if marks.ORIGINAL in vars(type(obj)) else ModuleValue
    return kind(type(obj), source, obj, outside_storage(tx, obj, source), tx=tx)
