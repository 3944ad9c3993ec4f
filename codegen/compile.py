"""The code generator's entry: an ATen graph in, a callable plan out. The stages, in order: lower,
schedule, emit, build, plan."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any

from dyncomp import counters, log
from dyncomp._frame import _core, _exec
from dyncomp.codegen import (
    lower,  # noqa: F401  (registers the lowerings)
    toolchain,
)
from dyncomp.codegen.emit.cpp import emit
from dyncomp.codegen.ir.index import Undecided
from dyncomp.codegen.ir.printer import print_kernel
from dyncomp.codegen.lower.graph import LoweredGraph, lower_graph
from dyncomp.codegen.numbers import Numbers
from dyncomp.codegen.op_plan import NotPlannable, make_op_plan
from dyncomp.codegen.plan import PlanData, counted_writes, make_plan
from dyncomp.codegen.schedule.kernel import ScheduledKernel
from dyncomp.codegen.schedule.scheduler import Schedule, schedule_graph

Dump = Callable[[str, str], None]


def _no_dump(name: str, text: str) -> None:
    pass


@dataclasses.dataclass(frozen=True)
class Options:
    """`dump(file name, text)` gets every stage. `kernels=False`: all operations are ATen's own (no compiler).

    `fallback(*inputs)` runs calls that the graph does not hold for (a mutated input shares memory).
    `overlap_checked`: the caller sees to it that there are no such calls. `training`: see `lower_graph`.
    """

    dump: Dump = _no_dump
    kernels: bool = True
    fallback: Callable[..., Any] | None = None
    overlap_checked: bool = False
    training: bool = False

    @staticmethod
    def of(
        user: dict[str, Any],
        dump: Dump = _no_dump,
        kernels: bool = True,
        fallback: Callable[..., Any] | None = None,
        overlap_checked: bool = False,
        training: bool = False,
    ) -> Options:
        """From the options of `dyncomp.optimize`; it has none of its own so far."""
        return Options(dump, kernels, fallback, overlap_checked, training)


def compile_graph(aten: Any, options: Options | None = None) -> Callable[..., Any]:
    """A callable `(*inputs) -> tuple of outputs` that computes what the AtenGraph `aten` says.

    Raises ToolchainError if kernels are needed and cannot be built.
    """
    options = options or Options()
    if aten.sizes is None:
        data, built = _compile(aten, options)
    else:
        try:
            data, built = _compile(aten, options)
        except (Undecided, NotPlannable) as reason:
            counters.add_fallback(f"symbolic-sizes: {reason}")
            return _compile_op_by_op(aten, options)
    plan = _loaded(data, aten, built, options)
    return plan


def _compile(aten: Any, options: Options) -> tuple[PlanData, toolchain.Built]:
    lowered = lower_graph(aten, options.kernels, options.training)
    schedule = schedule_graph(lowered)
    for name, count in lowered.fallbacks.items():
        log.write("kernels", "%s runs as ATen op (%d)", name, count)
    numbers = None
    if lowered.symbols is not None:
        order: dict[Any, int] = {}
        for position, node in enumerate(aten.graph.nodes):
            order[node] = order[node.args[0]] if node.target is operator.getitem else position
        numbers = Numbers(aten.sizes, [node.meta["val"] for node in aten.placeholders], lowered.symbols, order)
    return _build(lowered, schedule, options, numbers)


def _loaded(data: PlanData, aten: Any, built: toolchain.Built, options: Options) -> _exec.Plan:
    data.code.extend(counted_writes(getattr(aten, "writes", {}), data.outputs))
    options.dump("plan.txt", str(data))
    if log.enabled("plan"):
        log.write("plan", "%s", data)
    constants = {t: aten.constants[t] for _, t in data.constants}
    if not aten.mutations or len(aten.placeholders) == 1 or options.overlap_checked:
        return load(data, constants, built)
    written = [index for index, _ in aten.mutations]
    return load(data, constants, built, written, _original(options.fallback or aten.run))


def _compile_op_by_op(aten: Any, options: Options) -> Callable[..., Any]:
    """Sizes in registers, all operations ATen's own."""
    try:
        data = make_op_plan(aten)
    except NotPlannable as reason:
        counters.add_fallback(f"symbolic-sizes: {reason}")
        return aten.run  # type: ignore[no-any-return]
    return _loaded(data, aten, toolchain.Built({}, ()), options)


def load(
    data: PlanData,
    constants: dict[str, Any],
    built: toolchain.Built,
    written: Sequence[int] = (),
    original: Callable[..., Any] | None = None,
) -> _exec.Plan:
    """The executable plan: plain data joined with the addresses of its kernels and its constants. `original` runs in its
    place where an input in `written` shares memory with another.
    """
    return _exec.Plan(
        inputs=data.inputs,
        slots=data.slots,
        code=data.code,
        outputs=data.outputs,
        constants=[(slot, constants[target]) for slot, target in data.constants],
        kernels=[(built.addresses[symbol], symbol) for symbol in data.symbols],
        ops=data.ops,
        arena=data.arena,
        libraries=list(built.libraries),
        written=written,
        original=original,
    )


def _build(
    lowered: LoweredGraph, schedule: Schedule, options: Options, numbers: Numbers | None
) -> tuple[PlanData, toolchain.Built]:
    kernels = [s for s in schedule.steps if isinstance(s, ScheduledKernel)]
    if options.dump is not _no_dump:
        options.dump("loops.py", "\n".join(print_kernel(k.kernel) for k in kernels))
    sources = {id(k.kernel): emit(k.kernel) for k in {id(k.kernel): k for k in kernels}.values() if k.units != 0}
    options.dump("kernels.cpp", "\n".join({s.symbol: s.text for s in sources.values()}.values()))
    built = toolchain.build(list(sources.values())) if sources else toolchain.Built({}, ())
    counters.add("kernels", len({source.symbol for source in sources.values()}))
    data = make_plan(lowered, schedule, lambda k: sources[id(k.kernel)].symbol, numbers)
    return data, built


def _original(fallback: Callable[..., Any]) -> Callable[..., Any]:
    """What runs where an input that the graph writes shares memory with another: the graph does not hold then."""

    def run(*inputs: Any) -> Any:
        counters.add_fallback("inputs-share-memory")
        results = fallback(*inputs)
        return tuple(results) if isinstance(results, tuple | list) else (results,)

    return _core.without_hook(run)
