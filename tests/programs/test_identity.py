"""`a is b` of two arguments, asked anew in each call: equal values are one object in one call and two in the next."""

import pytest
import torch

import dyncomp

MAKERS = {
    "tuple": lambda: tuple([1, 2]),
    "tuple-of-tensors": lambda: tuple([ONES, ONES]),
    "list": lambda: [1],
    "dict": lambda: {"a": 1},
    "set": lambda: {1},
    "frozenset": lambda: frozenset([1, 2]),
    "range": lambda: range(3),
    "slice": lambda: slice(1, 3),
    "size": lambda: torch.Size([2, 3]),
    "str": lambda: "".join(["some", " text"]),
    "int": lambda: int("1000000"),
    "float": lambda: float("2.5"),
}
ONES = torch.ones(2)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", MAKERS)
def test_one_object_or_two(fresh, name, dynamic):
    def tell(x, a, b):
        return x + 1 if a is b else x - 1

    fast = dyncomp.optimize(tell, backend="eager", dynamic=dynamic)
    one, other = MAKERS[name](), MAKERS[name]()
    pairs = [(one, one), (one, other), (one, one), (other, one), (other, other)]
    assert [fast(ONES, *pair).tolist() for pair in pairs] == [tell(ONES, *pair).tolist() for pair in pairs]


def test_a_range_handed_on_is_the_one_of_this_call(fresh):
    fast = dyncomp.optimize(lambda x, steps: (x + sum(steps), steps, [steps]), backend="eager")
    for steps in (range(3), range(3), range(4)):
        total, same, listed = fast(ONES, steps)
        assert same is steps and listed[0] is steps
        torch.testing.assert_close(total, ONES + sum(steps))
