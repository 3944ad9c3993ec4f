"""In-place and `out=` operations on fakes: the checks of eager, and a new storage version."""

from __future__ import annotations

from typing import Any

import torch

from dyncomp.fake.errors import NoShapeRule
from dyncomp.fake.facts import Kind, OpFacts, facts_of
from dyncomp.fake.infer import infer
from dyncomp.fake.registry import ELEMENTWISE, RULES
from dyncomp.fake.scalars import ask, check_numbers
from dyncomp.fake.tensor import FakeTensor, TensorMeta, make_fake
from dyncomp.fake.twin import functional_twin
from dyncomp.shape.layout import may_overlap_itself

aten = torch.ops.aten

# They change where a tensor's data lies, or how much there is: nothing that a shape alone can stand for.
_REPLACES_STORAGE = frozenset(
    {"aten::set_", "aten::resize_", "aten::resize_as_", "aten::set_data", "aten::resize"}
)


def run(mode: Any, facts: OpFacts, args: Any, kwargs: Any, wrap: bool = True) -> Any:
    """Runs an operation that writes some arguments; returns those, and fresh results where it has any.

    With `wrap=False`: the metadata that the operation gives, for a caller that makes the results itself.
    """
    op = facts.op
    if op._schema.name in _REPLACES_STORAGE:
        raise NoShapeRule(str(op), "it replaces the memory of a tensor")
    args = with_fakes(mode, args)
    bound = bind(facts, args, kwargs)
    if torch.Tag.inplace_view in op.tags:
        return change_metadata(mode, facts, args, kwargs)
    result = infer_written(facts, mode.metas(args), mode.metas(kwargs))
    for position in facts.written:
        for target in targets_of(bound.get(facts.names[position])):
            target.fake_storage.version += 1
    return returned(mode, facts, bound, result) if wrap else result


def infer_written(facts: OpFacts, args: Any, kwargs: Any) -> Any:
    """Metadata of an in-place operation: by its functional twin's rule where the result fits, else by meta
    kernel.
    """
    if facts.op not in RULES and facts.written == (0,) and type(args[0]) is TensorMeta:
        target = args[0]
        twin = _twin_or_self(facts.op)
        if twin in ELEMENTWISE and may_overlap_itself(target.shape, target.strides):
            raise RuntimeError(
                "unsupported operation: more than one element of the written-to tensor refers to a single "
                "memory location. Please clone() the tensor before performing the operation."
            )
        rule = RULES.get(twin)
        result = rule(*args, **kwargs) if rule is not None else None
        if (
            type(result) is TensorMeta
            and result.shape == target.shape
            and torch.can_cast(result.dtype, target.dtype)
            and not may_overlap_itself(target.shape, target.strides)
        ):
            check_numbers(facts.op, args, kwargs, target)
            return target
        if result is None and twin is not facts.op and _kind(target) < 2:
            result = infer(twin, args, kwargs)  # floats come of some operations on ints
        _check_dtype(facts.op, args, kwargs, target, type(result) is TensorMeta and not torch.can_cast(result.dtype, target.dtype))
    return infer(facts.op, args, kwargs)


def _check_dtype(op: torch._ops.OpOverload, args: Any, kwargs: Any, target: TensorMeta, unfit: bool = False) -> None:
    """Eager's error where the result does not fit the written tensor's dtype, which some meta kernels do not look at."""
    facts = facts_of(op)
    if facts.random or facts.opaque:  # asking would draw numbers, or run the program's own kernel
        return
    if not unfit and all(_kind(value) <= _kind(target) for value in (*args, *kwargs.values())):
        return
    try:
        ask(op, args, kwargs)
    except RuntimeError as error:
        if "can't be cast" in str(error):  # others may come from the sizes of the small tensors that were asked
            raise


def _kind(value: Any) -> int:
    """0 bool, 1 int, 2 float, 3 complex: a result has the widest kind among an operation's arguments."""
    if type(value) is TensorMeta:
        dtype = value.dtype
        return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 0 if dtype is torch.bool else 1
    return {complex: 3, float: 2, int: 1}.get(type(value), 0)


def _twin_or_self(op: torch._ops.OpOverload) -> torch._ops.OpOverload:
    try:
        return functional_twin(op)
    except NoShapeRule:
        return op


def returned(mode: Any, facts: OpFacts, bound: dict[str, Any], result: Any) -> Any:
    """What the call returns: the written arguments themselves where the schema says so, fakes elsewhere."""
    if not facts.aliased:
        return None
    if len(facts.aliased) == 1:
        position = facts.aliased[0]
        return mode._wrap(result, None) if position is None else bound[facts.names[position]]
    return tuple(
        mode._wrap(item, None) if position is None else bound[facts.names[position]]
        for position, item in zip(facts.aliased, result, strict=True)
    )


def run_out(mode: Any, facts: OpFacts, args: Any, kwargs: Any, wrap: bool = True) -> Any:
    """`out=` arguments must already have the result's shape: resizing them would replace memory."""
    bound = bind(facts, args, kwargs)
    outs = {facts.names[p]: bound.get(facts.names[p]) for p in facts.written}
    before = {name: [t.meta.shape for t in targets_of(out)] for name, out in outs.items()}
    result = infer(facts.op, mode.metas(args), mode.metas(kwargs))
    flat = (
        [result]
        if type(result) is TensorMeta
        else [m for m in result if type(m) is TensorMeta]
        if result
        else []
    )
    shapes = [shape for shapes in before.values() for shape in shapes]
    if [m.shape for m in flat] != shapes[: len(flat)]:
        raise NoShapeRule(str(facts.op), "the out= argument would be resized")
    if len(flat) == 1:
        _check_dtype(facts.op, mode.metas(args), mode.metas(kwargs), flat[0])
    for out in outs.values():
        for target in targets_of(out):
            target.fake_storage.version += 1
    return returned(mode, facts, bound, result) if wrap else result


def change_metadata(mode: Any, facts: OpFacts, args: Any, kwargs: Any) -> FakeTensor:
    """`t_`, `squeeze_`, ...: the same object with other sizes and strides over the same storage."""
    target = args[0]
    view = view_twin(facts.op)
    meta = infer(view, mode.metas(args), mode.metas(kwargs))
    set_metadata(target, meta)
    return target


def view_twin(op: torch._ops.OpOverload) -> torch._ops.OpOverload:
    """The view operation behind a metadata write: `aten.transpose_.default` -> `aten.transpose.int`."""
    packet = getattr(aten, op._schema.name.removeprefix("aten::").removesuffix("_"), None)
    wanted = [(a.name, str(a.type)) for a in op._schema.arguments]
    for overload in packet.overloads() if packet is not None else ():
        twin = getattr(packet, overload)
        arguments = [(a.name, str(a.type)) for a in twin._schema.arguments]
        if arguments == wanted and facts_of(twin).kind is Kind.VIEW:
            return twin
    raise NoShapeRule(str(op), "it has no view of the same name")


def set_metadata(target: FakeTensor, meta: TensorMeta) -> None:
    """Gives an existing fake other sizes and strides."""
    twin = make_fake(meta, target.fake_storage)
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        target.data = twin
    target.__dict__["meta"] = meta


def targets_of(value: Any) -> list[FakeTensor]:
    """The fakes in a written argument: one tensor, a list of them, or none."""
    if type(value) is FakeTensor:
        return [value]
    return [item for item in value if type(item) is FakeTensor] if isinstance(value, (list, tuple)) else []


def with_fakes(mode: Any, args: Any) -> Any:
    """Top-level real tensors become fakes."""
    return tuple(
        mode.from_real(a) if isinstance(a, torch.Tensor) and type(a) is not FakeTensor else a for a in args
    )


def bind(facts: OpFacts, args: Any, kwargs: Any) -> dict[str, Any]:
    return {**dict(zip(facts.names, args, strict=False)), **kwargs}
