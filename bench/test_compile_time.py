"""First call in a fresh process: with empty caches, and again with the caches that the first one left."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
from conftest import record

SCRIPT = pathlib.Path(__file__).with_name("first_call.py")


def first_call(side, case, folder):
    env = dict(os.environ, DYNCOMP_CACHE_DIR=str(folder / "ours"), TORCHINDUCTOR_CACHE_DIR=str(folder / "theirs"))
    out = subprocess.run(
        [sys.executable, str(SCRIPT), side, case], env=env, capture_output=True, text=True, check=True
    ).stdout
    return float(re.search(r"SECONDS (\S+)", out).group(1)), out


@pytest.mark.parametrize("case", ["sin_cos", "bert"])
def test_first_call(case, peer, tmp_path, benchmark):
    sides = ["dyncomp", "torch.compile"] if peer else ["dyncomp"]
    cold, warm = {}, {}
    for side in sides:
        folder = tmp_path / side
        folder.mkdir()
        cold[side], _ = first_call(side, case, folder)
        warm[side], out = first_call(side, case, folder)
        if side == "dyncomp":
            kernels, cached = map(int, re.search(r"KERNELS (\d+) FROM CACHE (\d+)", out).groups())
            assert kernels == cached, out
    benchmark.group = f"first call, {case}"
    benchmark.pedantic(lambda: first_call("dyncomp", case, tmp_path / "dyncomp"), rounds=1)
    record(__name__, f"{case}, empty caches", cold)
    record(__name__, f"{case}, second process", warm)
