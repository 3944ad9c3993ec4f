"""Random programs on tensors whose sizes vary from call to call: the same seed gives the same program.

    def f(x, y, n):                                x: (a, b)     a, b, n at the five calls: (6, 4, 3), (8, 2, 5), ...
        v0 = x.reshape(-1, x.shape[0])
        v1 = torch.cat([v0, v0[: v0.shape[0] // 2]], 0)
        return (v0, v1, v1.shape[0] * n)

A line is kept if eager runs it at all five sizes, so that what is compared is results; a few programs end in a line that
eager refuses at some of the sizes, and then the errors are compared.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

CALLS = 5
_NAMES = {"torch": torch, "F": F}
_SIZES = (2, 3, 4, 5, 6, 8, 12)
_LARGEST = 3000  # elements of any tensor


@dataclasses.dataclass
class ShapeProgram:
    """`source` defines `f(x, y, n)`; `make_calls()` gives fresh arguments for each of the calls, always the same ones."""

    seed: int
    source: str
    make_calls: Callable[[], list[tuple[Any, ...]]]

    def function(self) -> Any:
        namespace: dict[str, Any] = dict(_NAMES)
        exec(compile(self.source, f"<shape program {self.seed}>", "exec"), namespace)
        return namespace["f"]


def make_program(seed: int) -> ShapeProgram:
    return _Maker(seed).make()


class _Inputs:
    """Shapes in letters, and what the letters stand for in each call."""

    def __init__(self, rng: random.Random):
        ordinary = rng.random() < 0.75
        choices = _SIZES if ordinary else (0, 1, *_SIZES[:4])
        letters = [{name: rng.choice(choices) for name in "abc"} for _ in range(CALLS)]
        x = [rng.choice("abc") for _ in range(rng.choice((1, 2, 2, 3, 3, 4)))]
        if rng.random() < 0.3:
            x[rng.randrange(len(x))] = rng.choice(("3", "4", "2*a"))
        y = rng.choice((x, x[::-1], [rng.choice(x), rng.choice("abc")], [rng.choice("abc")]))
        self.shapes = [[tuple(eval(d, {}, sizes) for d in shape) for shape in (x, y)] for sizes in letters]
        self.ints = [rng.choice((2, 3, 4, 5, 7)) if ordinary else rng.choice((0, 1, 2, 3)) for _ in range(CALLS)]
        self.layouts = [rng.choice(("plain", "plain", "plain", "reversed", "strided", "offset")) for _ in range(2)]
        self.dtype = rng.choice((torch.float32, torch.float32, torch.float32, torch.int64, torch.float64))

    def calls(self) -> list[tuple[Any, ...]]:
        generator = torch.Generator().manual_seed(7)
        return [
            (*[self._tensor(shape, layout, generator) for shape, layout in zip(shapes, self.layouts, strict=True)], n)
            for shapes, n in zip(self.shapes, self.ints, strict=True)
        ]

    def _tensor(self, shape: tuple[int, ...], layout: str, generator: torch.Generator) -> torch.Tensor:
        whole = tuple(shape[::-1]) if layout == "reversed" else shape
        if layout == "strided":
            whole = (*shape[:-1], shape[-1] * 2)
        if layout == "offset":
            whole = (shape[0] + 2, *shape[1:])
        data = torch.randint(-8, 9, whole, generator=generator).to(self.dtype) / (2 if self.dtype.is_floating_point else 1)
        data = data.to(self.dtype)
        if layout == "reversed":
            return data.permute(*range(len(shape) - 1, -1, -1))
        return data[..., ::2] if layout == "strided" else data[2:] if layout == "offset" else data


class _Maker:
    def __init__(self, seed: int):
        self.seed, self.rng = seed, random.Random(seed)
        self.inputs = _Inputs(self.rng)
        self.states = [dict(zip("xyn", call, strict=True)) for call in self.inputs.calls()]
        self.lines: list[str] = []
        self.names = ["x", "y"]

    def make(self) -> ShapeProgram:
        wanted, tries = self.rng.randint(3, 9), 0
        while len(self.lines) < wanted and tries < 60:
            tries += 1
            self._try(self._line(f"v{len(self.lines)}"))
        last = []
        if self.rng.random() < 0.05:
            last = [self._line("v")]
        body = [*self.lines, *last, f"return ({', '.join(self._returned())},)"]
        text = "\n".join(body).replace("\n", "\n    ")
        source = f"def f(x, y, n):\n    {text}\n"
        return ShapeProgram(self.seed, source, self.inputs.calls)

    def _returned(self) -> list[str]:
        rng = self.rng
        tensors = sorted(set(rng.sample(self.names, min(len(self.names), rng.randint(1, 3)))) | {self.names[-1]})
        if rng.random() < 0.4:
            v = rng.choice(self.names)
            tensors.append(rng.choice((f"{v}.shape", f"{v}.numel() + n", f"{v}.stride()", f"len({v}.shape) * n", f"{v}.dim()")))
        return tensors

    def _try(self, line: str) -> None:
        """Keeps the line if eager runs it in every call."""
        made = []
        for state in self.states:
            new = {**_NAMES, **state}
            try:
                exec(line, new)
            except Exception:
                self._reset()
                return
            value = new[line.split(" ", 1)[0]]
            if not isinstance(value, torch.Tensor) or value.numel() > _LARGEST:
                self._reset()
                return
            made.append({name: value for name, value in new.items() if name in state or name.startswith("v")})
        self.states = made
        self.lines.append(line)
        name = line.split(" ", 1)[0]
        if name not in self.names:
            self.names.append(name)

    def _reset(self) -> None:
        """The state after the lines that are kept: a refused one may have written in place."""
        self.states = [dict(zip("xyn", call, strict=True)) for call in self.inputs.calls()]
        for state in self.states:
            everything = {**_NAMES, **state}
            exec("\n".join(self.lines), everything)
            state.update({name: everything[name] for name in everything if name.startswith("v")})

    def _line(self, name: str) -> str:
        rng = self.rng
        v = rng.choice(self.names[-3:])
        return rng.choices((self._view, self._join, self._slice, self._compute, self._branch), (5, 3, 4, 4, 1))[0](name, v)

    # ---- numbers

    def _rank(self, v: str) -> int:
        return int(self.states[0][v].dim())

    def _dim(self, v: str) -> int:
        return self.rng.randint(-max(self._rank(v), 1), max(self._rank(v), 1) - 1)

    def _size(self, v: str) -> str:
        d = self._dim(v)
        return self.rng.choice((f"{v}.shape[{d}]", f"{v}.size({d})", f"{self.rng.choice(self.names)}.shape[0]"))

    def _count(self, v: str) -> str:
        """A small number, fixed or computed."""
        size = self._size(v)
        return self.rng.choice(
            ("1", "2", "3", "n", size, f"{size} // 2", f"max({size} - 1, 1)", f"min({size}, 3)", "n + 1", f"({size} + 1) // 2",
             f"{size} % 3", f"len({v})", f"int({size} * 0.5)", f"-(-{size} // 2)")
        )  # fmt: skip

    # ---- lines

    def _view(self, name: str, v: str) -> str:
        rng, d, e, size = self.rng, self._dim(v), self._dim(v), self._size(v)
        order = list(range(self._rank(v)))
        rng.shuffle(order)
        number = self._count(v)
        ones = ", ".join(["-1"] * self._rank(v))
        return f"{name} = " + rng.choice((
            f"{v}.view(-1)", f"{v}.reshape(-1)", f"{v}.reshape({size}, -1)", f"{v}.reshape(-1, {size})", f"{v}.view({size}, -1)",
            f"{v}.view(-1, {number})", f"{v}.reshape(-1, {number}, {size})", f"{v}.view({v}.numel())", f"{v}.reshape({v}.shape[::-1])",
            f"{v}.flatten({d}, {e})", f"{v}.flatten()", f"{v}.unflatten({d}, ({number}, -1))", f"{v}.unflatten({d}, (-1, {number}))",
            f"{v}.permute({order})", f"{v}.transpose({d}, {e})", f"{v}.t()", f"{v}.mT", f"{v}.unsqueeze({d})", f"{v}.squeeze()",
            f"{v}.squeeze({d})", f"{v}.unsqueeze(0).expand({number}, {ones})", f"{v}.expand({number}, *{v}.shape)",
            f"{v}.expand({size}, {size})", f"{v}.narrow({d}, 0, {number})", f"{v}.narrow({d}, 1, {size} - 1)", f"{v}.diagonal()",
            f"{v}.view_as({rng.choice(self.names)})", f"{v}.movedim({d}, {e})", f"{v}.unfold({d}, {number}, 1)", f"{v}.contiguous()",
            f"{v}.reshape({v}.shape[0] // 2, 2, -1)", f"{v}.view(*{v}.shape[:-1], -1, 2)", f"{v}.swapaxes({d}, {e}).reshape(-1)",
        ))  # fmt: skip

    def _join(self, name: str, v: str) -> str:
        rng, d, number, w = self.rng, self._dim(v), self._count(v), self.rng.choice(self.names)
        return f"{name} = " + rng.choice((
            f"torch.cat([{v}, {w}], {d})", f"torch.cat([{v}, {v}[:{number}]], 0)", f"torch.cat([{v}] * 2, {d})",
            f"torch.stack([{v}, {w}], {d})", f"torch.stack([{v}, {v} * 2])", f"{v}.split({number}, {d})[0]",
            f"{v}.split({number}, {d})[-1]", f"{v}.chunk({rng.randint(1, 4)}, {d})[0]", f"{v}.chunk({number}, {d})[-1]",
            f"torch.cat({v}.chunk(2, {d})[::-1], {d})", f"torch.cat(torch.split({v}, {number}, {d})[::-1], {d})",
            f"F.pad({v}, (0, {number}))", f"F.pad({v}, ({number}, 1), value=2)", f"F.pad({v}, (0, -1))",
            f"F.pad({v}, (0, 0, 1, {number}))", f"F.pad({v}, (0, {v}.shape[-1] % 4))", f"{v}.repeat({number}, *[1] * {v}.dim())",
            f"{v}.repeat_interleave({number}, {d})", f"torch.tile({v}, ({number},))", f"torch.hstack([{v}, {v}])",
            f"sum({v}.unbind({d}))", f"torch.cat([{v}, {v}.new_zeros({number}, *{v}.shape[1:])])", f"torch.broadcast_tensors({v}, {w})[0]",
        ))  # fmt: skip

    def _slice(self, name: str, v: str) -> str:
        number, other = self._count(v), self._count(v)
        places = [
            f":{number}", f"{number}:", f"-{number}:" if number.isalnum() else ":-1", "::2", "1::2", ":-1", f"{number}:{number} + 2",
            f"{other}:{number}", ":", "-3:-1", "0", "-1", f":{number}:2", "None",
        ]  # fmt: skip
        keys = [self.rng.choice(places) for _ in range(self.rng.randint(1, max(self._rank(v), 1)))]
        if self.rng.random() < 0.3:
            keys = ["...", *keys[:1]]
        return f"{name} = {v}[{', '.join(keys)}]"

    def _compute(self, name: str, v: str) -> str:
        rng, d, number, w, size = self.rng, self._dim(v), self._count(v), self.rng.choice(self.names), self._size(v)
        keep = rng.choice(("", ", keepdim=True"))
        return rng.choice((
            f"{name} = {v}.sum({d}{keep})", f"{name} = {v}.float().mean({d}{keep})", f"{name} = {v}.amax({d}{keep})", f"{name} = {v}.sum()",
            f"{name} = {v}.argmax({d}{keep})", f"{name} = {v}.any({d})",
            f"{name} = {v} @ {w}", f"{name} = {v} @ {v}.transpose(-1, -2)", f"{name} = {v}.transpose(-1, -2) @ {v}", f"{name} = {v} + {w}",
            f"{name} = {v} * {w} - 1", f"{name} = {v} * {number}", f"{name} = {v} + {size} / 2", f"{name} = {v} * {v}.shape[0] + n",
            f"{name} = {v} / ({size} + 1)", f"{name} = {v}.clone()", f"{name} = {v}.roll({number}, {d})", f"{name} = {v}.flip({d})",
            f"{name} = {v}.cumsum({d})", f"{name} = {v}.float().softmax({d})", f"{name} = torch.zeros({size}, n) + {v}.sum()",
            f"{name} = {v}.new_full({v}.shape, {number})", f"{name} = torch.arange({size}) * {number}", f"{name} = torch.full((n,), {size})",
            f"{name} = torch.where({v} > 0, {v}, {number})", f"{name} = {v}.add_({number})", f"{name} = {v}.clone().mul_({number})",
            f"{name} = torch.ones_like({v}) * {size}", f"{name} = {v}.tril() if {v}.dim() > 1 else {v}", f"{name} = {v}.sort({d})[0]",
            f"{name} = torch.arange({size}, {size} + n).view(-1, 1) + {number}", f"{name} = torch.linspace(0, 1, {size})",
            f"{name} = {v}.clone().fill_({number}).t()", f"{name} = {v}.float().square().mean({d}).sqrt()", f"{name} = torch.outer({v}.flatten(), {w}.flatten())",
            f"{name} = {v}.to(torch.float64)", f"{name} = {v}.gather({d}, torch.zeros_like({v}, dtype=torch.long))",
            f"{name} = {v}.index_select({d}, torch.arange({number}))", f"{name} = {v}[torch.arange({number})]",
            f"{name} = torch.empty({number}, {size}).fill_(n)", f"{name} = {v}.float().norm(dim={d})", f"{name} = F.one_hot({v}.abs().long(), 20)",
        ))  # fmt: skip

    def _branch(self, name: str, v: str) -> str:
        size, other = self._size(v), self._count(v)
        question = self.rng.choice((
            f"{size} > {other}", f"{v}.numel() % 2 == 0", f"{size} == {self._size(v)}", f"{v}.shape == {self.rng.choice(self.names)}.shape",
            "n in (2, 3, 5)", f"isinstance({size}, int) and {size} < 5", f"{v}.is_contiguous()", f"{size} % 4 == n % 2", f"{v}.stride(0) > 1",
        ))  # fmt: skip
        return self.rng.choice((
            f"{name} = {v} + 1 if {question} else {v} - 1",
            f"{name} = {v}[:2] if {question} else {v}[1:]",
            f"{name} = {v} * (2 if {question} else {other})",
            f"{name} = sum([{v} * i for i in range({other})], {v})",
        ))  # fmt: skip
