"""Random shape programs with more of Python's control and more operations, at sizes with 0 and 1 among them, also with gradients.

    def f(x, y, n):                       as in `shape_programs`, whose lines are drawn too
        v0 = x * 1
        k = x.shape[0]
        while k > n: ...
        v1 = F.interpolate(v0.reshape(1, 1, -1), size=k + 1)
        v1[n:] = 0
        return (v0, v1)
"""

from __future__ import annotations

import torch

from tests.programs.shape_programs import ShapeProgram, _Maker


def make_wide_program(seed: int) -> ShapeProgram:
    return _WideMaker(seed).make()


class _WideMaker(_Maker):
    def __init__(self, seed: int):
        super().__init__(seed + 1_000_003)
        self.seed = seed
        if self.rng.random() < 0.6:
            self.inputs.dtype = self.rng.choice((torch.float32, torch.float64))
            self.states = [dict(zip("xyn", call, strict=True)) for call in self.inputs.calls()]

    def _line(self, name: str) -> str:
        rng, v = self.rng, self.rng.choice(self.names[-3:])
        if rng.random() < 0.45:
            return super()._line(name)
        return rng.choices((self._control, self._write, self._more, self._layers), (3, 2, 4, 3))[0](name, v)

    def _control(self, name: str, v: str) -> str:
        rng, d, size, number, other = self.rng, self._dim(v), self._size(v), self._count(v), self._count(v)
        bound = rng.choice(("2", "3", "n", number))
        return rng.choice((
            f"{name} = {v}\nfor i in range(min({number}, 4)):\n    {name} = {name} + i * {size}",
            f"{name} = {v}\nk = {size}\nwhile k > {bound}:\n    k //= 2\n    {name} = {name} * 2 - k",
            f"{name} = {v}\nif {size} > {bound}:\n    {name} = {name}[{bound}:] + 1\nelif {size} % 2:\n    {name} = {name} * n",
            f"{name} = torch.cat([{v}[i : i + 1] * i for i in range(min({v}.shape[0], 3))]) if {v}.shape[0] else {v} + 1",
            f"{name} = torch.stack([p.sum() for p in {v}.split(max({number}, 1))])",
            f"{name} = {v}[: max(min({size}, {other}), 0)] * min({size}, n)",
            f"{name} = {v}.reshape(-1)[:: max({size} // 3, 1)]",
            f"{name} = {v} + (1 if {size} in (2, 4) else {size} // max(n, 1))",
            f"{name} = {v} * (({size} - 1) // 2 + {other} % 2)",
            f"{name} = {v}.sum({d}) if {v}.dim() > 1 and {size} >= {other} else {v}.mean() if {v}.is_floating_point() else {v}.max()",
            f"{name} = {v} if {size} == {other} else torch.zeros({size}) if {size} < {other} else {v} - 1",
            f"{name} = {v} * (n if n % 2 else -n) + abs({size} - n)",
            f"{name} = {v}[{number} - 1] if 0 < {number} <= {v}.shape[0] else {v}",
            f"{name} = {v}.flatten()[[0, -1]] * round({size} / 3)",
            f"{name} = {v}.new_zeros([{size}, *{v}.shape[1:]]) + divmod({size}, 3)[1]",
        ))  # fmt: skip

    def _write(self, name: str, v: str) -> str:
        rng, number, other, w = self.rng, self._count(v), self._count(v), self.rng.choice(self.names)
        start = f"{name} = {v}.clone()\n"
        return start + rng.choice((
            f"{name}[{number}:] = 0", f"{name}[:{number}] = {other}", f"{name}[{other}:{number}] = 2", f"{name}[..., :{number}] *= 2",
            f"{name}[::2] += 1", f"{name}[{number} // 2 :] = {name}[: {name}.shape[0] - {number} // 2].clone()", f"{name}[-1] = {number}",
            f"{name}.view(-1)[:{number}].add_(1)", f"{name}[{name} > {number}] = 1", f"{name}[torch.arange({number})] = -1",
            f"{name}[{number}:].fill_({other})", f"{name}.masked_fill_({name} > 1, {number})", f"{name}.copy_({w})", f"{name}[0].zero_()",
            f"{name}.index_fill_(0, torch.arange({number}), 3)", f"{name}.diagonal().add_(1)", f"{name}.narrow(0, 0, {number}).mul_(2)",
        ))  # fmt: skip

    def _more(self, name: str, v: str) -> str:
        rng, d, e, size, number, w = self.rng, self._dim(v), self._dim(v), self._size(v), self._count(v), self.rng.choice(self.names)
        keep = rng.choice(("", ", keepdim=True"))
        return f"{name} = " + rng.choice((
            f"torch.where(torch.arange({v}.shape[-1]) < {number}, {v}, {v} * 2)", f"torch.tril(torch.ones({size}, {size} + 1))",
            f"{v}.unfold({d}, 2, {rng.choice((1, 2))})", f"torch.arange({number}, {size} + {number} * 2, 2)", f"torch.tril_indices({size}, {size})",
            f"{v}.cumsum({d}).flip({d})", f"{v}.roll((1, {number}), (0, {d}))", f"torch.diff({v}, dim={d})", f"{v}.rot90() if {v}.dim() > 1 else {v}",
            f"torch.einsum('...i,...j->...ij', {v}, {v})", f"torch.einsum('i...->...', {v})", f"torch.atleast_2d({v}) @ torch.atleast_2d({v}).mT",
            f"{v}.scatter_add(0, torch.zeros_like({v}, dtype=torch.long), {v})", f"{v}.index_add(0, torch.arange({v}.shape[0]), {v})",
            f"{v}.gather({d}, {v}.argsort({d}))", f"{v}.take_along_dim({v}.argmax({d}, keepdim=True), {d})", f"{v}.topk(min({v}.shape[-1], 2))[0]",
            f"{v}.float().std({d}{keep})", f"{v}.float().logsumexp({d}{keep})", f"{v}.float().var({d}, unbiased=False)", f"{v}.prod({d}{keep})",
            f"{v}.median({d})[0]", f"{v}.float().cumprod({d})", f"{v}.amin({d}{keep}) / {size}", f"{v}.count_nonzero({d})", f"torch.aminmax({v})[1]",
            f"torch.linspace(0, {size}, {number})", f"torch.full(({size}, {number}), 2.5)", f"torch.meshgrid(torch.arange({size}), torch.arange(n), indexing='ij')[0]",
            f"torch.bucketize({v}, torch.arange({size}))", f"torch.repeat_interleave({v}, 2, {d})", f"{v}.expand(2, *{v}.shape).reshape(-1, *{v}.shape[1:])",
            f"{v}.movedim({d}, {e}).contiguous().view(-1)", f"torch.stack({v}.unbind({d}), {e})", f"torch.cat(torch.tensor_split({v}, 2, {d}), {d})",
            f"torch.tensor_split({v}, [1, {number}], {d})[1]", f"{v}.mT.contiguous() + 1", f"{v}.square().sum({d}).sqrt()", f"torch.maximum({v}, {w})",
            f"{v}.clamp(-{number}, {number})", f"{v}.remainder({size} + 1)", f"torch.addmm({v}, {v}, {v}.mT)", f"torch.bmm({v}[None], {w}[None])",
            f"{v}.lerp({v} * 2, 0.25)", f"torch.dot({v}.flatten(), {v}.flatten())", f"{v}.float().softmax({d}).to({v}.dtype)",
            f"{v}[..., None] + {v}[..., None, :]", f"{v}.sum(({d}, {e}))", f"{v}.squeeze().unsqueeze(-1)",
            f"torch.eye({size}, {number})", f"torch.ones({size}).outer(torch.arange({number}))", f"{v}.view({v}.shape[0], -1).t()", f"{v}.sign()",
        ))  # fmt: skip

    def _layers(self, name: str, v: str) -> str:
        rng, d, size, number = self.rng, self._dim(v), self._size(v), self._count(v)
        signal = f"{v}.double().reshape(1, 1, -1)"
        image = f"{v}.double().reshape(1, 1, -1, {size})"
        mode = rng.choice(("'constant'", "'reflect'", "'replicate'", "'circular'"))
        return f"{name} = " + rng.choice((
            f"F.interpolate({signal}, size={number} + 1)", f"F.interpolate({signal}, scale_factor=2)", f"F.interpolate({signal}, size={size} * 2, mode='linear')",
            f"F.interpolate({image}, size=({number} + 1, {size}), mode='bilinear', align_corners={rng.choice((True, False))})",
            f"F.interpolate({image}, scale_factor=({rng.choice((2, 0.5, 1.5))}, 2), mode='{rng.choice(('nearest', 'bilinear', 'bicubic'))}')",
            f"F.pad({signal}, (1, {rng.choice(('1', '2'))}), mode={mode})", f"F.pad({v}, (0, {number}, 1, -1))", f"F.avg_pool1d({signal}, 2)",
            f"F.max_pool1d({signal}, 2, {rng.choice((1, 2, 3))}, ceil_mode={rng.choice((True, False))})", f"F.adaptive_avg_pool1d({signal}, 3)",
            f"F.adaptive_max_pool1d({signal}, {number})", f"F.conv1d({signal}, torch.ones(2, 1, 2, dtype=torch.double))",
            f"F.conv1d({signal}, torch.ones(1, 1, 3, dtype=torch.double), padding=1, stride=2)", f"F.conv2d({image}, torch.ones(2, 1, 1, 1, dtype=torch.double))",
            f"F.conv_transpose1d({signal}, torch.ones(1, 2, 3, dtype=torch.double), stride=2)", f"F.avg_pool2d({image}, 2, padding=1)",
            f"F.layer_norm({v}.double(), {v}.shape[-1:])", f"F.softmax({v}.double(), {d})", f"F.normalize({v}.double(), dim={d})", f"F.gelu({v}.double())",
            f"F.log_softmax({v}.double() / {size}, {d})", f"F.group_norm({signal}, 1)", f"F.one_hot({v}.long() % 5, 5)",
            f"F.linear({v}.double(), torch.ones({number}, {v}.shape[-1], dtype=torch.double))", f"F.embedding({v}.long() % 4, torch.ones(4, {number}))",
            f"F.mse_loss({v}.double(), {v}.double() * 2)", f"F.cosine_similarity({v}.double(), {v}.double() + 1, {d})", f"F.unfold({image}, 2)",
            f"F.scaled_dot_product_attention({image}, {image}, {image}, is_causal={rng.choice((True, False))})", f"F.glu({v}.double(), {d})",
            f"F.pixel_unshuffle({v}.reshape(1, 1, -1, 2), 2)", f"F.batch_norm({v}.double().reshape(-1, 2), None, None, training=True)",
            f"F.cross_entropy({v}.double().reshape(-1, {size}), torch.zeros({v}.numel() // {size}, dtype=torch.long))",
        ))  # fmt: skip

