"""Runs random shape programs through the compiler and compares each call with eager.

    python -m tests.programs.run_shape_programs --count 2000 [--first 0] [--every 1] [--ways dynamic-codegen,...]

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
from tests.programs.shape_programs import ShapeProgram, make_program
from tests.support import assert_same, outcome

# name -> (options of optimize, knobs)
WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    f"{policy}-{backend}": (
        {"backend": backend, "dynamic": True if policy == "dynamic" else None, "recompile_limit": 64},
        {"automatic_dynamic": policy == "automatic"},
    )
    for policy in ("dynamic", "automatic")
    for backend in ("eager", "aot_eager", "codegen")
}


def check_program(program: ShapeProgram, way: str) -> None:
    """Every call as in eager; the first two sizes once more at the end, when others have been compiled. Raises AssertionError."""
    options, knobs = WAYS[way]
    function = program.function()
    dyncomp.reset()
    with torch.no_grad(), warnings.catch_warnings(), config.patch(strict=True, verify_passes=True, **knobs):
        warnings.simplefilter("error", RuntimeWarning)
        fast = dyncomp.optimize(function, **options)
        for call in (0, 1, 2, 3, 4, 0, 1):
            ours, theirs = program.make_calls()[call], program.make_calls()[call]
            want, want_error = outcome(function, theirs)
            got, got_error = outcome(fast, ours)
            where = f"program {program.seed}, {way}, call {call}\n{program.source}"
            assert type(got_error) is type(want_error), f"{where}raised {got_error!r} instead of {want_error!r}"
            try:
                assert_same(got, want)
                assert_same(ours, theirs, "inputs")
            except AssertionError as error:
                shapes = [tuple(value.shape) if isinstance(value, torch.Tensor) else value for value in theirs]
                raise AssertionError(f"{where}{shapes}: {error}") from None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--ways", default=",".join(WAYS))
    given = parser.parse_args()
    wrong = 0
    seen: collections.Counter[str] = collections.Counter()
    for seed in range(given.first, given.first + given.count, given.every):
        program = make_program(seed)
        for way in given.ways.split(","):
            try:
                check_program(program, way)
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
