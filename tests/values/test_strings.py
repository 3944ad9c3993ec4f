"""Methods of strings with arguments that are no constants as they stand."""

import pytest
import torch

import dyncomp


def of_a_map(x):
    return ".".join(map(str, x.shape)), x + 1


def of_a_generator(x):
    return ".".join(str(size) for size in x.shape), x + 1


def of_bytes(x):
    return b"-".join(iter([b"a", b"b"])), x + 1


def leaves_nothing(x):
    parts = map(str, (1, 2))
    return ".".join(parts), list(parts), x + 1


def of_numbers(x):
    try:
        return ".".join(map(int, x.shape))
    except TypeError as error:
        return str(error), x + 1


@pytest.mark.parametrize("function", [of_a_map, of_a_generator, of_bytes, leaves_nothing, of_numbers])
def test_join_of_an_iterator(fresh, function):
    x = torch.ones(3, 4)
    expected, found = function(x), dyncomp.optimize(function, fullgraph=True)(x)
    assert found[:-1] == expected[:-1]
    assert torch.equal(found[-1], expected[-1])
    assert dyncomp.stats().graphs == 1
