"""Where a call's number is read: the origin of a symbolic int or float.

    str(Number(Local(0, 'x'), 'size', 1))  ==  "L['x'].size(1)"
"""

from __future__ import annotations

import dataclasses

import torch

from dyncomp.guards.source import Call, Source
from dyncomp.shape.int_program import Program


@dataclasses.dataclass(frozen=True)
class Number:
    """`what`: size, stride or offset of a tensor; int or float for the object itself; len of a container."""

    source: Source
    what: str
    dim: int = 0

    def value_source(self) -> Source:
        """Where the number itself is found: that of an int, a float or an offset."""
        return Call(self.source, torch.Tensor.storage_offset) if self.what == "offset" else self.source

    def __str__(self) -> str:
        match self.what:
            case "size" | "stride":
                return f"{self.source}.{self.what}({self.dim})"
            case "offset":
                return f"{self.source}.storage_offset()"
            case "len":
                return f"len({self.source})"
            case _:
                return str(self.source)


def pinned_offset(source: Source, offset: int) -> Program:
    """The guard that a tensor starts there in its storage."""
    number = Number(source, "offset")
    return Program((number,), (("require_range", 0, offset, offset),), (), (f"{number} == {offset}",))
