"""Which code objects are never candidates of their own: Python's library, torch, compilers, and dyncomp itself.

They may still be inlined into a captured frame; what is skipped is compiling them as entry points of their own.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sysconfig
import types

# Third-party packages whose frames are machinery around the user's tensor code.
_PACKAGES = (
    "torch",
    "numpy",
    "scipy",
    "sympy",
    "pytest",
    "_pytest",
    "pluggy",
    "hypothesis",
    "coverage",
    "triton",
    "functorch",
    "IPython",
    # Audit hooks and import hooks: the interpreter enters their frames in the middle of anything.
    "filelock",
    "typing_extensions",
    "_distutils_hack",
)
# Modules of torch whose frames are user-level tensor code.
_TORCH_CANDIDATES = ("torch/nn/modules/", "torch/optim/", "torch/nn/functional.py", "torch/distributions/")
# Of these, what makes modules: parameters come to be in them one by one, each of which would break the graph, and that once a module.
_MAKERS = frozenset({"__init__", "reset_parameters", "initialize_parameters", "_infer_parameters"})
# Other compilers: what their frames call is theirs, whatever file it is in.
_OTHER_COMPILERS = ("torch/_dynamo/", "torch/_inductor/", "torch/_functorch/", "torch/jit/", "torch/export/")
_TRANSFORMS = ("torch/_functorch/apis.py", "torch/_functorch/eager_transforms.py")
_HERE = os.path.dirname(os.path.realpath(__file__))
_ENTRY = os.path.join(_HERE, "entry.py")  # the functions that stand for "call this module" are candidates
_NEVER = ("torch/nn/modules/module.py", "torch/optim/optimizer.py", "torch/optim/lr_scheduler.py")


def _package_dir(name: str) -> str | None:
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return os.path.join(os.path.realpath(next(iter(spec.submodule_search_locations))), "")
    return os.path.realpath(spec.origin) if spec.origin else None


@functools.lru_cache(1)
def _skipped_packages() -> tuple[str, ...]:
    names = (*_PACKAGES, "dyncomp.codegen", "dyncomp._frame")
    return (os.path.join(_HERE, ""), *(p for p in map(_package_dir, names) if p is not None))


@functools.lru_cache(1)
def _library() -> tuple[str, ...]:
    return tuple(
        os.path.join(os.path.realpath(p), "") for p in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    )


@functools.lru_cache(4096)
def _file_is_skipped(filename: str) -> bool:
    if filename.startswith("<"):  # exec'd code: dataclasses and notebooks are the user's; the import system is not
        return filename.startswith(("<frozen", "<__array_function__"))
    path = os.path.realpath(filename)
    unix = path.replace(os.sep, "/")
    if path == _ENTRY or (any(part in unix for part in _TORCH_CANDIDATES) and not any(part in unix for part in _NEVER)):
        return False
    if path.startswith(_skipped_packages()):
        return True
    installed = "/site-packages/" in unix or "/dist-packages/" in unix
    return path.startswith(_library()) and not installed


def is_torchs_own(code: types.CodeType) -> bool:
    """True for functions of torch that are no candidates but can be followed, such as what torch.vmap returns: entered through
    a function that calls them, they are compiled like any other.
    """
    return is_skipped(code) and _is_torchs_own_file(code.co_filename)


@functools.lru_cache(256)
def _is_torchs_own_file(filename: str) -> bool:
    unix = os.path.realpath(filename).replace(os.sep, "/")
    in_torch = unix.startswith((_package_dir("torch") or "").replace(os.sep, "/") or "\0")
    return in_torch and (not _is_other_compilers_file(filename) or unix.endswith(_TRANSFORMS))


def is_skipped(code: types.CodeType) -> bool:
    """True for code objects that never get an entry of their own."""
    return _file_is_skipped(code.co_filename) or code.co_name in _MAKERS and _TORCH_CANDIDATES[0] in code.co_filename.replace(os.sep, "/")


def is_torch_optimizer(code: types.CodeType) -> bool:
    """True for the code of torch's own optimisers."""
    return "/torch/optim/" in code.co_filename.replace(os.sep, "/")


def is_other_compiler(code: types.CodeType) -> bool:
    """True for frames below which another compiler decides what is compiled (a call of what torch.compile returned)."""
    return _is_other_compilers_file(code.co_filename)


def _is_other_compilers_file(filename: str) -> bool:
    unix = filename.replace(os.sep, "/")
    return any(f"/{part}" in unix for part in _OTHER_COMPILERS)
