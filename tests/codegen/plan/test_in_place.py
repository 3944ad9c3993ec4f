"""Kernels that write new values of inputs straight into their memory, and when they must not."""

import pytest
import torch

import dyncomp


def compile_plain(function, *inputs):
    """Runs `function` compiled on copies; returns (results, inputs after, names of the plan's instructions)."""
    names = []
    from dyncomp.codegen import compile as generator

    real = generator.load

    def load(data, *rest):
        names.extend(instruction[0] for instruction in data.code)
        return real(data, *rest)

    copies = [t.clone() for t in inputs]
    generator.load = load
    try:
        results = dyncomp.optimize(function)(*copies)
    finally:
        generator.load = real
    return results, copies, names


def check(function, *inputs, in_place):
    expected_inputs = [t.clone() for t in inputs]
    expected = function(*expected_inputs)
    results, after, names = compile_plain(function, *inputs)
    torch.testing.assert_close(results, expected)
    torch.testing.assert_close(after, expected_inputs)
    assert names.count("write_through") == in_place
    assert names.count("write_back") == sum(
        not torch.equal(a, b) for a, b in zip(inputs, expected_inputs, strict=True)
    ) - in_place
    return after


def add(x, y):
    x.add_(y)


X, Y = torch.arange(12.0).reshape(3, 4), torch.linspace(-1, 1, 12).reshape(3, 4)


def test_a_value_is_written_where_it_belongs(fresh):
    check(lambda x, y: x.mul_(2).add_(y), X, Y, in_place=1)


def test_several_inputs_of_one_kernel(fresh):
    def step(p, g, m):
        m.mul_(0.9).add_(g)
        p.sub_(m * 0.1)

    check(step, X, Y, Y + 1, in_place=2)


def test_the_old_value_is_read_before_it_is_written(fresh):
    def swap(x, y):
        old = x.clone()
        x.copy_(y * 1.5)
        y.copy_(old + 1)

    expected = [X.clone(), Y.clone()]
    swap(*expected)
    _, after, _ = compile_plain(swap, X, Y)
    torch.testing.assert_close(after, expected)


def test_a_later_reader_of_the_old_value(fresh):
    def step(x, y):
        old = x.sum(0)
        x.add_(y)
        return old, x.t() @ y

    expected = [X.clone(), Y.clone()]
    wanted = step(*expected)
    results, after, _ = compile_plain(step, X, Y)
    torch.testing.assert_close(results, wanted)
    torch.testing.assert_close(after, expected)


def test_another_element_is_read(fresh):
    def step(x):
        x.copy_(x.flip(0) * 2)

    check(step, X, in_place=0)


def test_another_layout(fresh):
    def step(x, y):
        x.copy_((y.t().contiguous() + 1).t())

    check(step, X, Y, in_place=1)


def test_results_that_show_the_new_value(fresh):
    def step(x, y):
        x.add_(y)
        return x * 2, x

    results, after, _ = compile_plain(step, X, Y)
    torch.testing.assert_close(results[0], (X + Y) * 2)
    assert results[1] is after[0]
    torch.testing.assert_close(after[0], X + Y)


def test_a_graph_that_raises_has_not_written(fresh):
    def step(x, index, table):
        x.mul_(2)
        return table[index]

    x, table = X.clone(), torch.arange(5.0)
    fast = dyncomp.optimize(step)
    torch.testing.assert_close(fast(x, torch.tensor([1, 2]), table), table[1:3])
    torch.testing.assert_close(x, X * 2)
    with pytest.raises(IndexError):
        fast(x, torch.tensor([7, 2]), table)
    torch.testing.assert_close(x, X * 4)  # eager too had doubled it before it raised


def test_versions_and_shared_memory(fresh):
    def step(x, y):
        x.add_(y)

    fast = dyncomp.optimize(step)
    x = X.clone()
    fast(x, Y)
    version = x._version
    fast(x, Y)
    assert x._version == version + 1
    same = X.clone()
    fast(same, same.view(3, 4))
    torch.testing.assert_close(same, X * 2)


def test_lazily_cloned_memory_stays_apart(fresh):
    fast = dyncomp.optimize(add)
    fast(X.clone(), Y)
    original = X.clone()
    lazy = torch._lazy_clone(original)
    fast(lazy, Y)
    torch.testing.assert_close(original, X)
    torch.testing.assert_close(lazy, X + Y)


def test_inference_tensors_are_refused_before_anything_is_written(fresh):
    fast = dyncomp.optimize(add)
    with torch.inference_mode():
        x = X.clone()
    with pytest.raises(RuntimeError, match=r"[Ii]nference"):
        fast(x, Y)
    torch.testing.assert_close(x, X)
