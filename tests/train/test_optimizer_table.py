"""Compiled optimiser steps beside eager's: parameters, state, version counters, and how often a change of numbers compiles anew."""

import copy

import pytest
import torch
from torch.optim import SGD, Adam, AdamW, lr_scheduler

import dyncomp
from tests.support import assert_same

OPTIMISERS = {
    "momentum": lambda ps: SGD(ps, lr=0.1, momentum=0.9, nesterov=True),
    "dampening, one by one": lambda ps: SGD(ps, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.1, foreach=False),
    "fused momentum": lambda ps: SGD(ps, lr=0.1, momentum=0.9, maximize=True, fused=True),
    "adam": lambda ps: Adam(ps, lr=0.01, amsgrad=True, foreach=True),
    "adamw, rate in a tensor": lambda ps: AdamW(ps, lr=torch.tensor(0.01), foreach=False),
    "fused adamw": lambda ps: AdamW(ps, lr=0.01, weight_decay=0.1, fused=True),
}
SCHEDULES = {
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 4),
    "sequence": lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.ConstantLR(o, 0.1, 2), lr_scheduler.ExponentialLR(o, 0.9)], [2]),
    "restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 2),
}


def nothing(optimiser, model, step):
    pass


def frozen_now_and_then(optimiser, model, step):
    model[0].weight.requires_grad_(step % 2 == 0)


def loaded_again(optimiser, model, step):
    if step == 3:
        optimiser.load_state_dict(copy.deepcopy(optimiser.state_dict()))


def another_rate(optimiser, model, step):
    for group in optimiser.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(0.01 * (step + 1))
        else:
            group["lr"] = 0.01 * (step + 1)


def train(make, compiled, before=nothing, schedule=None, keep_zeros=False, no_gradient=False, accumulate=1):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    parameters = list(model.parameters())
    optimiser = make([{"params": parameters[:2]}, {"params": parameters[2:], "weight_decay": 0.05}])
    told = []
    optimiser.register_step_post_hook(lambda *args: told.append("stepped"))
    scheduler = schedule(optimiser) if schedule else None
    step = compiled(optimiser.step)
    for number in range(5):
        before(optimiser, model, number)
        optimiser.zero_grad(set_to_none=not keep_zeros)
        for _ in range(accumulate):
            model(torch.randn(4, 6)).pow(2).mean().backward()
        if no_gradient:
            parameters[1].grad = None
        step()
        if scheduler is not None:
            scheduler.step()
    told += [p.detach().clone() for p in parameters] + [p._version for p in parameters]
    for p in parameters:
        state = optimiser.state.get(p, {})
        told.append({name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in state.items()})
        told.append({name: value._version for name, value in state.items() if isinstance(value, torch.Tensor)})
    return told


def compare(make, most_recompiles, **how):
    want = train(make, lambda f: f, **how)
    before = dyncomp.stats()
    got = train(make, lambda f: dyncomp.optimize(f, backend="aot_eager"), **how)
    assert_same(got, want, "told", 1e-5, 1e-6)
    assert dyncomp.stats().recompiles - before.recompiles <= most_recompiles


CASES = {
    "plain": {},
    "rate": {"before": another_rate},
    "frozen": {"before": frozen_now_and_then},
    "loaded": {"before": loaded_again},
    "zeros": {"keep_zeros": True},
    "none": {"no_gradient": True},
    "accumulated": {"accumulate": 3},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", OPTIMISERS)
def test_steps(name, case):
    """The first step makes the state: the second is compiled anew, and no later one but for what is frozen."""
    compare(OPTIMISERS[name], 3 if case == "frozen" else 1, **CASES[case])


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", OPTIMISERS)
def test_schedules(name, schedule):
    compare(OPTIMISERS[name], 1, schedule=SCHEDULES[schedule])
