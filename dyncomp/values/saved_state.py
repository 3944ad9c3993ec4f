"""Torch's state of this thread, kept at one moment and put back as it was: grad mode, autocast, inference mode, SDPA choices,
levels of function transforms, devices of `with torch.device(...)`.

    kept = SavedState()
    try:
        run a graph whose nodes set state
    except BaseException:
        kept.put_back()              # the nodes that would have left the blocks did not run
        raise

Autocast counts how many of its blocks are open and forgets the weights that it has cast when the last one ends. So a count that
stays too high is worse than a wrong flag: from then on every autocast block of the thread would use old casts of weights.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode
from torch.overrides import _get_current_function_mode_stack

from dyncomp.fake.levels import depth, leave_to

_AUTOCAST_DEVICES = ("cpu", "cuda")


class _OpenModes(threading.local):
    """Inference modes and levels of forward-mode differentiation that graphs of this thread have entered and not left, innermost last."""

    def __init__(self) -> None:
        self.guards: list[Any] = []
        self.duals: list[int] = []


_open = _OpenModes()


def enter_inference(mode: bool) -> Any:
    """As `torch.inference_mode(mode).__enter__`; returns what `exit_inference` takes."""
    guard = _enter_inference_mode(mode)
    _open.guards.append(guard)
    return guard


def exit_inference(guard: Any) -> None:
    _open.guards.remove(guard)
    _exit_inference_mode(guard)


def enter_dual() -> int:
    """Opens the level of forward-mode differentiation, of which there is one in a process; returns its number."""
    level: int = torch._C._enter_dual_level()
    _open.duals.append(level)
    return level


def exit_dual() -> None:
    """Closes the level that `enter_dual` opened last in this thread."""
    torch._C._exit_dual_level(level=_open.duals.pop())


def enter_device(device: torch.device) -> None:
    """Opens the block of `with device:`."""
    device.__enter__()  # type: ignore[attr-defined]


def exit_device() -> None:
    """Ends the innermost such block."""
    torch._C._pop_torch_function_stack()


def autocast_nesting() -> int:
    """How many autocast blocks are open in this thread."""
    count: int = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return count


def leave_autocast() -> None:
    """The end of one autocast block: casts of weights live until the outermost one ends."""
    if torch.autocast_decrement_nesting() == 0:
        torch.clear_autocast_cache()


def _sdpa_pairs() -> list[tuple[Callable[[bool], None], Callable[[], bool]]]:
    """(setter, getter) of the kernels that scaled_dot_product_attention may choose from."""
    pairs = []
    for name in ("flash", "mem_efficient", "math", "cudnn", "overrideable", "fa3"):
        setter, getter = f"_set_sdp_use_{name}", f"_get_{name}_sdp_enabled"
        if hasattr(torch._C, setter) and hasattr(torch._C, getter):
            pairs.append((getattr(torch._C, setter), getattr(torch._C, getter)))
    return pairs


SDPA = _sdpa_pairs()


class SavedState:
    """The state at the moment of its making."""

    def __init__(self) -> None:
        self.grad = torch.is_grad_enabled()
        self.cache = torch.is_autocast_cache_enabled()
        self.autocast = [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in _AUTOCAST_DEVICES]
        self.nesting = autocast_nesting()
        self.sdpa = [getter() for _, getter in SDPA]
        self.inference = len(_open.guards)
        self.levels = depth()
        self.duals = len(_open.duals)
        self.forward_grad = torch._C._is_fwd_grad_enabled()
        self.modes = _get_current_function_mode_stack()
        self.default_dtype = torch.get_default_dtype()
        self.deterministic = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()

    def put_back(self) -> None:
        leave_to(self.levels)
        while len(_open.duals) > self.duals:
            exit_dual()
        torch._C._set_fwd_grad_enabled(self.forward_grad)
        self._put_back_modes()
        while len(_open.guards) > self.inference:
            exit_inference(_open.guards[-1])
        torch._C._set_grad_enabled(self.grad)
        self.put_back_autocast()
        while (extra := autocast_nesting() - self.nesting) > 0:
            leave_autocast()
        for _ in range(-extra):
            torch.autocast_increment_nesting()
        self._put_back_sdpa()

    @contextlib.contextmanager
    def as_then(self) -> Iterator[None]:
        """With all that decides what a traced operation becomes as it was, whatever it is now: autocast, the kernels of SDPA, the default
        dtype, deterministic algorithms. Grad mode and open blocks stay.
        """
        now = SavedState()
        self._choose()
        try:
            yield
        finally:
            now._choose()

    def _choose(self) -> None:
        self.put_back_autocast()
        self._put_back_sdpa()
        if torch.get_default_dtype() is not self.default_dtype:
            torch.set_default_dtype(self.default_dtype)
        enabled, warn_only = self.deterministic
        if (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()) != self.deterministic:
            torch.use_deterministic_algorithms(enabled, warn_only=warn_only)

    def _put_back_sdpa(self) -> None:
        for (setter, _), value in zip(SDPA, self.sdpa, strict=True):
            setter(value)

    def _put_back_modes(self) -> None:
        now = _get_current_function_mode_stack()
        same = 0
        while same < min(len(now), len(self.modes)) and now[same] is self.modes[same]:
            same += 1
        for _ in now[same:]:
            torch._C._pop_torch_function_stack()
        for mode in self.modes[same:]:
            torch._C._push_on_torch_function_stack(mode)

    def put_back_autocast(self) -> None:
        """Which casts are made; not how many blocks are open."""
        torch.set_autocast_cache_enabled(self.cache)
        for device, enabled, dtype in self.autocast:
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
