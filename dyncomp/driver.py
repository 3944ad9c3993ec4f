"""The one callback that the native runtime calls on a miss: trace, compile, make an entry. Also every policy about failing.

miss -> limits and stance -> interp.trace_frame -> backend -> guards.build -> _core.Entry
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import os
import time
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from dyncomp import config, counters, interp, log
from dyncomp import dump as dump_folder
from dyncomp._frame import _core, _exec
from dyncomp.aot.undisturbed import undisturbed
from dyncomp.backends.registry import CompileRequest
from dyncomp.bytecode import printer
from dyncomp.context import COMPILE_LOCK, CompileContext
from dyncomp.dynamic import plain_if_better
from dyncomp.errors import (
    BackendError,
    BreakRecord,
    DyncompError,
    FullGraphError,
    InternalError,
    RecompileLimitError,
)
from dyncomp.fake.levels import is_wrapped
from dyncomp.guards import build as guard_build
from dyncomp.guards.failure import in_words
from dyncomp.guards.record import GuardRecord
from dyncomp.guards.source import Source
from dyncomp.interp.number_report import NumberReport
from dyncomp.interp.rerun import throw_into
from dyncomp.interp.resume import generated_code, is_resume, is_step
from dyncomp.patience import answer_again, nothing_to_compile
from dyncomp.skipfiles import is_other_compiler, is_skipped, is_torch_optimizer
from dyncomp.values.node_by_node import left_as_found

# What runs for the first import of a module: everything that its body calls, once, and often thousands of functions.
_FIRST_IMPORT: types.FunctionType = importlib._bootstrap._find_and_load  # type: ignore[attr-defined]
STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile")
_stance = "default"


@dataclasses.dataclass
class CompileRecord:
    """What one compile did: kept with the entry, shown by explain and the debug folder. Holds no tensor and no module."""

    name: str
    filename: str
    line: int
    graph: str | None
    graph_size: int
    facts: list[GuardRecord]
    breaks: list[BreakRecord]
    skipped: BreakRecord | None
    seconds: float
    recompile_reason: str | None
    backend: str
    fallbacks: tuple[str, ...] = ()  # counted while it was compiled
    places: tuple[Source, ...] = ()  # what each node of the guard tree is
    numbers: list[NumberReport] = dataclasses.field(default_factory=list)  # made where somebody reads them
    open_numbers: bool = False  # sizes or numbers that varied are symbolic, and may take other values in later calls

    @property
    def guards(self) -> list[str]:
        """The facts in words; put together when asked, since a large model has thousands."""
        return [str(fact) for fact in self.facts]


def set_stance_name(stance: str) -> str:
    """Sets the stance and returns the one before."""
    global _stance
    before, _stance = _stance, stance
    _core.set_disabled(stance == "force_eager" or config.disable)
    return before


def stance() -> str:
    return _stance


def on_miss(func: types.FunctionType, args: tuple[Any, ...], owner: CompileContext, cache: Any) -> Any:
    """Called by the runtime with the hook off. Contract: docs/contracts.md, section 1."""
    try:
        return _answer(func, args, owner, cache)
    except BaseException as error:  # an interruption, a refusal, a fault of ours
        if not is_resume(func.__code__):
            raise
        raised = error
    return (throw_into(raised, func, args),)  # the frame began inside what the user's `with` and `finally` blocks clean up


def _answer(func: types.FunctionType, args: tuple[Any, ...], owner: CompileContext, cache: Any) -> Any:
    code = func.__code__
    if is_step(code) or func in gc.callbacks:  # the collector calls those in the middle of anything
        return None
    if is_skipped(code):
        if is_other_compiler(code):
            _core.skip(code, calls_too=True)
        return None
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return _leave_alone(func, owner, "function-transform", "called inside a torch.func transform")
    if torch._C._len_torch_function_stack() and not all(map(_only_sets_device, _get_current_function_mode_stack())):
        return _leave_alone(func, owner, "torch-mode", "called inside a TorchFunctionMode")
    if torch._C._len_torch_dispatch_stack():
        return _leave_alone(func, owner, "torch-mode", "called inside a TorchDispatchMode")
    again = answer_again(func, args, owner, cache)
    if again is not None:
        return again
    entries = cache.entries()
    reason = _why_missed(entries, func, args)
    if reason is not None:
        if _stance == "eager_on_recompile":
            counters.add_fallback("stance-eager-on-recompile")
            return _core.EAGER_ONCE
        if _stance == "fail_on_recompile":
            raise RecompileLimitError(
                f"stance fail_on_recompile: {func.__qualname__} would be compiled again because {reason}"
            )
        if _is_at_limit(entries, owner):
            _tell_limit(func, owner, reason)
            return _core.FREEZE
    with COMPILE_LOCK, _collector_paused(), undisturbed(), config.patch(**owner.options):
        made = _compile_or_fall_back(func, args, owner, reason, entries, cache)
    # Calls that older versions serve go on doing so.
    return _core.FREEZE if made is None and entries else made


def _only_sets_device(mode: Any) -> bool:
    """`with torch.device(...)` is such a mode too; what it does is part of the global state that is guarded."""
    return isinstance(mode, DeviceContext)


def _leave_alone(func: types.FunctionType, owner: CompileContext, reason: str, detail: str) -> Any:
    """Inside transforms tensors are wrapped, and modes watch every operation, ours too: this call runs as plain Python."""
    code = func.__code__
    record = BreakRecord(reason, detail, code.co_filename, code.co_firstlineno, func.__qualname__)
    if owner.fullgraph:
        raise FullGraphError(record)
    counters.add_fallback(reason)
    log.write("graph_breaks", "call left alone: %s", record)
    return _core.EAGER_ONCE


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """No garbage collection inside: a compile makes many objects that live as long as it does, and each collection would walk
    them and the user's whole heap (a third of the time that a large model takes to trace)."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _why_missed(entries: list[Any], func: types.FunctionType, args: tuple[Any, ...]) -> str | None:
    """The failing check of the newest entry, in words; None if there is no entry yet."""
    if not entries:
        return None
    failed = entries[0].guards.explain(func, args)
    text = "the guards passed in the meantime" if failed is None else in_words(failed, entries[0].info.places)
    counters.add("recompiles")
    log.write(
        "recompiles", "%s (%s:%d): %s", func.__qualname__, func.__code__.co_filename, func.__code__.co_firstlineno, text
    )
    return text


def _is_at_limit(entries: list[Any], owner: CompileContext) -> bool:
    """Versions with open numbers serve many calls each, so they count for a quarter."""
    narrow = sum(not entry.info.open_numbers for entry in entries)
    return narrow >= owner.recompile_limit or len(entries) >= 4 * owner.recompile_limit


def _tell_limit(func: types.FunctionType, owner: CompileContext, reason: str) -> None:
    counters.add_fallback("recompile-limit")
    code = func.__code__
    if owner.once(f"limit:{id(code)}"):
        warnings.warn(
            f"dyncomp compiled {func.__qualname__} ({code.co_filename}:{code.co_firstlineno}) {owner.recompile_limit} times; "
            f"calls that fit none of these run as plain Python from now on. Last failing guard: {reason}. "
            f"{_cure_of(reason)}, or raise recompile_limit.",
            RuntimeWarning,
            stacklevel=3,
        )


def _cure_of(reason: str) -> str:
    if "length: expected" in reason:  # a loop over a list is traced item by item
        return "Each length is a version of its own: stack the items into one tensor, or pad to a few lengths"
    return "Pass changing numbers as tensors"


def _compile_or_fall_back(
    func: types.FunctionType,
    args: tuple[Any, ...],
    owner: CompileContext,
    reason: str | None,
    entries: list[Any],
    cache: Any,
) -> Any:
    start = time.perf_counter()

    def attempt() -> Any:
        return _compile(func, args, owner, reason, entries, start, cache)

    try:
        return plain_if_better(attempt, func.__code__, owner, entries)
    except DyncompError as error:
        if not isinstance(error, InternalError):
            raise
        return _internal_failure(func, owner, error)
    except RecursionError:
        return _too_deep(func, owner)
    except Exception as error:  # noqa: BLE001 - any bug of ours must not kill the user's run
        return _internal_failure(func, owner, error)
    finally:
        counters.add("compile_seconds", time.perf_counter() - start)


def _too_deep(func: types.FunctionType, owner: CompileContext) -> Any:
    """Tracing needs more of Python's stack than the program does: deep data, or a call near the limit. Plain Python raises the
    program's own RecursionError where there is one. Now and then is no reason to leave a function alone for good."""
    counters.add_fallback("recursion-limit")
    return _core.EAGER_ONCE if owner.once(f"deep:{id(func.__code__)}") else None


def _internal_failure(func: types.FunctionType, owner: CompileContext, error: BaseException) -> None:
    code = func.__code__
    where = f"{func.__qualname__} ({code.co_filename}:{code.co_firstlineno})"
    if config.strict:
        raise InternalError(f"dyncomp failed while compiling {where}: {type(error).__name__}: {error}") from error
    counters.add_fallback("internal-error")
    if owner.once(f"internal:{id(code)}"):
        warnings.warn(
            f"dyncomp failed while compiling {where} and ran it as plain Python: {type(error).__name__}: {error}. "
            "This is a bug of dyncomp; please report it (DYNCOMP_STRICT=1 gives the traceback).",
            RuntimeWarning,
            stacklevel=4,
        )
    return None


def _compile(
    func: types.FunctionType,
    args: tuple[Any, ...],
    owner: CompileContext,
    reason: str | None,
    entries: list[Any],
    start: float,
    cache: Any,
) -> Any:
    name = owner.name or func.__qualname__
    before = counters.stats().fallbacks
    trace = interp.trace_frame(func, args, owner)
    counters.add("frames")
    if entries and trace.run_code is not None:
        trace.skipped = None  # calls go through guards already, so one more version costs less than a miss each time
    for broken in trace.breaks:
        counters.add_break(broken)
        log.write("graph_breaks", "%s", broken)
    refused = trace.breaks[0] if trace.breaks else trace.skipped
    if trace.breaks and is_torch_optimizer(func.__code__) and trace.breaks[0].reason.startswith("data-dependent"):
        trace.skipped = trace.breaks[0]  # a step in pieces, a few for each parameter, costs more than eager's
    if owner.fullgraph and refused is not None:
        raise FullGraphError(refused)
    if trace.skipped is not None:
        counters.add("skipped")
        counters.add_fallback(f"skipped-frame: {trace.skipped.reason}")
        log.write("graph_breaks", "frame left alone: %s", trace.skipped)
        _observe(owner, _record(func, trace, owner, reason, time.perf_counter() - start))
        return nothing_to_compile(func, trace, owner) if trace.for_now and not entries else None
    folder = dump_folder.open_folder(name)
    retirement = _Retirement(cache)
    compiled, native = _compile_graph(trace, owner, name, folder, func.__code__, retirement)
    run = trace.make_run(compiled, _single_form(compiled))
    if isinstance(run, types.FunctionType):
        for code in generated_code(run.__code__):
            _core.own(code, resumes=is_resume(code) or is_step(code))
    layout = guard_build.plan(trace.guards, trace.captures)
    tree = guard_build.native(layout)
    record = _record(func, trace, owner, reason, time.perf_counter() - start)
    record.places = layout.places()
    record.fallbacks = tuple([name for name, n in counters.stats().fallbacks.items() if n > before.get(name, 0)])
    if log.enabled("guards"):
        log.write("guards", "%s\n  %s", name, "\n  ".join(record.guards))
    _dump_frame(folder, func, run, record)
    _observe(owner, record)
    retirement.record = weakref.ref(record)
    return _core.Entry(tree, run, trace.whole, name, record)


class _Retirement:
    """Takes the version whose record this is out of its cache. It is part of that version, so it holds neither."""

    def __init__(self, cache: Any):
        self._cache = weakref.ref(cache)
        self.record: Callable[[], Any] = lambda: None

    def __call__(self) -> None:
        cache, record = self._cache(), self.record()
        if cache is None or record is None:
            return
        for entry in cache.entries():
            if entry.info is record:
                cache.remove(entry)


def _compile_graph(
    trace: Any, owner: CompileContext, name: str, folder: Any, code: types.CodeType, retire: Callable[[], None]
) -> tuple[Callable[..., Any] | None, bool]:
    if trace.graph is None:
        return None, True
    counters.add("graphs")
    backend = owner.backend
    if log.enabled("graph"):
        log.write("graph", "%s\n%s", name, trace.graph.print_readable(print_output=False))
    folder.write("fx_graph.py", lambda: trace.graph.print_readable(print_output=False))
    request = CompileRequest(
        trace.graph, trace.fake_inputs, trace.example_inputs, owner, name, needs_grad(trace), folder.dump,
        owner.gradients.setdefault(code, set()), retire,
    )  # fmt: skip
    try:
        compiled = backend.compile(request)
    except DyncompError:
        raise
    except Exception as error:
        if backend.native:
            raise
        raise BackendError(
            f"backend {backend.name!r} failed on the graph of {name}: {type(error).__name__}: {error}"
        ) from error
    if not backend.native or isinstance(compiled, types.FunctionType | types.MethodType):
        if not backend.writes_last:
            compiled = left_as_found(compiled, trace.graph)
        compiled = _core.without_hook(compiled)
    return compiled, backend.native


def _single_form(compiled: Any) -> Callable[..., Any] | None:
    """A graph of one output also comes as a callable that returns this output bare, for frames that return just that."""
    if isinstance(compiled, _exec.Plan) and len(compiled.data()["outputs"]) == 1:
        return compiled.single()
    if isinstance(compiled, _core.without_hook):
        return _core.without_hook(compiled.__wrapped__, single=True)
    return None


def needs_grad(trace: Any) -> bool:
    """True when autograd must go through the graph: a value in it requires grad, as the fakes saw it.

    Under no_grad two kinds of value say that they require grad without a graph behind them: the operand itself, handed on by
    an operation with nothing to do (`x.contiguous()`), and a view of a leaf.
    """
    inputs: set[int] = set()
    recorded = torch.is_grad_enabled()
    for node in trace.graph.graph.nodes:
        asking = _asking(node)
        if node.op == "placeholder":
            inputs.update(map(id, asking))
            if asking and recorded:
                return True
        elif node.target is torch._C._set_grad_enabled:
            recorded = bool(node.args[0])
        elif any(id(v) not in inputs and not _is_view_of_a_leaf(v) for v in asking):
            return True
        elif recorded and any(map(_asking, node.all_input_nodes)):  # a write, whose result is no new value
            return True
    return False


def _asking(node: torch.fx.Node) -> list[torch.Tensor]:
    value = node.meta.get("example_value")
    values = value if isinstance(value, tuple | list) else (value,)
    # On a level of a function transform that is that transform's affair.
    return [v for v in values if isinstance(v, torch.Tensor) and v.requires_grad and not is_wrapped(v)]


def _is_view_of_a_leaf(value: torch.Tensor) -> bool:
    try:
        return value.is_leaf and value._is_view()
    except RuntimeError:  # a view from under no_grad whose base was written since: autograd lets nothing through it
        return True


def _record(
    func: types.FunctionType, trace: Any, owner: CompileContext, reason: str | None, seconds: float
) -> CompileRecord:
    code = func.__code__
    graph = trace.graph
    return CompileRecord(
        name=func.__qualname__,
        filename=code.co_filename,
        line=code.co_firstlineno,
        graph=None if graph is None else graph.code.strip(),  # made already; print_readable takes long
        graph_size=0 if graph is None else sum(n.op not in ("placeholder", "output") for n in graph.graph.nodes),
        facts=list(trace.guards),
        breaks=list(trace.breaks),
        skipped=trace.skipped,
        seconds=seconds,
        recompile_reason=reason,
        backend=owner.backend.name,
        numbers=_number_reports(trace, owner, code),
        open_numbers=trace.sizes is not None and trace.sizes.is_open(),
    )


def _number_reports(trace: Any, owner: CompileContext, code: types.CodeType) -> list[NumberReport]:
    if trace.sizes is None or not (owner.observers or log.enabled("dynamic")):
        return []
    reports: list[NumberReport] = trace.sizes.report()
    place = f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
    log.write("dynamic", "%s\n  %s", place, "\n  ".join(map(str, reports)))
    return reports


def _dump_frame(folder: dump_folder.Folder, func: types.FunctionType, run: Any, record: CompileRecord) -> None:
    """The files of the front end: the user's bytecode, the guards, the breaks, the code that replaces the frame."""
    folder.write("user_bytecode.txt", lambda: printer.to_text(func.__code__))
    folder.write("guards.txt", lambda: "\n".join(record.guards) + "\n")
    if isinstance(run, types.FunctionType):
        folder.write("run_bytecode.txt", lambda: printer.to_text(run.__code__))
    folder.write("breaks.txt", lambda: "\n".join(map(str, record.breaks)) + "\n")


def _observe(owner: CompileContext, record: CompileRecord) -> None:
    for observer in owner.observers:
        observer(record)


def on_report(kind: str, details: str) -> None:
    """The runtime's own complaint: for example an entry whose guards fail right after it was made."""
    text = f"dyncomp's runtime reports {kind}: {details}. The call ran as plain Python; please report this."
    counters.add_fallback(kind)
    if config.strict:
        raise InternalError(text)
    warnings.warn(text, RuntimeWarning, stacklevel=2)


def install() -> None:
    """Hands the callbacks to the runtime; called once at import."""
    _core.set_callback(on_miss)
    _core.set_report(on_report)
    _core.skip(_FIRST_IMPORT.__code__, calls_too=True)
    if config.disable or os.environ.get("DYNCOMP_DISABLE") == "1":
        _core.set_disabled(True)
