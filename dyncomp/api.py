"""What users call. Docstrings are the reference; README shows examples."""

from __future__ import annotations

import contextlib
import copyreg
import functools
import inspect
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from dyncomp import config, counters, driver, interp, marks, size_marks
from dyncomp._frame import _core
from dyncomp.backends import default_backend, lookup_backend
from dyncomp.compiled_autograd import engine
from dyncomp.context import CompileContext, check_flag, check_limit, check_mode, check_options
from dyncomp.entry import caller_of, captured_is_compiling
from dyncomp.errors import OptionError
from dyncomp.optimized_module import optimize_module
from dyncomp.skipfiles import is_torchs_own


def optimize(
    target: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    recompile_limit: int | None = None,
    disable: bool = False,
    name: str | None = None,
) -> Any:
    """Makes a module, function or method fast; same results as calling the target itself.

    Args:
        target: an `nn.Module`, function, method or other callable. Without it a decorator is returned.
        fullgraph: raise `errors.FullGraphError` (file, line, reason, cure) instead of running parts as plain Python.
        dynamic: sizes that vary. `None`: special first; `False`: always special.
        backend: a name (`list_backends()`) or a callable `(gm, example_inputs) -> callable`. Default `codegen`.
        mode: `default`, `reduce-overhead`, `max-autotune` or `max-autotune-no-cudagraphs`.
        options: knobs of `dyncomp.config` for this call alone; see `dyncomp.context.OPTIONS`.
        recompile_limit: versions kept before calls that fit none run as plain Python; default `config.recompile_limit`.
        disable: return the target unchanged.
        name: shown in logs and the debug folder.

    Returns:
        A callable with the target's signature; for a module, an object of a subclass of its class that shares its state.

    Raises:
        errors.OptionError: a wrong argument; the text names what is accepted.
    """
    given = dict(
        fullgraph=fullgraph,
        dynamic=dynamic,
        backend=backend,
        mode=mode,
        options=options,
        recompile_limit=recompile_limit,
        name=name,
    )
    context = make_context(**given)
    check_flag("disable", disable)
    if target is None:
        return lambda fn: optimize(fn, **given, disable=disable)
    if disable or config.disable:
        return target
    if context.options.get("compiled_autograd"):
        engine.install()  # for good: what is returned may run at any time
    if isinstance(target, torch.nn.Module):
        return optimize_module(target, context, functools.partial(optimize, **given))
    return _optimize_callable(target, context)


def make_context(
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    recompile_limit: int | None = None,
    name: str | None = None,
) -> CompileContext:
    """Checks every option and makes the context that owns the compiled code."""
    if name is not None and not isinstance(name, str):
        raise OptionError(f"name takes a string, got {name!r}")
    checked = check_options(options)
    if config.compiled_autograd:  # as it is now: compiling sets knobs for a while, in all threads
        checked.setdefault("compiled_autograd", True)
    return CompileContext(
        backend=default_backend() if backend is None else lookup_backend(backend),
        fullgraph=check_flag("fullgraph", fullgraph),
        dynamic=check_flag("dynamic", dynamic, allow_none=True),
        mode=check_mode(mode),
        options=checked,
        recompile_limit=check_limit(config.recompile_limit if recompile_limit is None else recompile_limit),
        name=name,
    )


def _optimize_callable(target: Any, context: CompileContext) -> Any:
    if isinstance(target, _core.Dispatcher):
        target = target.__wrapped__
    if isinstance(target, types.MethodType) and isinstance(target.__func__, types.FunctionType):
        return types.MethodType(_core.Dispatcher(target.__func__, context), target.__self__)
    if isinstance(target, staticmethod | classmethod):
        return type(target)(_optimize_callable(target.__func__, context))
    if inspect.isclass(target):
        raise OptionError(
            f"optimize takes an instance or a function, got the class {target.__qualname__}: optimize({target.__qualname__}(...))"
        )
    if not callable(target):
        raise OptionError(f"optimize takes a module, a function or another callable, got {type(target).__name__}")
    if isinstance(target, types.FunctionType) and not is_torchs_own(target.__code__):
        return _core.Dispatcher(target, context)
    call = getattr(type(target), "__call__", None)  # noqa: B004 - the function behind it is wanted
    if isinstance(call, types.FunctionType):
        return types.MethodType(_core.Dispatcher(call, context), target)
    wrapper = caller_of(target)
    functools.update_wrapper(wrapper, target, updated=())
    return _core.Dispatcher(wrapper, context)


def _reduce_dispatcher(fast: Any) -> str:
    """Copies and pickles as functions do: itself, and by name."""
    return fast.__qualname__  # type: ignore[no-any-return]


copyreg.pickle(_core.Dispatcher, _reduce_dispatcher)


def context_of(fast: Any) -> CompileContext:
    """The context behind what `optimize` returned."""
    call = type(fast).__dict__["__call__"] if isinstance(fast, torch.nn.Module) else fast
    return getattr(call, "__func__", call).owner


@contextlib.contextmanager
def enable(*, observer: Any = None, compiled_autograd: bool | None = None, **options: Any) -> Iterator[None]:
    """Every frame entered inside the block, in this thread, is compiled; nests; restores on exceptions.

    Takes the options of `optimize`. `observer(record)` is told of every compile. `compiled_autograd`: backward() called inside
    runs as one compiled graph, hooks included, also where the forward had graph breaks; the same as the option of that name.
    """
    if compiled_autograd is not None:
        given = {"compiled_autograd": check_flag("compiled_autograd", compiled_autograd)}
        options["options"] = {**(options.get("options") or {}), **given}
    context = _shared_context(observer, options)
    with engine.installed() if context.options.get("compiled_autograd") else contextlib.nullcontext():
        with _core.Region(context):
            yield


_region_contexts: dict[tuple[Any, ...], CompileContext] = {}


def _shared_context(observer: Any, options: dict[str, Any]) -> CompileContext:
    """One context for all regions with the same options, so that a region entered again finds its compiled code."""
    context = make_context(**options)
    if observer is not None:
        context.observers.append(observer)
        return context
    fields = (context.fullgraph, context.dynamic, context.mode, context.recompile_limit, context.name)
    key = (
        context.backend.name,
        options.get("backend") or context.backend,
        fields,
        tuple(sorted(context.options.items())),
    )
    return _region_contexts.setdefault(key, context)


class _Disable(contextlib.AbstractContextManager[None]):
    """`with dyncomp.disable():` nothing inside is compiled."""

    def __enter__(self) -> None:
        self._region = _core.Region(None)
        self._region.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._region.__exit__(*error)


def disable(fn: Any = None, recursive: bool = True, *, reason: str = "") -> Any:
    """Keeps a function as plain Python; also a decorator, and (without a function) a context manager.

    Args:
        fn: the function; `recursive` also keeps everything that it calls as plain Python.
        reason: shown where the graph breaks because of it.
    """
    check_flag("recursive", recursive)
    if fn is None:
        return _DisableDecorator(recursive, reason)
    if isinstance(fn, _core.Dispatcher):
        fn = fn.__wrapped__
    if isinstance(fn, torch.nn.Module):
        fn.forward = disable(fn.forward, recursive, reason=reason)  # type: ignore[method-assign]
        return fn
    if inspect.isclass(fn):
        setattr(fn, "__init__", disable(fn.__init__, recursive, reason=reason))  # noqa: B010 - a class of any kind
        return fn
    if not callable(fn):
        raise OptionError(f"disable takes a function, got {type(fn).__name__}")

    if not recursive:
        marks.mark(fn, "disable", reason)
        if isinstance(fn, types.FunctionType):
            _core.skip(fn.__code__)
        return fn

    @functools.wraps(fn)
    def plain(*args: Any, **kwargs: Any) -> Any:
        with _core.Region(None):
            return fn(*args, **kwargs)

    marks.mark(plain, "disable", reason)
    return plain


class _DisableDecorator(_Disable):
    """`@dyncomp.disable(reason=...)` and `with dyncomp.disable():` in one object."""

    def __init__(self, recursive: bool, reason: str) -> None:
        self._recursive, self._reason = recursive, reason

    def __call__(self, fn: Any) -> Any:
        return disable(fn, self._recursive, reason=self._reason)


def allow_in_graph(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Puts calls of `fn` into the graph as they are, without looking inside. `fn` must only run tensor operations."""
    marks.mark(fn, "allow_in_graph")
    return fn


def substitute_in_graph(original: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: while capturing, calls of `original` are captured as calls of the decorated function."""

    def decorate(replacement: Callable[..., Any]) -> Callable[..., Any]:
        marks.mark(original, "substitute", replacement)
        return replacement

    return decorate


def assume_constant_result(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Calls of `fn` are run once while capturing and their result is kept as a constant, without a guard."""
    marks.mark(fn, "constant")
    return fn


def is_compiling() -> bool:
    """False in plain Python; True in code that is being captured."""
    return False


marks.mark(is_compiling, "substitute", captured_is_compiling)


def mark_dynamic(tensor: torch.Tensor, dim: int | Sequence[int], min: int | None = None, max: int | None = None) -> None:
    """This dimension varies from call to call: it is symbolic from the first compile on.

    Args:
        dim: one dimension or several.
        min: least size (inclusive); sizes 0 and 1 are always special.
        max: greatest size (inclusive).

    Raises:
        DyncompError: at the compile, if the program needs the size to be one number, or to stay out of a part of the range
            that `min` and `max` give; the text names the line that needs it.
    """
    _mark_sizes(tensor, dim, size_marks.SizeMark("dynamic", min, max))


def mark_static(tensor: torch.Tensor, dim: int | Sequence[int] | None = None) -> None:
    """This dimension (all of them without `dim`) is never symbolic: each size is compiled for by itself.

    Dimensions that are marked as dynamic or unbacked, earlier or later, stay that.
    """
    _mark_sizes(tensor, range(tensor.ndim) if dim is None else dim, size_marks.SizeMark("static"))


def mark_unbacked(
    tensor: torch.Tensor, dim: int | Sequence[int], min: int | None = None, max: int | None = None
) -> None:
    """This dimension varies and tracing may not look at its size, so that no size is special, 0 and 1 included.

    Args:
        dim: one dimension or several; calls add up.
        min: least size (inclusive), which tracing may rely on.
        max: greatest size (inclusive).
    """
    _mark_sizes(tensor, dim, size_marks.SizeMark("unbacked", min, max))


def _mark_sizes(tensor: Any, dim: Any, mark: size_marks.SizeMark) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise OptionError(f"only tensors have sizes to mark, got {type(tensor).__name__}")
    if mark.low is not None and mark.high is not None and mark.low > mark.high:
        raise OptionError(f"min={mark.low} is greater than max={mark.high}")
    dims = [dim] if isinstance(dim, int) else list(dim)
    for one in dims:
        if not -tensor.ndim <= one < tensor.ndim:
            raise OptionError(f"dimension {one} of a tensor with {tensor.ndim} dimensions")
    size_marks.mark(tensor, {one % tensor.ndim: mark for one in dims})


def stats() -> counters.Stats:
    """What was compiled so far in this process."""
    return counters.stats()


def reset() -> None:
    """Drops all compiled code and counters. Optimised modules and functions stay usable and compile again."""
    _core.reset()
    interp.forget_sizes()
    interp.forget_failures()
    engine.forget()
    _region_contexts.clear()
    counters.clear()


class set_stance(contextlib.AbstractContextManager[None]):
    """How misses are handled from now on: `default`, `force_eager`, `eager_on_recompile`, `fail_on_recompile`.

    Takes effect at once; used as a context manager, the stance before comes back at the end.
    """

    def __init__(self, stance: str) -> None:
        if stance not in driver.STANCES:
            raise OptionError(f"unknown stance {stance!r}. Known: {', '.join(driver.STANCES)}")
        self._before = driver.set_stance_name(stance)

    def __exit__(self, *error: Any) -> None:
        driver.set_stance_name(self._before)
