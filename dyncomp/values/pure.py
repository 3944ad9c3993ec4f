"""Which functions compute a result from their arguments and do nothing else.

Called on constants they run for real while tracing.
"""

from __future__ import annotations

import inspect
import math
import os.path
import re
import types
from typing import Any

_BUILTINS = (
    abs,
    ascii,
    bin,
    chr,
    divmod,
    format,
    hash,
    hex,
    len,
    max,
    min,
    oct,
    ord,
    pow,
    repr,
    round,
    sorted,
    sum,
)
# Modules whose C functions compute a result from their arguments and do nothing else.
_PURE_MODULES = frozenset({math.__name__, "cmath", "_operator", "_functools", "unicodedata", "_statistics"})
# Of `_operator`: on a container they would change the copy that folding makes.
_CHANGES_ITS_ARGUMENT = frozenset(
    "setitem delitem iadd isub imul imatmul itruediv ifloordiv imod ipow ilshift irshift iand ior ixor iconcat call".split()
)
_PURE: frozenset[Any] = frozenset({
    *_BUILTINS, inspect.getfullargspec, inspect.isfunction, inspect.isclass, inspect.ismethod,
    re.match, re.fullmatch, re.search, re.sub, re.split, re.findall, re.compile, re.escape,
    os.path.join, os.path.basename, os.path.dirname, os.path.splitext,
    str.maketrans, bytes.fromhex, int.from_bytes, float.fromhex, dict.fromkeys,
})  # fmt: skip


def is_pure(fn: Any) -> bool:
    """True if calling `fn` on constants for real, while tracing, is the same as calling it at run time."""
    try:
        if fn in _PURE:
            return True
    except TypeError:
        return False
    return isinstance(fn, types.BuiltinFunctionType) and fn.__module__ in _PURE_MODULES and fn.__name__ not in _CHANGES_ITS_ARGUMENT
