"""A random training program: how its inputs are made, a function to compile, and several uses of it; the same for the same seed."""

from __future__ import annotations

import random
import warnings
from typing import Any

import torch

from tests.fuzz.growing import Growing, choose
from tests.fuzz.names import NAMES
from tests.fuzz.running import Program, Record, Teller
from tests.fuzz.statements import statement
from tests.fuzz.uses import last_backward, use_line

_SHAPES = [(2, 3), (2, 3), (3, 2), (3,), (4,), (), (2, 2), (3, 3), (2, 2, 3), (4, 3)]


def make_program(seed: int) -> Program:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inputs, arguments = _inputs(rng)
        function = _function(rng, inputs, arguments)
        return Program(seed, function, [_use(rng, inputs, arguments, function) for _ in range(3)])


def _inputs(rng: random.Random) -> tuple[list[str], list[str]]:
    """Lines that make the inputs, and the names of the arguments."""
    shape = rng.choice(_SHAPES)
    lines: list[str] = []
    arguments: list[str] = []
    for name in "abc"[: rng.choice((1, 2, 2, 3))]:
        if arguments and rng.random() < 0.12:
            other = rng.choice(arguments)
            alias = rng.choice([f"{name} = {other}", f"{name} = {other}.detach()", f"{name} = {other}.view({other}.shape)", f"{name} = {other}[...]"])
            lines.append(alias)
        else:
            lines += _input(rng, name, shape if rng.random() < 0.6 else rng.choice(_SHAPES))
        arguments.append(name)
    if rng.random() < 0.2:
        lines += ["_mean = torch.zeros(3)", "_var = torch.ones(3)"]
        arguments += ["_mean", "_var"]
    return lines, arguments


def _input(rng: random.Random, name: str, shape: tuple[int, ...]) -> list[str]:
    leaf, wants = f"{name}0", rng.random() < (0.95 if name == "a" else 0.7)
    grad = ", requires_grad=True" if wants else ""

    def randn(*sizes: int) -> str:
        return f"torch.randn({', '.join(map(str, sizes)) or '()'}{grad})"

    plain = [f"{name} = {randn(*shape)}"]
    result = rng.choice([f"{leaf} * 2", f"{leaf}.sin()", f"{leaf} + 1", f"{leaf}.exp()"])
    forms = [
        (6, plain),
        (4, [f"{leaf} = {randn(*shape)}", f"{name} = {result}"]),
        (2, [f"{leaf} = {randn(2, *shape)}", f"{name} = {leaf}[1]"]),
        (3, [f"{leaf} = {randn(2, *shape)}", f"{name}1 = {result}", f"{name} = {name}1[1]"]),
        (2, [f"{leaf} = {randn(*shape[::-1])}", f"{name} = {leaf}.permute({', '.join(map(str, range(len(shape) - 1, -1, -1))) or '()'})"]),
        (1, [f"{leaf} = {randn(*shape)}", f"{name} = {leaf}.detach(){'.requires_grad_()' if wants else ''}"]),
    ]
    if len(shape) > 1:
        gap = f"torch.randn({', '.join(map(str, (*shape[:-1], shape[-1] * 2)))})[..., ::2]"
        turned = f"torch.randn({', '.join(map(str, shape[::-1]))}).permute({', '.join(map(str, range(len(shape) - 1, -1, -1)))})"
        flat = f"torch.randn({', '.join(map(str, shape[1:]))}).expand({', '.join(map(str, shape))})"
        asked = ".detach().requires_grad_()" if wants else ""
        forms += [(2, [f"{name} = {turned}{asked}"]), (1, [f"{name} = {gap}{asked}"]), (1, [f"{name} = {flat}{asked}"])]
    if len(shape) == 2:
        forms.append((2, [f"{leaf} = {randn(*shape[::-1])}", f"{name}1 = {result}", f"{name} = {name}1.t()"]))
    return choose(rng, forms)


def _ran(lines: list[str]) -> dict[str, Any]:
    names = dict(NAMES)
    exec("\n".join(lines), names)
    return names


def _function(rng: random.Random, inputs: list[str], arguments: list[str]) -> str:
    made = _ran(inputs)
    grower = Growing(rng, {**NAMES, **{name: made[name] for name in arguments}}, "v")
    grower.grow(rng.randint(2, 10), statement)
    lines = list(grower.lines)
    refused = grower.refused if rng.random() < 0.05 else None
    if refused:
        lines.append(refused)
    own = [name for name in grower.tensors() if name not in arguments] or arguments
    found = [rng.choice(_places(rng, own, grower.tensors())) for _ in range(rng.choice((1, 2, 2, 3, 3, 4)))]
    results = list(dict.fromkeys(found)) if rng.random() < 0.9 else found
    if refused and " = " in refused and refused.startswith("v") and "[" not in refused.partition(" = ")[0]:
        results.append(refused.partition(" = ")[0])  # what nobody uses need not raise
    lines.append(f"return {', '.join(results)}")
    body = "\n".join(lines).replace("\n", "\n    ")
    return f"def f({', '.join(arguments)}):\n    {body}\n"


def _places(rng: random.Random, own: list[str], every: list[str]) -> list[str]:
    """What one of the results is chosen from: mostly the last values, which most of the function goes into."""
    return rng.choice([own[-2:], own[-2:], own[-5:], own, every])


def _use(rng: random.Random, inputs: list[str], arguments: list[str], function: str) -> str:
    names = _ran([function, *inputs])
    names["tell"] = Teller(Record(), names)
    grower = Growing(rng, names, "r")
    grower.lines = list(inputs)
    call = f"f({', '.join(arguments)})"
    if rng.random() < 0.3:
        grower.grow(1, lambda g: use_line(g, arguments, before=True))
    if not grower.runs(f"_call = {call}"):
        return "\n".join([*grower.lines, f"r1 = {call}", ""])
    count = len(names["_call"]) if isinstance(names["_call"], tuple) else 1
    results = [grower.new() for _ in range(count)]
    grower.lines.append(f"{', '.join(results)} = {call}")
    names.update(zip(results, names.pop("_call") if count > 1 else [names.pop("_call")], strict=True))
    grower.grow(rng.randint(2, 6), lambda g: use_line(g, arguments))
    if "backward" not in "".join(grower.lines):
        grower.grow(1, last_backward)
    if grower.refused and rng.random() < 0.15:
        grower.lines.append(grower.refused)
    return "\n".join([*grower.lines, ""])
