"""Lowers a whole ATen graph: fx nodes in, tensors and ATen calls out.

add = aten.add(x, y); mm = aten.mm(add, w); out = relu(mm)
->  add: Pointwise(x, y);  mm: Storage of ExternCall(aten::mm, add, w);  out: Pointwise(mm)
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from dyncomp import config, counters, log
from dyncomp.codegen.ir.index import Index, Undecided
from dyncomp.codegen.ir.real import Real
from dyncomp.codegen.ir.types import FROM_TORCH, TO_TORCH
from dyncomp.codegen.lower.accumulate import Call, Rows, in_place_call
from dyncomp.codegen.lower.builder import Lowering, vars_of
from dyncomp.codegen.lower.linear import better_product, linear_call
from dyncomp.codegen.lower.overload import with_number
from dyncomp.codegen.lower.pointwise_convolution import convolution, convolution_backward
from dyncomp.codegen.lower.recorder import Recorder
from dyncomp.codegen.lower.registry import LOWERINGS, Lower
from dyncomp.codegen.lower.rounding import round_results
from dyncomp.codegen.lower.symbols import SizedNode, Symbols, has_symbols
from dyncomp.codegen.lower.tensor import ExternCall, Pointwise, Storage, Tensor, View, contiguous_strides
from dyncomp.fake.facts import facts_of

CHECK = "aten._assert_scalar.default"


@dataclasses.dataclass
class LoweredGraph:
    """`outputs` are the ATen graph's rules with tensors in place of nodes; `opaque` holds outputs of calls
    that are no plain tensors."""

    inputs: list[Storage]
    constants: dict[str, Storage]
    tensors: list[Tensor]
    program: list[Tensor | ExternCall]  # both kinds in program order
    calls: list[ExternCall]
    outputs: list[tuple[Any, ...]]
    mutations: list[tuple[int, Tensor]]
    fallbacks: Counter[str]
    torch_dtypes: dict[int, torch.dtype]  # of storages, by id: they may have types that the loop IR lacks
    symbols: Symbols | None = None  # what the sizes in shapes stand for
    consumed: tuple[int, ...] = ()  # inputs that may be dropped after their last use
    quiet: frozenset[int] = frozenset()  # mutated inputs whose version counter stays as it is
    plain: frozenset[int] = frozenset()  # "node" outputs that are no views to autograd


def lower_graph(aten: Any, kernels: bool = True, training: bool = True) -> LoweredGraph:
    """`aten`: a `dyncomp.aot.AtenGraph`, or anything with its graph, constants, mutations and outputs.

    Without kernels only views are lowered: all else stays a call. `training`: convolutions may become matrix products, which
    sum in another order; outside of it they stay eager's own calls, whose results are eager's to the bit.
    """
    return _GraphLowering(aten, kernels, training).run()


class _GraphLowering:
    def __init__(self, aten: Any, kernels: bool, training: bool):
        self.aten = aten
        self.kernels = kernels
        self.products = kernels and training
        self.lx = Lowering()
        self.env: dict[fx.Node, Any] = {}
        sizes = getattr(aten, "sizes", None)
        self.symbols = None if sizes is None else Symbols(sizes.env)
        self.late: set[Any] = set() if sizes is None else sizes.late_nodes()
        self.out = LoweredGraph(
            [], {}, self.lx.tensors, [], [], [], [], Counter(), {}, self.symbols, getattr(aten, "consumed", ()),
            getattr(aten, "quiet", frozenset()), getattr(aten, "plain", frozenset()),
        )  # fmt: skip

    def run(self) -> LoweredGraph:
        for node in self._nodes():
            if node.op == "placeholder":
                self.env[node] = self._input(node)
            elif node.op == "get_attr":
                self.env[node] = self._constant(node)
            elif node.op == "call_function":
                self.env[node] = self._call(node)
        self.out.mutations = [(i, self.env[node]) for i, node in self.aten.mutations]
        for rule in self.aten.outputs:
            self.out.outputs.append(("node", self.env[rule[1]]) if rule[0] == "node" else self._numbers(rule))
        return self.out

    def _nodes(self) -> list[fx.Node]:
        """The graph's nodes; checks as soon as their numbers are there, since what they say is taken for granted everywhere."""
        nodes = list(self.aten.graph.nodes)
        sizes = getattr(self.aten, "sizes", None)
        if sizes is None or not sizes.checked_while_running:
            return nodes
        places = {node: place for place, node in enumerate(nodes)}
        when, results = sizes.when(places), sizes.program.results
        after = dict(places)
        for node in nodes:
            if str(node.target) == CHECK and hasattr(node.args[0], "truth"):
                after[node] = when[results[sizes.place_of_fact(node.args[0])]]
        return sorted(nodes, key=lambda node: (after[node], places[node]))

    def _numbers(self, tree: Any) -> Any:
        return tree if self.symbols is None else self.symbols.tree(tree)

    def _val(self, node: fx.Node) -> Any:
        val = node.meta.get("val")
        return val if self.symbols is None else self.symbols.val(val)

    def _storage(self, val: Any, name: str, origin: tuple[Any, ...]) -> Storage:
        dtype = FROM_TORCH.get(val.dtype, "")
        storage = Storage(tuple(val.shape), dtype, tuple(val.stride()), name, (origin[0],), origin=origin)
        self.out.torch_dtypes[id(storage)] = val.dtype
        return storage

    def _input(self, node: fx.Node) -> Storage | None:
        position = len(self.out.inputs)
        val = self._val(node)
        if not hasattr(val, "dtype"):
            self.out.inputs.append(Storage((), "", (), node.name, origin=("input", position)))
            return val
        storage = self._storage(val, node.name, ("input", position))
        storage.offset = val.storage_offset()
        self.out.inputs.append(storage)
        return storage

    def _constant(self, node: fx.Node) -> Storage:
        target = str(node.target)
        if target not in self.out.constants:
            tensor = self.aten.constants[target]
            storage = self._storage(tensor, node.name, ("constant", target))
            storage.offset = tensor.storage_offset()
            self.out.constants[target] = storage
        return self.out.constants[target]

    def _call(self, node: fx.Node) -> Any:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), self.env.__getitem__)
        val = self._val(node)
        if self.symbols is not None:
            args, kwargs = self.symbols.tree((tuple(args), dict(kwargs)))
        if node.target.__name__ == "getitem":  # type: ignore[union-attr]
            item: Any = args[0][args[1]]  # type: ignore[index]
            if node in self.late:
                item.origin[1].gives.append((node, item.origin[2]))
            return item
        name = str(node.target)
        if node in self.late or name == CHECK:
            return self._extern(node, name, val, args, kwargs)
        if (direct := self._in_place(node, args, kwargs)) is not None:
            return self._add_call(direct, val) if isinstance(direct, ExternCall) else direct
        if (products := self._as_products(node, args, kwargs)) is not None:
            return products
        lower = LOWERINGS.get(name)
        if lower is not None and _all_loopable((args, kwargs)):
            self.lx.begin(node.name, (name, _plain_key((args, tuple(sorted(kwargs.items()))))))
            made = len(self.lx.tensors)
            result = self._lowered(lower, node, val, args, kwargs)
            if result is not None and (self.kernels or isinstance(result, View)):
                tensors = self.lx.tensors[made:]
                if config.round_low_precision:
                    round_results(_tensors_in(result), set(tensors))
                self.out.program.extend(tensors)
                return result
            del self.lx.tensors[made:]
        return self._extern(node, name, val, args, kwargs)

    def _in_place(self, node: fx.Node, args: Any, kwargs: Any) -> ExternCall | Rows | None:
        """A call that writes into memory of the graph's own, or what a later one needs."""
        if not self.kernels or self.late or not _all_loopable((args, kwargs)):
            return None
        self.lx.begin(node.name, (str(node.target), _plain_key((args, tuple(sorted(kwargs.items()))))))
        made = len(self.lx.tensors)
        try:
            found = in_place_call(self.lx, node, args, kwargs, self._val)
        except Undecided:  # the node's own call holds for all sizes
            found = None
        if found is None:
            del self.lx.tensors[made:]
            return None
        self.out.program.extend(self.lx.tensors[made:])
        if not isinstance(found, Call):
            return found
        self.out.fallbacks[found.name] += 1
        return ExternCall(
            found.name, found.overload, found.args, found.kwargs, note=node.name, aliases=True, in_place=True
        )

    def _as_products(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """What matrix products, and loops around them, do better than the node's own call; None: nothing."""
        rule = _PRODUCTS.get(str(node.target))
        if rule is None or not self.products or self.late or kwargs or not _all_loopable(args):
            return None
        self.lx.begin(node.name, (str(node.target), _plain_key(args)))
        made = len(self.lx.tensors)

        def product(a: Tensor, b: Tensor) -> Storage:
            nonlocal made
            self.out.program.extend(self.lx.tensors[made:])
            made = len(self.lx.tensors)
            call = ExternCall("aten::mm", "", (a, b), {}, note=node.name)
            if (better := linear_call(a, b, None)) is not None:
                call.name, call.overload, call.args = better
            shape = (a.shape[0], b.shape[1])
            out = Storage(shape, a.dtype, contiguous_strides(shape), node.name, ("call",), origin=("call", call, 0))
            self.out.torch_dtypes[id(out)] = TO_TORCH[a.dtype]
            call.results = [out]
            call.tensors = tuple(_tensors_in(call.args))
            self.out.calls.append(call)
            self.out.program.append(call)
            self.out.fallbacks[call.name] += 1
            return out

        out = self.out
        begun = len(self.lx.tensors), len(out.program), len(out.calls)
        before = Counter(out.fallbacks), dict(out.torch_dtypes)
        try:
            result = rule(self.lx, SizedNode(node, self._val(node)), args, product)
        except Undecided:  # the node's own call holds for all sizes
            del self.lx.tensors[begun[0] :], out.program[begun[1] :], out.calls[begun[2] :]
            out.fallbacks, out.torch_dtypes = before
            return None
        self.out.program.extend(self.lx.tensors[made:])
        return result

    def _lowered(self, lower: Lower, node: fx.Node, val: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.symbols is None:
            return lower(self.lx, node, *args, **kwargs)
        if has_symbols((args, kwargs)):
            counters.add_fallback(f"symbolic-sizes: {node.target}")
            return None
        made = len(self.lx.tensors)
        try:
            result = lower(self.lx, SizedNode(node, val), *args, **kwargs)
            if _has_index((args, kwargs)):
                for tensor in self.lx.tensors[made:]:
                    if isinstance(tensor, Pointwise):  # its body must know what to do with a symbolic number
                        tensor.body(Recorder(set()), vars_of(tensor.shape, "i"))
            return result
        except Undecided as question:
            counters.add_fallback(f"symbolic-sizes: {node.target}")
            log.write("dynamic", "%s is left to ATen: %s", node.target, question)
            return None

    def _extern(self, node: fx.Node, name: str, val: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.out.fallbacks[name] += 1
        target: Any = node.target if self.symbols is None else with_number(node)
        schema = target._schema
        if name in _FROM_STORAGE_START:
            args, kwargs = self._in_storage_of_its_own(node, args, kwargs)
        call = ExternCall(schema.name, schema.overload_name, args, dict(kwargs), note=node.name)
        if (better := better_product(node, args, kwargs)) is not None:
            call.name, call.overload, call.args = better
            call.kwargs = {}
        call.ordered = has_order(target)
        if node in self.late:
            call.gives.append((node, 0))
        call.barrier = name == CHECK or bool(self.late & {node, *node.users})
        call.aliases = any(r.alias_info is not None for r in schema.returns)
        call.listed = len(schema.returns) == 1 and isinstance(val, (tuple, list))
        return self._add_call(call, val, bool(schema.returns))

    def _in_storage_of_its_own(self, node: fx.Node, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Arguments with a copy of the first one, which may lie anywhere in the arena, and with an offset that counts from it."""
        base, rest = args[0], dict(zip(_FROM_STORAGE_START[str(node.target)], args[1:], strict=False)) | kwargs
        val = self._val(node.args[0])  # type: ignore[arg-type]
        copy = self._add_call(ExternCall("aten::clone", "", (base,), {}, note=f"{node.name}_base"), val)
        copy.offset = 0
        if rest.get("storage_offset") is not None:
            rest["storage_offset"] -= getattr(base, "offset", 0)
        return (copy,), rest

    def _add_call(self, call: ExternCall, val: Any, returns: bool = True) -> Any:
        call.tensors = tuple(_tensors_in((call.args, call.kwargs)))
        self.out.calls.append(call)
        self.out.program.append(call)
        if isinstance(val, (tuple, list)):
            call.results = [self._result(v, f"{call.note}_{i}", call, i) for i, v in enumerate(val)]
            return tuple(call.results)
        call.results = [self._result(val, call.note, call, 0)] if returns else []
        return call.results[0] if call.results else None

    def _result(self, val: Any, name: str, call: ExternCall, position: int) -> Storage | None:
        if val is None or not hasattr(val, "dtype"):
            return None
        storage = self._storage(val, name, ("call", call, position))
        storage.offset = val.storage_offset()
        return storage


# Operations that count an offset from the start of a storage, and the names of their arguments after the first.
_FROM_STORAGE_START = {
    "aten.as_strided_scatter.default": ("src", "size", "stride", "storage_offset"),
    "aten.as_strided_copy.default": ("size", "stride", "storage_offset"),
}

_PRODUCTS: dict[str, Callable[..., Any]] = {
    "aten.convolution.default": convolution,
    "aten.convolution_backward.default": convolution_backward,
}


def has_order(op: Any) -> bool:
    """Draws random numbers, or is somebody's own operation, which may have effects."""
    return torch.Tag.nondeterministic_seeded in op.tags or facts_of(op).opaque


def _tensors_in(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, dict):
        return [t for v in tree.values() for t in _tensors_in(v)]
    if isinstance(tree, (tuple, list)):
        return [t for v in tree for t in _tensors_in(v)]
    return []


def _has_index(tree: Any) -> bool:
    if isinstance(tree, (tuple, list)):
        return any(_has_index(v) for v in tree)
    return isinstance(tree, (Index, Real)) or isinstance(tree, dict) and _has_index(list(tree.values()))


def _all_loopable(tree: Any) -> bool:
    """Every tensor has an element type that the loop IR knows."""
    return all(t.dtype for t in _tensors_in(tree))


def _plain_key(tree: Any) -> Any:
    """Arguments without the tensors (of which shape, layout and type count), as a hashable value."""
    if isinstance(tree, Tensor):
        return ("t", tree.shape, tree.dtype)
    if isinstance(tree, (tuple, list)):
        return tuple(_plain_key(v) for v in tree)
    return (type(tree).__name__, repr(tree)) if isinstance(tree, (float, complex)) else tree
