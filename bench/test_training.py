"""Training steps of whole models: eager, dyncomp, torch.compile in one run; and the first step in a fresh process."""

import copy
import os
import pathlib
import re
import subprocess
import sys

import pytest
import torch
from conftest import record
from training_models import MODELS, make, step

import dyncomp

SCRIPT = pathlib.Path(__file__).with_name("first_training_step.py")


def relative_difference(module, reference):
    """Largest difference of a gradient, in units of the largest element of that gradient."""
    worst = 0.0
    for mine, other in zip(module.parameters(), reference.parameters(), strict=True):
        scale = other.grad.abs().max().item()
        worst = max(worst, (mine.grad - other.grad).abs().max().item() / scale if scale else 0.0)
    return worst


@pytest.mark.parametrize("name", MODELS)
def test_training_step(compare, peer, name):
    module, inputs = make(name)
    reference = copy.deepcopy(module)
    dyncomp.reset()
    fast = dyncomp.optimize(module)
    torch.manual_seed(1)
    step(reference, reference, inputs)
    torch.manual_seed(1)
    step(fast, module, inputs)
    difference = relative_difference(module, reference)
    stats = dyncomp.stats()
    assert difference <= 1e-3, difference
    assert (stats.graphs, stats.graph_breaks) == (1, 0), stats
    sides = {"eager": reference, "dyncomp": fast}
    if peer:
        sides["torch.compile"] = torch.compile(reference)
    modules = {"eager": reference, "dyncomp": module, "torch.compile": reference}
    compare(
        name,
        {side: lambda call=call, m=modules[side]: step(call, m, inputs) for side, call in sides.items()},
        rounds=15,
        difference=difference,
        kernels=stats.kernels,
    )


def first_step(side, case, folder):
    env = dict(os.environ, DYNCOMP_CACHE_DIR=str(folder / "ours"), TORCHINDUCTOR_CACHE_DIR=str(folder / "theirs"))
    command = [sys.executable, str(SCRIPT), side, case]
    out = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    return float(re.search(r"SECONDS (\S+)", out).group(1))


@pytest.mark.parametrize("name", MODELS)
def test_first_step(name, peer, tmp_path, benchmark):
    sides = ["dyncomp", "torch.compile"] if peer else ["dyncomp"]
    cold, warm = {}, {}
    for side in sides:
        folder = tmp_path / side
        folder.mkdir()
        cold[side] = first_step(side, name, folder)
        warm[side] = first_step(side, name, folder)
    benchmark.group = f"first training step, {name}"
    benchmark.pedantic(lambda: first_step("dyncomp", name, tmp_path / "dyncomp"), rounds=1)
    record(__name__, f"{name}, first step, empty caches", cold)
    record(__name__, f"{name}, first step, second process", warm)
