"""One random statement of a compiled function: arithmetic, products, reductions, views, writes, custom functions."""

from __future__ import annotations

import torch

from tests.fuzz.growing import Growing, choose

UNARY = """
{x}.sin() | {x}.cos() | {x}.tanh() | {x}.sigmoid() | {x}.clamp(-1, 1).exp() | {x}.exp() | {x}.relu() | F.gelu({x}) | F.silu({x})
{x} * 2 | 1 - {x} | -{x} | {x} + 1 | {x} / 3 | {x} * 1 | {x}.square() | {x}.abs() | ({x}.abs() + 0.5).sqrt() | ({x}.abs() + 0.5).log()
1 / ({x}.abs() + 1) | {x}.clamp(-0.5, 0.5) | {x}.clone() | {x}.contiguous() | {x}.double() | {x}.float() | torch.ones_like({x})
{x}.softmax(-1) | {x}.log_softmax(0) | F.layer_norm({x}, {x}.shape[-1:]) | F.dropout({x}, 0.5) | {x}.cumsum(0) | {x}.flip(0)
{x} + torch.randn({x}.shape) | torch.rand_like({x}) * {x} | {x}.pow(3) | F.leaky_relu({x}, 0.1) | F.softplus({x}) | {x}.erf()
torch.where({x} > 0, {x}, 0.1 * {x}) | {x}.masked_fill({x} > 0.5, 0.0) | {x}.sort(-1)[0] | {x}.tril() | {x}.repeat(2, 1) | {x}.roll(1, 0)
{x}[torch.tensor([1, 0, 0])] | {x}[{x} > -9] | {x}.gather(0, torch.zeros_like({x}, dtype=torch.int64)) | {x}.index_select(0, torch.tensor([1, 0]))
"""
BINARY = """
{x} + {y} | {x} - {y} | {x} * {y} | {x} / ({y}.abs() + 1) | torch.maximum({x}, {y}) | torch.where({x} > {y}, {x}, {y})
torch.lerp({x}, {y}, 0.3) | torch.addcmul({x}, {y}, {y}) | torch.cat([{x}, {y}]) | torch.stack([{x}, {y}]) | {x} * {y}.sigmoid()
{x}.atan2({y}) | F.mse_loss({x}, {y}) | torch.add({x}, {y}, alpha=2) | {x} * {x} + {y} | {x}.sum() * {y} | {x}.expand_as({y}) | {x}.type_as({y})
"""
PRODUCTS = """
{x} @ {y} | {x} @ {y}.t() | {x}.t() @ {y} | F.linear({x}, {y}) | torch.outer({x}, {y}) | torch.addmm({x}, {x}, {y}) | {x}.matmul({y})
torch.einsum('ij,ij->i', {x}, {y})
"""
REDUCTIONS = """
{x}.sum() | {x}.sum(0) | {x}.sum(-1, keepdim=True) | {x}.mean() | {x}.mean(0) | {x}.amax(-1) | {x}.max(0).values | {x}.var(0) | {x}.std()
{x}.prod() | {x}.norm() | {x}.logsumexp(-1) | {x}.max() | {x}.cumprod(-1)
"""
VIEWS = """
{x}.t() | {x}[0] | {x}[-1] | {x}[1:] | {x}[..., 1:] | {x}[:, 0] | {x}[::2] | {x}.unsqueeze(0) | {x}.unsqueeze(-1) | {x}.expand(2, *{x}.shape)
{x}.view(-1) | {x}.reshape(-1) | {x}.diagonal() | {x}.narrow(0, 0, 1) | {x}.select(0, 1) | {x}.transpose(0, -1) | {x}.squeeze() | {x}.flatten()
{x}.movedim(0, -1) | {x}.view({x}.shape) | {x}.view_as({x}) | {x}.detach() | {x}.mT | {x}[None] | {x}.unfold(0, 2, 1) | {x}.view(3, 2) | {x}.T | {x}[:]
{x}.reshape(3, -1) | {x}.view(2, -1) | {x}.as_strided((2,), (1,)) | {x}.chunk(2, -1)[1] | {x}.split(1)[0] | {x}.unbind(-1)[1] | {x}.detach()[0] | {x}.squeeze(0)
"""
WRITES = """
{x}.mul_(2) | {x}.add_(1) | {x}.add_({y}) | {x}.mul_({y}) | {x}.sub_({y}) | {x}.zero_() | {x}.fill_(0.5) | {x}.copy_({y}) | {x}.sin_() | {x}.tanh_()
{x}.relu_() | {x}.sigmoid_() | {x}.clamp_(-1, 1) | {x}.neg_() | {x} += {y} | {x} *= 0.5 | {x}[0] = {y} | {x}[0] = 1.5 | {x}[..., 1:] *= 2 | {x}[0].mul_(3)
{x}.t().add_(1) | {x}[1:].copy_({x}[:-1]) | {x}.masked_fill_({x} > 0, 0.1) | {x}[{x} > 0] = 0.3 | {x}.diagonal().add_(1) | F.relu({x}, inplace=True)
F.dropout({x}, 0.5, inplace=True) | {x}.uniform_() | {x}.addcmul_({y}, {y}) | {x}.lerp_({y}, 0.3) | {x}.view(-1)[0] = 1.0 | {x}[torch.tensor([0])] += 1
{x}[-1] = {x}[0] | {x}.chunk(2)[0].add_(1) | {x}.detach().mul_(2) | {x}.detach()[0] = 0.5 | {x}.t().copy_({y})
{x}.index_add_(0, torch.tensor([0]), {y}) | {x}[:, 1].add_({y})
"""
SHAPES_IN_PLACE = "{x}.unsqueeze_(0) | {x}.squeeze_() | {x}.t_() | {x}.detach_() | {x}.requires_grad_() | {x}.transpose_(0, -1)"
CUSTOM = "Square.apply({x}) | Times.apply({x}, {y}) | Doubled.apply({x}) | Both.apply({x})[0] | Same.apply({x})"


def table(text: str) -> list[str]:
    return [one.strip() for row in text.strip().splitlines() for one in row.split(" | ")]


def filled(grower: Growing, template: str) -> str:
    x = grower.pick()
    return template.format(x=x, y=grower.like(x) if "{y}" in template else x)


def _value(text: str):
    choices = table(text)
    return lambda grower: f"{grower.new()} = {filled(grower, grower.rng.choice(choices))}"


def _plain(text: str):
    choices = table(text)
    return lambda grower: filled(grower, grower.rng.choice(choices))


def _several_views(grower: Growing) -> str:
    x = grower.pick(lambda t: t.dim() > 0)
    shape = grower.names[x].shape
    dim = grower.rng.randrange(len(shape))
    length = shape[dim]
    kind = grower.rng.choice(["unbind", "chunk", "split", "sizes"])
    if kind == "unbind":
        count, call = length, f"unbind({dim})"
    elif kind == "chunk":
        count, call = min(2, length), f"chunk(2, {dim})"
    elif kind == "split":
        count, call = length, f"split(1, {dim})"
    else:
        count, call = 2, f"split([1, {length - 1}], {dim})"
    return f"{', '.join(grower.new() for _ in range(count))}{',' if count == 1 else ''} = {x}.{call}"


def _batch_norm(grower: Growing) -> str:
    if "_mean" not in grower.names:
        raise LookupError
    x = grower.pick(lambda t: t.dim() >= 2 and t.shape[1] == 3 and t.dtype == torch.float32)
    return f"{grower.new()} = F.batch_norm({x}, _mean, _var, training={grower.rng.random() < 0.8})"


def _block(grower: Growing) -> str:
    head = grower.rng.choice(["with torch.no_grad():", "with torch.no_grad():", "with torch.enable_grad():"])
    made = grower.block(head, grower.rng.randint(1, 3), lambda inner: choose(inner.rng, [(3, _WRITE), *_STATEMENTS[:6]])(inner))
    if not made:
        raise LookupError
    grower.lines.append(made)  # its lines have run
    raise LookupError


_WRITE = _plain(WRITES)
_STATEMENTS = [
    (6, _value(UNARY)),
    (6, _value(BINARY)),
    (2, _value(PRODUCTS)),
    (2, _value(REDUCTIONS)),
    (6, _value(VIEWS)),
    (5, _WRITE),
    (2, _several_views),
    (1, _plain(SHAPES_IN_PLACE)),
    (1, _value(CUSTOM)),
    (1, _batch_norm),
    (2, _block),
]


def statement(grower: Growing) -> str:
    return choose(grower.rng, _STATEMENTS)(grower)
