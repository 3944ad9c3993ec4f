"""dyncomp: a just-in-time compiler for PyTorch programs. `fast = dyncomp.optimize(model)`.

The names below are loaded at first use, which also checks that the native runtime fits this torch.
With DYNCOMP_WITHOUT_TORCH=1 only the torch-free parts (`dyncomp.bytecode`, `dyncomp._frame`) can be used.
"""

import importlib

_LAZY = {
    **dict.fromkeys(
        (
            "allow_in_graph",
            "assume_constant_result",
            "disable",
            "enable",
            "is_compiling",
            "mark_dynamic",
            "mark_static",
            "mark_unbacked",
            "optimize",
            "reset",
            "set_stance",
            "stats",
            "substitute_in_graph",
        ),
        "dyncomp.api",
    ),
    **dict.fromkeys(("list_backends", "lookup_backend", "register_backend", "set_default_backend"), "dyncomp.backends"),
    "set_logs": "dyncomp.log",
    "Explanation": "dyncomp.report.explain",
    "explain": "dyncomp.report.explain",
}

__version__ = "0.1.0"


def __getattr__(name):
    if name in ("config", "errors"):
        return importlib.import_module(f"dyncomp.{name}")
    if name not in _LAZY:
        raise AttributeError(name)
    importlib.import_module("dyncomp.driver").install()
    value = globals()[name] = getattr(importlib.import_module(_LAZY[name]), name)
    return value
