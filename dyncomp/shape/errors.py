"""What can go wrong with symbolic sizes, apart from bugs."""

from __future__ import annotations

from dyncomp.errors import DyncompError


class DataDependent(RuntimeError):
    """A decision needs a number that only running the program can tell. `truth` is the question; `numbers` says where the
    numbers in it come from.
    """

    def __init__(self, truth: str, line: tuple[str, int] | None = None, numbers: str = ""):
        self.truth, self.line = truth, line
        where = f" (asked at {line[0]}:{line[1]})" if line else ""
        self.numbers = f"; {numbers}" if numbers else ""
        super().__init__(f"the program depends on {truth}, which is known at run time only{where}{self.numbers}")

    @property
    def cure(self) -> str:
        """What the user can write."""
        return (
            f"Tell the answer before this line, with the program's own names for the numbers: torch._check({self.truth}), or "
            "torch._check of the opposite; or use torch.where."
        )


class MarkError(DyncompError, ValueError):
    """A dimension that was marked as dynamic cannot stay so. The text names who pinned it."""
