"""GPT-2 (4 layers) trained with another batch and sequence length in every step: compiles, gradients against eager's.

    python bench/varying_training.py [--policy default|dynamic] [--steps 200] [--compare 20]

Wanted: at most 3 compiles in 200 steps. Every `--compare` steps, and in the first five, the same step is done by eager
from the same parameters and random state, and all gradients are compared. Dropout is on. Exits with 1 if more is
compiled or something differs.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

import torch
from training_models import make, step

import dyncomp
from dyncomp import config

MOST = 3
BATCHES, LENGTHS = range(2, 7), range(8, 65)


def sizes(steps: int) -> list[tuple[int, int]]:
    """(batch, sequence length) of each step; the first three differ in the sequence alone, as padded batches begin."""
    draw = random.Random(0)
    rest = [(draw.choice(BATCHES), draw.choice(LENGTHS)) for _ in range(max(0, steps - 3))]
    return [(4, 64), (4, 48), (4, 56), *rest][:steps]


def gradients(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def difference(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> float:
    """Largest difference of a gradient, by that gradient's largest element; infinite if not the same ones are there."""
    if list(ours) != list(theirs):
        return float("inf")
    found = [(ours[n] - theirs[n]).abs().max() / theirs[n].abs().max().clamp(min=1e-6) for n in theirs]
    return max(float(d) for d in found)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--policy", choices=["default", "dynamic"], default="default")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--compare", type=int, default=20)
    options = parser.parse_args()
    module, _ = make("GPT-2, 4 layers")
    fast = dyncomp.optimize(module, dynamic=True if options.policy == "dynamic" else None)
    made: list[str] = []
    dyncomp.api.context_of(fast).observers.append(
        lambda record: made.append(f"{record.name}: {record.recompile_reason}")
    )
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
    worst, started = 0.0, time.perf_counter()
    for number, (batch, length) in enumerate(sizes(options.steps)):
        ids = torch.randint(0, 50000, (batch, length))
        inputs = {"input_ids": ids, "labels": ids.clone(), "use_cache": False}
        compared = number < 5 or number % options.compare == 0
        if compared:
            torch.manual_seed(number)
            want_loss = step(module, module, inputs).detach()
            want = gradients(module)
        torch.manual_seed(number)
        loss = step(fast, module, inputs).detach()
        if compared:
            off = max(difference(gradients(module), want), float((loss - want_loss).abs() / want_loss.abs()))
            worst = max(worst, off)
            seconds = time.perf_counter() - started
            print(
                f"step {number:3} {(batch, length)}: {len(made)} compiles, off by {off:.1e}, {seconds:.0f} s",
                flush=True,
            )
        optimizer.step()
    stats = dyncomp.stats()
    print("\n".join(made))
    counts = f"{len(made)} compiles in {options.steps} steps, {stats.graph_breaks} breaks"
    print(f"{options.policy}: {counts}, {dict(stats.fallbacks)}")
    return 1 if len(made) > MOST or not worst < 1e-3 else 0


if __name__ == "__main__":
    with config.patch(strict=True, remember_sizes=False):
        sys.exit(main())
