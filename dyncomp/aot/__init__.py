"""Ahead-of-time capture: torch-level graphs become functional ATen graphs with an exact epilogue."""

from dyncomp.aot.again import put_right
from dyncomp.aot.casts import Casts, remember
from dyncomp.aot.ends import Ends, written_parts_last
from dyncomp.aot.errors import Unsupported
from dyncomp.aot.graph import AtenGraph
from dyncomp.aot.joint import JointGraph, trace_joint
from dyncomp.aot.outputs import base_of_view
from dyncomp.aot.record import Strides, Wanted
from dyncomp.aot.sizes import env_of_inputs
from dyncomp.aot.step import StepGraph, trace_step
from dyncomp.aot.trace import trace_inference
from dyncomp.aot.verify import verify

__all__ = [
    "AtenGraph",
    "Casts",
    "Ends",
    "JointGraph",
    "StepGraph",
    "Strides",
    "Unsupported",
    "Wanted",
    "base_of_view",
    "env_of_inputs",
    "put_right",
    "remember",
    "trace_inference",
    "trace_joint",
    "trace_step",
    "verify",
    "written_parts_last",
]
