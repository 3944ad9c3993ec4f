"""What programs do with the results of compiled calls and their history besides `backward()`: hooks that raise or run backwards of
their own, threads, hooks on several tensors and on nodes, hooks on saved tensors, what is written or dies before the backward."""

import copy
import gc
import io
import pickle
import threading
import weakref

import pytest
import torch
from torch.autograd.graph import register_multi_grad_hook, save_on_cpu, saved_tensors_hooks

import dyncomp
from tests.train.train_checks import same_story

BACKENDS = pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
PROGRAMS = {}


def r(*shape):
    return torch.randn(*shape, requires_grad=True)


def net(x, w):
    return torch.tanh(x @ w).relu() * 2


def three(x, w):
    return x.sin(), (w * 2).cos(), (x * w).exp()


def program(story):
    PROGRAMS[story.__name__] = story
    return story


@program
def hook_raises(compiled):
    x, w, told = r(3, 3), r(3, 3), []
    v = x * 1

    def hook(g):
        if not told:
            told.append("raised")
            raise ValueError("no")

    v.register_hook(hook)
    y = compiled(net)(v, w).sum()
    for _ in range(2):
        try:
            y.backward()
        except (ValueError, RuntimeError) as error:
            told.append(str(error))
    return told, w.grad


@program
def backward_inside_of_a_hook(compiled):
    fast, x, w, told = compiled(net), r(3, 3), r(3, 3), []
    v = x * 1
    other = fast(v, w).sum()

    def hook(g):
        told.extend(torch.autograd.grad(other, w, retain_graph=True))
        return g * 2

    y = fast(v * 2, w)
    y.register_hook(hook)
    y.sum().backward(retain_graph=True)
    other.backward()
    return told, x.grad, w.grad


@program
def threads(compiled):
    fast, x, w = compiled(three), r(8), r(8)
    total = sum(one.sum() for one in fast(x, w))
    found = [None] * 8

    def one(i):
        if i % 2:
            found[i] = torch.autograd.grad(total, (x, w), retain_graph=True)
        else:
            found[i] = torch.autograd.grad(sum((one * (i + 1)).sum() for one in fast(x, w)), (x, w))

    some = [threading.Thread(target=one, args=(i,)) for i in range(8)]
    for thread in some:
        thread.start()
    for thread in some:
        thread.join()
    return found


@program
def hooks_on_saved_tensors(compiled):
    x, w = r(3, 3), r(3, 3)
    with saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t):
        first = compiled(net)(x, w)
    with save_on_cpu():
        second = compiled(net)(x, w * 2)
    (first.sum() + second.sum()).backward()
    return x.grad, w.grad


@program
def hooks_on_several_tensors(compiled):
    x, w, told = r(3), r(3), []
    a, b, c = compiled(three)(x, w)
    register_multi_grad_hook((a, b, c), lambda gs: told.append([g is None for g in gs]))
    register_multi_grad_hook((x, w), lambda gs: told.append(["inputs", *[g is None for g in gs]]))
    register_multi_grad_hook((a, b, c), lambda g: told.append(["first", g.clone()]), mode="any")
    a.sum().backward(retain_graph=True)
    (a.sum() + b.sum()).backward(retain_graph=True)
    (a * b * c).sum().backward()
    return told, x.grad, w.grad


@program
def hooks_on_nodes(compiled):
    x, w, told = r(3, 3), r(3, 3), []
    y = compiled(net)(x, w)
    node = y.grad_fn
    told += [isinstance(node.name(), str), node is y.grad_fn, y.is_leaf, len(node.metadata)]
    node.register_prehook(lambda gs: (gs[0] * 3,))
    node.register_hook(lambda to, given: told.append(given[0].clone()))
    y.retain_grad()
    y.sum().backward()
    return told, x.grad, w.grad, y.grad, y.retains_grad


@program
def order_of_hooks(compiled):
    x, w, told = r(3), r(3), []
    results = compiled(three)(x, w)
    for i, one in enumerate(results):
        one.register_hook(lambda g, i=i: told.append(i))
        one.retain_grad()
    sum(one.sum() for one in results).backward()
    return told, [one.grad for one in results]


@program
def copies(compiled):
    y, told = compiled(net)(r(3, 3), r(3, 3)), []
    try:
        copy.deepcopy(y)
    except RuntimeError as error:
        told.append(str(error))
    file = io.BytesIO()
    torch.save(y, file)
    file.seek(0)
    for one in (torch.load(file), pickle.loads(pickle.dumps(y))):
        told += [one.detach(), one.requires_grad, one.is_leaf]
    return told


@program
def detached_results(compiled):
    x, w, told = r(3), r(3), []
    a, b, c = compiled(lambda x, w: (x * w, x + 1, x.detach()))(x, w)
    a.detach_()
    told += [a.is_leaf, a.requires_grad, a.grad_fn is None]
    a.requires_grad_()
    c.requires_grad_()
    try:
        b.requires_grad_(False)
    except RuntimeError as error:
        told.append(str(error))
    (a * b * c).sum().backward()
    return told, a.grad, c.grad, x.grad, w.grad


@program
def results_written(compiled):
    x, w = r(3), r(3)
    a, b = compiled(lambda x, w: (x * w, (x * w).exp()))(x, w)
    a.mul_(3)
    a.sum().backward(retain_graph=True)
    b.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        b.sum().backward()
    return x.grad


@program
def parts_of_the_inputs(compiled):
    x, w, told = r(3, 3), r(3, 3), []
    total = compiled(lambda x, w: net(x, w).sum() + (x * 2).sum())(x, w)
    total.backward(inputs=[w], retain_graph=True)
    told += [x.grad, w.grad.clone()]
    total.backward(inputs=[x])
    (gradient,) = torch.autograd.grad(compiled(net)(x, w).sum(), x, create_graph=True)
    gradient.square().sum().backward(inputs=[w])
    return told, x.grad, w.grad


@program
def inputs_one_after_the_other(compiled):
    """What the first backward does not come to is there for the second."""
    x, w = r(3), r(3)
    total = compiled(lambda x, w: x.exp().sum() + w.sin().sum())(x, w)
    return torch.autograd.grad(total, x), torch.autograd.grad(total, w)


@program
def no_gradient_for_what_is_not_reached(compiled):
    x, w, u = r(3), r(3), r(3)
    y, z = compiled(lambda x, w, u: ((x * w).sum(), u.sum()))(x, w, u)
    told = [torch.autograd.grad(y, (x, u), materialize_grads=True, retain_graph=True)]
    told.append(torch.autograd.grad(y, (x, u), allow_unused=True))
    try:
        torch.autograd.grad(z, (x,))
    except RuntimeError as error:
        told.append(str(error))
    return told


@program
def expanded_input_written(compiled):
    x, w = r(1), r(3)
    v = (x * 1).expand(3)

    def f(v, w):
        v.zero_()
        return v * w

    return compiled(f)(v, w).detach(), v.detach().clone()


@BACKENDS
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, backend):
    same_story(
        PROGRAMS[name],
        backend,
        fallbacks=("double-backward-eager", "training-graph-eager", "aot: an in-place write to a tensor whose"),
    )


@pytest.mark.parametrize("backend", ["aot_eager", "codegen"])
def test_what_only_dead_results_need_goes(backend):
    fast = dyncomp.optimize(lambda x, a, w: (((x * w).exp()).sum(), (a * w).sum()), backend=backend)
    w, x, a = r(3), torch.randn(3), torch.randn(3)
    first, second = fast(x, a, w)
    kept = [weakref.ref(x), weakref.ref(a)]
    del x, a
    first.backward()
    del second
    gc.collect()
    assert [one() for one in kept] == [None, None]
