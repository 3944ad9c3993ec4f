"""Objects of typing in captured code, and generic aliases that are called."""

import typing
from typing import Callable, Dict, List, Optional, Tuple  # noqa: UP035

import pytest
import torch

import dyncomp

Alias = list[int]


def annotated(x):
    return torch.jit.annotate(List[torch.Tensor], []), x + 1  # noqa: UP006


def compared(x):
    return Optional[int] == Optional[int], str(Dict[str, int]), Tuple[int, ...] is Tuple[int, ...], x + 1  # noqa: UP006, UP045


def callables(x):
    return Callable[[int], str] == Callable[[int], str], List == List, Optional == List, x + 1  # noqa: UP006


def asked(x):
    return isinstance([1], List), isinstance((1,), typing.Sequence), issubclass(list, List), x + 1  # noqa: UP006


def origin(x):
    return List.__origin__, typing.get_origin(List[int]), typing.get_args(Dict[str, int]), x + 1  # noqa: UP006


def cast(x):
    return typing.cast(List[torch.Tensor], [x])[0] + 1  # noqa: UP006


def called(x):
    return list[int]((1, 2)), dict[str, int](a=1), tuple[int, ...]([1]), type[int] == type[int], x + 1


def called_in_a_try(x):
    try:
        return Alias((1, 2)), x + 1
    except TypeError as error:
        return str(error), x + 1


@pytest.mark.parametrize(
    "function", [annotated, compared, callables, asked, origin, cast, called, called_in_a_try]
)
def test_one_graph(fresh, function):
    x = torch.ones(2)
    compiled = dyncomp.optimize(function, fullgraph=True)
    for _ in range(2):
        assert str(compiled(x)) == str(function(x))
    assert dyncomp.stats().graphs == 1


def test_a_bare_static_method_is_called(fresh):
    class Holder:
        @staticmethod
        def double(value):
            return value * 2

    def program(x):
        try:
            return vars(Holder)["double"](x)
        except TypeError:
            return x

    x = torch.ones(2)
    assert torch.equal(dyncomp.optimize(program)(x), program(x))
