"""What torch.distributions makes that no other rule can make.

    Bernoulli.logits      a new property each time that the class is asked (`lazy_property.__get__`)

The constructor of a distribution asks for it, to see which parameters are computed when they are needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch.distributions import utils

from dyncomp.values.base import Builder, Tracer, Value
from dyncomp.values.registry import on_call


class ClassLazyProperty(Value):
    """The property that stands for a lazy one where it is read off a class: what it is may be asked, and it may be handed on."""

    def __init__(self, wrapped: Value):
        super().__init__()
        self.wrapped = wrapped

    def python_type(self) -> type:
        return utils._lazy_property_and_property

    def describe(self) -> str:
        return f"lazy property {self.wrapped.describe()}"

    def truth(self, tx: Tracer) -> bool:
        return True

    def reconstruct(self, builder: Builder) -> None:
        builder.load_const(utils._lazy_property_and_property)
        builder.load(self.wrapped)
        builder.call(1)


@on_call(utils._lazy_property_and_property)
def _lazy_property(tx: Tracer, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    (wrapped,) = args
    return ClassLazyProperty(wrapped)
