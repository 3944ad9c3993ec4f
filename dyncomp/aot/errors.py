"""Why a torch-level graph cannot become an ATen graph."""

from __future__ import annotations


class Unsupported(Exception):
    """The graph does something that a functional graph cannot express. The torch-level graph runs instead,
    counted.
    """
