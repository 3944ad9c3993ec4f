"""A small part of the random shape programs in every run; `DYNCOMP_SHAPE_PROGRAMS=2000` runs that many (some twenty minutes).

`python -m tests.programs.run_shape_programs` does the same without stopping at a fault.
"""

import os

import pytest

from tests.programs.run_shape_programs import WAYS, check_program
from tests.programs.shape_programs import make_program
from tests.programs.wide_shape_programs import make_wide_program

COUNT = int(os.environ.get("DYNCOMP_SHAPE_PROGRAMS", "0"))
# Programs that were wrong once, and some others.
SEEDS = range(COUNT) if COUNT else (24, 40, 43, 883, 893, 925, 936, 1647, *range(0, 2000, 125))
IN_KERNELS = (82, 179, 548, 886, 936, 1481)  # wrong once in generated kernels


@pytest.mark.parametrize("way", [way for way in WAYS if COUNT or not (way.endswith("-codegen") or way.startswith("marked"))])
@pytest.mark.parametrize("seed", SEEDS)
def test_program(seed, way):
    check_program(make_program(seed), way)


@pytest.mark.parametrize("way", [way for way in WAYS if way.endswith("-codegen") and not way.startswith("marked")])
@pytest.mark.parametrize("seed", () if COUNT else sorted({*IN_KERNELS, *SEEDS[::5]}))
def test_program_in_kernels(seed, way):
    check_program(make_program(seed), way)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("way", ["dynamic-aot_eager", "automatic-aot_eager", "marked-aot_eager"])
@pytest.mark.parametrize("seed", range(COUNT) if COUNT else (88, 211, 305, *range(0, 2000, 400)))
def test_wide_program(seed, way, gradients):
    check_program(make_wide_program(seed), way, gradients)


@pytest.mark.parametrize("seed, way", [(77, "automatic-codegen"), (153, "marked-codegen"), (305, "dynamic-codegen"), (333, "automatic-codegen")])
def test_wide_program_in_kernels(seed, way):
    check_program(make_wide_program(seed), way, gradients=seed == 153)


def test_the_same_seed_is_the_same_program():
    first, second = make_program(7), make_program(7)
    assert first.source == second.source
    assert len(first.make_calls()) == 5
