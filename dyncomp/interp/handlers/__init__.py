"""Opcode handlers by theme. Importing the package fills the table in `registry`."""

from dyncomp.interp.handlers import (
    calls,
    containers,
    exceptions,
    generators,
    jumps,
    match,
    operators,
    stack,
    variables,
)
from dyncomp.interp.handlers.registry import BREAKS, HANDLERS

__all__ = [
    "BREAKS",
    "HANDLERS",
    "calls",
    "containers",
    "exceptions",
    "generators",
    "jumps",
    "match",
    "operators",
    "stack",
    "variables",
]
