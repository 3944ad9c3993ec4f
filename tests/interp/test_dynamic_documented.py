"""What torch's documentation of dynamic shapes says of torch.compile holds here: its examples, with our names for the functions."""

import pytest
import torch

import dyncomp
from dyncomp.errors import DyncompError


@pytest.fixture(autouse=True)
def fresh_start(fresh):
    yield


def graphs_of(function, *calls, **options):
    """The sizes (as texts) of each compile's results; every call is compared with eager."""
    seen = []

    def backend(gm, inputs):
        output = next(node for node in gm.graph.nodes if node.op == "output")
        values = [node.meta["example_value"] for node in output.all_input_nodes]
        seen.append([[str(n) for n in v.shape] for v in values if isinstance(v, torch.Tensor)])
        return gm

    fast = dyncomp.optimize(function, backend=backend, **options)
    for args in calls:
        assert torch.equal(fast(*args), function(*args))
    return seen


def test_a_marked_dimension_has_a_name_that_results_are_written_in():
    x = torch.randn(5, 5)
    dyncomp.mark_dynamic(x, 0)
    assert graphs_of(lambda x: torch.cat([x, x]), (x,), (torch.randn(9, 5),)) == [[["2*s0", "5"]]]


def test_sizes_that_cannot_be_equal_are_eagers_error():
    x = torch.randn(5, 5)
    dyncomp.mark_dynamic(x, 0)
    with pytest.raises(RuntimeError, match="must match the size of tensor b"):
        dyncomp.optimize(lambda x: x * torch.cat([x, x]), backend="eager")(x)


def test_an_answer_from_the_first_call_is_a_guard():
    def foo(x, n):
        return x / 2 if n > 5 else x / 3

    calls = [(torch.ones(2), n) for n in (6, 7, 80, 4, 3, 9)]
    assert len(graphs_of(foo, *calls, dynamic=True)) == 2


def test_static_unless_told():
    calls = [(torch.ones(n, 3),) for n in (4, 5, 4)]
    assert len(graphs_of(lambda x: x.sum(0), *calls, dynamic=False)) == 2
    assert len(graphs_of(lambda x: x.sum(0), *calls, dynamic=True)) == 1


def test_zero_and_one_are_special():
    calls = [(torch.ones(n, 3),) for n in (4, 1, 0, 6, 1, 0)]
    assert len(graphs_of(lambda x: x + 1, *calls, dynamic=True)) == 3


def test_marking_needs_no_second_compile_and_keeps_its_bounds():
    x = torch.ones(4, 3)
    dyncomp.mark_dynamic(x, 0, min=2, max=8)
    seen = graphs_of(lambda x: x * 2, (x,), (torch.ones(8, 3),), (torch.ones(2, 3),))
    assert len(seen) == 1
    outside = torch.ones(9, 3)
    dyncomp.mark_dynamic(outside, 0, min=2, max=8)
    with pytest.raises(DyncompError, match="from 2 to 8, but it is 9"):
        dyncomp.optimize(lambda x: x * 2, backend="eager")(outside)


def test_a_fully_constrained_dimension_is_an_error():
    x = torch.ones(4, 3)
    dyncomp.mark_dynamic(x, 0)
    with pytest.raises(DyncompError, match=r"size\(0\) was marked as dynamic, but the program needs it to be 4"):
        dyncomp.optimize(lambda x: x + torch.ones(4, 3), backend="eager")(x)


def test_a_partly_constrained_dimension_passes_unless_the_range_was_given():
    def f(x):
        return x + 1 if x.shape[0] > 3 else x - 1

    x = torch.ones(4, 3)
    dyncomp.mark_dynamic(x, 0)
    assert len(graphs_of(f, (x,), (torch.ones(30, 3),), (torch.ones(2, 3),))) == 2
    y = torch.ones(4, 3, dtype=torch.float64)
    dyncomp.mark_dynamic(y, 0, min=2, max=30)
    with pytest.raises(DyncompError, match="from 2 to 30, but the program holds only from 4 to 30"):
        dyncomp.optimize(f, backend="eager")(y)


def test_two_marked_dimensions_may_turn_out_equal():
    x, y = torch.ones(4, 3), torch.ones(4, 1)
    dyncomp.mark_dynamic(x, 0), dyncomp.mark_dynamic(y, 0)
    assert len(graphs_of(lambda x, y: x * y, (x, y), (torch.ones(7, 3), torch.ones(7, 1)))) == 1


def test_a_marked_dimension_of_size_one_is_an_error():
    x = torch.ones(1, 3)
    dyncomp.mark_dynamic(x, 0)
    with pytest.raises(DyncompError, match="0 and 1 are always special"):
        dyncomp.optimize(lambda x: x.sum(), backend="eager")(x)


def test_several_dimensions_and_negative_ones():
    x = torch.ones(4, 3, 6)
    dyncomp.mark_dynamic(x, (0, -1))
    seen = graphs_of(lambda x: x * 2, (x,), (torch.ones(5, 3, 2),))
    assert seen == [[["s0", "3", "s1"]]]


def test_static_has_the_lower_precedence():
    for first in ("dynamic", "static"):
        x = torch.ones(4, 3)
        dyncomp.mark_dynamic(x, 0) if first == "dynamic" else dyncomp.mark_static(x)
        dyncomp.mark_static(x) if first == "dynamic" else dyncomp.mark_dynamic(x, 0)
        assert graphs_of(lambda x: x * 2, (x,), (torch.ones(5, 3),), dynamic=True) == [[["s0", "3"]]]


def test_unbacked_is_neither_zero_nor_one_when_asked_and_takes_both():
    x = torch.ones(4, 3)
    dyncomp.mark_unbacked(x, 0)
    calls = [(x,), (torch.ones(0, 3),), (torch.ones(1, 3),), (torch.ones(9, 3),)]
    assert len(graphs_of(lambda x: x * 2 + 1, *calls)) == 1


def test_unbacked_calls_add_up_and_have_bounds():
    x = torch.ones(4, 3)
    dyncomp.mark_unbacked(x, 0, min=2, max=16)
    dyncomp.mark_unbacked(x, 1)
    seen = graphs_of(lambda x: x * 2 if x.shape[0] < 17 else x, (x,), (torch.ones(16, 1),), (torch.ones(2, 5),))
    assert seen == [[["u0", "u1"]]]
    y = torch.ones(1, 3)
    dyncomp.mark_unbacked(y, 0, min=2)
    with pytest.raises(DyncompError, match="marked as unbacked from 2"):
        dyncomp.optimize(lambda x: x * 2, backend="eager")(y)


def test_the_value_of_an_unbacked_dimension_cannot_be_asked():
    x = torch.ones(4, 3)
    dyncomp.mark_unbacked(x, 0)
    with pytest.raises(DyncompError, match="known at run time only"):
        dyncomp.optimize(lambda x: x * 2 if x.shape[0] == 7 else x, backend="eager", fullgraph=True)(x)
