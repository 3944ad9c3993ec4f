"""Symbolic sizes of an ATen graph: where each number is read from, and what is computed from them.

    x0: f32[s0, 5]; args of the graph use 2*s0      ->      i0 = x0.size(0);  r0 = i0 * 2

Numbers stand in the graph as torch.SymInt: in operator arguments, in output rules, and in the fakes' sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dyncomp.aot.errors import Unsupported
from dyncomp.aot.late import Fact, LateRead
from dyncomp.fake.tensor import FakeTensor
from dyncomp.shape.int_program import numbered_statements
from dyncomp.shape.symbolic import (
    env_of,
    fact_program,
    is_symbolic,
    number_key,
    plain,
    reading_of,
    value_program,
)

if TYPE_CHECKING:  # sympy comes with it, and static shapes never need it
    from dyncomp.shape.env import ShapeEnv

Read = tuple[int, str, int]  # (input index, "size" | "stride" | "int", dim); "int" is the input itself, which may be a float


def env_of_inputs(inputs: Sequence[Any]) -> ShapeEnv | None:
    """The env of the symbolic sizes and ints among a graph's inputs."""
    return env_of(number for value in inputs for number in _numbers_of(value))


def _numbers_of(value: Any) -> tuple[Any, ...]:
    if type(value) is FakeTensor:
        return (*value.meta.shape, *value.meta.strides)
    return (value,)


def env_of_graph(gm: torch.fx.GraphModule) -> ShapeEnv | None:
    """The env of the symbolic numbers inside a torch-level graph whose inputs have none."""
    return env_of(number for node in gm.graph.nodes for number in _numbers_of(node.meta.get("example_value")))


class GraphSizes:
    """`program` computes the numbers that `place` places, then the truths of the facts; its inputs are `Read`s and, for numbers
    that the running graph gives, `LateRead`s (`late`, in the order of the program's inputs).
    """

    def __init__(
        self,
        env: ShapeEnv,
        inputs: Sequence[Any],
        numbers: Iterable[Any],
        reads: Mapping[Any, LateRead] | None = None,
        facts: Sequence[Fact] = (),
    ):
        self.env, self._reads, self._facts = env, reads or {}, list(facts)
        distinct = {number_key(number): number for number in numbers if is_symbolic(plain(number))}
        self._index = {key: i for i, key in enumerate(distinct)}
        self._first_fact = len(distinct)
        self._version = env.facts.version
        readings: dict[Any, tuple[Any, int, int]] = dict(_readings(env, inputs))
        if self._reads or facts:
            readings = {**{symbol: (read, 1, 0) for symbol, read in self._reads.items()}, **readings}
            truths = [fact.truth for fact in facts]
            try:
                self.program = fact_program(env, list(distinct.values()), truths, readings, whole=True)
            except KeyError as error:
                raise Unsupported(f"a number that no operation gives: {error}") from error
        else:
            self.program = value_program(env, list(distinct.values()), readings)
        self.checked_while_running = bool(self._reads or facts)
        self.late = [read for read in self.program.inputs if isinstance(read, LateRead)]

    def covering(self, inputs: Sequence[Any], numbers: Iterable[Any]) -> GraphSizes:
        """The same for other numbers of the graph."""
        return GraphSizes(self.env, inputs, numbers, self._reads, self._facts)

    def late_nodes(self) -> set[Any]:
        """The nodes that give numbers while the graph runs."""
        return {read.node for read in self._reads.values()}

    def place_of_fact(self, fact: Fact) -> int:
        """Which result of the program is the truth of a fact."""
        return self._first_fact + self._facts.index(fact)

    def when(self, order: Mapping[Any, int]) -> list[int]:
        """For each register of the program (inputs, then instructions), after which node it can be computed: a position of
        `order` (node -> position), or -1 for what is known when the graph begins.
        """
        known = [order[read.node] if isinstance(read, LateRead) else -1 for read in self.program.inputs]
        for name, *operands in self.program.code:
            known.append(-1 if name in ("const", "fconst") else max(known[i] for i in operands))
        return known

    def place(self, number: Any) -> int | None:
        """Which result of the program a number is; None for a plain one."""
        number = plain(number)
        if not is_symbolic(number):
            return None
        if self._version != self.env.facts.version:  # what was learned since may have changed the expressions
            self._index = {self.env.facts.simplify(key): i for key, i in self._index.items()}
            self._version = self.env.facts.version
        return self._index[number_key(number)]

    def lines(self, inputs: Sequence[str], order: Mapping[Any, int]) -> tuple[dict[int, list[str]], list[str]]:
        """Python lines that compute the numbers, by the node after which they go (see `when`), and what the results are called.
        `inputs`: names of the inputs.
        """
        names = [f"i{n}" for n in range(len(self.program.inputs))]
        reads: list[str | None] = [
            f"{name} = {_read_text(inputs, read)}" for name, read in zip(names, self.program.inputs, strict=True)
        ]
        lines, results = numbered_statements(self.program, names)
        placed: dict[int, list[str]] = {}
        for position, line in zip(self.when(order), [*reads, *lines], strict=True):
            if line is not None:
                placed.setdefault(position, []).append(line)
        return placed, results

    def late_names(self) -> list[str]:
        """What `lines` calls the late numbers."""
        return [f"i{n}" for n, read in enumerate(self.program.inputs) if isinstance(read, LateRead)]

    def values(self, inputs: Sequence[Any], late: Sequence[Any] = ()) -> list[Any]:
        """The numbers in one call; `late`: those that the running graph gave."""
        rest = iter(late)
        read = [next(rest) if isinstance(read, LateRead) else _read(inputs, read) for read in self.program.inputs]
        results = self.program.run(read)
        if results is None:
            raise ArithmeticError("a size of the compiled graph has no value in this call")
        return results

    def resolve(self, value: Any, values: list[Any]) -> Any:
        """`value` (a rule, nested tuples) with the numbers of one call in place of symbolic ones."""
        if isinstance(value, tuple | list):
            return type(value)(self.resolve(item, values) for item in value)
        if not is_symbolic(value):
            return value
        place = self.place(value)
        return plain(value) if place is None else values[place]


def unread_numbers(env: ShapeEnv, inputs: Sequence[Any], given: Sequence[Any]) -> tuple[list[int], list[Any]]:
    """What tells the symbols that cannot be read off `given`: which of `inputs` are numbers that do, and sizes of other inputs,
    one a symbol.
    """
    known = set(_readings(env, given))
    numbers: list[int] = []
    sizes: list[Any] = []
    unread = [(read, number) for index, value in enumerate(inputs) for read, number in _reads(index, value)]
    unread.sort(key=lambda one: one[0][1] != "int")  # numbers themselves first: they cost nothing to keep
    for (index, what, _), number in unread:
        reading = reading_of(env, number)
        if reading is None or reading[0] in known:
            continue
        known.add(reading[0])
        if what == "int":
            numbers.append(index)
        else:
            sizes.append(number)
    return numbers, sizes


def _readings(env: ShapeEnv, inputs: Sequence[Any]) -> dict[Any, tuple[Read, int, int]]:
    """Symbol -> (read, scale, shift): the number read is scale * symbol + shift."""
    found: dict[Any, tuple[Read, int, int]] = {}
    for index, value in enumerate(inputs):
        for read, number in _reads(index, value):
            reading = reading_of(env, number)
            if reading is not None:
                symbol, scale, shift = reading
                found.setdefault(symbol, (read, scale, shift))
    return found


def _reads(index: int, value: Any) -> Iterator[tuple[Read, Any]]:
    if type(value) is FakeTensor:
        for what, numbers in (("size", value.meta.shape), ("stride", value.meta.strides)):
            for dim, number in enumerate(numbers):
                if is_symbolic(number):
                    yield (index, what, dim), number
    elif isinstance(value, torch.SymInt | torch.SymFloat):
        yield (index, "int", 0), value


def _read_text(names: Sequence[str], read: Any) -> str:
    if isinstance(read, LateRead):
        return read.node.name if read.what == "value" else f"{read.node.name}.size({read.dim})"
    index, what, dim = read
    return names[index] if what == "int" else f"{names[index]}.{what}({dim})"


def _read(inputs: Sequence[Any], read: Read) -> int:
    index, what, dim = read
    value = inputs[index]
    return value if what == "int" else value.size(dim) if what == "size" else value.stride(dim)  # type: ignore[no-any-return]
