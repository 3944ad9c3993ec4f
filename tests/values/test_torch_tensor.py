"""Tensors in captured code: metadata, operators, indexing, in-place methods, iteration, breaks."""

import operator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dyncomp
from tests.support import assert_same, check


def eager(function, *args, **kwargs):
    return check(function, *args, backend="eager", **kwargs)


X, Y = torch.randn(3, 4), torch.randn(3, 4)

PROGRAMS = {
    "sizes": lambda x: x.reshape(x.shape[1], x.size(0)) * x.dim() + x.numel(),
    "size_tuple": lambda x: x.new_zeros(x.size()) + x.stride(0) + len(x.shape),
    "negative_size": lambda x: x * x.size(-1),
    "dtype_branch": lambda x: x + 1 if x.dtype == torch.float32 else x - 1,
    "device": lambda x: torch.ones(2, device=x.device) * x[0, 0],
    "is_cuda": lambda x: x.cuda() if x.is_cuda else x * 2,
    "predicates": lambda x: (
        x * (2 if x.is_floating_point() and x.is_contiguous() and not x.is_complex() else 3)
    ),
    "transposes": lambda x: x.T + x.mT + x.transpose(0, 1),
    "data": lambda x: x.data * 2,
    "nbytes": lambda x: x * (x.nbytes + x.itemsize + x.element_size()),
    "reflected": lambda x: 1 - x + 2 / x + 2**x + (3 // x) + 5 % x,
    "comparisons": lambda x: (x > 0) & (x <= 1) | (x == 0) ^ (x != 2),
    "unary": lambda x: -x + (+x) + abs(x) + (~(x > 0)).float(),
    "matmul": lambda x: x @ x.t(),
    "compare_with_none": lambda x: x + (1 if x == None else 2),  # noqa: E711
    "integer_index": lambda x: x[1] + x[-1, 2],
    "slices": lambda x: x[:, 1:3] + x[..., ::2] + x[0:3:1, None].sum(),
    "list_index": lambda x: x[[0, 2]] + x[torch.tensor([1, 0])],
    "mask_assignment": lambda x: x.masked_fill(x > 0, 1.5),
    "unpack": lambda x: sum(x) + x[0] * len(x),
    "iterate": lambda x: [row * i for i, row in enumerate(x)],
    "star": lambda x: torch.stack([*x]),
    "split": lambda x: torch.cat(x.split(2, dim=1), 0) + torch.cat(x.chunk(2, 1), dim=0),
    "named_results": lambda x: x.max(dim=1).values + x.min(1)[0] + x.sort().indices[:, 0],
    "method_value": lambda x: (lambda f: f(1))(x.add),
    "unbound_method": lambda x: torch.Tensor.add(x, 1) + torch.Tensor.__mul__(x, 2),
    "call_dunder": lambda x: x.__add__(1).__rsub__(2),
    "call_reflected": lambda x: [x.__rdiv__(x + 3), x.__rsub__(x * 2), (x.abs() + 1).__rpow__(x.abs()), x.__rfloordiv__(x + 9)],
    "to": lambda x: x.to(torch.float64).to("cpu", torch.float16).type(torch.float32) + x.double().float(),
    "type_name": lambda x: x * len(x.type()),
    "isinstance": lambda x: x * 2 if isinstance(x, torch.Tensor) and type(x) is torch.Tensor else x,
    "not_parameter": lambda x: x * 2 if isinstance(x, torch.nn.Parameter) else x * 3,
    "legacy_isinstance": lambda x: x * 2 if isinstance(x, torch.FloatTensor) else x * 3,
    "grad_is_none": lambda x: x * 2 if x.grad is None and x.grad_fn is None and x.is_leaf else x,
    "hasattr": lambda x: x * (2 if hasattr(x, "shape") and not hasattr(x, "nothing") else 3),
    "getattr_default": lambda x: x * getattr(x, "nothing", 3),
    "as_dict_key": lambda x: {x: 1}[x] + x,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    eager(PROGRAMS[name], X)


def test_in_place_keeps_aliases():
    def f(x, y):
        z = x * 1
        w = z.add_(y)
        z += 1
        v = z[0]
        v.mul_(2)
        return w, z, w is z, v

    eager(f, X, Y)


def test_input_mutation_is_seen():
    def f(x, y):
        x.add_(y)
        x[0] = 0.0
        x[:, 1] += 2
        return x * 2

    eager(f, X, Y)


def test_returned_input_is_the_same_object():
    fast = dyncomp.optimize(lambda x: (x.add_(1), x), backend="eager")
    x = torch.zeros(2)
    first, second = fast(x)
    assert first is x and second is x


def test_no_op_methods_return_the_same_object():
    def f(x):
        return x.contiguous() is x, x.to(torch.float32) is x, x.float() is x, x + 1

    eager(f, X)


def test_same_tensor_twice_is_one_input():
    def f(x, y):
        x.add_(1)
        return x + y, x is y

    fast = dyncomp.optimize(f, backend="eager")
    for _ in range(2):
        t, u = torch.ones(2), torch.ones(2)
        assert fast(t, t)[1] is True
        assert torch.equal(fast(t, t)[0], t * 2)
        assert fast(t, u)[1] is False
    assert dyncomp.stats().graphs >= 2


def test_views_of_one_tensor_do_not_share_the_graph_of_separate_ones():
    def f(x, y):
        x.add_(1)
        return x * y

    fast = dyncomp.optimize(f, backend="aot_eager")
    for arguments in (
        lambda: (torch.ones(2), torch.ones(2)),
        lambda: (lambda t: (t[:2], t[1:]))(torch.ones(3)),
    ):
        for _ in range(2):
            assert torch.equal(fast(*arguments()), f(*arguments()))


def test_shapes_are_guarded():
    fast = eager(lambda x: x * x.shape[0], X, breaks=0)
    for shape in ((2, 4), (5,), (3, 4)):
        x = torch.randn(shape)
        assert torch.equal(fast(x), x * shape[0])


def test_errors_of_the_program_are_raised():
    eager(lambda x: x @ x, X, graphs=None, breaks=None)
    eager(lambda x: x[5], X, graphs=None, breaks=None)
    eager(lambda x: len(x[0, 0]), X, graphs=None, breaks=None)


def test_errors_of_the_program_can_be_caught():
    def f(x):
        try:
            return x @ x
        except RuntimeError:
            return x * 2

    eager(f, X)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x + 1 if x.sum() > 0 else x - 1, "data-dependent-branch"),
        (lambda x: x * x.sum().item(), "data-dependent-value"),
        (lambda x: x * float(x.sum()), "data-dependent-value"),
        (lambda x: x * len(x.tolist()), "data-dependent-value"),
        (lambda x: x[x > 0] * 2, "data-dependent-shape"),
        (lambda x: x.nonzero() * 2, "data-dependent-shape"),
    ],
)
def test_values_break_the_graph(function, reason):
    dyncomp.reset()
    eager(function, X, graphs=None, breaks=None)
    assert reason in dyncomp.stats().break_reasons


def test_subclasses_run_as_python():
    class Mine(torch.Tensor):
        pass

    dyncomp.reset()
    x = torch.ones(2).as_subclass(Mine)
    assert type(dyncomp.optimize(lambda x: x + 1, backend="eager")(x)) is Mine
    assert "tensor-subclass" in dyncomp.stats().break_reasons


binary = st.sampled_from(
    [operator.add, operator.sub, operator.mul, operator.truediv, torch.maximum, torch.pow]
)
operand = st.sampled_from(["x", "y", 2, 0.5, True])


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(binary, operand, operand), min_size=1, max_size=5))
def test_any_chain_of_operators(chain):
    def f(x, y):
        total = x
        for op, left, right in chain:
            a = {"x": x, "y": y}.get(left, left) if isinstance(left, str) else left
            b = {"x": x, "y": y}.get(right, right) if isinstance(right, str) else right
            if op in (torch.maximum, torch.pow):
                a, b = torch.as_tensor(a), torch.as_tensor(b)
            total = total + op(a, b)
        return total

    eager(f, X.abs() + 1, Y, calls=1, graphs=None, breaks=None)


def test_requires_grad_that_changes_nothing(fresh):
    """Of what requires a gradient already, or none, the method gives the tensor itself; others break."""

    def function(x, w, on):
        h = (x * w).requires_grad_()
        assert h.requires_grad_(True) is h
        return h.sin() + x.requires_grad_(False) + w.detach().requires_grad_(requires_grad=on)

    fast = dyncomp.optimize(function)
    for on, breaks in ((False, 0), (True, 1)):
        ours, theirs = X.clone().requires_grad_(), X.clone().requires_grad_()
        got, want = fast(X.clone(), ours, on), function(X.clone(), theirs, on)
        got.sum().backward()
        want.sum().backward()
        assert_same([got, ours.grad], [want, theirs.grad])
        assert bool(dyncomp.stats().graph_breaks) == bool(breaks)


def test_data_that_is_written_in_place(fresh):
    """`p.data -= g` assigns the tensor that it wrote to: the memory is the same, and so is the version of p."""

    def function(p, q, x):
        h = p * x
        p.data -= 0.5 * x
        q.data *= p.data
        q.data[0] += 1
        return h.sum() + q.sum()

    def run(call):
        p, q = X.clone().requires_grad_(), Y.clone().requires_grad_()
        address, seen = p.data_ptr(), []
        for step in range(3):
            loss = call(p, q, X * step)
            loss.backward()
            seen += [loss, p, q, p.grad, q.grad, p._version, p.data_ptr() == address]
            p.grad = q.grad = None
        return seen

    assert_same(run(dyncomp.optimize(function)), run(function))
    assert dyncomp.stats().graph_breaks == 0


def test_data_of_another_tensor(fresh):
    def function(p, x):
        p.data = p.data - x
        return p.sum()

    def run(call):
        p = X.clone().requires_grad_()
        for _ in range(2):
            call(p, Y).backward()
        return p, p.grad

    assert_same(run(dyncomp.optimize(function)), run(function))
    assert dyncomp.stats().break_reasons["unsupported-mutation"]


def test_data_of_a_neighbour(fresh):
    """Views of one memory may start elsewhere in the next call."""

    def function(p, q):
        p.data = q.data
        return p * 2

    def run(call):
        base = torch.arange(12.0)
        seen = []
        for first, second in ((0, 0), (0, 4), (4, 8), (4, 4)):
            p, q = base[first : first + 4], base[second : second + 4]
            seen += [call(p, q), p, p.data_ptr() == q.data_ptr()]
        return seen

    assert_same(run(dyncomp.optimize(function)), run(function))
