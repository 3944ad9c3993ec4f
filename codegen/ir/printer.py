"""Prints a kernel as Python that builds it again: for dumps, for tests, and as the kernel's identity.

    in0 = Param("in0", "f32", "in")
    d0 = Var("d0", const(8))
    v0 = b.load(in0, d0)
    kernel = Kernel((in0, out0), (), (), (d0,), d0, None, (
        Store(out0, as_index(d0), v0),
    ))

`run` reads such text back (it is used by tests).
"""

from __future__ import annotations

from dyncomp.codegen.ir import index as index_module
from dyncomp.codegen.ir import nodes
from dyncomp.codegen.ir.index import Index, Var
from dyncomp.codegen.ir.nodes import (
    Accumulate,
    Cast,
    Checked,
    Const,
    Init,
    Kernel,
    Load,
    Loop,
    Op,
    Position,
    Result,
    Stmt,
    Value,
    stmt_values,
    value_children,
)
from dyncomp.codegen.ir.sizes import sizes_of


def print_kernel(kernel: Kernel, notes: bool = True) -> str:
    """The text. Without notes it depends on what the kernel computes alone."""
    return _Printer(notes).kernel(kernel)


def run(text: str) -> Kernel:
    """The kernel that a printed text builds."""
    scope = {
        **vars(nodes),
        **vars(index_module),
        "b": nodes.Builder(),
        "inf": float("inf"),
        "nan": float("nan"),
    }
    exec(text, scope)
    return scope["kernel"]  # type: ignore[return-value]


class _Printer:
    def __init__(self, notes: bool):
        self.notes = notes
        self.lines: list[str] = []
        self.names: dict[int, str] = {}
        self.seen: set[str] = set()

    def kernel(self, kernel: Kernel) -> str:
        if self.notes and kernel.note:
            self.lines.extend(f"# {line}" for line in kernel.note.splitlines())
        for param in kernel.params:
            self.lines.append(f'{param.name} = Param("{param.name}", "{param.dtype}", "{param.role}")')
        for size in sizes_of(kernel):
            self.lines.append(f'{size.name} = Size("{size.name}", {size.low})')
        for scratch in kernel.scratch:
            self.lines.append(f'{scratch.name} = Scratch("{scratch.name}", "{scratch.dtype}", {scratch.extent})')
        for var in kernel.axes:
            self._var(var)
        body = self._block(kernel.body, "    ")
        params = _tuple([p.name for p in kernel.params])
        scratch_names = _tuple([s.name for s in kernel.scratch])
        sizes = _tuple([repr(s) for s in kernel.sizes])
        axes = _tuple([v.name for v in kernel.axes])
        head = f"{params}, {scratch_names}, {sizes}, {axes}, {_name(kernel.vector)}, {_name(kernel.tile)}"
        return "\n".join([*self.lines, f"kernel = Kernel({head}, (", *body, "))"]) + "\n"

    def _var(self, var: Var) -> None:
        if var.name not in self.seen:
            self.seen.add(var.name)
            self.lines.append(f'{var.name} = Var("{var.name}", {_index(var.extent)})')

    def _block(self, body: tuple[Stmt, ...], indent: str) -> list[str]:
        out: list[str] = []
        for stmt in body:
            for value in stmt_values(stmt):
                self._define(value)
            note = getattr(stmt, "note", "") if self.notes else ""
            comment = f"  # {note}" if note else ""
            if isinstance(stmt, Loop):
                self._var(stmt.var)
                out += [
                    f"{indent}Loop({stmt.var.name}, (",
                    *self._block(stmt.body, indent + "    "),
                    f"{indent})),",
                ]
            elif isinstance(stmt, Init):
                self._acc(stmt.acc)
                out.append(f"{indent}Init({stmt.acc.name}),")
            elif isinstance(stmt, Accumulate):
                position = "" if stmt.position is None else f", {self._ref(stmt.position)}"
                out.append(f"{indent}Accumulate({stmt.acc.name}, {self._ref(stmt.value)}{position}),{comment}")
            else:
                guard = "" if stmt.guard is None else f", {self._ref(stmt.guard)}"
                place = f"{stmt.buffer.name}, {_index(stmt.index)}"
                out.append(f"{indent}Store({place}, {self._ref(stmt.value)}{guard}),{comment}")
        return out

    def _acc(self, acc: nodes.Acc) -> None:
        if acc.name not in self.seen:
            self.seen.add(acc.name)
            self.lines.append(f'{acc.name} = Acc("{acc.name}", "{acc.op}", "{acc.dtype}")')

    def _ref(self, value: Value) -> str:
        return self.names[id(value)]

    def _define(self, root: Value) -> None:
        stack = [root]
        while stack:
            value = stack[-1]
            if id(value) in self.names:
                stack.pop()
                continue
            missing = [c for c in value_children(value) if id(c) not in self.names]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            for index in _indices(value):
                for var in sorted(index_module.variables(index), key=lambda v: v.name):
                    self._var(var)
            name = f"v{len(self.names)}"
            self.lines.append(f"{name} = {self._value(value)}")
            self.names[id(value)] = name

    def _value(self, value: Value) -> str:
        if isinstance(value, Const):
            return f'b.const({value.value!r}, "{value.dtype}")'
        if isinstance(value, Position):
            return f"b.position({_index(value.index)})"
        if isinstance(value, Load):
            text = f"b.load({value.buffer.name}, {_index(value.index)}"
            if value.dynamic:
                pairs = [f"({self._ref(v)}, {_index(stride)})" for v, stride in value.dynamic]
                text += f", {_tuple(pairs)}"
            return text + (f", guard={self._ref(value.guard)})" if value.guard is not None else ")")
        if isinstance(value, Op):
            return f"b.op({', '.join([repr(value.name), *map(self._ref, value.args)])})"
        if isinstance(value, Cast):
            return f'b.cast({self._ref(value.value)}, "{value.dtype}")'
        if isinstance(value, Checked):
            return f"b.checked({self._ref(value.value)}, {_index(value.extent)}, {value.flag.name})"
        if isinstance(value, Result):
            self._acc(value.acc)
            return f'b.result({value.acc.name}, "{value.part}")'
        raise TypeError(f"not a value: {value!r}")


def _indices(value: Value) -> list[Index]:
    if isinstance(value, Position):
        return [value.index]
    if isinstance(value, Load):
        return [value.index, *(stride for _, stride in value.dynamic)]
    return []


def _index(index: Index) -> str:
    if index.is_const:
        return f"const({index.const})"
    text = str(index)
    return f"as_index({text})" if len(index.terms) == 1 and text == index.terms[0][0].key else text


def _name(var: Var | None) -> str:
    return "None" if var is None else var.name


def _tuple(items: list[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
