"""Where a call's number is read: the origin of a symbolic int or float.

    str(Number(Local(0, 'x'), 'size', 1))  ==  "L['x'].size(1)"
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from dyncomp.guards.source import Call, Source
from dyncomp.shape.int_program import Program

_READS: dict[str, Callable[[Any], Any]] = {"offset": torch.Tensor.storage_offset, "len": len}


@dataclasses.dataclass(frozen=True)
class Number:
    """`what`: size, stride or offset of a tensor; int or float for the object itself; len of a container."""

    source: Source
    what: str
    dim: int = 0

    @property
    def stands_alone(self) -> bool:
        """True where a source leads to the number itself; sizes and strides are read off their tensor."""
        return self.what not in ("size", "stride")

    def value_source(self) -> Source:
        """Where the number itself is found, if it stands alone."""
        read = _READS.get(self.what)
        return self.source if read is None else Call(self.source, read)

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
