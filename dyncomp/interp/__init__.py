"""Symbolic execution of a frame. `trace_frame` is the one entry; see `docs/contracts.md` for what it
returns."""

import dyncomp.interp.handlers
import dyncomp.values  # noqa: F401  fills the tables of values
from dyncomp.interp.failed_checks import forget_failures
from dyncomp.interp.frame_trace import FrameTrace, trace_frame
from dyncomp.interp.varied import forget as forget_sizes

__all__ = ["FrameTrace", "forget_failures", "forget_sizes", "trace_frame"]
