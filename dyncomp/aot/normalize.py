"""Batch norm in functional form.

`native_batch_norm` writes its running statistics in training mode although its schema does not say so:

    native_batch_norm(x, w, b, mean, var, False, m, eps)
      ->   _native_batch_norm_legit_no_training(x, w, b, mean, var, m, eps)
    native_batch_norm(x, w, b, mean, var, True, m, eps)
      ->   _native_batch_norm_legit_functional(...), mean.copy_(new mean), var.copy_(new var)

Eager's version counters know nothing of these writes.

Its backward is handed the running statistics, which it does not read in training mode:

    native_batch_norm_backward(g, x, w, mean, var, ..., True, eps, mask)
      ->   native_batch_norm_backward(g, x, w, None, None, ..., True, eps, mask)
"""

from __future__ import annotations

from typing import Any

import torch

from dyncomp.aot.errors import Unsupported
from dyncomp.aot.tape import Tape
from dyncomp.fake.facts import OpFacts, facts_of

aten = torch.ops.aten


def batch_norm(mode: Any, facts: OpFacts, args: Any, kwargs: Any) -> Any:
    if facts.op is not aten.native_batch_norm.default or kwargs or len(args) != 8:
        raise Unsupported(f"{facts.op} writes its running statistics")
    x, weight, bias, mean, var, training, momentum, eps = args
    if not training:
        eval_op = facts_of(aten._native_batch_norm_legit_no_training.default)
        return mode._functional(eval_op, (x, weight, bias, mean, var, momentum, eps), {})
    if mean is None or var is None:
        if mean is not var:
            raise Unsupported("batch norm with one running statistic")
        no_stats = facts_of(aten._native_batch_norm_legit.no_stats)
        return mode._functional(no_stats, (x, weight, bias, True, momentum, eps), {})
    train_op = facts_of(aten._native_batch_norm_legit_functional.default)
    results = mode._functional(train_op, args, {})
    mode.recorder.quiet = True
    try:
        with mode:
            mean.copy_(results[3])
            var.copy_(results[4])
    finally:
        mode.recorder.quiet = False
    return results[:3]


def drop_unread_statistics(tape: Tape) -> None:
    """Running statistics must not be kept, or look changed, for a backward that ignores them."""
    for node in tape:
        if node.op is aten.native_batch_norm_backward.default and len(node.args) > 7 and node.args[7] is True:
            node.args = (*node.args[:3], None, None, *node.args[5:])
