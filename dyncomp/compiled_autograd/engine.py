"""Eager's engine, which first asks whether the thread is in a region that compiles backwards.

    Tensor.backward, torch.autograd.backward  ->  Variable._execution_engine.run_backward
        in a region     ->  the compiled backward of this structure, made when the structure is new
        else, or where the graph is refused  ->  eager's own, counted in the second case
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import threading
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from dyncomp import counters, driver, log
from dyncomp._frame import _core, _exec
from dyncomp.aot import Unsupported
from dyncomp.compiled_autograd.kept import READERS, Refused
from dyncomp.compiled_autograd.program import Structure, write
from dyncomp.compiled_autograd.running import STACK, Running
from dyncomp.context import CompileContext
from dyncomp.errors import RecompileLimitError
from dyncomp.fake import FakeMode

_EagerEngine: Any = type(torch.autograd.Variable._execution_engine)
_KEPT_PROGRAMS = 64  # of one region; the least recently used go
# Their hooks ask the engine what it is doing.
_ENGINES_OWN_HOOKS = ("torch.autograd.", "torch.distributed.", "torch.utils.checkpoint")

_lock = threading.RLock()
_installed = 0
_before: Any = None


class Engine(_EagerEngine):  # type: ignore[misc]
    """In the place of `torch.autograd.Variable._execution_engine`, and the same to all who ask for nothing else."""

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        owner = _core.current_owner()
        if isinstance(owner, CompileContext) and owner.options.get("compiled_autograd") and not _is_traced():
            try:
                call = prepare(owner, *args, **kwargs)
            except Refused as reason:
                _count(str(reason))
            else:
                return call()
        return super().run_backward(*args, **kwargs)


def _is_traced() -> bool:
    """True for a backward over fakes, by which a compiled function's own is found out."""
    count = torch._C._len_torch_dispatch_stack()
    return count > 0 and isinstance(torch._C._get_dispatch_stack_at(count - 1), FakeMode)


def install() -> None:
    """Puts the engine in its place; `remove` as often brings back what was there."""
    global _installed, _before
    with _lock:
        _installed += 1
        if _installed == 1:
            _before = torch.autograd.Variable._execution_engine
            torch.autograd.Variable._execution_engine = Engine()


def remove() -> None:
    global _installed
    with _lock:
        _installed -= 1
        if not _installed and type(torch.autograd.Variable._execution_engine) is Engine:
            torch.autograd.Variable._execution_engine = _before


@contextlib.contextmanager
def installed() -> Iterator[None]:
    install()
    try:
        yield
    finally:
        remove()


def forget() -> None:
    """Drops all compiled backwards."""
    with _lock:
        _programs.clear()
        _contexts.clear()


# ---- one backward


@dataclasses.dataclass
class _Program:
    """`holds`: what the structure names by address, so that nothing else gets that address. `retained`: (node, place) of results
    that keep their gradient, which `call` returns last.
    """

    call: Any
    holds: list[Any]
    retained: list[tuple[int, int]]


class _Programs:
    """The compiled backwards of one region, and how many there are of a structure without its sizes."""

    def __init__(self) -> None:
        self.ready: collections.OrderedDict[Any, _Program] = collections.OrderedDict()
        self.made: collections.Counter[Any] = collections.Counter()


_programs: weakref.WeakKeyDictionary[CompileContext, _Programs] = weakref.WeakKeyDictionary()
_contexts: weakref.WeakKeyDictionary[CompileContext, dict[bool, CompileContext]] = weakref.WeakKeyDictionary()


def prepare(
    owner: CompileContext,
    tensors: Any,
    gradients: Any,
    retain: bool,
    create: bool,
    inputs: Any = (),
    allow_unreachable: bool = False,
    accumulate_grad: bool = False,
) -> Any:
    """A callable that runs this backward. Raises Refused."""
    _check_call(tensors, gradients, create)
    capture = not accumulate_grad
    try:
        walk = _exec.backward_walk(tuple(tensors), tuple(inputs), capture=capture)
    except RuntimeError as error:  # compiled code of which another backward has used up some: eager's engine knows which
        raise Refused("a history of which some is used up") from error
    if isinstance(walk, str):
        raise Refused(walk)
    steps, structure, sizes, kinds, objects, hooks, _ = walk
    _check_hooks(hooks)
    try:
        found = _exec.backward_kept(steps, objects, READERS)
    except RuntimeError as error:  # gone, or written in place since: eager raises this where it comes to that node
        raise Refused(f"eager raises: {type(error).__name__}") from error
    if isinstance(found, str):
        raise Refused(found)
    formulas, kept = found
    key = (structure, sizes if _sizes_count(kinds) else None, formulas, len(inputs), capture)
    program = _find(owner, key)
    if program is None:
        program = _make(owner, key, tensors, inputs, kinds, objects, kept)
    captured = (len(inputs), allow_unreachable) if capture else None
    return functools.partial(_run, program, Running(steps, objects, kept, hooks), gradients, retain, captured)


def _run(
    program: _Program, running: Running, gradients: Any, retain: bool, captured: tuple[int, bool] | None
) -> tuple[Any, ...]:
    """`captured`: how many gradients are asked for, and whether they may be missing; None: the leaves accumulate them."""
    args = [*gradients, *(one for kept in running.tensors for one in kept), *running.hooks]
    enabled = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)
    STACK.running.append(running)
    try:
        found = program.call(*args)
        for (node, place), gradient in zip(program.retained, found[len(found) - len(program.retained) :], strict=True):
            _exec.backward_retain(running.steps, node, place, gradient)
    finally:
        STACK.running.pop()
        torch._C._set_grad_enabled(enabled)
        if not retain:
            _exec.backward_release(running.steps)
    if captured is None:
        return ()
    count, may_lack = captured
    lacking = [place for place, one in enumerate(found[:count]) if one is None]
    if lacking and not may_lack:
        _raise_unused(lacking[0])
    return tuple(found[:count])


def _raise_unused(index: int) -> None:
    """Eager's error for a gradient that there is none of, by its place among those that were asked for."""
    with torch.enable_grad():
        used, unused = torch.zeros((), requires_grad=True), torch.zeros((), requires_grad=True)
        root = used.clone()
    wanted = (*[used] * index, unused)
    _before.run_backward((root,), (torch.ones(()),), False, False, wanted, allow_unreachable=False, accumulate_grad=False)


def _check_call(tensors: Any, gradients: Any, create: bool) -> None:
    if create:
        raise Refused("create_graph=True")
    if torch.is_anomaly_enabled():
        raise Refused("anomaly detection")
    if STACK.running or torch._C._current_graph_task_id() != -1:
        raise Refused("a backward inside of a backward")
    if torch.is_inference_mode_enabled() or torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
        raise Refused("a mode that watches operations")
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise Refused("a function transform")
    for tensor, gradient in zip(tensors, gradients, strict=True):
        plain = type(gradient) is torch.Tensor and not torch._C._functorch.is_legacy_batchedtensor(gradient)
        if not plain or gradient.requires_grad:
            raise Refused("gradients of the roots that are no plain tensors")
        if not isinstance(tensor, torch.Tensor) or gradient.dtype != tensor.dtype or gradient.shape != tensor.shape:
            raise Refused("gradients unlike the roots")


def _check_hooks(hooks: list[Any]) -> None:
    for some in hooks[::2]:  # each tuple is followed by its dict
        for hook in some:
            module = getattr(hook, "__module__", None) or ""
            if module.startswith(_ENGINES_OWN_HOOKS):
                raise Refused(f"a hook of {module}")


def _sizes_count(kinds: str) -> bool:
    """Nodes of torch compute with the sizes that they were made for; compiled code reads sizes off what it is given."""
    return not set(kinds) <= {"a", "c", "r", "x"}


def _find(owner: CompileContext, key: Any) -> _Program | None:
    programs = _programs.get(owner)
    if programs is None:
        return None
    with _lock:
        program = programs.ready.get(key)
        if program is not None:
            programs.ready.move_to_end(key)
        return program


def _make(
    owner: CompileContext, key: Any, tensors: Any, inputs: Any, kinds: str, objects: list[Any], kept: list[list[Any]]
) -> _Program:
    roots, nodes, captures = _exec.backward_walk(tuple(tensors), tuple(inputs), details=True, capture=key[-1])[-1]
    with _lock:
        programs = _programs.setdefault(owner, _Programs())
        alike = (key[0], kinds)
        _check_limit(owner, programs, alike)
        structure = Structure(roots, nodes, kinds, [len(one) for one in kept], functools.partial(_leaf_order, objects), captures)
        function = write(structure)
        holds = [one[1] for kind, one in zip(kinds, objects, strict=True) if kind == "c"]
        program = _Program(_core.Dispatcher(function, _context_of(owner, _sizes_count(kinds))), holds, structure.retained_at_end())
        programs.ready[key] = program
        programs.made[alike] += 1
        if len(programs.ready) > _KEPT_PROGRAMS:
            programs.ready.popitem(last=False)
    log.write("graph", "compiled autograd: %d nodes", len(nodes))
    return program


def _leaf_order(objects: list[Any], node: int, asked: tuple[bool, ...]) -> list[int]:
    _, prepare, _ = objects[node]
    try:
        return prepare.__wrapped__.__self__.leaf_order(asked)  # type: ignore[no-any-return]
    except Unsupported as reason:
        raise Refused(f"compiled code: {reason}") from reason


def _check_limit(owner: CompileContext, programs: _Programs, alike: Any) -> None:
    count = programs.made[alike]
    if count:
        counters.add("recompiles")
        if driver.stance() == "eager_on_recompile":
            raise Refused("stance-eager-on-recompile")
        if driver.stance() == "fail_on_recompile":
            raise RecompileLimitError("stance fail_on_recompile: a backward would be compiled again for other sizes or constants")
    if count < owner.recompile_limit:
        return
    if owner.once("limit:compiled-autograd"):
        warnings.warn(
            f"dyncomp compiled one backward for {owner.recompile_limit} different sizes or constants; others run under eager's "
            "engine from now on. Raise recompile_limit, or leave compiled_autograd out where sizes vary.",
            RuntimeWarning,
            stacklevel=5,
        )
    raise Refused("recompile-limit")


def _context_of(owner: CompileContext, sizes_count: bool) -> CompileContext:
    """The region's options for the backwards, where what breaks is counted. Sizes that are part of the structure are not symbolic."""
    contexts = _contexts.setdefault(owner, {})
    if sizes_count not in contexts:
        dynamic = False if sizes_count else owner.dynamic
        contexts[sizes_count] = dataclasses.replace(owner, dynamic=dynamic, fullgraph=False, name=None, warned=set())
    return contexts[sizes_count]


def _count(reason: str) -> None:
    counters.add_fallback(f"compiled-autograd: {reason}")
    log.write("graph_breaks", "a backward runs under eager's engine: %s", reason)
