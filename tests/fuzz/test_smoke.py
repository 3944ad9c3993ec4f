"""A few dozen of the random training programs: the search for new ones is `python -m tests.fuzz.training FROM TO`."""

import pytest

from tests.fuzz.programs import make_program
from tests.fuzz.training import check

SEEDS = range(40)


@pytest.mark.parametrize("backend", ["aot_eager", "codegen"])
@pytest.mark.parametrize("seed", SEEDS)
def test_as_in_eager(fresh, seed, backend):
    program = make_program(seed)
    for use, found, _, _ in check(program, backend):
        found = [one for one in found if one[0] not in ("view", "leaf")]
        assert not found, f"{found}\n{program.function}\n{program.uses[use]}"


def test_the_same_seed_gives_the_same_program():
    first, second = make_program(7), make_program(7)
    assert (first.function, first.uses) == (second.function, second.uses)
