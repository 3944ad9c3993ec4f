"""What the handlers of calls of builtins share."""

from __future__ import annotations

from collections.abc import Sequence

from dyncomp.errors import GraphBreak
from dyncomp.values.base import NotConstant, Tracer, Value

Args = Sequence[Value]
Kwargs = dict[str, Value]


def one_argument(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
    """The argument of a builtin that takes just one."""
    if len(args) != 1 or kwargs:
        raise GraphBreak("eager-error", f"{name}() takes exactly one argument")
    return args[0]


def name_of(value: Value) -> str:
    """An attribute's name, which must be known."""
    try:
        name = value.as_constant()
    except NotConstant:
        raise GraphBreak("unsupported-builtin", "an attribute name that is not known while tracing") from None
    if not isinstance(name, str):
        raise GraphBreak("eager-error", f"an attribute name that is no string: {name!r}")
    return name
