"""What is fused with what, and how the loops of the kernels lie."""

import pytest
import torch

from dyncomp import config
from dyncomp.codegen.ir.nodes import Init, Loop, Store
from dyncomp.codegen.ir.printer import print_kernel
from tests.codegen.graphs import assert_close, flat, kernels_of, run_interpreted, schedule_of

F = torch.nn.functional
R = torch.randn

# The functions whose kernels are measured against other compilers, smaller.
SINGLE = {
    "sin_cos": (lambda x: torch.sin(torch.cos(x)), R(1 << 10)),
    "gelu_chain": (lambda x: F.gelu(torch.sigmoid(x) * torch.tanh(x) + torch.exp(-x * x)), R(1 << 10)),
    "softmax": (lambda x: torch.softmax(x, -1), R(64, 128)),
    "layer_norm_gelu": (lambda x, w, b: F.gelu(F.layer_norm(x, (96,), w, b)), R(64, 96), R(96), R(96)),
    "column_sum": (lambda x: x.sum(0), R(128, 256)),
    "add_transposed": (lambda x, y: x + y.t(), R(128, 128), R(128, 128)),
    "squared_row_sum": (lambda x, w: (x.float() * w).pow(2).sum(-1), R(64, 256).bfloat16(), R(256)),
    "strided": (lambda x, w: torch.relu(x[:, ::2] * w + 1), R(64, 256), R(128)),
}


@pytest.mark.parametrize("name", SINGLE)
def test_one_kernel_without_temporaries(name):
    function, *inputs = SINGLE[name]
    steps = schedule_of(function, *inputs).steps
    assert len(steps) == 1
    assert len(steps[0].buffers) == len(inputs) + 1
    assert_close(run_interpreted(function, *inputs), [function(*inputs)], scale=5)


def only(function, *inputs):
    (kernel,) = kernels_of(function, *inputs)
    return kernel.kernel


def test_contiguous_pointwise_is_one_loop():
    kernel = only(lambda x: x.view(8, 4, 16).exp() + 1, R(8, 64))
    assert [v.extent for v in kernel.axes] == [512]
    assert kernel.vector is kernel.axes[0]
    assert all(isinstance(s, Store) for s in kernel.body)


def test_channels_last_runs_in_memory_order():
    image = R(2, 8, 5, 6).to(memory_format=torch.channels_last)
    kernel = only(lambda x: x.relu(), image)
    assert [v.extent for v in kernel.axes] == [480]


def test_permuted_result_of_a_permuted_input_is_one_loop():
    kernel = only(lambda x: x.permute(2, 0, 1).exp(), R(4, 6, 8))
    assert len(kernel.axes) == 1


def test_row_and_column_reductions_put_lanes_along_memory():
    rows = only(lambda x: x.sum(1), R(64, 96))
    assert isinstance(rows.body[0], Init) and rows.vector.extent == 96
    columns = only(lambda x: x.sum(0), R(96, 64))
    assert isinstance(columns.body[0], Loop) and columns.body[0].var is columns.vector


def test_transposed_read_gets_a_tile():
    kernel = only(lambda x, y: x + y.t(), R(128, 128), R(128, 128))
    assert kernel.tile is not None and kernel.tile.extent == 64 and kernel.vector.extent == 64


def test_costly_row_values_are_kept():
    kernel = only(lambda x: torch.softmax(x, -1), R(8, 128))
    assert [s.extent for s in kernel.scratch] == [128]
    assert print_kernel(kernel).count("'exp'") == 1


def test_cheap_producers_are_recomputed_not_stored():
    kernels = kernels_of(lambda x: ((x + 1).exp().sum(-1), (x + 1).log().sum(0)), R(64, 64).abs())
    assert all(len(k.buffers) == 2 for k in kernels)


def test_loops_over_one_input_are_joined():
    (kernel,) = kernels_of(lambda x: (x.exp(), x.sin(), x * 2), R(64, 64))
    assert len(kernel.buffers) == 4


def test_reduction_feeds_the_kernel_that_made_its_input():
    (kernel,) = kernels_of(lambda x: (lambda y: (y, y.sum(-1)))(x.exp()), R(64, 64))
    assert len(kernel.buffers) == 3


def test_both_sides_of_a_call_stay_apart():
    steps = schedule_of(lambda x, w: (x.exp() @ w).relu() + x.exp(), R(8, 8), R(8, 8)).steps
    assert len(steps) == 3


def test_layer_norm_after_residual_is_one_kernel():
    def block(x, y, w, b):
        total = x + y
        return total, F.layer_norm(total, (64,), w, b)

    (kernel,) = kernels_of(block, R(2, 8, 64), R(2, 8, 64), R(64), R(64))
    assert len(kernel.buffers) == 6


def test_batch_norm_relu_add_is_one_large_kernel():
    def block(x, y, m, v, w, b):
        return F.relu(F.batch_norm(x, m, v, w, b) + y)

    image, channel = R(2, 8, 16, 16), R(8).abs() + 0.1
    kernels = kernels_of(block, image, image, channel, channel, channel, channel)
    assert sum(k.units > 8 for k in kernels) == 1 and len(kernels) == 2


def test_equal_layers_give_equal_kernels():
    def layers(x, w, b):
        for _ in range(3):
            x = F.layer_norm(x @ x, (16,), w, b)
        return x

    texts = {print_kernel(k.kernel) for k in kernels_of(layers, R(16, 16), R(16), R(16))}
    assert len(texts) == 1


def test_fusion_can_be_switched_off():
    def function(x):
        return (x.exp() + x.sin()).sum(-1)

    x = R(8, 16)
    with config.patch(fusion=False):
        got = run_interpreted(function, x)
    assert_close(got, flat(function(x)))


def test_random_calls_keep_their_order():
    names = [s.name for s in schedule_of(lambda x: (torch.rand_like(x), torch.randn_like(x)), R(4)).steps]
    assert names == ["aten::rand_like", "aten::randn_like"]


def test_long_chains_do_not_nest():
    def chain(x):
        for _ in range(400):
            x = torch.sin(x) + 1
        return x

    x = R(16)
    assert_close(run_interpreted(chain, x), [chain(x)], scale=5)


def test_rotary_halves_keep_plain_indices():
    def rotate(q, c, s):
        q = q.view(1, 8, 4, 16).transpose(1, 2)
        return q * c + torch.cat((-q[..., 8:], q[..., :8]), -1) * s

    kernel = only(rotate, R(8, 64), R(8, 16), R(8, 16))
    assert "%" not in print_kernel(kernel)


def test_a_part_beyond_the_end_has_loops_of_its_own():
    """12 x 4 and 16 x 3 are as many elements; the second reads the first, where it is long enough."""

    def parts(x):
        whole = x * 2
        return whole, torch.cat([whole[:, :3] + 1, torch.zeros(4, 3)])

    x = R(12, 4)
    assert_close(flat(run_interpreted(parts, x)), flat(parts(x)))
    assert_close(
        flat(run_interpreted(lambda x: (x + 1, F.pad(x + 1, (0, -1, 0, 4)) * 2), x)),
        flat((x + 1, F.pad(x + 1, (0, -1, 0, 4)) * 2)),
    )
