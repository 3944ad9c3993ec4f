"""Values known while tracing: small tensors made from Python numbers, as in `torch.tensor([1, 2])`.

Only such literals and their views have a known value; inputs never do. The value lets `.item()`, `int()` and
`tolist()` on a literal answer without a graph break. It dies with the first in-place write to the storage,
which `version` tells.
"""

from __future__ import annotations

from typing import Any

import torch

from dyncomp.fake.facts import OpFacts
from dyncomp.fake.real import meta_of_real
from dyncomp.fake.tensor import FakeTensor, make_fake
from dyncomp.shape.symbolic import numbers_in

_LIMIT = 64
aten = torch.ops.aten
_LIFTS = frozenset({aten.lift_fresh.default, aten.lift_fresh_copy.default, aten.lift.default})


def lift(facts: OpFacts, literal: torch.Tensor) -> FakeTensor | None:
    """The fake of a tensor that C++ has just built from Python data; None if the operation is another."""
    if not is_lift(facts):
        return None
    fake = make_fake(meta_of_real(literal))
    # A private copy: the literal itself may be handed out and written by others.
    remember(fake, outside(literal.clone))
    return fake


def is_lift(facts: OpFacts) -> bool:
    """True for the operation through which C++ hands over a tensor that it built from Python data."""
    return facts.op in _LIFTS


def remember(fake: FakeTensor, value: torch.Tensor) -> None:
    """Notes the value of a fake if it is small enough to be worth it."""
    if value.numel() <= _LIMIT:
        fake.__dict__["constant"] = value


def value_of(fake: FakeTensor) -> torch.Tensor | None:
    """The known value, unless the storage was written since."""
    return fake.constant if fake.fake_storage.version == 0 else None


def item_of(fake: FakeTensor) -> Any:
    """The one number of a fake whose value is known, or None."""
    known = value_of(fake)
    return None if known is None else outside(known.item)


def evaluate(facts: OpFacts, args: Any, kwargs: Any) -> Any:
    """A result that follows from known values alone, or None."""
    if facts.op is aten._local_scalar_dense.default and type(args[0]) is FakeTensor:
        return item_of(args[0])
    if _is_all_numbers(facts, args, kwargs):
        literal = outside(lambda: facts.op(*args, **kwargs))
        fake = make_fake(meta_of_real(literal))
        remember(fake, literal)
        return fake
    return None


def _is_all_numbers(facts: OpFacts, args: Any, kwargs: Any) -> bool:
    """`torch.div(7, 2)`: a tensor operation that was given Python numbers alone."""
    if facts.random or facts.opaque or not args or type(args[0]) not in (int, float, bool, complex):
        return False
    if not isinstance(facts.op._schema.arguments[0].type, torch.TensorType):
        return False
    return not any(isinstance(arg, torch.Tensor | list | tuple) for arg in (*args, *kwargs.values()))


def view(facts: OpFacts, base: FakeTensor, result: Any, args: Any, kwargs: Any) -> None:
    """Views of a known value are known."""
    if base.constant is None or value_of(base) is None or _varies(args, kwargs):
        return
    known = base.constant
    value = outside(lambda: facts.op(known, *args[1:], **kwargs))
    if type(result) is FakeTensor:
        result.__dict__["constant"] = value
    else:
        for fake, item in zip(result, value, strict=True):
            fake.__dict__["constant"] = item


def follow(facts: OpFacts, result: Any, args: Any, kwargs: Any) -> None:
    """The result of a pure operation on known values alone is known."""
    if type(result) is not FakeTensor or facts.random or facts.opaque or kwargs.get("out") is not None:
        return
    known = [_known_argument(arg) for arg in args]
    if any(arg is _UNKNOWN for arg in known) or not any(isinstance(arg, torch.Tensor) for arg in known):
        return
    if _varies(args, kwargs):
        return
    if not any(isinstance(arg, torch.Tensor | list | tuple) for arg in kwargs.values()):
        remember(result, outside(lambda: facts.op(*known, **kwargs)))


def _varies(args: Any, kwargs: Any) -> bool:
    """True with a number of the call, which a value would pin: `known_number` follows these."""
    return next(numbers_in((args, kwargs)), None) is not None


_UNKNOWN = object()


def _known_argument(arg: Any) -> Any:
    """The value behind an argument; lists, which may hold tensors, are not looked into."""
    if type(arg) is FakeTensor:
        value = value_of(arg)
        return _UNKNOWN if value is None else value
    return _UNKNOWN if isinstance(arg, torch.Tensor | list | tuple) else arg


def has_static_shape(facts: OpFacts, args: Any) -> bool:
    """Indexing is tagged as data dependent although only a boolean index makes it so; `one_hot` without a number of classes."""
    if facts.op is aten.one_hot.default:
        return len(args) > 1 and (type(args[1]) is not int or args[1] >= 0)
    if facts.op is aten.index.Tensor:
        return not any(
            isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8) for index in args[1]
        )
    return False


def outside(call: Any) -> Any:
    """The result of a call on real tensors, out of sight of every mode and of autograd."""
    with torch._C._DisableTorchDispatch(), torch._C._AutoDispatchBelowAutograd():
        return call()
