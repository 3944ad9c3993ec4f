"""Compares compiled code with eager: outputs (values, dtypes, strides, aliasing), mutated inputs, errors, number of graphs."""

import copy
import dataclasses
import os

import torch

import dyncomp


def examples(usual):
    """How many examples a property test draws: `usual`, or DYNCOMP_EXAMPLES (see tests/conftest.py)."""
    return int(os.environ.get("DYNCOMP_EXAMPLES", usual))


def clone_inputs(value):
    """Deep copies in which tensors that shared storage still share it, with strides and offsets kept."""
    return copy.deepcopy(value)


def assert_same(got, want, path="result", rtol=1e-5, atol=1e-5):
    """Equal structure, types, dtypes, devices, strides and values (NaN equals NaN)."""
    assert type(got) is type(want), f"{path}: {type(got).__name__} instead of {type(want).__name__}"
    if isinstance(want, torch.Tensor):
        assert (got.dtype, got.device, got.shape) == (want.dtype, want.device, want.shape), (
            f"{path}: {got.dtype} {got.shape} instead of {want.dtype} {want.shape}"
        )
        assert got.stride() == want.stride(), f"{path}: strides {got.stride()} instead of {want.stride()}"
        assert got.requires_grad == want.requires_grad, f"{path}: requires_grad {got.requires_grad}"
        torch.testing.assert_close(got, want, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{path}: {m}")
    elif isinstance(want, dict):
        assert list(got) == list(want), f"{path}: keys {list(got)} instead of {list(want)}"
        for key in want:
            assert_same(got[key], want[key], f"{path}[{key!r}]", rtol, atol)
    elif isinstance(want, list | tuple):
        assert len(got) == len(want), f"{path}: length {len(got)} instead of {len(want)}"
        for i, (g, w) in enumerate(zip(got, want, strict=True)):
            assert_same(g, w, f"{path}[{i}]", rtol, atol)
    elif dataclasses.is_dataclass(want) and not isinstance(want, type):
        for field in dataclasses.fields(want):
            assert_same(getattr(got, field.name), getattr(want, field.name), f"{path}.{field.name}", rtol, atol)
    elif isinstance(want, float):
        assert got == want or (got != got and want != want), f"{path}: {got!r} instead of {want!r}"
    elif want is None or isinstance(
        want, int | str | bool | bytes | complex | torch.dtype | torch.device | slice | range
    ):
        assert got == want, f"{path}: {got!r} instead of {want!r}"


def check(function, *args, graphs=1, breaks=0, calls=2, rtol=1e-5, atol=1e-5, **options):
    """Runs `function` in eager and compiled, on equal copies of the arguments, `calls` times; compares all that can be seen.

    `graphs` and `breaks`: what must have been compiled (None: not checked). Returns the compiled function.
    """
    before = dyncomp.stats()
    fast = dyncomp.optimize(function, **options)
    for _ in range(calls):
        ours, theirs = clone_inputs(args), clone_inputs(args)
        seed = torch.get_rng_state()
        want, want_error = outcome(function, theirs)
        state = torch.get_rng_state()
        torch.set_rng_state(seed)
        got, got_error = outcome(fast, ours)
        assert torch.equal(state, torch.get_rng_state()), "the random stream differs from eager's"
        assert type(got_error) is type(want_error), f"raised {got_error!r} instead of {want_error!r}"
        assert_same(got, want, rtol=rtol, atol=atol)
        assert_same(ours, theirs, "inputs", rtol, atol)
    after = dyncomp.stats()
    if graphs is not None:
        assert after.graphs - before.graphs == graphs, f"{after.graphs - before.graphs} graphs instead of {graphs}"
    if breaks is not None:
        assert after.graph_breaks - before.graph_breaks == breaks, f"breaks: {after.break_reasons}"
    return fast


def outcome(function, args):
    """(result, None) or (None, the exception)."""
    try:
        return function(*args), None
    except Exception as error:  # noqa: BLE001 - whatever the program raises is what is compared
        return None, error
