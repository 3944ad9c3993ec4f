"""Exception objects of the traced program: `args`, links to other exceptions, and the fields that some built-in classes have.

    e.args, e.__cause__, e.__context__     of an exception from outside: read from it, and guarded
    e.name, e.obj, e.errno, e.code         `fields` where the interpreter fills them in, else what a real exception with these `args` has
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

from dyncomp.errors import GraphBreak
from dyncomp.guards.source import SlotAttr, Source
from dyncomp.values.base import ABSENT, Builder, Tracer, Unreconstructible, Value
from dyncomp.values.class_facts import GETSET, MEMBER, class_lookup
from dyncomp.values.instance import InstanceValue
from dyncomp.values.registry import wrap_if

_LINKS = ("__cause__", "__context__", "__suppress_context__")


class ExceptionValue(InstanceValue):
    """`origin`: the top frame's step that raised it, where the machine breaks if nobody catches it. `fields`: what the interpreter
    itself fills in, such as the name of an AttributeError.
    """

    def __init__(
        self, cls: type[BaseException], args: Sequence[Value], fields: dict[str, Value] | None = None, **where: Any
    ):
        super().__init__(cls, **where)
        self.args = list(args)
        self.fields: dict[str, Value] = fields or {}
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
            if name not in self.links and self.outside is not ABSENT:
                return self._read(tx, name)
            return self.links.get(name, tx.constant(False if name == "__suppress_context__" else None))
        if name == "__traceback__":
            self.need_traceback()
        if name in ("__traceback__", "__notes__"):
            raise GraphBreak("exception", f"{name} of an exception raised in captured code")
        if name == "value" and issubclass(self.cls, StopIteration) and self.outside is ABSENT:
            return self.args[0] if self.args else tx.constant(None)
        if name == "with_traceback" or name == "add_note":
            raise GraphBreak("exception", f"{name}() of an exception in captured code")
        if name in self.fields:
            return self.fields[name]
        if _is_field(class_lookup(self.cls, name)):
            return self._field(tx, name)
        if (
            self.real_error is not None
            and class_lookup(self.cls, name) is not ABSENT
            and hasattr(self.real_error, name)
        ):
            return tx.constant(getattr(self.real_error, name))
        return super().find_attribute(tx, name)

    def need_traceback(self) -> None:
        """Only where Python itself raises an exception does it get a traceback: the frame ends before that."""
        raised = self.origin if self.origin is not None else self.birth if self.outside is ABSENT else 0
        if raised:
            place = Value()
            place.birth = raised
            raise Unreconstructible(place, f"the traceback of {self.describe()}")

    def _read(self, tx: Tracer, name: str) -> Value:
        """What an exception from outside has under a name that C code keeps."""
        found = getattr(self.outside, name)
        return tx.constant(found) if self.source is None else tx.wrap(found, SlotAttr(self.source, name))

    def _field(self, tx: Tracer, name: str) -> Value:
        """A field that C code fills in from the arguments."""
        if self.outside is not ABSENT:
            return self._read(tx, name)
        if self.real_error is not None:
            return tx.constant(getattr(self.real_error, name))
        if not all(arg.is_constant() for arg in self.args):
            raise GraphBreak("exception", f"{name} of {self.describe()}")
        return tx.constant(getattr(self._twin([arg.as_constant() for arg in self.args]), name))

    def linked_to(self, tx: Tracer, current: Value) -> None:
        """It is raised while `current` is handled, which so becomes its context; a chain that led back to it is cut, as CPython does."""
        if current is self:
            return
        if self.outside is not ABSENT:
            raise GraphBreak("exception", "raising an exception from outside while another one is handled")
        link: Value | None = current
        seen: set[int] = set()
        while isinstance(link, ExceptionValue) and id(link) not in seen:
            seen.add(id(link))
            following = link.links.get("__context__")
            if following is self:
                link.links["__context__"] = tx.constant(None)
                break
            link = following
        self.links["__context__"] = current

    def generic_setattr(self, tx: Tracer, name: str, value: Value | None) -> None:
        if self.outside is not ABSENT and (name in (*_LINKS, "args") or _is_field(class_lookup(self.cls, name))):
            raise GraphBreak("unsupported-mutation", f"setting {name} of an exception from outside")
        if name in _LINKS and value is not None:
            self.links[name] = value
            if name == "__cause__":
                self.links["__suppress_context__"] = tx.constant(True)
        elif _is_field(class_lookup(self.cls, name)):
            raise GraphBreak("exception", f"setting {name} of {self.describe()}")
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
        initialise = _built_in_init(self.cls)
        if initialise is not BaseException.__init__:  # it fills the fields in
            builder.load_const(initialise)
            builder.load(self)
            for arg in self.args:
                builder.load(arg)
            builder.call(1 + len(self.args))
            builder.pop()
        for name, value in (*self.links.items(), *self.fields.items()):
            builder.load(value)
            builder.store_attr(name)
        for key, attribute in self.namespace.made_entries():
            builder.load(attribute)
            builder.store_attr(key.as_constant())


def _is_field(raw: Any) -> bool:
    """Whether a class attribute is a field that a built-in exception class keeps in C."""
    return isinstance(raw, (MEMBER, GETSET)) and issubclass(raw.__objclass__, BaseException) and raw.__objclass__.__module__ == "builtins" and raw.__name__ not in _PLAIN_FIELDS


_PLAIN_FIELDS = frozenset((*_LINKS, "args", "__dict__", "__traceback__"))


def _built_in_init(cls: type) -> Any:
    """The `__init__` of the nearest built-in class."""
    return next(vars(base)["__init__"] for base in cls.__mro__ if base.__module__ == "builtins" and "__init__" in vars(base))


def note_attribute_error(tx: Tracer, error: Value, owner: Value, name: str) -> None:
    """CPython tells an AttributeError that leaves an attribute access what was asked for, unless somebody did already."""
    if isinstance(error, ExceptionValue) and issubclass(error.cls, AttributeError) and error.outside is ABSENT and not error.fields:
        error.fields = {"name": tx.constant(name), "obj": owner}


def stop_in_generator(tx: Tracer, error: ExceptionValue) -> ExceptionValue:
    """What comes out of a generator that a StopIteration would have left."""
    made = ExceptionValue(RuntimeError, [tx.constant("generator raised StopIteration")])
    made.links = {"__cause__": error, "__context__": error, "__suppress_context__": tx.constant(True)}
    return made


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
def wrap_exception(tx: Tracer, obj: BaseException, source: Source) -> Value:
    args = tx.wrap(obj.args, SlotAttr(source, "args")).unpack(tx)
    return ExceptionValue(type(obj), args, source=source, outside=obj, tx=tx)
