"""What can go wrong with symbolic sizes, apart from bugs."""

from __future__ import annotations

from dyncomp.errors import DyncompError


class DataDependent(RuntimeError):
    """A decision needs a number that only running the program can tell. `truth` is the question."""

    def __init__(self, truth: str, line: tuple[str, int] | None = None):
        self.truth, self.line = truth, line
        where = f" (asked at {line[0]}:{line[1]})" if line else ""
        super().__init__(f"the program depends on {truth}, which is known at run time only{where}")


class MarkError(DyncompError, ValueError):
    """A dimension that was marked as dynamic cannot stay so. The text names who pinned it."""
