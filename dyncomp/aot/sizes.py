"""Symbolic sizes of an ATen graph: where each number is read from, and what is computed from them.

    x0: f32[s0, 5]; args of the graph use 2*s0      ->      i0 = x0.size(0);  r0 = i0 * 2

Numbers stand in the graph as torch.SymInt: in operator arguments, in output rules, and in the fakes' sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dyncomp.fake.tensor import FakeTensor
from dyncomp.shape.int_program import Program, statements
from dyncomp.shape.symbolic import env_of, is_symbolic, number_key, plain, reading_of, value_program

if TYPE_CHECKING:  # sympy comes with it, and static shapes never need it
    from dyncomp.shape.env import ShapeEnv

Read = tuple[int, str, int]  # (input index, "size" | "stride" | "int", dim)


def env_of_inputs(inputs: Sequence[Any]) -> ShapeEnv | None:
    """The env of the symbolic sizes and ints among a graph's inputs."""
    return env_of(number for value in inputs for number in _numbers_of(value))


def _numbers_of(value: Any) -> tuple[Any, ...]:
    if type(value) is FakeTensor:
        return (*value.meta.shape, *value.meta.strides)
    return (value,)


class GraphSizes:
    """`program` computes the numbers that `place` places; its inputs are `Read`s."""

    def __init__(self, env: ShapeEnv, inputs: Sequence[Any], numbers: Iterable[Any]):
        self.env = env
        distinct = {number_key(number): number for number in numbers if is_symbolic(plain(number))}
        self._index = {key: i for i, key in enumerate(distinct)}
        self._version = env.facts.version
        self.program: Program = value_program(env, list(distinct.values()), _readings(env, inputs))

    def covering(self, inputs: Sequence[Any], numbers: Iterable[Any]) -> GraphSizes:
        """The same for other numbers of the graph."""
        return GraphSizes(self.env, inputs, numbers)

    def place(self, number: Any) -> int | None:
        """Which result of the program a number is; None for a plain one."""
        number = plain(number)
        if not is_symbolic(number):
            return None
        if self._version != self.env.facts.version:  # what was learned since may have changed the expressions
            self._index = {self.env.facts.simplify(key): i for key, i in self._index.items()}
            self._version = self.env.facts.version
        return self._index[number_key(number)]

    def prelude(self, inputs: Sequence[str]) -> tuple[list[str], list[str]]:
        """Python lines that compute the numbers, and what the results are called. `inputs`: names of the inputs."""
        names = [f"i{n}" for n in range(len(self.program.inputs))]
        reads = [f"{name} = {_read_text(inputs, read)}" for name, read in zip(names, self.program.inputs, strict=True)]
        lines, results = statements(self.program, names)
        return [*reads, *lines], results

    def values(self, inputs: Sequence[Any]) -> list[Any]:
        """The numbers in one call."""
        results = self.program.run([_read(inputs, read) for read in self.program.inputs])
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
    elif isinstance(value, torch.SymInt):
        yield (index, "int", 0), value


def _read_text(names: Sequence[str], read: Read) -> str:
    index, what, dim = read
    return names[index] if what == "int" else f"{names[index]}.{what}({dim})"


def _read(inputs: Sequence[Any], read: Read) -> int:
    index, what, dim = read
    value = inputs[index]
    return value if what == "int" else value.size(dim) if what == "size" else value.stride(dim)  # type: ignore[no-any-return]
