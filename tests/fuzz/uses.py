"""One random line of a use of a compiled function: hooks, writes, backwards, gradients of gradients, further calls."""

from __future__ import annotations

import torch

from tests.fuzz.growing import Growing, choose
from tests.fuzz.running import is_leaf
from tests.fuzz.statements import WRITES, filled, table

_OUTSIDE = table("{x} * 2 | {x}.sin() | {x}.t() | {x}[0] | {x}.view(-1) | {x}.detach() | {x} * {y} | {x} + {y} | {x}.exp() | {x}.unsqueeze(0) | {x}.sum()")
_WRITES = table(WRITES)


def _trained(t: torch.Tensor) -> bool:
    return t.requires_grad


def _results(t: torch.Tensor) -> bool:
    return t.requires_grad and is_leaf(t) is False


def _leaf(t: torch.Tensor) -> bool:
    return t.requires_grad and is_leaf(t) is True


def _hook(grower: Growing) -> str:
    if grower.rng.random() < 0.1:
        name = grower.pick(_leaf)
        return f"tell.hook_after({name}, '{name}')"
    name = grower.pick(_trained)
    scale = ", 2.0" if grower.rng.random() < 0.25 else ""
    return f"tell.hook({name}, '{name}'{scale})"


def _retain(grower: Growing) -> str:
    return f"{grower.pick(_results)}.retain_grad()"


def _write(grower: Growing) -> str:
    line = filled(grower, grower.rng.choice(_WRITES))
    return line if grower.rng.random() < 0.4 else f"with torch.no_grad():\n    {line}"


def _outside(grower: Growing) -> str:
    return f"{grower.new()} = {filled(grower, grower.rng.choice(_OUTSIDE))}"


def _roots(grower: Growing) -> list[str]:
    """What backwards begin at: mostly what the function returned."""
    results = grower.tensors(_results)
    made = [name for name in results if name[0] in "rg"] if grower.rng.random() < 0.9 else results
    if not made:
        raise LookupError
    return grower.rng.sample(made, min(len(made), grower.rng.choice((1, 1, 2, 3))))


def _given(grower: Growing, roots: list[str]) -> str:
    ways = ["plain", "turned", "gaps", "expanded"]
    return ", ".join(f"given({root}, '{grower.rng.choice(ways)}')" for root in roots)


def _kept(grower: Growing) -> str:
    return ", retain_graph=True" if grower.rng.random() < 0.4 else ""


def _backward(grower: Growing) -> str:
    roots = _roots(grower)
    if grower.rng.random() < 0.5:
        return f"loss({', '.join(roots)}).backward({_kept(grower)[2:]})"
    inputs = f", inputs=[{', '.join(_asked(grower))}]" if grower.rng.random() < 0.2 else ""
    return f"torch.autograd.backward([{', '.join(roots)}], [{_given(grower, roots)}]{_kept(grower)}{inputs})"


def _asked(grower: Growing) -> list[str]:
    return list(dict.fromkeys(grower.pick(_trained) for _ in range(grower.rng.choice((1, 2, 2, 3)))))


def _gradients(grower: Growing) -> str:
    roots, asked = _roots(grower), _asked(grower)
    unused = ", allow_unused=True" if grower.rng.random() < 0.7 else ""
    if grower.rng.random() < 0.5:
        what = f"loss({', '.join(roots)}), [{', '.join(asked)}]"
    else:
        what = f"[{', '.join(roots)}], [{', '.join(asked)}], [{_given(grower, roots)}]"
    if grower.rng.random() < 0.3:
        made = [f"g{grower.new()}" for _ in asked]
        return f"{', '.join(made)}{',' * (len(made) == 1)} = torch.autograd.grad({what}, create_graph=True{unused})"
    return f"tell.seen(*torch.autograd.grad({what}{_kept(grower)}{unused}))"


def _look(grower: Growing) -> str:
    return "tell.look()"


def _forget(grower: Growing) -> str:
    return f"del {grower.pick(_results)}"


def _call_again(arguments: list[str]):
    def line(grower: Growing) -> str:
        given = [grower.like(name) if grower.rng.random() < 0.5 and not name.startswith("_") else name for name in arguments]
        call = f"f({', '.join(given)})"
        if not grower.runs(f"_again = {call}"):
            raise LookupError
        result = grower.names.pop("_again")
        made = [grower.new() for _ in result] if isinstance(result, tuple) else [grower.new()]
        grower.names.update(zip(made, result if len(made) > 1 else [result], strict=True))
        grower.lines.append(f"{', '.join(made)} = {call}")
        raise LookupError  # the line has run and is kept

    return line


def last_backward(grower: Growing) -> str:
    """A backward through all that there is."""
    return f"loss({', '.join(_roots(grower))}).backward()"


def use_line(grower: Growing, arguments: list[str], before: bool = False) -> str:
    """A line after the first call of the function, or before it."""
    if before:
        return choose(grower.rng, [(4, _hook), (2, _retain), (1, _write)])(grower)
    choices = [
        (4, _hook), (3, _retain), (3, _write), (3, _outside), (5, _backward), (4, _gradients), (1, _look), (1, _forget), (1, _call_again(arguments)),
    ]  # fmt: skip
    return choose(grower.rng, choices)(grower)
