"""Training steps of whole models: eager, dyncomp, torch.compile in one run; in fresh processes the first step and peak memory."""

import copy
import os
import pathlib
import re
import statistics
import subprocess
import sys

import pytest
import torch
from conftest import record
from training_models import MODELS, make, step

import dyncomp

SCRIPT = pathlib.Path(__file__).with_name("first_training_step.py")
MEMORY = pathlib.Path(__file__).with_name("training_memory.py")


def relative_difference(module, reference):
    """Median over the parameters of how far apart two gradients are, in units of the gradient's norm."""
    pairs = zip(module.parameters(), reference.parameters(), strict=True)
    return statistics.median(((m.grad - r.grad).norm() / r.grad.norm()).item() for m, r in pairs)


def nudged(module):
    """A copy whose weights are off by up to one rounding: the gradients of ResNet-50 with random weights move by some
    percent then, and those of eager are as far from the ones in float64."""
    other = copy.deepcopy(module)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in other.parameters():
            p.mul_(1 + (torch.rand(p.shape, generator=generator) - 0.5) * 2.0**-22)
    return other


@pytest.mark.parametrize("name", MODELS)
def test_training_step(compare, peer, name):
    module, inputs = make(name)
    reference, other = copy.deepcopy(module), nudged(module)
    dyncomp.reset()
    fast = dyncomp.optimize(module)
    torch.manual_seed(1)
    step(reference, reference, inputs)
    torch.manual_seed(1)
    step(other, other, inputs)
    torch.manual_seed(1)
    step(fast, module, inputs)
    noise = relative_difference(other, reference)
    difference = relative_difference(module, reference)
    stats = dyncomp.stats()
    assert difference <= max(1e-3, 2 * noise), (difference, noise)
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


@pytest.mark.parametrize("optimizer", ["none", "adamw"])
@pytest.mark.parametrize("name", MODELS)
def test_peak_memory(name, optimizer, tmp_path, benchmark):
    """Resident bytes at the worst moment of five steps, that of compiling among them."""

    def peak(side):
        env = dict(os.environ, DYNCOMP_CACHE_DIR=str(tmp_path))
        command = [sys.executable, str(MEMORY), side, name, optimizer]
        out = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
        return int(re.search(r"PEAK (\S+)", out).group(1))

    eager = peak("eager")
    benchmark.group = f"peak memory of training, {name}"
    ours = benchmark.pedantic(lambda: peak("dyncomp"), rounds=1)
    benchmark.extra_info["bytes"] = {"eager": eager, "dyncomp": ours}
    assert ours <= 1.05 * eager, (ours, eager, ours / eager)
