"""Exception objects of the traced program."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

from dyncomp.errors import GraphBreak
from dyncomp.values.base import ABSENT, Builder, Tracer, Value
from dyncomp.values.class_facts import class_lookup
from dyncomp.values.instance import InstanceValue
from dyncomp.values.registry import wrap_if

_LINKS = ("__cause__", "__context__", "__suppress_context__")


class ExceptionValue(InstanceValue):
    """`origin`: the top frame's step that raised it, where the machine breaks if nobody catches it."""

    def __init__(self, cls: type[BaseException], args: Sequence[Value], **where: Any):
        super().__init__(cls, **where)
        self.args = list(args)
        self.links: dict[str, Value] = {}
        self.origin: int | None = None
        self.real_error: BaseException | None = None
        self.traceback: list[str] = []

    def describe(self) -> str:
        shown = [repr(a.as_constant()) if a.is_constant() else a.describe() for a in self.args]
        return f"{self.cls.__name__}({', '.join(shown)})"

    def message(self) -> str:
        """What str(error) gives, as far as it is known."""
        if len(self.args) == 1 and self.args[0].is_constant():
            return str(self.args[0].as_constant())
        return self.describe() if self.args else ""

    def find_attribute(self, tx: Tracer, name: str) -> Value | None:
        if name == "args":
            return tx.tuple_of(list(self.args))
        if name in _LINKS:
            return self.links.get(name, tx.constant(False if name == "__suppress_context__" else None))
        if name in ("__traceback__", "__notes__"):
            raise GraphBreak("exception", f"{name} of an exception raised in captured code")
        if name == "value" and issubclass(self.cls, StopIteration):
            return self.args[0] if self.args else tx.constant(None)
        if name == "with_traceback" or name == "add_note":
            raise GraphBreak("exception", f"{name}() of an exception in captured code")
        if (
            self.real_error is not None
            and class_lookup(self.cls, name) is not ABSENT
            and hasattr(self.real_error, name)
        ):
            return tx.constant(getattr(self.real_error, name))
        return super().find_attribute(tx, name)

    def generic_setattr(self, tx: Tracer, name: str, value: Value | None) -> None:
        if name in _LINKS and value is not None:
            self.links[name] = value
        elif name == "args" and value is not None:
            self.args = value.unpack(tx)
        elif name == "__traceback__" and isinstance(value, TracebackValue) and self.outside is ABSENT:
            return  # there is none, and reading it breaks the graph
        else:
            super().generic_setattr(tx, name, value)

    def special(self, tx: Tracer, name: str, *args: Value) -> Value | None:
        if name in ("__str__", "__repr__") and not isinstance(class_lookup(self.cls, name), type(lambda: 0)):
            if not all(arg.is_constant() for arg in self.args):
                raise GraphBreak("exception", f"text of {self.describe()}")
            error = self._twin([arg.as_constant() for arg in self.args])
            return tx.constant(str(error) if name == "__str__" else repr(error))
        return super().special(tx, name, *args)

    def _twin(self, args: list[Any]) -> BaseException:
        """A real exception of this class with these `args`; an `__init__` of the user's already ran while tracing."""
        if isinstance(class_lookup(self.cls, "__new__"), staticmethod):
            raise GraphBreak("exception", f"text of {self.describe()}, whose class has its own __new__")
        if not isinstance(class_lookup(self.cls, "__init__"), types.FunctionType):
            return self.cls(*args)  # type: ignore[no-any-return]
        error: BaseException = self.cls.__new__(self.cls, *args)
        error.args = tuple(args)
        return error

    def reconstruct(self, builder: Builder) -> None:
        if self.outside is not ABSENT:
            builder.load_const(self.outside)
            return
        builder.load_const(self.cls.__new__)
        builder.load_const(self.cls)
        for arg in self.args:
            builder.load(arg)
        builder.call(1 + len(self.args))
        builder.remember(self)
        for name, value in self.links.items():
            builder.load(value)
            builder.store_attr(name)
        for key, attribute in self.namespace.made_entries():
            builder.load(attribute)
            builder.store_attr(key.as_constant())


class TracebackValue(Value):
    """The traceback of an exception that was raised while tracing: there is none, so it can only be passed
    on."""

    def python_type(self) -> type:
        return types.TracebackType

    def describe(self) -> str:
        return "the traceback of an exception raised in captured code"

    def truth(self, tx: Tracer) -> bool:
        return True


def exception_triple(tx: Tracer, error: Value | None) -> list[Value]:
    """(type, value, traceback), as `__exit__` and sys.exc_info have them."""
    if error is None:
        return [tx.constant(None)] * 3
    return [tx.constant(error.python_type()), error, TracebackValue()]


@wrap_if(lambda obj: isinstance(obj, BaseException), priority=15)
def wrap_exception(tx: Tracer, obj: BaseException, source: Any) -> Value:
    args = [tx.constant(arg) for arg in obj.args]
    return ExceptionValue(type(obj), args, source=source, outside=obj, tx=tx)
