"""Finds a C++ compiler and turns one file into one shared library."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import shlex
import shutil
import subprocess

from dyncomp import config
from dyncomp.codegen.toolchain.isa import Isa
from dyncomp.errors import ToolchainError

MISSING = (
    "no C++ compiler found (tried {tried}). Install g++ or clang++, set the environment variable CXX, or set "
    "dyncomp.config.cxx. Until then generated kernels are replaced by ATen operators."
)

# -O1 compiles faster than -O2 and loses nothing here: the emitter has already vectorised and unrolled. What -O1 lacks is
# -fgcse, which keeps the constants of long polynomials in registers (a fifth of gelu's time), and -fexpensive-optimizations,
# under which g++ ends functions with vzeroupper: without it the SSE code of ATen and libm runs slower afterwards on Intel's
# processors (8 % for random numbers).
# Contraction stays off, so that a user's a*b+c rounds twice as in eager; the math header asks for FMA by
# name.
# Selects stay selects under -fno-trapping-math; nothing that changes results (reassociation, finite-only)
# is on.
BASE_FLAGS = (
    "-x", "c++", "-std=c++17", "-O1", "-fgcse", "-fexpensive-optimizations", "-fPIC", "-shared", "-pipe", "-w",
    "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-fno-exceptions", "-fno-rtti",
    "-fno-asynchronous-unwind-tables", "-fno-stack-protector", "-fvisibility=hidden",
)  # fmt: skip
# Neither start files nor libstdc++: a kernel needs libm alone, and the linker is four times as fast.
LINK_FLAGS = ("-nostdlib", "-lm", "-lgcc")


@dataclasses.dataclass(frozen=True)
class Compiler:
    command: tuple[str, ...]
    version: str

    def flags(self, isa: Isa) -> tuple[str, ...]:
        return (*BASE_FLAGS, *isa.flags)

    def compile(self, source: pathlib.Path, library: pathlib.Path, isa: Isa, include: pathlib.Path) -> None:
        """Writes `library`, or raises ToolchainError with the command and the first lines of its output."""
        command = [*self.command, *self.flags(isa), f"-I{include}", str(source), *_linked(library)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        except OSError as e:
            raise ToolchainError(f"cannot run the C++ compiler: {shlex.join(command)}: {e}") from e
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines()
            shown = "\n  ".join(lines[:20]) or f"exit status {done.returncode} without output"
            raise ToolchainError(
                f"the C++ compiler rejected generated code\n  command: {shlex.join(command)}\n"
                f"  {shown}"
            )


def _linked(library: pathlib.Path) -> list[str]:
    return ["-x", "none", "-o", str(library), *LINK_FLAGS]


def find_compiler() -> Compiler:
    """The knob `cxx`, $CXX, g++, clang++: the first that runs. Raises ToolchainError if none does."""
    return _find(config.cxx, os.environ.get("CXX", ""), os.environ.get("PATH", ""))


@functools.lru_cache(maxsize=16)
def _find(knob: str, environment: str, path: str) -> Compiler:
    # An explicit choice is never silently replaced by another compiler.
    wanted = [knob] if knob else [c for c in (environment, "g++", "clang++") if c]
    for text in wanted:
        command = tuple(shlex.split(text))
        if command and shutil.which(command[0], path=path):
            version = _version(command)
            if version is not None:
                return Compiler(command, version)
    raise ToolchainError(MISSING.format(tried=", ".join(wanted)))


def _version(command: tuple[str, ...]) -> str | None:
    """First line of `--version`, None when the command does not run."""
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0 or not done.stdout:
        return None
    return done.stdout.splitlines()[0].strip()
