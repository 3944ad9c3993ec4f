"""What text_sizes.py and image_sizes.py share: runs a model at many sizes, counts compiles, compares with eager."""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch

import dyncomp
from dyncomp import config

LIMITS = {"default": 4, "dynamic": 2}


def tensors(output: Any) -> list[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        return [output]
    values = output.values() if isinstance(output, dict) else output if isinstance(output, list | tuple) else ()
    return [t for value in values for t in tensors(value)]


def count(model: torch.nn.Module, calls: Iterable[dict[str, Any]], policy: str, backend: str) -> tuple[int, int, str]:
    """(compiles of the most often compiled frame, breaks, what is wrong)."""
    dyncomp.reset()
    fast = dyncomp.optimize(model, backend=backend, dynamic=True if policy == "dynamic" else None)
    made: dict[tuple[str, int], int] = {}
    dyncomp.api.context_of(fast).observers.append(
        lambda record: made.update({(record.filename, record.line): made.get((record.filename, record.line), 0) + 1})
    )
    for given in calls:
        with torch.no_grad():
            want, got = tensors(model(**given)), tensors(fast(**given))
        if len(want) != len(got):
            return 0, 0, f"{len(got)} outputs instead of {len(want)}"
        for mine, theirs in zip(got, want, strict=True):
            if mine.shape != theirs.shape or mine.stride() != theirs.stride() or mine.dtype != theirs.dtype:
                return 0, 0, f"{tuple(mine.shape)} {mine.stride()} instead of {tuple(theirs.shape)} {theirs.stride()}"
            if not torch.allclose(mine, theirs, rtol=1e-3, atol=1e-4, equal_nan=True):
                shapes = [tuple(v.shape) for v in given.values() if isinstance(v, torch.Tensor)]
                return 0, 0, f"{shapes}: off by {(mine - theirs).abs().max():.2e}"
    return max(made.values(), default=0), dyncomp.stats().graph_breaks, ""


def table(names: list[str], run: Callable[[str, str, str], tuple[int, int, str]]) -> int:
    """Prints one line a model, `run(name, policy, backend)`; 1 if one needs too many compiles or differs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=names)
    parser.add_argument("--policy", choices=list(LIMITS), default="default")
    parser.add_argument("--backend", default="codegen")
    options = parser.parse_args()
    bad = 0
    for name in options.models:
        start = time.perf_counter()
        try:
            with warnings.catch_warnings(), config.patch(strict=True, remember_sizes=False, automatic_dynamic=True):
                warnings.simplefilter("ignore")
                compiles, breaks, wrong = run(name, options.policy, options.backend)
        except Exception as error:  # noqa: BLE001  a table of all models
            compiles, breaks, wrong = 0, 0, f"{type(error).__name__}: {error}"[:300]
        bad += bool(wrong) or compiles > LIMITS[options.policy]
        seconds = time.perf_counter() - start
        print(f"{name:12} {compiles:2} compiles {breaks:2} breaks {seconds:5.1f} s  {wrong}", flush=True)
    return 1 if bad else 0
