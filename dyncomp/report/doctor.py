"""`python -m dyncomp doctor`: what this machine has, and what to do about what is missing."""

from __future__ import annotations

import dataclasses
import importlib
import platform
import sys
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Finding:
    """`state` is ok, warn or bad; `cure` is empty when there is nothing to do."""

    name: str
    state: str
    text: str
    cure: str = ""


def _python() -> Finding:
    version = platform.python_version()
    good = (3, 11) <= sys.version_info[:2] <= (3, 13)
    return Finding("python", "ok" if good else "bad", version, "" if good else "use Python 3.11, 3.12 or 3.13")


def _torch() -> Finding:
    torch = importlib.import_module("torch")
    return Finding("torch", "ok", f"{torch.__version__}, {torch.get_num_threads()} threads")


def _runtime() -> Finding:
    try:
        frame = importlib.import_module("dyncomp._frame")
    except ImportError as error:
        return Finding(
            "native runtime",
            "bad",
            str(error),
            "rebuild: python -m pip install --no-build-isolation --force-reinstall dyncomp",
        )
    return Finding("native runtime", "ok", f"built for torch {frame._core.TORCH_VERSION}")


def _compiler() -> Finding:
    toolchain = importlib.import_module("dyncomp.codegen.toolchain")
    try:
        found = toolchain.find_compiler()
    except RuntimeError as error:
        return Finding(
            "C++ compiler",
            "warn",
            str(error).splitlines()[0],
            "install g++ or clang++; without one, ATen ops are run instead of fused kernels",
        )
    return Finding(
        "C++ compiler", "ok", f"{' '.join(found.command)}: {found.version}, vectors: {toolchain.current_isa().name}"
    )


def _gpu() -> Finding:
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        return Finding("GPU", "ok", "none (CPU code is generated)")
    return Finding("GPU", "ok", f"{torch.cuda.get_device_name()}: graphs on it run on ATen kernels")


def _cache() -> Finding:
    toolchain = importlib.import_module("dyncomp.codegen.toolchain")
    try:
        return Finding("kernel cache", "ok", toolchain.describe_cache())
    except (OSError, RuntimeError) as error:
        return Finding("kernel cache", "warn", str(error), "set DYNCOMP_CACHE_DIR to a folder that only you can write")


CHECKS: tuple[Callable[[], Finding], ...] = (_python, _torch, _runtime, _compiler, _gpu, _cache)


def examine() -> list[Finding]:
    """All findings, in a fixed order."""
    return [check() for check in CHECKS]


def main() -> int:
    """Prints the findings; exit status 1 if something is bad."""
    findings = examine()
    for f in findings:
        print(f"{f.state:4}  {f.name}: {f.text}" + (f"\n      cure: {f.cure}" if f.cure else ""))
    return int(any(f.state == "bad" for f in findings))
