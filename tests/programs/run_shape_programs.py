"""Runs random shape programs through the compiler and compares each call with eager.

    python -m tests.programs.run_shape_programs --count 2000 [--first 0] [--every 1] [--ways dynamic-codegen,...] [--wide] [--gradients]

Prints each program that differs, and at the end how many did; exit status 1 if any did.
"""

from __future__ import annotations

import argparse
import collections
import sys
import warnings
from typing import Any

import torch

import dyncomp
from dyncomp import config
from dyncomp.shape.errors import MarkError
from tests.programs.shape_programs import ShapeProgram, make_program
from tests.programs.wide_shape_programs import make_wide_program
from tests.support import assert_same, outcome

# name -> (options of optimize, knobs)
WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    f"{policy}-{backend}": (
        {"backend": backend, "dynamic": True if policy == "dynamic" else None, "recompile_limit": 64},
        {"automatic_dynamic": policy == "automatic"},
    )
    for policy in ("dynamic", "automatic", "marked")
    for backend in ("eager", "aot_eager", "codegen")
}


def _prepared(args: tuple[Any, ...], way: str, gradients: bool) -> tuple[tuple[Any, ...], list[torch.Tensor]]:
    """The arguments of a call, and the leaves behind them that get gradients."""
    leaves = [a.requires_grad_() for a in args if gradients and isinstance(a, torch.Tensor) and a.is_floating_point()]
    # Not the leaves themselves, so that programs may write to their arguments.
    args = tuple([a.view(a.shape) * 1 if isinstance(a, torch.Tensor) and a.requires_grad else a for a in args])
    if way.startswith("marked"):
        for d in range(args[0].dim()):
            if args[0].shape[d] > 1:
                dyncomp.mark_dynamic(args[0], d)
    return args, leaves


def _gradients(result: Any, leaves: list[torch.Tensor]) -> list[Any]:
    """Of the leaves, for gradients of the results that tell elements apart and lie in memory as the results do."""
    parts = [t for t in result if isinstance(t, torch.Tensor) and t.requires_grad] if isinstance(result, tuple) else []
    if not parts or not leaves:
        return []
    given = []
    for part in parts:
        places = torch.arange(1, part.numel() + 1, dtype=part.dtype).view(part.shape)
        given.append(torch.empty_like(part, requires_grad=False).copy_(places))
    return list(torch.autograd.grad(parts, leaves, given, allow_unused=True))


def check_program(program: ShapeProgram, way: str, gradients: bool = False) -> None:
    """Every call as in eager; the first two sizes once more at the end, when others have been compiled. Raises AssertionError."""
    options, knobs = WAYS[way]
    function = program.function()
    dyncomp.reset()
    grad_mode = torch.enable_grad() if gradients else torch.no_grad()
    with grad_mode, warnings.catch_warnings(), config.patch(strict=True, verify_passes=True, **knobs):
        warnings.simplefilter("error", RuntimeWarning)
        fast = dyncomp.optimize(function, **options)
        for call in (0, 1, 2, 3, 4, 0, 1):
            theirs, their_leaves = _prepared(program.make_calls()[call], "", gradients)
            ours, our_leaves = _prepared(program.make_calls()[call], way, gradients)
            want, want_error = outcome(function, theirs)
            got, got_error = outcome(fast, ours)
            if isinstance(got_error, MarkError) and way.startswith("marked"):
                continue  # a program that cannot keep the promise
            where = f"program {program.seed}, {way}, call {call}\n{program.source}"
            assert type(got_error) is type(want_error), f"{where}raised {got_error!r} instead of {want_error!r}"
            try:
                assert_same(got, want)
                assert_same(ours, theirs, "inputs")
                if gradients and want_error is None:
                    their_gradients, their_error = outcome(_gradients, (want, their_leaves))
                    our_gradients, our_error = outcome(_gradients, (got, our_leaves))
                    assert type(our_error) is type(their_error), f"backward raised {our_error!r} instead of {their_error!r}"
                    assert_same(our_gradients, their_gradients, "gradients")
            except AssertionError as error:
                shapes = [tuple(value.shape) if isinstance(value, torch.Tensor) else value for value in theirs]
                raise AssertionError(f"{where}{shapes}: {error}") from None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--gradients", action="store_true")
    given = parser.parse_args()
    make = make_wide_program if given.wide else make_program
    wrong = 0
    seen: collections.Counter[str] = collections.Counter()
    for seed in range(given.first, given.first + given.count, given.every):
        program = make(seed)
        for way in given.ways.split(","):
            try:
                check_program(program, way, given.gradients)
            except Exception as error:
                wrong += 1
                print(f"{type(error).__name__}: {error}\n", flush=True)
            made = dyncomp.stats()
            seen.update(
                {"compiles": made.frames, "graph breaks": made.graph_breaks, "skipped": made.skipped, **made.fallbacks}
            )
            seen.update({f"break: {reason}": count for reason, count in made.break_reasons.items()})
    print(dict(seen))
    print(f"{wrong} faults in {len(range(0, given.count, given.every))} programs, {given.ways}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
