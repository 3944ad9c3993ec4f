"""ATen operations over lists of tensors, taken apart into the operations on each tensor.

    _foreach_mul_([a, b], 2)       ->  a.mul_(2); b.mul_(2)
    _fused_adamw_(params, ...)     ->  for each parameter the formula of ATen's fused CPU kernel

On the CPU ATen runs foreach operations as such loops itself (its composite kernels are called here); on other devices
they are kernels of their own and stay whole. The fused optimisers of the CPU go once over each parameter in float32
(half precision: rounded once, when stored) with exactly these formulas; see torch's FusedAdamKernel.cpp,
FusedSGDKernel.cpp and FusedAdagradKernel.cpp for the order of operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.autograd.graph import increment_version

from dyncomp.aot.errors import Unsupported
from dyncomp.fake.facts import OpFacts
from dyncomp.fake.inplace import bind, targets_of
from dyncomp.fake.tensor import FakeTensor

LIST_PREFIXES = ("aten::_foreach_", "aten::_fused_adam", "aten::_fused_sgd_", "aten::_fused_adagrad_")
_LOOP = torch._C.DispatchKey.CompositeExplicitAutograd
_HALVES = (torch.float16, torch.bfloat16)
Tensors = list[torch.Tensor]


def expand(mode: Any, facts: OpFacts, args: Any, kwargs: Any) -> tuple[Any] | None:
    """(result,) of an operation over lists, done tensor by tensor; None if it is something else."""
    name = facts.op._schema.name
    if name.startswith("aten::_foreach_"):
        if not _on_cpu((args, kwargs)) or not torch._C._dispatch_has_kernel_for_dispatch_key(facts.op.name(), _LOOP.name):
            return None
        with mode:
            result = facts.op._op_dk(_LOOP, *args, **kwargs)
        _tell(facts, bind(facts, args, kwargs))
        return (result,)
    formula = _FUSED.get(name)
    if formula is None:
        return None
    if not _on_cpu((args, kwargs)):
        raise Unsupported(f"{facts.op} on another device")
    bound = bind(facts, args, kwargs)
    if bound.get("grad_scale") is not None or bound.get("found_inf") is not None:
        raise Unsupported(f"{facts.op} with a gradient scaler")
    mode.recorder.quiet = True  # eager's version counters know nothing of what the fused ones write
    try:
        with mode:
            formula(name, bound)
    finally:
        mode.recorder.quiet = False
    return (None,)


def _tell(facts: OpFacts, bound: dict[str, Any]) -> None:
    """Autograd of the writes of a loop, which runs below it."""
    written = [fake for position in facts.written for fake in targets_of(bound.get(facts.names[position]))]
    if written:
        increment_version(written)


def _on_cpu(tree: Any) -> bool:
    return all(tensor.meta.device.type == "cpu" for tensor in _tensors(tree))


def _tensors(tree: Any) -> Iterator[FakeTensor]:
    if type(tree) is FakeTensor:
        yield tree
    elif isinstance(tree, list | tuple):
        for item in tree:
            yield from _tensors(item)
    elif isinstance(tree, dict):
        yield from _tensors(list(tree.values()))


# -- fused optimisers ----------------------------------------------------------------------------------------
def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in _HALVES else tensor


def _as(number: Any, like: torch.Tensor) -> Any:
    """A number that the kernel rounds to the type it computes in."""
    return number.to(like.dtype) if isinstance(number, torch.Tensor) else number


def _rate(bound: dict[str, Any]) -> Any:
    lr = bound["lr"]
    return lr.to(torch.float64) if isinstance(lr, torch.Tensor) else lr


def _gradient(grad: torch.Tensor, param: torch.Tensor, maximize: bool, decay: float) -> torch.Tensor:
    """The gradient as the kernels use it: negated, with an L2 penalty."""
    grad = _wide(grad)
    if maximize:
        grad = grad * -1.0
    return grad + param * decay if decay != 0 else grad


def _adam(name: str, bound: dict[str, Any]) -> None:
    """Adam and AdamW. Step counts are read as numbers; the bias corrections are computed in float64."""
    decoupled = name == "aten::_fused_adamw_"
    lr, beta1, beta2 = _rate(bound), bound["beta1"], bound["beta2"]
    eps, decay, maximize = bound["eps"], bound["weight_decay"], bound["maximize"]
    largest: Tensors = bound["max_exp_avg_sqs"] if bound["amsgrad"] else []
    rows = zip(bound["self"], bound["grads"], bound["exp_avgs"], bound["exp_avg_sqs"], bound["state_steps"], strict=True)
    for i, (p, g, m, v, count) in enumerate(rows):
        step = count.to(torch.float32).to(torch.float64)
        correction1, correction2 = 1 - beta1**step, 1 - beta2**step
        param = _wide(p)
        grad = _gradient(g, param, maximize, 0 if decoupled else decay)
        if decoupled and decay != 0:
            param = param * _as(1 - lr * decay, param)
        mean = torch.lerp(_wide(m), grad, 1 - beta1)
        square = torch.addcmul(_wide(v) * beta2, grad, grad, value=1 - beta2)
        m.copy_(mean)
        v.copy_(square)
        if largest:
            square = torch.maximum(_wide(largest[i]), square)
            largest[i].copy_(square)
        denominator = square.sqrt() / _as(correction2**0.5, param) + eps
        p.copy_(param + _as(-(lr / correction1), param) * mean / denominator)


def _sgd(name: str, bound: dict[str, Any]) -> None:
    lr, momentum = _rate(bound), bound["momentum"]
    buffers: Tensors = bound["momentum_buffer_list"]
    for i, (p, g) in enumerate(zip(bound["self"], bound["grads"], strict=True)):
        param = _wide(p)
        grad = _gradient(g, param, bound["maximize"], bound["weight_decay"])
        if momentum != 0:
            moved = grad
            if not bound["is_first_step"]:
                moved = _wide(buffers[i]) * momentum + (1 - bound["dampening"]) * grad
            buffers[i].copy_(moved)
            grad = grad + moved * momentum if bound["nesterov"] else moved
        p.copy_(param + _as(-lr, param) * grad)


def _adagrad(name: str, bound: dict[str, Any]) -> None:
    lr = _rate(bound)
    for p, g, total, count in zip(bound["self"], bound["grads"], bound["state_sums"], bound["state_steps"], strict=True):
        step = count.to(torch.float32).to(torch.float64)
        rate = lr / (1 + (step - 1) * bound["lr_decay"])
        param = _wide(p)
        grad = _gradient(g, param, bound["maximize"], bound["weight_decay"])
        square = _wide(total) + grad * grad
        total.copy_(square)
        p.copy_(param - _as(rate, param) * grad / (square.sqrt() + bound["eps"]))


_FUSED: dict[str, Callable[[str, dict[str, Any]], None]] = {
    "aten::_fused_adam_": _adam, "aten::_fused_adamw_": _adam,
    "aten::_fused_sgd_": _sgd, "aten::_fused_adagrad_": _adagrad,
}  # fmt: skip
