"""functorch's levels (vmap, grad, jvp) as the traced program has them, kept off the thread between operations.

    mode.run(_vmap_increment_nesting, (8, "error"))     the program is inside torch.vmap now
    mode.run(torch.sin, (batched,))                     torch's own machinery takes the batch apart; the mode sees aten.sin
    mode.run(_vmap_decrement_nesting)

Tracing itself calls torch all the time (meta kernels, views of real tensors, autograd functions of its own), and none of that
belongs to the program's transforms; so the levels are on the thread's stack only while an operation of the program runs.

A tensor of a level is a wrapper around fakes: `dress` gives it the Python side that fakes have.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from dyncomp.fake.tensor import FakeTensor, TensorMeta
from dyncomp.shape.symbolic import plain

_functorch = torch._C._functorch
ENTER: tuple[Callable[..., int], ...] = (
    _functorch._vmap_increment_nesting, _functorch._grad_increment_nesting, _functorch._jvp_increment_nesting,
)  # fmt: skip
LEAVE: dict[Any, Callable[[], Any]] = {
    _functorch.TransformType.Vmap: _functorch._vmap_decrement_nesting,
    _functorch.TransformType.Grad: _functorch._grad_decrement_nesting,
    _functorch.TransformType.Jvp: _functorch._jvp_decrement_nesting,
}


class Levels:
    """The open levels of one trace. False where there are none."""

    def __init__(self) -> None:
        self._layers: list[Any] = []  # outermost first

    def __bool__(self) -> bool:
        return bool(self._layers)

    def concern(self, fn: Any) -> bool:
        """True if running `fn` depends on levels or opens one."""
        return bool(self._layers) or fn in ENTER

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """The levels are the thread's inside; what is opened or closed there stays so."""
        before = depth()
        for layer in self._layers:
            _functorch.push_dynamic_layer_stack(layer)
        try:
            yield
        finally:
            taken: list[Any] = []
            while depth() > before:
                taken.append(_functorch.pop_dynamic_layer_stack())
            self._layers = taken[::-1]


def depth() -> int:
    """How many levels are open on this thread."""
    top = _functorch.peek_interpreter_stack()
    return 0 if top is None else top.level()


def leave_to(count: int) -> None:
    """Closes the levels of this thread down to that many."""
    while depth() > count:
        LEAVE[_functorch.peek_interpreter_stack().key()]()


def is_wrapped(value: Any) -> bool:
    """True for a tensor of a level, open or not."""
    return isinstance(value, torch.Tensor) and _functorch.is_functorch_wrapped_tensor(value)


def dress(wrapper: torch.Tensor) -> None:
    """Gives a tensor of a level `meta` as the program sees it inside, and the storage identity of the fake below. Its value is never known."""
    inner = wrapper
    while is_wrapped(inner):
        inner = _functorch.get_unwrapped(inner)
    shape, strides = tuple(map(plain, wrapper.shape)), tuple(map(plain, wrapper.stride()))
    fields = wrapper.__dict__
    fields["meta"] = TensorMeta(shape, strides, wrapper.dtype, wrapper.device, plain(wrapper.storage_offset()))
    fields["fake_storage"] = inner.fake_storage if type(inner) is FakeTensor else None
    fields["constant"] = None


@contextlib.contextmanager
def put_aside() -> Iterator[None]:
    """Outside of all levels, which come back afterwards: a history that was made outside of a `vmap` is made again so."""
    layers = []
    while depth():
        layers.append(_functorch.pop_dynamic_layer_stack())
    try:
        yield
    finally:
        while layers:
            _functorch.push_dynamic_layer_stack(layers.pop())
