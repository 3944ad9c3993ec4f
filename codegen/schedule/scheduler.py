"""The schedule of a lowered graph: kernels and ATen calls in order.

Passes, in order: choose what is inlined, group, order the units, decide what must be in memory, build one
kernel a group.
"""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

from dyncomp import config
from dyncomp.codegen.ir.verify import verify
from dyncomp.codegen.lower.graph import LoweredGraph
from dyncomp.codegen.lower.tensor import ExternCall, Pointwise, Reduce, Tensor, root
from dyncomp.codegen.schedule.group import Group, Grouping
from dyncomp.codegen.schedule.inline import Plan, choose_inlined
from dyncomp.codegen.schedule.kernel import ScheduledKernel, build_kernel
from dyncomp.codegen.schedule.order import order_units

Step: TypeAlias = ScheduledKernel | ExternCall


@dataclasses.dataclass
class Schedule:
    steps: list[Step]
    stored: set[Tensor]  # computed tensors that kernels write to memory


def schedule_graph(graph: LoweredGraph) -> Schedule:
    plan = choose_inlined(graph)
    grouping, positions = _group(graph, plan)
    order = order_units(grouping, positions)
    stored = _stored(grouping, plan)
    steps: list[Step] = []
    for number in order:
        unit = grouping.units[number]
        if isinstance(unit, ExternCall):
            steps.append(unit)
        elif any(t in stored for t in unit.members):
            kernel = build_kernel(unit, plan.inlined, stored & unit.members.keys(), config.kernel_grain)
            if config.verify_passes:
                verify(kernel.kernel)
            steps.append(kernel)
    return Schedule(steps, stored)


def _group(graph: LoweredGraph, plan: Plan) -> tuple[Grouping, list[int]]:
    """Adds tensors and calls in program order: a call stands after the tensors made before it."""
    grouping = Grouping(plan.inlined, bool(config.fusion))
    solid = set(plan.solid)
    previous: ExternCall | None = None
    for item in graph.program:
        if isinstance(item, ExternCall):
            grouping.steps += 1
            grouping.add_call(item, previous if item.ordered else None)
            previous = item if item.ordered else previous
        elif item in solid:
            grouping.add_tensor(item)
    positions = [u.last if isinstance(u, Group) else n for u, n in zip(grouping.units, grouping.born, strict=True)]
    return grouping, positions


def _stored(grouping: Grouping, plan: Plan) -> set[Tensor]:
    """Members that something outside their group reads, or that results need."""
    stored = set(plan.memory)
    for unit in grouping.units:
        if isinstance(unit, Group):
            stored.update(root(t) for t in unit.outside)
    return {t for t in stored if isinstance(t, (Pointwise, Reduce))}
