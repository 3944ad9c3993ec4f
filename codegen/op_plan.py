"""Plans of one ATen call an operation, sizes computed in registers: for graphs with symbolic sizes whose loops or memory
cannot be laid out without knowing them.

    view = aten.view(x, [2*s0, 5])     size r0 = x.size(0); int r1 = r0 * 2; view_rel t x (r1, 5) (5, 1) 0
    relu = aten.relu(view)             op aten::relu(t) -> u; expect u (r1, 5) (5, 1)

No kernels are generated here.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from dyncomp._frame._exec import Slot
from dyncomp.codegen.lower.overload import NotPlannable, with_number
from dyncomp.codegen.plan import PlanData, made_in_order
from dyncomp.fake.facts import Kind, facts_of
from dyncomp.fake.tensor import FakeTensor
from dyncomp.shape.int_program import float_of_bits
from dyncomp.shape.ops import OPS
from dyncomp.shape.symbolic import is_symbolic, numbers_in, plain

_INT_OPERATIONS = frozenset({"add", "sub", "mul", "floordiv", "mod", "min", "max"})
_NO_FLOATS = frozenset({"floordiv", "feq", "flt", "fle", "fisint", "ffloor", "fceil", "ftrunc", "fround"})
_FLOAT_OPERATIONS = {name for name in OPS if name.startswith("f") and name not in _NO_FLOATS} | {"tofloat", "truediv"}


def make_op_plan(graph: Any) -> PlanData:
    """Raises NotPlannable."""
    return _Planner(graph).run()


class _Planner:
    def __init__(self, graph: Any):
        self.graph = graph
        self.nodes = list(graph.graph.nodes)
        vals = [node.meta["val"] for node in graph.placeholders]
        self.inputs = _kinds(vals)
        self.sizes = graph.sizes.covering(vals, self._numbers())
        self.slot_of: dict[Any, int] = {node: i for i, node in enumerate(graph.placeholders)}
        self.slots = len(vals)
        self.constants: list[tuple[int, str]] = []
        self.ops: list[tuple[str, str]] = []
        self.code: list[tuple[Any, ...]] = []
        # The numbers' program: operands for instructions by its registers, and after which node each can be computed.
        self.operands: list[Any] = []
        self.unexpected: list[tuple[int, FakeTensor]] = []  # results of calls that have no "expect" yet
        self.when = self.sizes.when({node: i for i, node in enumerate(self.nodes)})

    def _numbers(self) -> list[Any]:
        found = list(numbers_in([(node.args, node.kwargs) for node in self.nodes]))
        found += numbers_in(self.graph.outputs)
        for node in self.nodes:
            for val in _tensors(node.meta.get("val")):
                found += numbers_in([val.meta.shape, val.meta.strides, val.meta.offset])
                if node.op == "call_function" and _is_view(node):
                    found += numbers_in([_delta(node, val)])
        return found

    def run(self) -> PlanData:
        self._name_registers()
        self._compute_numbers(-1)
        last_use = self._last_uses()
        for position, node in enumerate(self.nodes):
            if node.op == "get_attr":
                self.constants.append((self._new_slot(node), node.target))
            elif node.op == "call_function":
                self._operation(node)
                self._compute_numbers(position)
                self._expect_results()
                for dead in last_use.get(node, ()):
                    self.code.append(("free", self.slot_of[dead]))
        for position, node in self.graph.mutations:
            quiet = position in self.graph.quiet
            self.code.append(("copy" if quiet else "write_back", position, self.slot_of[node]))
        outputs = self._outputs()
        return PlanData(
            self.inputs, self.slots, self.constants, [], self.ops, self.code, outputs, 0
        )

    # ---- numbers

    def _name_registers(self) -> None:
        """What instructions call each register of the program: a plain number, ("s", r) or ("f", r)."""
        program = self.sizes.program
        count = 0
        for read in program.inputs:
            self.operands.append(("f" if _reads_float(read, self.inputs) else "s", count))
            count += 1
        for name, *operands in program.code:
            if name in ("const", "fconst"):
                self.operands.append(operands[0] if name == "const" else float_of_bits(operands[0]))
                continue
            is_float = self._is_float(operands[1]) if name == "select" else name in _FLOAT_OPERATIONS
            self.operands.append(("f" if is_float else "s", count))
            count += 1

    def _is_float(self, register: int) -> bool:
        operand = self.operands[register]
        return operand[0] == "f" if isinstance(operand, tuple) else isinstance(operand, float)

    def _compute_numbers(self, position: int) -> None:
        """Instructions for the registers that can be computed after the node at this position and not before."""
        program = self.sizes.program
        for i, read in enumerate(program.inputs):
            if self.when[i] == position:
                self._read_number(self.operands[i][1], read)
        for i, (name, *operands) in enumerate(program.code, len(program.inputs)):
            if self.when[i] != position or name in ("const", "fconst"):
                continue
            register, given = self.operands[i][1], [self.operands[operand] for operand in operands]
            if name in _INT_OPERATIONS:
                self.code.append(("int", register, name, *given))
            else:
                self.code.append(("compute", register, name, tuple(given)))

    def _read_number(self, register: int, read: Any) -> None:
        if not isinstance(read, tuple):  # the running graph gives it; a value was put there by the operation itself
            if read.what == "size":
                self.code.append(("size", register, self.slot_of[read.node], read.dim))
            return
        index, what, dim = read
        if what in ("size", "stride"):
            self.code.append((what, register, index, dim))
        else:
            self.code.append(("number", register, index))

    def _register_of(self, node: fx.Node) -> tuple[Any, ...]:
        """Where the number that a node gives goes; nowhere if nobody reads it."""
        for operand, read in zip(self.operands, self.sizes.program.inputs, strict=False):
            if not isinstance(read, tuple) and read.node is node and read.what == "value":
                return (operand,)
        return ()

    def _value(self, value: Any) -> Any:
        """An argument of an instruction."""
        if isinstance(value, fx.Node):
            return Slot(self.slot_of[value])
        if isinstance(value, tuple | list):
            return tuple([self._value(item) for item in value])
        results = self.sizes.program.results
        if hasattr(value, "truth"):
            return self.operands[results[self.sizes.place_of_fact(value)]]
        if not is_symbolic(value):
            return value
        place = self.sizes.place(value)
        return plain(value) if place is None else self.operands[results[place]]

    # ---- operations

    def _operation(self, node: fx.Node) -> None:
        if node.target is operator.getitem:
            self._item(node)
        elif _is_view(node) and isinstance(node.meta["val"], FakeTensor):
            self._view(node, node.args[0], node.meta["val"])
        elif not _is_view(node):
            self._call(node)

    def _view(self, node: fx.Node, base: Any, val: FakeTensor) -> None:
        source = self.slot_of[base]
        slot = self._new_slot(node)
        shape, strides, delta = self._value(val.meta.shape), self._value(val.meta.strides), self._value(_delta(node, val))
        self.code.append(("view_rel", slot, source, shape, strides, delta))

    def _item(self, node: fx.Node) -> None:
        whole: Any = node.args[0]
        if _is_view(whole):
            self._view(node, whole.args[0], node.meta["val"])
        elif node.args[1] in self.slot_of[whole]:  # type: ignore[operator]
            slot = self.slot_of[node] = self.slot_of[whole][node.args[1]]  # type: ignore[index]
            self.unexpected.append((slot, node.meta["val"]))

    def _call(self, node: fx.Node) -> None:
        target = with_number(node)
        args = self._value(node.args)
        kwargs = {name: self._value(value) for name, value in node.kwargs.items()}
        val = node.meta["val"]
        if isinstance(val, FakeTensor):
            slot = self._new_slot(node)
            self.code.append(("op", self._op(target), args, kwargs, (slot,)))
            self.unexpected.append((slot, val))
            return
        if is_symbolic(val) or val is None:
            self.code.append(("op", self._op(target), args, kwargs, self._register_of(node)))
            return
        used = {user.args[1] for user in node.users}
        if not isinstance(val, tuple | list):
            raise NotPlannable(f"the result of {target}")
        slots = {i: self._new_slot() for i, item in enumerate(val) if i in used and isinstance(item, FakeTensor)}
        self.slot_of[node] = slots  # type: ignore[assignment]
        outs = tuple([slots.get(i) for i in range(len(val))])
        listed = isinstance(target._schema.returns[0].type, torch.ListType)
        self.code.append(("op", self._op(target), args, kwargs, (outs,) if listed else outs))

    def _expect_results(self) -> None:
        """Once the numbers in their sizes are there: some are read from the result itself."""
        for slot, val in self.unexpected:
            self.code.append(("expect", slot, self._value(val.meta.shape), self._value(val.meta.strides)))
        self.unexpected.clear()

    def _op(self, target: Any) -> int:
        key = (target._schema.name, "" if target._overloadname == "default" else target._overloadname)
        if key not in self.ops:
            self.ops.append(key)
        return self.ops.index(key)

    def _new_slot(self, node: Any = None) -> int:
        if node is not None:
            self.slot_of[node] = self.slots
        self.slots += 1
        return self.slots - 1

    # ---- ends

    def _last_uses(self) -> dict[fx.Node, list[fx.Node]]:
        """After which node each slot is free. Views hold their memory themselves."""
        kept = set(self.graph.placeholders) | {n for n in self.nodes if n.op == "get_attr"}
        kept |= {read.node for read in self.sizes.late}
        kept |= {rule[1] for rule in self.graph.outputs if rule[0] == "node"} | {n for _, n in self.graph.mutations}
        kept |= {node.args[0] for node in kept if node.target is operator.getitem}  # type: ignore[misc]
        result: dict[fx.Node, list[fx.Node]] = {}
        seen: set[fx.Node] = set()
        for node in reversed(self.nodes):
            for parent in _reads(node):
                single = isinstance(parent.meta.get("val"), FakeTensor)
                if parent not in seen and parent not in kept and single and node.op == "call_function":
                    result.setdefault(node, []).append(parent)
                seen.add(parent)
        return result

    def _outputs(self) -> list[tuple[Any, ...]]:
        rules = self.graph.outputs
        outputs: list[tuple[Any, ...]] = [()] * len(rules)
        for number in made_in_order(rules):
            rule = rules[number]
            kind = rule[0]
            if kind == "node":
                outputs[number] = ("slot", self.slot_of[rule[1]])
            elif kind == "output":
                outputs[number] = outputs[rule[1]]
            elif kind == "view" and rule[1][0] in ("input", "output"):
                (base_kind, position), sizes, strides, offset = rule[1:]
                source = outputs[position][1] if base_kind == "output" else position
                slot = self._new_slot()
                self.code.append(("view_rel", slot, source, *map(self._value, (tuple(sizes), tuple(strides), offset))))
                outputs[number] = ("slot", slot)
            elif kind == "const" and is_symbolic(rule[1]):
                value = self._value(rule[1])
                outputs[number] = value if isinstance(value, tuple) else ("const", value)
            elif kind in ("const", "input"):
                outputs[number] = tuple(rule)
            else:
                raise NotPlannable(f"an output that is a {kind}")
        return outputs


def _kinds(vals: list[Any]) -> int | tuple[str, ...]:
    """The inputs of a plan: how many tensors, or what each input is."""
    if all(isinstance(val, FakeTensor) for val in vals):
        return len(vals)
    kinds = {int: "int", torch.SymInt: "int", float: "float", torch.SymFloat: "float", bool: "bool"}
    found = ["tensor" if isinstance(val, FakeTensor) else kinds.get(type(val)) for val in vals]
    if None in found:
        raise NotPlannable("an input that is neither a tensor nor a number")
    return tuple(found)  # type: ignore[arg-type]


def _reads_float(read: Any, inputs: int | tuple[str, ...]) -> bool:
    if not isinstance(read, tuple):
        return isinstance(read.node.meta["val"], torch.SymFloat)
    return isinstance(inputs, tuple) and read[1] not in ("size", "stride") and inputs[read[0]] == "float"


def _tensors(val: Any) -> list[FakeTensor]:
    items = val if isinstance(val, tuple | list) else [val]
    return [item for item in items if isinstance(item, FakeTensor)]


def _is_view(node: fx.Node) -> bool:
    target: Any = node.target
    if target is operator.getitem:
        return _is_view(node.args[0])  # type: ignore[arg-type]
    same_dtype = target is not torch.ops.aten.view.dtype and "view_as" not in target._schema.name
    return facts_of(target).kind is Kind.VIEW and same_dtype


def _reads(node: fx.Node) -> list[fx.Node]:
    """The nodes whose slots the instructions of a node read; one of several views is made from their base."""
    if node.target is operator.getitem and _is_view(node):
        return [*node.all_input_nodes, node.args[0].args[0]]  # type: ignore[union-attr, list-item]
    return node.all_input_nodes


def _delta(node: Any, val: FakeTensor) -> Any:
    """Elements between the first one of a view and that of its base."""
    base = node.args[0].args[0] if node.target is operator.getitem else node.args[0]
    return val.meta.offset - base.meta["val"].meta.offset
