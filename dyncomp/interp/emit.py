"""Builds the code of `run`: what takes a traced frame's place once its guards hold.

In:  captures (sources), outputs of the graph (fx nodes), values to rebuild, side effects to replay
Out: `RunCode`: plain code and its constants; `RunCode.make(compiled)` is the callable

    def run(<captures>, <constants>):
        out0, out1 = graph(<captures that are the graph's inputs>)
        <side effects>
        return <what the frame returns>        # or: a step function, where the frame breaks

Constants that are not plain (no numbers, strings, tuples of these) are default values of trailing parameters:
the code object stays plain data that can be written to disk, and the objects live exactly as long as the
function.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any

from dyncomp.bytecode import spell
from dyncomp.bytecode.assemble import Layout, assemble
from dyncomp.bytecode.instruction import Handler, Instruction, Positions
from dyncomp.errors import InternalError
from dyncomp.guards.source import Early, Func, Source
from dyncomp.interp.rerun import rerun, stream_states
from dyncomp.values.base import Unreconstructible, Value

_GRAPH, _ERROR, _STREAMS = ".graph", ".error", ".streams"
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), types.CodeType)


def is_plain(obj: Any) -> bool:
    """True for constants that a code object can hold and `marshal` can write."""
    if type(obj) in (tuple, frozenset):
        return all(map(is_plain, obj))
    return type(obj) in _PLAIN


@dataclasses.dataclass
class RunCode:
    """`run` without the compiled graph. `direct`: the frame returns just what the graph returns ("tuple" of
    all outputs, or its "single" output), from the graph's inputs in order, so the compiled graph can stand in
    for `run` itself."""

    code: types.CodeType
    constants: tuple[Any, ...]  # of the parameters after the captures
    globals: dict[str, Any]
    captures: list[Source]
    outputs: list[Any]  # fx nodes, in the order that `run` unpacks
    calls_graph: bool
    direct: str = ""

    def make(
        self, compiled: Callable[..., Any] | None, single: Callable[..., Any] | None = None
    ) -> Callable[..., Any]:
        """The callable. `compiled(*inputs)` returns a tuple; `single`, where given, is the same graph
        returning its one output as it is, and is used if that is all the frame returns."""
        if self.direct == "tuple" and compiled is not None:
            return compiled
        if self.direct == "single" and single is not None:
            return single
        constants = (compiled, *self.constants) if self.calls_graph else self.constants
        run = types.FunctionType(self.code, self.globals, self.code.co_name, constants or None)
        run.__qualname__ = self.code.co_qualname
        return run


class _Unfinished(Exception):
    """A value is needed to build itself."""

    def __init__(self, value: Value):
        self.value = value


class RunBuilder:
    """Emits straight-line code on a run-time stack. Each symbolic value is built once; later loads share the
    object.

    `inputs`: sources of the graph's inputs; they are the first captures. `code`: the user's, for name and
    lines.
    """

    def __init__(self, code: types.CodeType, globals: dict[str, Any], inputs: Sequence[Source] = ()):
        self._user_code = code
        self._globals = globals
        self._inputs: list[str] = []  # the variables that the graph takes
        self.captures: list[Source] = []
        self._capture_names: dict[Source, str] = {}
        self.outputs: list[Any] = []
        self._output_names: dict[Any, str] = {}
        self._constants: list[Any] = []
        self._constant_names: dict[int, str] = {}
        self._out: list[Instruction] = []
        self._temps = 0
        self._memo: dict[int, _Known] = {}
        self._building: set[int] = set()
        self._late: dict[
            int, dict[int, Value]
        ] = {}  # id of an unfinished value -> containers to fill after it
        self._rerun: list[Instruction] = []  # [exception] -> [what the frame returns]
        self._front: list[Instruction] = []  # what runs before the graph
        self._saves: list[Instruction] = []  # before that: what `rerun` needs
        self.positions: Positions = (code.co_firstlineno, code.co_firstlineno, None, None)
        for source in inputs:
            if isinstance(source, Early):
                self._inputs.append(source.variable)
                continue
            self.captures.append(source)
            self._inputs.append(f".c{len(self.captures) - 1}")
            self._capture_names.setdefault(source, self._inputs[-1])

    # -- values ----------------------------------------------------------------------------------------------

    def load(self, value: Value) -> None:
        """Pushes any value: an already built one, a captured source, or `value.reconstruct(self)`."""
        known = self._memo.get(id(value))
        if known is not None:
            self.emit(dataclasses.replace(known.load))
        elif value.source is not None:
            self.load_source(value.source)
        elif id(value) in self._building:
            raise _Unfinished(value)
        elif self._building:
            self._build(value)
        else:
            try:
                self._build(value)
            except _Unfinished as cycle:
                raise Unreconstructible(cycle.value, "contains itself") from None

    def remember(self, value: Value) -> None:
        """The object on top of the stack is `value`; call it before filling a container, so that cycles
        close."""
        known = self._memo.get(id(value))
        if known is not None:  # filled again: the fresh object gives way to the first
            self.emit(spell.op("POP_TOP"), dataclasses.replace(known.load))
            return
        temp = self._new_temp()
        store = spell.store_fast(temp)
        self.emit(spell.op("COPY", 1), store)
        self._memo[id(value)] = _Known(value, spell.load_fast(temp), len(self._out), store)

    def _build(self, value: Value) -> None:
        start = len(self._out)
        self._building.add(id(value))
        try:
            value.reconstruct(self)
        except _Unfinished as cycle:
            # A container met an immutable object around it that is still being built: it is filled later.
            known = self._memo.get(id(value))
            if known is None:
                raise
            self._cut(known.end)
            self._late.setdefault(id(cycle.value), {})[id(value)] = value
        finally:
            self._building.discard(id(value))
        if id(value) not in self._memo:
            self._remember_built(value, start)
        for late in self._late.pop(id(value), {}).values():
            if id(late) in self._memo:
                late.reconstruct(self)
                self.pop()

    def _remember_built(self, value: Value, start: int) -> None:
        made = self._out[start:]
        if len(made) == 1 and made[0].opname in ("LOAD_FAST", "LOAD_CONST"):
            self._memo[id(value)] = _Known(value, made[0], len(self._out))
        else:
            self.remember(value)

    def _cut(self, end: int) -> None:
        """Forgets all code from `end` on, and what it built."""
        del self._out[end:]
        for key in [key for key, known in self._memo.items() if known.end > end]:
            del self._memo[key]

    # -- sources of values -----------------------------------------------------------------------------------

    def load_source(self, source: Source) -> None:
        """Pushes the object that the guard tree found at `source` when the call began, or that a call before the graph gave."""
        if isinstance(source, Early):
            self.emit(spell.load_fast(source.variable))
            return
        name = self._capture_names.get(source)
        if name is None:
            name = self._capture_names[source] = f".c{len(self.captures)}"
            self.captures.append(source)
        self.emit(spell.load_fast(name))

    def load_const(self, obj: Any) -> None:
        """Pushes this very object (of plain constants: an equal one of the same type)."""
        if is_plain(obj):
            self.emit(spell.load_const(obj))
            return
        name = self._constant_names.get(id(obj))
        if name is None:
            name = self._constant_names[id(obj)] = f".k{len(self._constants)}"
            self._constants.append(obj)
        self.emit(spell.load_fast(name))

    def load_node(self, node: Any) -> None:
        """Pushes the value of a graph node, which so becomes an output of the graph."""
        name = self._output_names.get(node)
        if name is None:
            name = self._output_names[node] = f".o{len(self.outputs)}"
            self.outputs.append(node)
        self.emit(spell.load_fast(name))

    # -- stack and temporaries -------------------------------------------------------------------------------

    def emit(self, *instructions: Instruction) -> None:
        """Appends raw instructions; those without a line get the builder's current one."""
        for instruction in instructions:
            if instruction.positions[0] is None:
                instruction.positions = self.positions
        self._out.extend(instructions)

    def pop(self) -> None:
        self.emit(spell.op("POP_TOP"))

    def copy(self, depth: int = 1) -> None:
        """Pushes the object at `depth` (1: the top) once more."""
        self.emit(spell.op("COPY", depth))

    def swap(self, depth: int = 2) -> None:
        """Exchanges the top with the object at `depth`."""
        self.emit(spell.op("SWAP", depth))

    def _new_temp(self) -> str:
        self._temps += 1
        return f".t{self._temps - 1}"

    def store_temp(self) -> str:
        """Pops the top into a fresh temporary and returns its name."""
        temp = self._new_temp()
        self.emit(spell.store_fast(temp))
        return temp

    def load_temp(self, temp: str) -> None:
        self.emit(spell.load_fast(temp))

    # -- building and calling --------------------------------------------------------------------------------

    def build_tuple(self, n: int) -> None:
        """[item * n] -> [tuple]"""
        self.emit(spell.op("BUILD_TUPLE", n))

    def build_list(self, n: int) -> None:
        """[item * n] -> [list]"""
        self.emit(spell.op("BUILD_LIST", n))

    def build_set(self, n: int) -> None:
        """[item * n] -> [set]"""
        self.emit(spell.op("BUILD_SET", n))

    def build_map(self, n: int) -> None:
        """[(key, value) * n] -> [dict]"""
        self.emit(spell.op("BUILD_MAP", n))

    def build_slice(self, n: int) -> None:
        """[start, stop, step][:n] -> [slice]"""
        self.emit(spell.op("BUILD_SLICE", n))

    def list_append(self) -> None:
        """[list, x] -> [list]"""
        self.emit(spell.op("LIST_APPEND", 1))

    def set_add(self) -> None:
        """[set, x] -> [set]"""
        self.emit(spell.op("SET_ADD", 1))

    def store_item(self) -> None:
        """[container, key, x] -> [container], by `container[key] = x`"""
        self.copy(3)
        self.swap(2)
        self.swap(3)
        self.emit(spell.op("STORE_SUBSCR"))

    def delete_item(self) -> None:
        """[container, key] -> [container], by `del container[key]`"""
        self.copy(2)
        self.swap(2)
        self.emit(spell.op("DELETE_SUBSCR"))

    def load_item(self) -> None:
        """[container, key] -> [container[key]]"""
        self.emit(spell.op("BINARY_SUBSCR"))

    def store_attr(self, name: str) -> None:
        """[obj, x] -> [obj], by `object.__setattr__`: the class's own `__setattr__` already ran while
        tracing."""
        self._call_above(object.__setattr__, name, 1)

    def delete_attr(self, name: str) -> None:
        """[obj] -> [obj], by `object.__delattr__`"""
        self._call_above(object.__delattr__, name, 0)

    def _call_above(self, function: Callable[..., Any], name: str, extra: int) -> None:
        """[obj, x * extra] -> [obj] after `function(obj, name, x * extra)`"""
        temp = self.store_temp() if extra else ""
        self.load_const(function)
        self.copy(2)
        self.load_const(name)
        if extra:
            self.load_temp(temp)
        self.call(2 + extra)
        self.pop()

    def set_attr(self, name: str) -> None:
        """[obj, x] -> [obj], by `obj.name = x`"""
        self.copy(2)
        self.emit(spell.op("STORE_ATTR", 0, name))

    def load_attr(self, name: str) -> None:
        """[obj] -> [obj.name]"""
        self.emit(spell.load_attr(name))

    def call(self, n: int, kw_names: tuple[str, ...] = ()) -> None:
        """[callable, argument * n] -> [result]; the last arguments are those of `kw_names`"""
        self.emit(*spell.call(n, tuple(kw_names)))

    def make_function(self, closure: bool = False, defaults: bool = False) -> None:
        """[tuple of defaults if any, tuple of cells if any, code] -> [function with `run`'s globals]"""
        self.emit(*spell.make_function(closure, defaults))

    # -- before the graph ------------------------------------------------------------------------------------
    def in_front(self, emit: Callable[[RunBuilder], None]) -> None:
        """What `emit` writes runs before the graph; the first to be called."""
        emit(self)
        self._front, self._out = self._out, []
        for known in self._memo.values():
            known.end = 0

    def store_early(self, results: Sequence[Early], unpacked: bool) -> None:
        """[result] -> [], or its items each in a variable"""
        if unpacked:
            self.emit(spell.op("UNPACK_SEQUENCE", len(results)))
        self.emit(*[spell.store_fast(result.variable) for result in results])

    def rerun_on_failure(self, slots: Sequence[Source], draws: bool, streams: Sequence[Value] = ()) -> None:
        """Should the graph raise, or what runs before it, `run` returns what the function itself does; `slots` are its frame's
        arguments. `draws`: the graph draws random numbers, which the function must get once more; `streams`: Python's streams of
        them that calls before the graph use.
        """
        start = len(self._out)
        if draws or streams:
            self.load_const(stream_states)
            self.load_const(draws)
            for stream in streams:
                self.load(stream)
            self.call(1 + len(streams))
            self.emit(spell.store_fast(_STREAMS))
            self._saves = self._out[start:]
            del self._out[start:]
        failed = spell.store_fast(_ERROR)
        self.emit(failed)
        self.load_const(rerun)
        self.emit(spell.load_fast(_ERROR), spell.delete_fast(_ERROR))
        self.emit(spell.load_fast(_STREAMS) if draws or streams else spell.load_const(()))
        for source in (Func(), *slots):
            self.load_source(source)
        self.call(3 + len(slots))
        self._rerun = self._out[start:]
        del self._out[start:]

    # -- the end ---------------------------------------------------------------------------------------------

    def finish(self, calls_graph: bool) -> RunCode:
        """Returns the top of the stack. `calls_graph`: whether there is a graph to run (for outputs or
        effects)."""
        direct = self._direct() if calls_graph else ""
        self._drop_unused_temps()
        parameters = [f".c{i}" for i in range(len(self.captures))]
        if calls_graph:
            parameters.append(_GRAPH)
        elif self.outputs:
            raise InternalError("outputs of a graph that is not called")
        parameters += [f".k{i}" for i in range(len(self._constants))]
        body, self._out = self._out, []
        self.emit(spell.op("RESUME"))
        self._start(calls_graph)
        instructions = [*self._out, *body, spell.op("RETURN_VALUE")]
        instructions[-1].positions = self.positions
        if self._rerun:
            instructions += [*self._rerun, spell.op("RETURN_VALUE")]
        code = self._user_code
        layout = Layout(
            code.co_name,
            code.co_qualname,
            code.co_filename,
            code.co_firstlineno,
            inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS,
            varnames=tuple(parameters),
            argcount=len(parameters),
            consts=(None,),
        )
        return RunCode(
            assemble(instructions, layout),
            tuple(self._constants),
            self._globals,
            self.captures,
            self.outputs,
            calls_graph,
            direct,
        )

    def _start(self, calls_graph: bool) -> None:
        self.emit(*self._saves)
        start = len(self._out)
        self.emit(*self._front)
        if calls_graph:
            self.emit(spell.load_fast(_GRAPH), *[spell.load_fast(name) for name in self._inputs])
            self.call(len(self._inputs))
        if self._rerun:
            for instruction in self._out[start:]:
                instruction.handler = Handler(self._rerun[0], 0, False)
        if calls_graph:
            self._store_outputs()

    def _store_outputs(self) -> None:
        if not self.outputs:
            self.pop()
            return
        self.emit(spell.op("UNPACK_SEQUENCE", len(self.outputs)))
        for i in range(len(self.outputs)):
            self.emit(spell.store_fast(f".o{i}"))

    def _direct(self) -> str:
        """Whether the code so far only pushes the graph's outputs."""
        if self._front or len(self.captures) != len(self._inputs) or self._constants or not self.outputs:
            return ""
        loads = [("LOAD_FAST", f".o{i}") for i in range(len(self.outputs))]
        code = [(i.opname, i.argval) for i in self._out]
        if code == loads and len(loads) == 1:
            return "single"
        built = self._out[len(loads)] if len(self._out) > len(loads) else None
        if (
            code[: len(loads)] != loads
            or built is None
            or built.opname != "BUILD_TUPLE"
            or built.arg != len(loads)
        ):
            return ""
        rest = [i.opname for i in self._out[len(loads) + 1 :]]
        return "tuple" if rest in ([], ["COPY", "STORE_FAST"]) else ""

    def _drop_unused_temps(self) -> None:
        """Takes out the `COPY 1; STORE_FAST temp` of values that were loaded once only."""
        used = {i.argval for i in self._out if i.opname == "LOAD_FAST"}
        unused = {
            id(k.store) for k in self._memo.values() if k.store is not None and k.store.argval not in used
        }
        kept: list[Instruction] = []
        for instruction in self._out:
            if id(instruction) in unused:
                kept.pop()  # its COPY
            else:
                kept.append(instruction)
        self._out = kept


@dataclasses.dataclass
class _Known:
    value: Value  # held, so that its id stays its own
    load: Instruction
    end: int  # length of the code once it was known
    store: Instruction | None = None
