"""Metadata of an operation's results: by rule where there is one, else by meta kernel."""

from __future__ import annotations

from typing import Any

import torch

from dyncomp.fake import rules as _rules  # noqa: F401  (fills the registry)
from dyncomp.fake.implemented import check_implemented
from dyncomp.fake.lenient import check_taken
from dyncomp.fake.meta_kernel import infer_by_meta_kernel, key_of, numbers
from dyncomp.fake.refusal import eagers_error, is_eagers
from dyncomp.fake.registry import LAYOUTS, RULES, Rule
from dyncomp.fake.scalars import check_numbers
from dyncomp.shape.symbolic import env_of

_UNKNOWN = object()


def infer(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`args` and `kwargs` hold `TensorMeta`s for tensors; so does the result. Errors are eager's."""
    try:
        result = _by_rule_or_kernel(op, args, kwargs)
    except Exception as error:
        told = error if is_eagers(error) else eagers_error(op, args, kwargs, error)
        if told is error:
            raise
        raise told from told.__cause__
    check_numbers(op, args, kwargs, result)
    return result


def _by_rule(op: torch._ops.OpOverload, rule: Rule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the rule says. With symbolic sizes it is asked once for equal arguments: arithmetic on them is slow, and models are made
    of equal layers. What it learned of them is known from then on; but where it relies on checks of the running program, each
    place has its own.
    """
    env = env_of(numbers((args, kwargs)))
    if env is None or env.has_hintless:
        return rule(*args, **kwargs)
    try:
        key = ("rule", op, key_of(args), key_of(kwargs), torch.get_default_dtype())
        known = env.memo.get(key, _UNKNOWN)
    except TypeError:  # an argument that cannot be hashed, such as a generator
        return rule(*args, **kwargs)
    if known is _UNKNOWN:
        known = env.memo[key] = rule(*args, **kwargs)
    return known


def _by_rule_or_kernel(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    check_taken(op, args, kwargs)
    rule = RULES.get(op)
    result = _by_rule(op, rule, args, kwargs) if rule is not None else None
    if result is None:
        result = infer_by_meta_kernel(op, args, kwargs)
        check_implemented(op, args, kwargs)
        lay_out = LAYOUTS.get(op)
        if lay_out is not None:
            result = lay_out(result, *args, **kwargs)
    return result
