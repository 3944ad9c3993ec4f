"""Compares training through compiled code with eager: outputs, gradients, buffers, written inputs, random stream."""

import copy

import torch

import dyncomp
from tests.support import assert_same


def leaves(inputs):
    """Copies that share nothing with the originals; tensors that require grad are leaves."""
    return [t.detach().clone().requires_grad_(t.requires_grad) if isinstance(t, torch.Tensor) else t for t in inputs]


def loss_of(results, which=None):
    """A scalar that every differentiable result goes into, or only those at the positions in `which`."""
    flat = list(results) if isinstance(results, tuple | list) else [results]
    total = torch.zeros(())
    for position, value in enumerate(flat):
        if isinstance(value, torch.Tensor) and value.requires_grad and (which is None or position in which):
            total = total + (value.double() * torch.arange(1.0, value.numel() + 1).reshape(value.shape).cos()).sum()
    return total


def step(function, inputs, seed, which=None):
    """One forward and backward: (results, gradients, generator state)."""
    torch.manual_seed(seed)
    results = function(*inputs)
    total = loss_of(results, which)
    if total.requires_grad:
        total.backward()
    grads = [t.grad if isinstance(t, torch.Tensor) and t.is_leaf else None for t in inputs]
    return results, grads, torch.get_rng_state()


def check_function(function, *inputs, backend="codegen", steps=2, which=None, fallbacks=(), rtol=1e-5, atol=1e-5):
    """`fallbacks`: beginnings of the names that may be counted, none by default. Returns the compiled function."""
    before = dict(dyncomp.stats().fallbacks)
    fast = dyncomp.optimize(function, backend=backend)
    for seed in range(steps):
        theirs, ours = leaves(inputs), leaves(inputs)
        want, want_grads, state = step(function, theirs, seed, which)
        got, got_grads, our_state = step(fast, ours, seed, which)
        assert torch.equal(state, our_state), "the random stream differs from eager's"
        assert_same(got, want, "results", rtol, atol)
        compare_grads(got_grads, want_grads, rtol, atol)
        assert_same(
            [t.detach() if isinstance(t, torch.Tensor) else t for t in ours],
            [t.detach() if isinstance(t, torch.Tensor) else t for t in theirs],
            "inputs",
            rtol,
            atol,
        )
    check_fallbacks(before, fallbacks)
    return fast


def check_module(module, *inputs, backend="codegen", steps=2, rtol=1e-4, atol=1e-5, fallbacks=()):
    """Trains a module and a copy of it for some steps of plain SGD."""
    before = dict(dyncomp.stats().fallbacks)
    other = copy.deepcopy(module)
    fast = dyncomp.optimize(other, backend=backend)
    for seed in range(steps):
        ours, theirs = leaves(inputs), leaves(inputs)
        want, want_grads, state = step(module, theirs, seed)
        got, got_grads, our_state = step(fast, ours, seed)
        assert torch.equal(state, our_state), "the random stream differs from eager's"
        assert_same(got, want, "results", rtol, atol)
        compare_grads(got_grads, want_grads, rtol, atol)
        names = [name for name, _ in module.named_parameters()]
        for name, mine, reference in zip(names, other.parameters(), module.parameters(), strict=True):
            assert (mine.grad is None) == (reference.grad is None), name
            if reference.grad is not None:
                torch.testing.assert_close(
                    mine.grad, reference.grad, rtol=rtol, atol=atol, msg=lambda m, n=name: f"{n}.grad: {m}"
                )
        for (name, mine), reference in zip(other.named_buffers(), module.buffers(), strict=True):
            torch.testing.assert_close(mine, reference, rtol=rtol, atol=atol, msg=lambda m, n=name: f"{n}: {m}")
        with torch.no_grad():
            for parameter in [*module.parameters(), *other.parameters()]:
                if parameter.grad is not None:
                    parameter -= 0.01 * parameter.grad
                    parameter.grad = None
    check_fallbacks(before, fallbacks)
    return fast


def compare_grads(got, want, rtol=1e-5, atol=1e-5):
    for position, (mine, reference) in enumerate(zip(got, want, strict=True)):
        assert (mine is None) == (reference is None), f"gradient {position}: {mine} instead of {reference}"
        if reference is not None:
            torch.testing.assert_close(
                mine, reference, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m, p=position: f"gradient {p}: {m}"
            )


def same_story(story, backend="codegen", fallbacks=(), errors=False, rtol=1e-5, atol=1e-5):
    """`story(compiled)` trains something and returns what it saw; it is told once in eager and once with compiled functions.

    `compiled(f)` is `f` itself or its optimised form. Exceptions that end a story must be equal too, where `errors` allows them.
    `fallbacks`: beginnings of the names that may be counted, none by default.
    """
    want, want_error = _told(story, lambda f: f)
    before = dict(dyncomp.stats().fallbacks)
    got, got_error = _told(story, lambda f: dyncomp.optimize(f, backend=backend))
    if want_error is not None and not errors:
        raise want_error
    if got_error is not None and want_error is None:
        raise got_error
    assert (type(got_error), str(got_error)) == (type(want_error), str(want_error))
    assert_same(got, want, "story", rtol, atol)
    check_fallbacks(before, fallbacks)


def _told(story, compiled):
    torch.manual_seed(0)
    try:
        result = story(compiled)
    except Exception as error:  # noqa: BLE001 - compared by the caller
        return None, error
    return (result, torch.get_rng_state()), None


def check_fallbacks(before, expected):
    """No fallback was counted since `before` but those whose names begin with one of `expected`."""
    after = dyncomp.stats().fallbacks
    new = [
        name
        for name, count in after.items()
        if count > before.get(name, 0) and not name.startswith(tuple(expected) or "-")
    ]
    assert not new, new
