"""Layout rules of strided tensors: what strides eager gives, from sizes and strides alone.

Sizes are ints or symbolic ints: only comparisons and arithmetic are used on them. Of a size that tracing may not
look at, it is assumed that it is neither 0 nor 1 where only such a size would make a difference (`is_one`,
`has_zero`); the env then has it checked when the program runs. Questions that often follow from what is known come
before those that do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dyncomp.shape.errors import DataDependent

Ints = tuple[int, ...]
_SYMBOLIC = (torch.SymInt, torch.SymFloat)

# From the fastest dimension to the slowest, by rank.
_CHANNELS_LAST_ORDER = {3: (1, 2, 0), 4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}


def is_one(size: int) -> bool:
    return not isinstance(size, torch.SymInt) and size == 1 or not assumed(size != 1)


def has_zero(shape: Sequence[int]) -> bool:
    return 0 in [size for size in shape if not isinstance(size, torch.SymInt)] or not all(
        [assumed(size != 0) for size in shape if isinstance(size, torch.SymInt)]
    )


def assumed(truth: bool) -> bool:
    """True where only running the program tells; the env notes that it must be checked then."""
    return truth.node.shape_env.assume(truth.node.expr) if isinstance(truth, torch.SymBool) else truth  # type: ignore[no-any-return]


def must_hold(truth: bool) -> bool:
    """The truth of something without which eager raises an error: where only running tells, it is a check of the running program."""
    return bool(truth.node.expect_true("", 0)) if isinstance(truth, torch.SymBool) else truth


def at_least_one(size: int) -> int:
    """max(size, 1), without a question where only running the program would answer it."""
    if not isinstance(size, torch.SymInt):
        return size or 1
    try:
        return size if size != 0 else 1
    except DataDependent:
        return torch.sym_max(size, 1)  # type: ignore[no-any-return]


def numel(shape: Sequence[int]) -> int:
    total = 1
    for size in shape:
        total = total * size
    return total


def countable(shape: Sequence[int]) -> bool:
    """False where eager refuses the shape: 64 bits cannot count its elements. Without memory for each (an expanded
    tensor), sizes that exist get there.
    """
    total = numel(shape)
    return total.node.shape_env.countable(total.node.expr) if isinstance(total, torch.SymInt) else total < 2**63


def contiguous_strides(shape: Sequence[int]) -> Ints:
    """Row-major strides; a dimension of size 0 counts as 1, as in eager."""
    if not shape:
        return ()
    strides = [1]
    for size in reversed(shape[1:]):  # of the outermost size nothing is asked
        strides.append(strides[-1] * at_least_one(size))
    strides.reverse()
    return tuple(strides)


def channels_last_strides(shape: Sequence[int]) -> Ints:
    """Strides of `torch.channels_last` (rank 4) and `torch.channels_last_3d` (rank 5)."""
    strides = [0] * len(shape)
    step = 1
    for dim in _CHANNELS_LAST_ORDER[len(shape)]:
        strides[dim] = step
        # The batch dimension of size 0 is last, and a channel count of 0 is taken as 1.
        step = step * (shape[dim] if shape[dim] != 0 or dim != 1 else 1)
    return tuple(strides)


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    if _is_product_of_sizes(shape, strides):
        return True
    if any(late(size) for size in shape):
        # With a size 0 every layout is contiguous, so its dimension may count as 1 as it does in contiguous strides.
        if 0 in [size for size in shape if not late(size)]:
            return True
    elif has_zero(shape):
        return True
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if not _same_stride(stride, expected) and not is_one(size):
            return has_zero(shape)
        expected = expected * at_least_one(size)
    return True


def _is_product_of_sizes(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Each stride is the product of the sizes after it, by what is known: contiguous, also where one of them is 0."""
    expected = 1
    for place in range(len(shape) - 1, -1, -1):
        if not known_equal(strides[place], expected):
            return False
        if place:
            expected = expected * shape[place]
    return True


def late(size: int) -> bool:
    """True for a number that tracing may not look at."""
    return isinstance(size, _SYMBOLIC) and not size.node.has_hint()


def _same(a: int, b: int) -> bool:
    """Equal; sizes that may be equal are assumed to be: where they meet, nearly all programs need it."""
    return a == b if not late(a) and not late(b) else assumed(a == b)


def _same_stride(a: int, b: int) -> bool:
    """Equal; strides that may differ are assumed to."""
    return a == b if not late(a) and not late(b) else known_equal(a, b) or not assumed(a != b)


def same_shape(a: Sequence[int], b: Sequence[int]) -> bool:
    """Equal as far as is known: of numbers that only the running program tells nothing is asked."""
    if len(a) != len(b):
        return False
    return all(x is y or (known_equal(x, y) if late(x) or late(y) else x == y) for x, y in zip(a, b, strict=True))


def known_equal(a: int, b: int) -> bool:
    """Equal by what is known already: asks nothing, so that no guard comes of it."""
    return a is b or _known(a == b)


def _known(truth: Any) -> bool:
    return bool(truth.node.statically_known_true("", 0)) if isinstance(truth, torch.SymBool) else truth


def known_row_major(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Contiguous by what is known already; asks nothing."""
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if not known_equal(stride, expected) or not _known(size != 0):
            return False
        expected = expected * size
    return True


def is_channels_last(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """`is_contiguous(memory_format=channels_last)`, or `channels_last_3d` at rank 5."""
    order = _CHANNELS_LAST_ORDER.get(len(shape)) if len(shape) != 3 else None
    if order is None:
        return False
    expected = 1
    for dim in order:
        if strides[dim] != expected and not is_one(shape[dim]):
            return False
        expected = expected * shape[dim]
    return True


def has_channels_last_order(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """True if strides look like channels last, gaps allowed: what `suggest_memory_format` reports."""
    if len(shape) not in (4, 5):
        return False
    if any(map(late, shape)) and same_shape(strides, contiguous_strides(shape)):
        return False  # whatever the sizes are
    if strides[1] == 0:
        return False
    least = 0
    for dim in _CHANNELS_LAST_ORDER[len(shape)]:
        if shape[dim] == 0 or strides[dim] < least:
            return False
        # N11W tensors that are contiguous stay contiguous.
        if dim == 0 and least == strides[1]:
            return False
        least = strides[dim]
        if shape[dim] > 1:
            least = least * shape[dim]
    return True


def suggested_strides(shape: Sequence[int], like_shape: Sequence[int], like_strides: Sequence[int]) -> Ints:
    """Dense strides for `shape` in the memory format that a tensor of the other layout suggests."""
    if len(shape) in (4, 5) and has_channels_last_order(like_shape, like_strides):
        return channels_last_strides(shape)
    return contiguous_strides(shape)


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Non-overlapping and dense: some order of the dimensions makes it contiguous."""
    if is_contiguous(shape, strides):
        return True
    expected = 1
    small = [has_zero((size,)) or is_one(size) for size in shape]
    for dim in sorted(range(len(shape)), key=lambda d: (small[d], strides[d])):
        if small[dim]:
            return True
        if strides[dim] != expected:
            return False
        expected = expected * shape[dim]
    return True


def may_overlap_itself(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """True if two indices surely share memory (an expanded dimension)."""
    spread = any(stride == 0 and size > 1 for size, stride in zip(shape, strides, strict=True))
    return spread and 0 not in shape


def surely_apart(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """True if no two indices share memory: each stride passes by all that the smaller ones reach. For plain numbers."""
    reach = 0
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1:
            if stride <= reach:
                return 0 in shape
            reach += (size - 1) * stride
    return True


def iteration_order(shape: Sequence[int], operands: Sequence[Sequence[int]]) -> list[int]:
    """Dimensions from the fastest to the slowest, as eager's elementwise iterator orders them.

    `operands` are the strides of each operand over `shape`, 0 where it is broadcast.
    An insertion sort on a comparison that may be undecided; undecided keeps the row-major order.
    """
    order = list(range(len(shape) - 1, -1, -1))
    for start in range(1, len(shape)):
        moving = start
        for other in range(start - 1, -1, -1):
            verdict = _compare(shape, operands, order[other], order[moving])
            if verdict > 0:
                order[other], order[moving] = order[moving], order[other]
                moving = other
            elif verdict < 0:
                break
    return order


def _compare(shape: Sequence[int], operands: Sequence[Sequence[int]], first: int, second: int) -> int:
    for strides in operands:
        a, b = strides[first], strides[second]
        if late(a) or late(b):
            if (verdict := _compare_late(a, b)) != 0:
                return verdict
            continue
        if a == 0 or b == 0:
            continue
        if a < b:
            return -1
        if a > b:
            return 1
        if _larger(shape[first], shape[second]):
            return 1
    return 0


def _larger(a: int, b: int) -> bool:
    """a > b; of a size that only the running program tells it is assumed that it is neither 0 nor, as the larger one, 1."""
    if late(b) and not late(a) and a == 1:
        return not assumed(b >= a)
    return assumed(a > b) if late(a) and not late(b) and b == 1 else a > b


def _compare_late(a: int, b: int) -> int:
    """The one that is a product of sizes only the running program tells is assumed to be the larger one."""
    if not late(b):
        return 0 if b == 0 else 1 if assumed(a > b) else -1
    if not late(a):
        return 0 if a == 0 else -1 if assumed(a < b) else 1
    if known_equal(a, b):
        return 0
    return -1 if a < b else 1


def strides_in_order(shape: Sequence[int], order: Sequence[int]) -> Ints:
    """Dense strides with the dimensions from fastest to slowest in `order`."""
    strides = [0] * len(shape)
    step = 1
    for dim in order:
        strides[dim] = step
        step = step * shape[dim]
    return tuple(strides)


def preserved_strides(shape: Ints, strides: Ints) -> Ints:
    """Strides of `torch.empty_like`: the same if dense, else dense in the same order."""
    if is_dense(shape, strides):
        return strides
    order = iteration_order(shape, [strides])
    return strides_in_order([at_least_one(size) for size in shape], order)


def broadcast(shapes: Sequence[Ints]) -> Ints | None:
    """The common shape, or None if there is none."""
    rank = max(map(len, shapes))
    result = [1] * rank
    for shape in shapes:
        skip = rank - len(shape)
        for i, size in enumerate(shape):
            have = result[skip + i]
            if have is size or not isinstance(size, torch.SymInt) and size == 1:
                continue
            if isinstance(have, torch.SymInt) and isinstance(size, torch.SymInt) and known_equal(have, size):
                continue
            if not isinstance(have, torch.SymInt) and have == 1:
                result[skip + i] = size
            elif late(have) or late(size):
                if not _same(have, size):  # else one of them is 1, or eager raises
                    return None
            elif is_one(size):
                continue
            elif is_one(have):
                result[skip + i] = size
            elif have != size:
                return None
    return tuple(result)


def elementwise_strides(shape: Ints, operands: Sequence[tuple[Ints, Ints]]) -> Ints:
    """Output strides of an elementwise operation; `operands` are (shape, strides) of its tensor inputs."""
    if all(same_shape(operand_shape, shape) for operand_shape, _ in operands):
        first = operands[0][1]
        if all(is_contiguous(shape, strides) for _, strides in operands):
            return contiguous_strides(shape)
        if len(shape) == 4 and all(is_channels_last(shape, strides) for _, strides in operands):
            return channels_last_strides(shape)
        if all(same_shape(strides, first) for _, strides in operands) and is_dense(shape, first):
            return first
    order = iteration_order(shape, [_expanded_strides(shape, *operand) for operand in operands])
    if order == list(range(len(shape) - 1, -1, -1)):
        return contiguous_strides(shape)
    return strides_in_order(shape, order)


def _expanded_strides(shape: Ints, operand_shape: Ints, strides: Ints) -> Ints:
    skip = len(shape) - len(operand_shape)
    inner = [
        0 if not known_equal(size, shape[skip + i]) and is_one(size) and not is_one(shape[skip + i]) else stride
        for i, (size, stride) in enumerate(zip(operand_shape, strides, strict=True))
    ]
    return (0,) * skip + tuple(inner)


def view_strides(shape: Ints, strides: Ints, new_shape: Ints) -> Ints | None:
    """Strides of `x.view(new_shape)`, or None if the memory does not allow it."""
    if any(map(late, (*shape, *new_shape))) and same_shape(strides, contiguous_strides(shape)):
        return contiguous_strides(new_shape)
    if has_zero(shape):
        # No element, so any strides would do: eager keeps them for the same shape, else row-major.
        return strides if shape == new_shape else contiguous_strides(new_shape)
    if not shape:
        return (1,) * len(new_shape)
    result = [0] * len(new_shape)
    target = len(new_shape) - 1
    base_stride = strides[-1]
    chunk, covered = 1, 1
    for dim in range(len(shape) - 1, -1, -1):
        chunk = chunk * shape[dim]
        # A chunk ends where the next outer dimension does not continue it in memory.
        if dim > 0 and (shape[dim - 1] == 1 or strides[dim - 1] == chunk * base_stride):
            continue
        while target >= 0 and (covered < chunk or new_shape[target] == 1):
            result[target] = covered * base_stride
            covered = covered * new_shape[target]
            target -= 1
        if covered != chunk:
            return None
        if dim > 0:
            base_stride = strides[dim - 1]
            chunk, covered = 1, 1
    return tuple(result) if target == -1 else None


def resolve_size(total: int, shape: Sequence[int]) -> Ints | None:
    """Replaces a -1 in a view size; None if the sizes do not fit `total` elements."""
    holes = [i for i, size in enumerate(shape) if not late(size) and size == -1]
    if any(late(size) and not must_hold(size >= 0) for size in shape):
        return None
    if not holes:
        return tuple(shape) if must_hold(numel(shape) == total) else None
    hole = holes[0]
    rest = numel([*shape[:hole], *shape[hole + 1 :]])
    if not must_hold(rest > 0) or not must_hold(total % rest == 0):
        return None
    return (*shape[:hole], total // rest, *shape[hole + 1 :])
