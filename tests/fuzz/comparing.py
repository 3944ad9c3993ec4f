"""What differs between two records, by kind."""

from __future__ import annotations

import torch

from tests.fuzz.running import Record, Seen

_OF_GRADIENTS = ("version", "view", "memory", "offset")  # of gradients follow from how they were computed

Difference = tuple[str, str, str]  # kind, where, both sides


def differences(got: Record, want: Record) -> list[Difference]:
    found: list[Difference] = []
    if got.error != want.error:
        found.append((_kind_of_errors(got, want), "", f"{got.error} instead of {want.error}"))
        if got.error is None or want.error is None:
            return found
    if want.error is not None and want.in_backward:
        return found  # how far eager's engine came before it raised is a matter of its order
    found += _events(got, want)
    if list(got.tensors) != list(want.tensors):
        found.append(("names", "", f"{list(got.tensors)} instead of {list(want.tensors)}"))
    else:
        for name, one in want.tensors.items():
            found += [d for d in compare(got.tensors[name], one, name) if not (name.startswith("g") and d[0] in _OF_GRADIENTS)]
    if not torch.equal(got.generator, want.generator):
        found.append(("generator", "", "another state of the random stream"))
    return found


def _kind_of_errors(got: Record, want: Record) -> str:
    if got.error is None:
        return "silent: no error"
    if want.error is None:
        return f"loud: {got.error[0]}"
    return "error text" if got.error[:2] != want.error[:2] else "error line"


def _events(got: Record, want: Record) -> list[Difference]:
    ours, theirs = [event[:2] for event in got.events], [event[:2] for event in want.events]
    if ours != theirs:
        kind = "hook order" if sorted(map(str, ours)) == sorted(map(str, theirs)) else "hooks"
        found: list[Difference] = [(kind, "", f"{ours} instead of {theirs}")]
        if kind == "hooks":
            return found
        pairs = list(zip(sorted(got.events, key=_name), sorted(want.events, key=_name), strict=True))
    else:
        found, pairs = [], list(zip(got.events, want.events, strict=True))
    for mine, reference in pairs:
        where = f"{mine[0]} {mine[1]}"
        if mine[2] is None or reference[2] is None:
            if mine[2] is not reference[2]:
                found.append(("gradient", where, f"{mine[2]} instead of {reference[2]}"))
        else:
            found += compare(mine[2], reference[2], where)
    return found


def _name(event: tuple) -> str:
    return str(event[:2])


def compare(got: Seen, want: Seen, where: str) -> list[Difference]:
    found = [(fact, where, f"{got.facts[fact]} instead of {value}") for fact, value in want.facts.items() if got.facts[fact] != value]
    if got.facts["shape"] == want.facts["shape"] and got.facts["dtype"] == want.facts["dtype"] and not close(got.values, want.values):
        found.append(("values", where, f"{got.values.tolist()} instead of {want.values.tolist()}"))
    if (got.gradient is None) != (want.gradient is None):
        found.append(("gradient", where, f"{got.gradient} instead of {want.gradient}"))
    elif got.gradient is not None and want.gradient is not None:
        found += compare(got.gradient, want.gradient, f"{where}.grad")
    return found


def close(got: torch.Tensor, want: torch.Tensor) -> bool:
    """Equal up to the rounding of sums in another order, which goes by the largest number."""
    if not want.is_floating_point():
        return torch.equal(got, want)
    finite = want[want.isfinite()]
    largest = max(1.0, finite.abs().max().item()) if finite.numel() else 1.0
    return torch.allclose(got, want, rtol=1e-5, atol=5e-6 * largest, equal_nan=True)
