"""Bytecode as text, for the debug folder and for logs.

In:  a code object
Out: one line an op: source line, mark of jump targets, op, where exceptions go; then the code objects among
     the constants, step and resume functions included
"""

from __future__ import annotations

import types
from collections.abc import Iterator

from dyncomp.bytecode.canonical import canonical


def to_text(code: types.CodeType, nested: bool = True) -> str:
    """The canonical ops of `code`, and of the code objects it holds."""
    return "\n\n".join(_one(each) for each in (_all(code) if nested else [code]))


def _all(code: types.CodeType) -> Iterator[types.CodeType]:
    seen: set[int] = set()
    work = [code]
    while work:
        each = work.pop(0)
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            work.extend(const for const in each.co_consts if isinstance(const, types.CodeType))


def _one(code: types.CodeType) -> str:
    view = canonical(code)
    targets = {op.target for op in view.ops} | {op.handler.target for op in view.ops if op.handler}
    arguments = ", ".join(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    lines = [f"# {code.co_qualname}({arguments})  {code.co_filename}:{code.co_firstlineno}"]
    shown: int | None = None
    for op in view.ops:
        line = str(op.line) if op.line != shown and op.line is not None else ""
        shown = op.line
        handler = f"   except -> {op.handler.target} at {op.handler.depth}" if op.handler else ""
        lines.append(f"{line:>6} {'>>' if op.index in targets else '  '}{op}{handler}")
    return "\n".join(lines)
