"""What special methods may return, and what a class says that takes one back: the errors are CPython's, in its words."""

import pytest
import torch

import dyncomp


class BoolTakenBack:
    __bool__ = None

    def __len__(self):
        return 1


class BoolIsInt:
    def __bool__(self):
        return 1


class NegativeLength:
    def __len__(self):
        return -1


class FractionalLength:
    def __len__(self):
        return 2.5


class HugeLength:
    def __len__(self):
        return 2**80


class TrueLength:
    def __len__(self):
        return True


class ContainsTakenBack:
    __contains__ = None

    def __iter__(self):
        return iter([1])


class IterTakenBack:
    __iter__ = None

    def __getitem__(self, i):
        raise IndexError


class HashIsText:
    def __hash__(self):
        return "a"


class HashIsLarge:
    def __init__(self, n):
        self.n = n

    def __hash__(self):
        return self.n


class IndexIsFloat:
    def __index__(self):
        return 2.5


class IndexIsTwo:
    def __index__(self):
        return 2


class TextIsNumber:
    def __str__(self):
        return 5

    def __format__(self, spec):
        return 5


class EqualTakenBack:
    __eq__ = None
    __hash__ = None


class ItemTakenBack:
    __getitem__ = None


CASES = [
    lambda: bool(BoolTakenBack()),
    lambda: 1 if BoolTakenBack() else 2,
    lambda: not BoolIsInt(),
    lambda: bool(NegativeLength()),
    lambda: len(NegativeLength()),
    lambda: len(FractionalLength()),
    lambda: len(HugeLength()),
    lambda: len(TrueLength()),
    lambda: 1 in ContainsTakenBack(),
    lambda: 1 in IterTakenBack(),
    lambda: list(IterTakenBack()),
    lambda: hash(HashIsText()),
    lambda: [hash(HashIsLarge(n)) for n in (-1, 5, 2**61 - 1, 2**70, True)],
    lambda: [1, 2, 3][IndexIsFloat()],
    lambda: [1, 2, 3][IndexIsTwo()],
    lambda: str(TextIsNumber()),
    lambda: f"{TextIsNumber()}",
    lambda: EqualTakenBack() == 1,
    lambda: ItemTakenBack()[0],
    lambda: [1] * 1.5,
    lambda: [1] * IndexIsTwo(),
    lambda: IndexIsTwo() * (1, 2),
    lambda: [1] * IndexIsFloat(),
    lambda: [1, 2][::0],
    lambda: vars(1),
    lambda: range(IndexIsFloat()),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_results_of_special_methods(fresh, case):
    expression = CASES[case]

    def f(x):
        y = x + 1
        try:
            return y, "ok", expression()
        except Exception as error:  # noqa: BLE001 - whatever it raises is what is compared
            return y, type(error).__name__, str(error)

    x = torch.ones(2)
    fast = dyncomp.optimize(f, backend="eager")
    for _ in range(2):
        assert fast(x)[1:] == f(x)[1:]
    assert dyncomp.stats().graphs == 1
