"""C++ back end: loop IR -> vector C++ text, and the math header that it includes."""

from dyncomp.codegen.emit.cpp.emitter import emit

__all__ = ["emit"]
