"""How often the checks of `raising_branches` have failed in the graphs of a frame.

A program may raise and catch for a living: each time costs the graph and the frame as plain Python. From some number on the frame is
compiled without such checks; its entries so far guard that the number is not reached.
"""

from __future__ import annotations

import dataclasses
import types

from dyncomp.bytecode.code_table import CodeTable

MESSAGE = "dyncomp: a branch that raises was taken"  # seen by nobody: the frame runs again
_MOST = 16


@dataclasses.dataclass
class FailedChecks:
    """`often`: empty until there were too many."""

    count: int = 0
    often: list[bool] = dataclasses.field(default_factory=list)


_table: CodeTable[FailedChecks] = CodeTable()


def forget_failures() -> None:
    """For `dyncomp.reset`: what is compiled from now on has not failed yet."""
    global _table
    _table = CodeTable()


def failed_checks(code: types.CodeType) -> FailedChecks:
    return _table.get(code) or _table.add(code, FailedChecks())


def note_failure(error: BaseException, code: types.CodeType) -> None:
    """A graph of the frame of `code` raised `error`."""
    failures = _table.get(code)
    if failures is None or MESSAGE not in str(error):
        return
    failures.count += 1
    if failures.count == _MOST:
        failures.often.append(True)
