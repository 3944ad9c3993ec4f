"""`List`, `Optional` and their like, which TorchScript's programs subscript where they run: `torch.jit.annotate(List[Tensor], [])`.

Subscripting one with known types gives what typing gives. typing's own Python is not followed: it asks the stack who called.
"""

from __future__ import annotations

import typing
from typing import Any

from dyncomp.guards.source import Source
from dyncomp.values.base import Tracer, Value
from dyncomp.values.builtin import BuiltinValue
from dyncomp.values.constant import fold
from dyncomp.values.registry import wrap_if

_FORMS = tuple({type(form) for form in (typing.List, typing.Tuple, typing.Callable, typing.Optional)})  # noqa: UP006


class TypingForm(BuiltinValue):
    """One of typing's objects that wait for types."""

    def getitem(self, tx: Tracer, key: Value) -> Value:
        return fold(tx, lambda form, types: form[types], self, key)


@wrap_if(lambda obj: isinstance(obj, _FORMS), priority=30)
def wrap_typing_form(tx: Tracer, obj: Any, source: Source) -> Value:
    return TypingForm(obj, source)
