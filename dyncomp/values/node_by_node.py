"""Running a torch-level graph node by node, for the callers that have nothing better: what it leaves behind where a node raises.

Torch's state (grad mode, autocast) comes back as it was. Writes to inputs stay, as in eager; so that nobody runs the frame a second
time on top of them, the error says so.

    run = node_by_node(gm)          # `gm.meta["writes"]`: False if the graph writes to none of its inputs
    wrote(error)                    # True for an error that came after a write to an input
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dyncomp.values.context_state import restoring, sets_state
from dyncomp.values.users_line import naming_lines

_MARK = "_dyncomp_wrote"


def node_by_node(gm: Any) -> Callable[..., Any]:
    """The graph as a function of its inputs. Its errors name the program's lines."""
    return left_as_found(naming_lines(gm), gm)


def left_as_found(run: Callable[..., Any], gm: Any) -> Callable[..., Any]:
    """`run`, which runs the nodes of `gm` or some form of them, with the two cares where it raises."""
    if sets_state(gm.graph):
        run = restoring(run)
    return marking(run) if gm.meta.get("writes", True) else run


def marking(run: Callable[..., Any]) -> Callable[..., Any]:
    """The same; its errors are marked for `wrote`."""

    def call(*inputs: Any) -> Any:
        before = _versions(inputs)
        try:
            return run(*inputs)
        except Exception as error:
            if before is None or _versions(inputs) != before:
                setattr(error, _MARK, True)
            raise

    return call


def _versions(inputs: tuple[Any, ...]) -> list[int] | None:
    """How often each tensor was written in place; None where that is not counted."""
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    return None if any(map(torch.Tensor.is_inference, tensors)) else [tensor._version for tensor in tensors]


def wrote(error: BaseException) -> bool:
    """Whether the graph that raised this may have written to its inputs before. Takes the mark away: the error is the user's."""
    return error.__dict__.pop(_MARK, False)
