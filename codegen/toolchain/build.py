"""Compiles kernels into this process: memory first, then the disk cache, then the compiler.

Missing kernels are spread over one translation unit per core and compiled side by side; equal kernels have
equal
symbols and are built once, whichever graphs they come from.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import hashlib
import os
import pathlib
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from dyncomp import config, counters, log
from dyncomp.codegen.toolchain.compiler import Compiler, find_compiler
from dyncomp.codegen.toolchain.disk import DiskCache, open_cache
from dyncomp.codegen.toolchain.isa import Isa, current_isa
from dyncomp.codegen.toolchain.source import KernelSource
from dyncomp.errors import ToolchainError

INCLUDE = pathlib.Path(__file__).resolve().parent.parent / "emit" / "cpp"
HEADER = '#include "vec_math.h"\n#include "row_memory.h"\n'


@dataclasses.dataclass(frozen=True)
class Built:
    """Addresses by symbol. The code stays mapped while `libraries` lives (and in this module until
    `forget`)."""

    addresses: dict[str, int]
    libraries: tuple[ctypes.CDLL, ...]


# (isa, symbol) -> (address, library). Symbols are content hashes, so an entry never goes stale.
_loaded: dict[tuple[str, str], tuple[int, ctypes.CDLL]] = {}
_lock = threading.Lock()


def build(sources: list[KernelSource]) -> Built:
    """Makes every kernel callable. Raises ToolchainError if one has to be compiled and cannot be."""
    isa = current_isa()
    unique = {source.symbol: source for source in sources}
    with _lock:
        missing = [s for s in unique.values() if (isa.name, s.symbol) not in _loaded]
    if missing:
        _load_or_compile(missing, isa)
    with _lock:
        found = {symbol: _loaded[isa.name, symbol] for symbol in unique}
    libraries = {id(library): library for _, library in found.values()}
    return Built({symbol: address for symbol, (address, _) in found.items()}, tuple(libraries.values()))


def forget() -> None:
    """Drops this process's table, so that the next build asks the disk again. Plans keep their own
    handles."""
    with _lock:
        _loaded.clear()


def _load_or_compile(sources: list[KernelSource], isa: Isa) -> None:
    compiler = find_compiler()
    cache = open_cache()
    keys = {source.symbol: _key(source, compiler, isa) for source in sources}
    missing = _load_cached(sources, keys, cache, isa) if cache else sources
    counters.add("kernel_cache_hits", len(sources) - len(missing))
    if not missing:
        return
    started = time.perf_counter()
    groups = _split(missing, _workers())
    with ThreadPoolExecutor(len(groups)) as pool:
        jobs = [pool.submit(_compile_group, group, keys, compiler, cache, isa) for group in groups]
        for job in jobs:
            job.result()
    elapsed = time.perf_counter() - started
    log.write("kernels", "compiled %d kernels in %d units, %.0f ms", len(missing), len(groups), elapsed * 1e3)
    if cache:
        cache.trim(config.cache_size_mb * 1_000_000)


def _load_cached(
    sources: list[KernelSource], keys: dict[str, str], cache: DiskCache, isa: Isa
) -> list[KernelSource]:
    """Loads what the disk has; returns the rest."""
    by_library: dict[pathlib.Path, list[KernelSource]] = {}
    missing = []
    for source in sources:
        library = cache.find(keys[source.symbol])
        if library is None:
            missing.append(source)
        else:
            by_library.setdefault(library, []).append(source)
    for library, members in by_library.items():
        try:
            _load(library, members, isa)
        except OSError as e:
            log.write("cache", "cannot load %s (%s): compiling again", library, e)
            missing.extend(members)
    return missing


def _compile_group(
    group: list[KernelSource], keys: dict[str, str], compiler: Compiler, cache: DiskCache | None, isa: Isa
) -> None:
    folder = cache.workplace() if cache else tempfile.TemporaryDirectory(prefix="dyncomp-")
    with folder as name:
        text = HEADER + "\n".join(source.text for source in group)
        path = pathlib.Path(name) / "kernels.cpp"
        path.write_text(text)
        built = pathlib.Path(name) / "kernels.so"
        try:
            compiler.compile(path, built, isa, INCLUDE)
        except ToolchainError as e:
            raise ToolchainError(f"{e}\n  source kept as: {_keep(text)}") from e
        library = cache.store(built, [keys[s.symbol] for s in group]) if cache else built
        _load(library, group, isa)


def _keep(text: str) -> pathlib.Path:
    """Saves rejected source where the error message can point to it."""
    handle, name = tempfile.mkstemp(prefix="dyncomp-rejected-", suffix=".cpp")
    with os.fdopen(handle, "w") as file:
        file.write(text)
    return pathlib.Path(name)


def _load(library: pathlib.Path, members: list[KernelSource], isa: Isa) -> None:
    handle = ctypes.CDLL(str(library))
    addresses = {}
    for source in members:
        try:
            function = getattr(handle, source.symbol)
        except AttributeError as e:
            raise OSError(f"{library} does not define {source.symbol}") from e
        addresses[isa.name, source.symbol] = (ctypes.cast(function, ctypes.c_void_p).value or 0, handle)
    with _lock:
        _loaded.update(addresses)


def _workers() -> int:
    return config.compile_threads or len(os.sched_getaffinity(0))


def _split(sources: list[KernelSource], parts: int) -> list[list[KernelSource]]:
    """Even shares by text length, largest first."""
    groups: list[list[KernelSource]] = [[] for _ in range(min(parts, len(sources)))]
    sizes = [0] * len(groups)
    for source in sorted(sources, key=lambda s: -len(s.text)):
        least = sizes.index(min(sizes))
        groups[least].append(source)
        sizes[least] += len(source.text)
    return groups


@functools.cache
def _headers_digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(INCLUDE.glob("*.h")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _key(source: KernelSource, compiler: Compiler, isa: Isa) -> str:
    """Everything that the machine code depends on."""
    parts = (
        source.text,
        _headers_digest(),
        compiler.version,
        " ".join(compiler.command),
        " ".join(compiler.flags(isa)),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
