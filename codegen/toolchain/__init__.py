"""From C++ text to callable addresses: find the compiler, compile in parallel, keep the result on disk.

build([KernelSource(symbol, text), ...]) -> Built(addresses={symbol: address}, libraries=[...])
"""

from dyncomp.codegen.toolchain.build import Built, build, forget
from dyncomp.codegen.toolchain.compiler import Compiler, find_compiler
from dyncomp.codegen.toolchain.disk import clear_cache, describe_cache
from dyncomp.codegen.toolchain.isa import Isa, current_isa
from dyncomp.codegen.toolchain.source import KernelSource

__all__ = ["Built", "Compiler", "Isa", "KernelSource", "build", "clear_cache", "current_isa", "describe_cache", "find_compiler", "forget"]
