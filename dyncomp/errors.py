"""One family of errors. Each names the user's file and line where there is one, the reason, and the cure.

Three outcomes of a capture have three classes (never shown to users as such):
`GraphBreak` (this instruction runs as Python), `SkipFrame` (this frame is left alone), `InternalError` (our bug).
"""

from __future__ import annotations

import dataclasses

REPORT = "This is a bug of dyncomp: please report it with the text above. The call itself ran as plain Python."

# Stable reason ids -> what the user can do about it.
REASONS: dict[str, str] = {
    "unsupported-opcode": "Move the statement out of the compiled function, or report it: this Python construct is not captured yet.",
    "unsupported-call": "Wrap the function with dyncomp.disable to keep it as Python, or with dyncomp.allow_in_graph if it only runs tensor ops.",
    "unsupported-builtin": "Use a plain Python or torch equivalent, or keep the call outside the compiled function.",
    "unsupported-attribute": "Read the attribute before the compiled function and pass its value in.",
    "unsupported-object": "Pass tensors, numbers, strings, containers, dataclasses or modules instead of this object.",
    "unsupported-mutation": "Make the change outside the compiled function, or on a plain list, dict or attribute.",
    "data-dependent-branch": "Use torch.where, or compute the condition outside the compiled function.",
    "data-dependent-value": "Keep the value a tensor (no .item(), .tolist(), int(), float() or bool() of a tensor).",
    "data-dependent-shape": "Use a masked computation of fixed shape (torch.where) instead of selecting elements.",
    "varying-key": "A look-up by a key that differs from call to call runs as Python between graphs; pass what it gives as an argument for one graph.",
    "disabled-function": "The function was marked with dyncomp.disable.",
    "generator": "Collect the generator into a list before the compiled function, or use it up inside.",
    "side-effect": "printing, logging, I/O and warnings run as Python; move them out of the compiled function to get one graph.",
    "caught-error": "Check the condition before the operation, or use a backend that writes inputs last (the default one does).",
    "exception": "Exceptions that cross the captured code run as Python; check conditions before the compiled function.",
    "last-reference": "What happens when the last reference to this object goes is run between graphs: close it, or drop it, outside the compiled function.",
    "context-manager": "Enter this context manager outside the compiled function.",
    "tensor-subclass": "Tensor subclasses with their own __torch_function__ or __torch_dispatch__ run as Python.",
    "unsupported-tensor": "Sparse, quantised, nested and lazily conjugated tensors run as Python; convert to a plain one first.",
    "torch-mode": "Torch function and dispatch modes watch single operations, so calls inside them run as Python; leave the mode before the call.",
    "function-transform": "What is called inside of a torch.func transform (vmap, grad, jvp) that runs as Python does so too; compile the function that calls the transform.",
    "autograd": "backward() and autograd.grad run as Python; compile the forward, call backward outside.",
    "compiled-autograd": "This part of a backward runs as Python between graphs, or the whole of it under eager's engine; both give eager's result. For one graph keep the named operation or hook out of the backward.",
    "random": "Draw the number outside the compiled function.",
    "module-hook": "Hooks run as Python; remove them or keep that module outside the compiled function.",
    "fake-failed": "The operation cannot be shaped without running it; keep it outside the compiled function.",
    "graph-too-large": "Compile smaller functions, or mark the loop body instead of the loop.",
    "recursion": "The function inlines itself too deeply; compile the inner call instead.",
    "nothing-to-compile": "Nothing to do: the frame runs no tensor operation, so plain Python is fastest.",
    "eager-error": "The program raises this error in plain Python too.",
    "internal": REPORT,
}


class DyncompError(Exception):
    """Base of every error that dyncomp raises on purpose."""


class OptionError(DyncompError, ValueError):
    """A wrong option, mode, stance or knob. The text names the accepted values and the nearest match."""


class UnknownBackendError(OptionError):
    """A backend name that is not registered. The text names the nearest match and all known names."""


class BackendError(DyncompError, RuntimeError):
    """A backend raised while compiling. `__cause__` is what it raised."""


class ToolchainError(DyncompError, RuntimeError):
    """The C++ compiler is missing or rejected generated code. The text names the command and the cure."""


class BuildMismatchError(DyncompError, ImportError):
    """The native runtime was built for another torch or Python. The text says how to rebuild it."""


class RecompileLimitError(DyncompError, RuntimeError):
    """Raised under the stance `fail_on_recompile`, when a compiled function would have to be compiled again."""


class FullGraphError(DyncompError, RuntimeError):
    """`fullgraph=True` and the function does not fit in one graph.

    `record` is the `BreakRecord` with file, line, reason id and hint.
    """

    def __init__(self, record: BreakRecord):
        self.record = record
        super().__init__(f"fullgraph=True, but the function does not fit in one graph\n{record}")


class InternalError(DyncompError, RuntimeError):
    """A bug of dyncomp met while compiling; in strict mode it is raised, else the frame runs as plain Python."""


@dataclasses.dataclass(frozen=True)
class BreakRecord:
    """Where and why capture stopped. `reason` is a key of `REASONS`; `stack` the user's frames, innermost last."""

    reason: str
    detail: str
    filename: str = "?"
    line: int = 0
    function: str = "?"
    hint: str = ""
    stack: tuple[tuple[str, int, str], ...] = ()

    def __str__(self) -> str:
        where = f"{self.filename}:{self.line} in {self.function}"
        inner = "".join(f"\n    from {f}:{n} in {q}" for f, n, q in self.stack if (f, n) != (self.filename, self.line))
        return f"[{self.reason}] {self.detail}\n  at {where}{inner}\n  cure: {self.hint or REASONS[self.reason]}"


class GraphBreak(Exception):
    """Raised by instruction handlers and values; caught by the interpreter's machine alone."""

    def __init__(self, reason: str, detail: str, hint: str = ""):
        if reason not in REASONS:
            raise InternalError(f"unknown graph break reason {reason!r}")
        self.reason, self.detail, self.hint = reason, detail, hint
        super().__init__(f"[{reason}] {detail}")


class SkipFrame(Exception):
    """This frame is left alone for good: it runs as plain Python under this owner."""

    def __init__(self, reason: str, detail: str, hint: str = ""):
        self.reason, self.detail, self.hint = reason, detail, hint
        super().__init__(f"[{reason}] {detail}")
