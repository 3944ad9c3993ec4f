"""Which pointwise tensors are computed anew wherever they are read, instead of once into a group's kernel.

    y = x + 1;  a = exp(y);  b = y * 2      ->  y is inlined in a and b (cheap)
    z = exp(x); a = z + 1;   b = z.sum()    ->  z is not (costly, two readers)

Legal for every pointwise tensor that needs no memory of its own. Worth it: one reader that reads each
element about once, or next to no cost.
"""

from __future__ import annotations

import dataclasses

from dyncomp.codegen.ir.index import hint
from dyncomp.codegen.lower.builder import vars_of
from dyncomp.codegen.lower.graph import LoweredGraph
from dyncomp.codegen.lower.recorder import Recorder
from dyncomp.codegen.lower.tensor import Pointwise, Reduce, Storage, Tensor, root

CHEAP = 4  # machine operations that are always worth recomputing, with one big operand at most
SHALLOW = 16  # operations that may be repeated for a reader that reads elements again (broadcast, two places)
FEW = 16  # a reduction of one in so many elements does not count as a reader
DEEPEST = 40  # nesting of inlined bodies


@dataclasses.dataclass
class Plan:
    """`inlined`: computed at each reader. `solid`: the others that kernels compute, in order. `memory`:
    those that must be in memory."""

    inlined: set[Tensor]
    solid: list[Tensor]
    memory: set[Tensor]


def choose_inlined(graph: LoweredGraph) -> Plan:
    return _Chooser(graph).run()


class _Chooser:
    def __init__(self, graph: LoweredGraph):
        self.graph = graph
        self.memory: set[Tensor] = set()
        self.readers: dict[Tensor, list[Tensor]] = {}
        self.inlined: set[Tensor] = set()
        self.cost: dict[Tensor, int] = {}
        self.depth: dict[Tensor, int] = {}
        self.big: dict[Tensor, int] = {}

    def run(self) -> Plan:
        live = self._live()
        picked: set[Tensor] = set()
        own: dict[Tensor, Recorder] = {}
        computed = [t for t in self.graph.tensors if t in live and isinstance(t, (Pointwise, Reduce))]
        for tensor in computed:
            for source in {root(s) for s in tensor.inputs}:
                self.readers.setdefault(source, []).append(tensor)
            if isinstance(tensor, Pointwise):
                own[tensor] = self._own(tensor)
                picked.update(root(r.tensor) for r in own[tensor].reads if r.picked)
        self.memory |= picked
        for tensor in computed:
            if isinstance(tensor, Pointwise):
                self._decide(tensor, own[tensor])
        solid = [t for t in computed if t not in self.inlined]
        self.memory = {t for t in self.memory if not isinstance(t, Storage)}
        return Plan(self.inlined, solid, self.memory)

    def _live(self) -> set[Tensor]:
        """Tensors that results depend on; notes which of them must be in memory."""
        graph = self.graph
        wanted = [rule[1] for rule in graph.outputs if rule[0] == "node"]
        wanted += [tensor for _, tensor in graph.mutations]
        wanted += [t for call in graph.calls for t in call.tensors]
        wanted = [t for t in wanted if isinstance(t, Tensor)]
        self.memory.update(root(t) for t in wanted)
        live: set[Tensor] = set()
        stack = list(wanted)
        while stack:
            tensor = stack.pop()
            if tensor not in live:
                live.add(tensor)
                stack.extend(tensor.inputs)
        return live

    def _own(self, tensor: Pointwise) -> Recorder:
        scope = Recorder(set())
        tensor.body(scope, vars_of(tensor.shape, "i"))
        return scope

    def _decide(self, tensor: Pointwise, own: Recorder) -> None:
        sources = {root(s) for s in tensor.sources}
        inner = [s for s in sources if s in self.inlined]
        cost = own.cost() + sum(self.cost[s] for s in inner)
        depth = 1 + max((self.depth[s] for s in inner), default=0)
        size = hint(tensor.numel)
        big = sum(1 for s in sources if s not in self.inlined and hint(s.numel) * 8 > size and hint(s.numel) > 1)
        big += sum(self.big[s] for s in inner)
        if tensor in self.memory or depth > DEEPEST:
            return
        if self._worth(tensor, cost, big):
            self.inlined.add(tensor)
            self.cost[tensor], self.depth[tensor], self.big[tensor] = cost, depth, big

    def _worth(self, tensor: Pointwise, cost: int, big: int) -> bool:
        if cost <= CHEAP and big <= 1 and tensor.streaming:
            return True
        readers = [reader for reader in self.readers.get(tensor, []) if not _reads_few(reader, tensor)]
        if len(readers) != 1:
            return False
        reader = readers[0]
        if isinstance(reader, Reduce):
            return True
        assert isinstance(reader, Pointwise)
        once = reader.streaming and hint(reader.numel) <= hint(tensor.numel) and not self._reads_twice(reader, tensor)
        return once or cost <= SHALLOW and big <= 2

    def _reads_twice(self, reader: Pointwise, tensor: Tensor) -> bool:
        return sum(root(s) is tensor for s in reader.sources) > 1


def _reads_few(reader: Tensor, tensor: Tensor) -> bool:
    """The reader is a reduction of a small part, which may as well compute that part again."""
    return isinstance(reader, Reduce) and hint(reader.source.numel) * FEW <= hint(tensor.numel)
