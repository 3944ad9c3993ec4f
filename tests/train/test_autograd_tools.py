"""What programs do with results of compiled functions by the tools of torch.autograd: against eager, gradients, what hooks saw, and errors."""

import copy
import io
import pickle
import threading
import warnings

import pytest
import torch
import torch.autograd.forward_ad as fwAD
from torch.autograd import functional, graph
from torch.utils.checkpoint import checkpoint

import dyncomp
from tests.support import assert_same

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def numbers(count=3):
    return torch.linspace(0.1, 0.9, count)


def leaf():
    return numbers().requires_grad_()


def matrices(dtype=torch.float32):
    return (
        numbers(6).to(dtype).reshape(2, 3).requires_grad_(),
        torch.linspace(0.7, 0.2, 6, dtype=dtype).reshape(3, 2).requires_grad_(),
    )


def two(x, w):
    return (x @ w).exp().sum(), (x * 2).sigmoid()


def scalar(x):
    return (x.exp() * x).sum()


def vector(x):
    return x.exp() * x


# ---- gradients of some


@program
def backward_to_some_inputs(C):
    x, w = matrices()
    a, b = C(two)(x, w)
    a.backward(inputs=[x])
    first = x.grad.clone()
    b.sum().backward(inputs=[x])
    return first, x.grad, w.grad


@program
def gradients_of_one_input(C):
    x, w = matrices()
    a, b = C(two)(x, w)
    return torch.autograd.grad(a, w), x.grad, w.grad, torch.autograd.grad(b.sum(), [x, w], allow_unused=True)


@program
def gradient_of_what_is_not_used(C):
    x, w = matrices()
    return torch.autograd.grad(C(two)(x, w)[1].sum(), [w])


@program
def materialized_gradients(C):
    x, w = matrices()
    return torch.autograd.grad(C(two)(x, w)[1].sum(), [x, w], materialize_grads=True)


@program
def gradient_edges(C):
    h, y = leaf() * 2, C(vector)(leaf())
    inside = torch.autograd.grad(C(scalar)(h), graph.get_gradient_edge(h))
    return inside, torch.autograd.grad((y * 2).sum(), graph.get_gradient_edge(y))


@program
def second_backward(C):
    y = C(scalar)(leaf())
    y.backward()
    y.backward()


@program
def gradients_that_do_not_fit(C):
    y, errors = C(vector)(leaf()), []
    for gradient in (None, torch.ones(2), torch.ones(3, dtype=torch.complex64)):
        try:
            y.backward(gradient, retain_graph=True)
        except RuntimeError as error:
            errors.append(str(error))
    return errors


@program
def gradients_of_other_kinds(C):
    x = leaf()
    y = C(vector)(x)
    y.backward(torch.tensor([1.0, 0.0, 2.0]).to_sparse(), retain_graph=True)
    y.backward(torch.ones(3, dtype=torch.double))
    return x.grad


# ---- hooks


@program
def retained_gradients(C):
    x, w = matrices()
    h = x * 2
    a, b = C(two)(h, w)
    total = b.sum() * a
    for one in (h, b, total):
        one.retain_grad()
    total.backward()
    return h.grad, b.grad, total.grad, x.grad, w.grad


@program
def hooks_that_change_gradients(C):
    x, w = matrices()
    h = x * 1
    h.register_hook(lambda g: g * 3)
    a, b = C(two)(h, w)
    a.register_hook(lambda g: g * 2)
    b.register_hook(lambda g: g + 1)
    a.register_hook(lambda g: g * 100).remove()
    (a + b.sum()).backward()
    return x.grad, w.grad


@program
def hooks_of_leaves(C):
    (x, w), seen = matrices(), []
    for name, one in (("x", x), ("w", w)):
        one.register_hook(lambda g, name=name: (seen.append((name, g.clone())), g * 2)[1])
        one.register_post_accumulate_grad_hook(lambda p, name=name: seen.append((name, p.grad.clone())))
    accumulates = x.view_as(x).grad_fn.next_functions[0][0]
    accumulates.register_prehook(lambda gs: seen.append([g.clone() for g in gs]))
    a, b = C(two)(x, w)
    (a + b.sum()).backward()
    return seen, x.grad, w.grad


@program
def hooks_of_nodes(C):
    (x, w), seen = matrices(), []
    a, _ = C(two)(x, w)
    a.grad_fn.register_prehook(lambda gs: (seen.append([g.clone() for g in gs]), tuple(g * 2 for g in gs))[1])
    a.backward()
    x2 = leaf()
    y = C(torch.exp)(x2)
    y.grad_fn.register_hook(lambda out, given: (seen.append([g.clone() for g in (*out, *given)]), tuple(g * 2 for g in out))[1])
    y.sum().backward()
    return seen, x.grad, w.grad, x2.grad


@program
def hooks_of_several(C):
    (x, w), seen = matrices(), []
    graph.register_multi_grad_hook((x, w), lambda gs: seen.append([g is not None and g.clone() for g in gs]))
    graph.register_multi_grad_hook((x, w), lambda g: seen.append(g.clone()), mode="any")
    a, b = C(two)(x, w)
    a.backward(retain_graph=True)
    b.sum().backward()
    return seen


@program
def hooks_that_raise(C):
    a, _ = C(two)(*matrices())
    a.register_hook(lambda g: 1 / 0)
    a.backward()


# ---- hooks on what is kept


@program
def kept_as_arrays(C):
    x, w = matrices()
    with graph.saved_tensors_hooks(lambda t: t.detach().numpy(), torch.from_numpy):
        a, b = C(two)(x, w)
    (a + b.sum()).backward()
    return x.grad, w.grad


@program
def kept_on_the_cpu(C):
    x, w = matrices()
    with graph.save_on_cpu():
        a, b = C(two)(x, w)
    (a + b.sum()).backward()
    return x.grad, w.grad


@program
def kept_and_changed(C):
    x = leaf()
    with graph.saved_tensors_hooks(lambda t: t.detach() * 2, lambda t: t):
        y = C(torch.exp)(x)
    y.sum().backward()
    return x.grad


@program
def hooks_forbidden(C):
    with graph.disable_saved_tensors_hooks("not here"):
        C(scalar)(leaf()).backward()
        with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            return C(scalar)(leaf())


@program
def versions_raised_by_hand(C):
    z, errors = leaf() * 1, []
    y, squares = C(torch.exp)(leaf()), C(torch.square)(z)
    graph.increment_version([y, z])
    for one in (y, squares):
        try:
            one.sum().backward()
        except RuntimeError as error:
            errors.append(str(error))
    return errors


@program
def mutation_allowed(C):
    with graph.allow_mutation_on_saved_tensors():
        x = leaf()
        z = x * 1
        y, out = C(torch.square)(z), C(torch.exp)(x)
        total = y.sum() + out.sum()
        z.detach().zero_()
        out.detach().zero_()
        total.backward()
        return x.grad


# ---- anomaly mode, threads, copies


def to_nan(x):
    return (x.sqrt() * 0).sum()


@program
def anomaly(C):
    seen = []
    for check_nan in (True, False):
        with torch.autograd.detect_anomaly(check_nan=check_nan):
            x = torch.tensor([0.0, 1.0], requires_grad=True)
            y = C(to_nan)(x)
            try:
                y.backward()
            except RuntimeError as error:
                seen.append(str(error))
            seen.append(x.grad)
    with torch.autograd.detect_anomaly():
        y = C(to_nan)(x)
    y.backward()
    return seen, x.grad


@program
def one_thread(C):
    x, w = matrices()
    with torch.autograd.set_multithreading_enabled(False):
        a, b = C(two)(x, w)
        (a + b.sum()).backward()
    return x.grad, w.grad


@program
def other_threads(C):
    x, w = matrices()
    run, results = C(two), []
    work = [lambda: results.extend(run(x, w)), lambda: (results[0] + results[1].sum()).backward()]
    for step in work:
        thread = threading.Thread(target=step)
        thread.start()
        thread.join()
    return x.grad, w.grad


@program
def copies(C):
    a, b = C(two)(*matrices())
    file = io.BytesIO()
    torch.save(b, file)
    file.seek(0)
    return copy.deepcopy(b.detach()), copy.copy(b), pickle.loads(pickle.dumps(b)), torch.load(file)


@program
def deep_copy_of_a_result(C):
    return copy.deepcopy(C(two)(*matrices())[0])


@program
def checkpointed(C):
    x = leaf()
    for reentrant in (True, False):
        checkpoint(C(scalar), x, use_reentrant=reentrant).backward()
    return x.grad


# ---- derivatives of derivatives, and forward


@program
def forward_mode(C):
    run, x, seen = C(scalar), leaf(), []
    run(x).backward()
    for primal in (x.detach(), x):
        with fwAD.dual_level():
            result = fwAD.unpack_dual(run(fwAD.make_dual(primal, torch.ones(3))))
            seen += [result.primal.detach(), result.tangent.detach()]
            if result.tangent.requires_grad:
                seen.append(torch.autograd.grad(result.tangent, x))
    return seen


@program
def transforms(C):
    x = numbers()
    value, pull = torch.func.vjp(C(scalar), x)
    return [
        torch.func.jvp(C(scalar), (x,), (torch.ones(3),)), value, pull(torch.tensor(2.0)), torch.func.jacrev(C(vector))(x),
        torch.func.jacfwd(C(vector))(x), torch.func.hessian(C(scalar))(x), torch.func.grad(C(scalar))(x),
        torch.func.vmap(torch.func.grad(C(scalar)))(numbers(6).reshape(2, 3)),
    ]  # fmt: skip


@program
def functional_derivatives(C):
    x, v = numbers(), torch.ones(3)
    return [
        functional.jacobian(C(vector), x), functional.jacobian(C(vector), x, vectorize=True),
        functional.jacobian(C(vector), x, vectorize=True, strategy="forward-mode"), functional.hessian(C(scalar), x),
        functional.hvp(C(scalar), x, v), functional.vhp(C(scalar), x, v), functional.jvp(C(scalar), x, v),
    ]  # fmt: skip


@program
def checks(C):
    doubles = matrices(torch.float64)
    return [
        torch.autograd.gradcheck(C(lambda x, w: ((x @ w).tanh(), x.sin())), doubles, check_undefined_grad=True),
        torch.autograd.gradcheck(C(lambda x, w: (x @ w).tanh()), doubles, check_forward_ad=True, check_batched_grad=True),
        torch.autograd.gradcheck(C(lambda x, w: (x * 1).mul_(w.t()).relu_() + x), doubles),
        torch.autograd.gradgradcheck(C(lambda x, w: (x @ w).tanh()), doubles),
    ]


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for compiled in (lambda f: f, dyncomp.optimize):
            torch.manual_seed(0)
            try:
                seen.append(PROGRAMS[name](compiled))
            except Exception as error:  # noqa: BLE001 - both must raise the same
                seen.append((type(error).__name__, str(error)))
    assert_same(seen[1], seen[0])
