"""Training functions that write to their inputs: data, metadata, through views and aliases, leaves and non-leaves, shared memory."""

import numpy
import pytest
import torch

import dyncomp
from tests.support import assert_same
from tests.train.train_checks import same_story

BACKENDS = pytest.mark.parametrize("backend", ["aot_eager", "codegen"])


def r(*shape, grad=True):
    return torch.randn(*shape, requires_grad=grad)


def seen(*tensors):
    """What can be read off tensors: values and history."""
    return [
        None
        if t is None
        else (t.detach().clone(), t.requires_grad, t.is_leaf, None if t.grad_fn is None else "history")
        for t in tensors
    ]


def written_non_leaf(v, w):
    v.mul_(w)
    return v.sum()


def written_and_returned(v, w):
    v.mul_(w)
    return v


def written_through_view(v, w):
    v[0].mul_(w[0])
    v.t().add_(1)
    return (v * w).sum(), v[1]


def written_without_result(v, w):
    v.add_(w.exp())


def written_by_item(v, w):
    v[:, 1] = w[0] * 2
    return v * 2


def written_under_no_grad(v, w):
    with torch.no_grad():
        v.mul_(2)
    return v * w


def written_through_detach(v, w):
    v.detach().mul_(2)
    return v + w


def read_then_written(v, w):
    y = v * 3
    v.add_(w)
    return y + v


def view_then_written(v, w):
    y = v.view(v.shape)
    v.mul_(w)
    return y


def both_written(v, w):
    v.mul_(2)
    w.add_(v)
    return v + w


NON_LEAF = [written_non_leaf, written_and_returned, written_through_view, written_without_result, written_by_item,
            written_under_no_grad, written_through_detach, read_then_written, view_then_written, both_written]  # fmt: skip


def trained(base, other, results):
    """What is seen of two inputs and of what a function gave for them, and then a backward through all of it."""
    results = results if isinstance(results, tuple | list) else [results]
    told = seen(base, other, *results)
    total = base.sin().sum() + other.cos().sum()
    for result in results:
        total = total if result is None else total + result.sum()
    if total.requires_grad:
        total.backward()
    return told


@BACKENDS
@pytest.mark.parametrize("function", NON_LEAF, ids=lambda f: f.__name__)
def test_non_leaf_inputs(function, backend):
    def story(compiled):
        fast, told = compiled(function), []
        for _ in range(3):
            x, w = r(3, 3), r(3, 3)
            base, other = x * 1, w + 0
            results = fast(base, other)
            told.append(trained(base, other, results))
            told.append(seen(x.grad, w.grad))
        return told

    same_story(story, backend)


@BACKENDS
@pytest.mark.parametrize("function", NON_LEAF, ids=lambda f: f.__name__)
def test_views_as_inputs(function, backend):
    """The input is a view of something that the caller goes on using."""

    def story(compiled):
        fast, told = compiled(function), []
        for _ in range(2):
            x, w = r(6, 3), r(3, 3)
            base, other = x * 1, w + 0
            results = fast(base[::2], other)
            told.append(trained(base, other, results))
            told.append(seen(x.grad, w.grad))
        return told

    same_story(story, backend)


@BACKENDS
@pytest.mark.parametrize("function", NON_LEAF, ids=lambda f: f.__name__)
@pytest.mark.parametrize("first, second", [(True, False), (False, True), (True, True), (False, False)])
def test_leaf_inputs(function, first, second, backend):
    """Leaves that require grad raise; others take up the history."""

    def story(compiled):
        fast, told = compiled(function), []
        for _ in range(2):
            x, w = r(3, 3, grad=first), r(3, 3, grad=second)
            try:
                results = fast(x, w)
            except RuntimeError as error:
                told.append((str(error), seen(x, w)))
                continue
            told.append(trained(x, w, results))
            told.append(seen(x.grad if x.is_leaf else None, w.grad if w.is_leaf else None))
        return told

    same_story(story, backend)


@BACKENDS
def test_written_input_under_no_grad_call(backend):
    def story(compiled):
        fast, told = compiled(written_and_returned), []
        for grad in (True, False, True):
            x, w = r(3), r(3)
            v = x * 1
            with torch.set_grad_enabled(grad):
                y = fast(v, w)
            told.append((seen(v, y), y is v))
            v.sum().backward()
            told.append(seen(x.grad, w.grad))
        return told

    same_story(story, backend)


@BACKENDS
def test_write_then_earlier_saved_value_is_stale(backend):
    """A value that eager saved before our write raises in backward."""

    def story(compiled):
        x = r(3)
        v = x.exp()
        y = compiled(written_non_leaf)(v, torch.full((3,), 2.0))
        try:
            y.backward()
        except RuntimeError as error:
            return "modified by an inplace operation" in str(error)
        return False

    same_story(story, backend)


def back_through(x, v, y):
    """What a backward through both tells: the tensors, its error if it has one, and the gradient."""
    told = [seen(v, y)]
    try:
        (v.sum() + y.sum()).backward()
    except RuntimeError as error:
        told.append(str(error).partition(":")[0])
    return [*told, seen(x.grad)]


@BACKENDS
def test_inputs_that_share_memory(backend):
    def story(compiled):
        told = []
        for function in (written_and_returned, written_under_no_grad, written_through_detach, lambda a, b: a * b + a):
            fast = compiled(function)
            for _ in range(2):
                x = r(4)
                v = x * 1
                y = fast(v[:2], v[2:])
                told += back_through(x, v, y)
        return told

    same_story(story, backend, fallbacks=("inputs-share-memory", "aliased-inputs", "training-graph-eager", "aot: "))


@BACKENDS
def test_overlapping_inputs(backend):
    def story(compiled):
        told = []
        for function in (written_and_returned, lambda a, b: a * b.sin()):
            fast = compiled(function)
            for _ in range(2):
                x = r(4)
                v = x * 1
                try:
                    y = fast(v[:3], v[1:])
                except RuntimeError as error:
                    told.append(str(error))
                    continue
                told += back_through(x, v, y)
        return told

    same_story(story, backend, fallbacks=("inputs-share-memory", "aliased-inputs", "training-graph-eager", "aot: "))


@BACKENDS
@pytest.mark.parametrize("grad", [True, False])
def test_two_storages_over_one_memory(backend, grad):
    """Two tensors of one array: no storage, no object tells that they share memory."""

    def function(a, b, w):
        a.add_(1)
        return b * w + a

    def story(compiled):
        fast = compiled(function)
        told = []
        for shared in (False, True, False):
            array = numpy.arange(4.0)
            a, b, w = torch.from_numpy(array), torch.from_numpy(array if shared else array.copy()), r(4, grad=grad).double()
            out = fast(a, b, w)
            told.append(seen(a, b, out))
            if grad:
                told.append(seen(*torch.autograd.grad(out.sum(), [w])))
        return told

    same_story(story, backend, fallbacks=("inputs-share-memory", "aliased-inputs"))


@BACKENDS
def test_same_tensor_twice(backend):
    def story(compiled):
        told = []
        for function in (lambda a, b: a * b, written_non_leaf, written_under_no_grad):
            fast = compiled(function)
            for _ in range(2):
                x = r(3)
                v = x * 1
                y = fast(v, v)
                told += back_through(x, v, y)
        return told

    same_story(story, backend, fallbacks=("inputs-share-memory", "aliased-inputs", "training-graph-eager", "aot: "))


@BACKENDS
def test_metadata_of_an_input(backend):
    def turned(x, w):
        x.t_()
        return x @ w

    def squeezed(x, w):
        x.unsqueeze_(0)
        return x * w

    def story(compiled):
        told = []
        for function in (turned, squeezed):
            fast = compiled(function)
            for _ in range(2):
                x, w = r(3, 3, grad=False), r(3, 3)
                y = fast(x, w)
                told.append((seen(x, y), x.shape, x.stride()))
                y.sum().backward()
                told.append(seen(w.grad))
        return told

    same_story(story, backend, fallbacks=("training-graph-eager", "aot: "))


@BACKENDS
def test_requires_grad_set_inside(backend):
    def f(x, w):
        x.requires_grad_()
        return (x * w).sum()

    def story(compiled):
        fast, told = compiled(f), []
        for _ in range(2):
            x, w = r(3, grad=False), r(3)
            y = fast(x, w)
            y.backward()
            told.append(seen(x, x.grad, w.grad))
        return told

    same_story(story, backend, fallbacks=("training-graph-eager", "aot: ", "skipped"))


@BACKENDS
def test_buffers_that_take_up_history(backend):
    """A buffer that a parameter flows into keeps its history in eager; the second backward tells."""

    class Keeps(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(3))
            self.register_buffer("state", torch.zeros(3))

        def forward(self, x):
            self.state.add_(self.w * x)
            return (self.state * self.w).sum()

    def story(compiled):
        module = Keeps()
        fast, told = compiled(module), []
        for _ in range(3):
            y = fast(torch.ones(3))
            try:
                y.backward()
            except RuntimeError as error:
                told.append(str(error).partition(".")[0])
            told.append(seen(module.state, module.w.grad))
            module.state = module.state.detach()
        return told

    same_story(story, backend)


def written_behind_a_block(x, w, kind):
    y = x * w
    with torch.no_grad():
        w.data_ptr()  # breaks the graph: the rest begins without gradients
    if kind == "method":
        y.sigmoid_()
    elif kind == "item":
        y[0] = w
    elif kind == "view":
        y[1].mul_(w)
    else:
        torch._foreach_mul_([y], 2.0)
    return y


@pytest.mark.parametrize("backend", ["codegen", "aot_eager"])
@pytest.mark.parametrize("kind", ["method", "item", "view", "foreach"])
def test_a_write_in_a_frame_that_begins_without_gradients(kind, backend, fresh):
    found = []
    for side in (dyncomp.optimize(written_behind_a_block, backend=backend), written_behind_a_block):
        x, w = torch.arange(6.0).view(2, 3).requires_grad_(), torch.arange(3.0).add(1).requires_grad_()
        y = side(x, w, kind)
        y.exp().sum().backward()
        found.append((y.detach(), x.grad, w.grad))
    assert_same(*found)


@pytest.mark.parametrize("backend", ["codegen", "aot_eager"])
@pytest.mark.parametrize("part", [lambda b: b[:, 0], lambda b: b[:, 2], lambda b: b.t()[1], lambda b: b[1:, 2:], lambda b: b[2]])
def test_a_written_input_with_gaps_is_kept_with_them(part, backend, fresh):
    """What the backward reads of it is a copy, laid out as the input is."""

    def program(x, w):
        x.mul_(w[0, : x.shape[-1]])
        return (x * x).sum() + (x.exp() * w[1, : x.shape[-1]]).sum()

    found = []
    for side in (dyncomp.optimize(program, backend=backend), program):
        torch.manual_seed(0)
        leaf, w = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
        base = leaf * 1.5
        y = side(part(base), w)
        y.backward()
        found.append((y.detach(), leaf.grad, w.grad, base.detach()))
    assert_same(*found)
