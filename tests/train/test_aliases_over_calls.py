"""Programs that write and share memory, called three times with gradients in between: what an observer of eager sees of each tensor.

That is values, layout, version counters, which tensors share memory, are views of one another, or are the same, and whether they
have a history; before and after what was returned is written to, and the errors of backwards that come too late.
"""

import pytest
import torch
import torch.nn.functional as F
from torch.autograd.graph import increment_version

from tests.train.train_checks import same_story


def values():
    return torch.linspace(-1, 1, 12).reshape(4, 3)


def leaf():
    x = values().requires_grad_()
    return x, [x]


def result():
    x = values().requires_grad_()
    return x * 1, [x]


def plain():
    return values(), []


def view_of_a_result():
    x = torch.stack([values(), values() + 1]).requires_grad_()
    base = x * 1
    return base[1], [x, base]


def view():
    base = torch.stack([values(), values() + 1])
    return base[1], [base]


def detached():
    x = values().requires_grad_()
    middle = x * 1
    return middle.detach(), [x, middle]


KINDS = [leaf, result, plain, view_of_a_result, view, detached]
TRAINED = {leaf, result, view_of_a_result}


def write_and_return(x, w):
    x.add_(w)
    return x


def write_a_view(x, w):
    y = x[1:]
    y.mul_(w)
    return y, x.sum()


def views_before_their_base(x, w):
    z = x * w
    return z[0], z[1], z


def views_of_views(x, w):
    z = (x * w).t()
    return z[0], z


def inputs_and_views(x, w):
    return x, x[0], x.t(), x * w


def detached_aliases(x, w):
    z = x * w
    return z.detach(), z, x.detach()


def data_aliases(x, w):
    z = x * w
    return z.data, z, x.data


def write_data(x, w):
    x.data.mul_(2)
    return x * w, x.data[0]


def write_detached(x, w):
    x.detach().mul_(2)
    return x * w


def write_without_gradient(x, w):
    with torch.no_grad():
        x[0].mul_(2)
    return (x * w).sum()


def made_without_gradient(x, w):
    with torch.no_grad():
        z = x * w
        v = x[0]
    return z, v, x * w


def result_written_without_gradient(x, w):
    z = x * w
    with torch.no_grad():
        z.mul_(2)
    return z, z.sum()


def write_views_of_a_result(x, w):
    z = x * w
    z[0].mul_(3)
    z[:, 1].add_(w[1])
    return z, z[0]


def write_a_detached_result(x, w):
    z = x + w
    z.detach().mul_(2)
    return z


def chain(x, w):
    z = (x * w).view(3, 4)
    z.t().add_(1)
    return z.view(-1), z


def turned(x, w):
    z = x * w
    v = z[:3]
    z.t_()
    return z, v


def squeezed(x, w):
    v = x.unsqueeze(0)
    v.squeeze_(0)
    return v, v * w


def one_twice(x, w):
    z = x * w
    return z, z, z.sum()


def a_leaf_made_inside(x, w):
    z = x.detach() * w
    z.requires_grad_()
    return z, (z * x).sum()


def masked(x, w):
    z = x * w
    z[z > 0] = 0.0
    return z


def parts_copied(x, w):
    z = torch.zeros(4, 3)
    z[1:] = x[1:] * w
    return z, z[0]


def chunks(x, w):
    a, b = x.chunk(2)
    return a * w, b, torch.stack([a, b])


def rows(x, w):
    return (x * w).unbind()


def halves(x, w):
    return x.split(2)


def relu_of_the_input(x, w):
    F.relu_(x)
    return x * w


def relu_of_a_result(x, w):
    z = x * w
    F.relu_(z)
    return z


def operand_written_later(x, w):
    z = x + w
    w.add_(1)
    return z


def kept_value_written_later(x, w):
    a = x * 2
    b = a.exp()
    b.mul_(w)
    return a, b


def diagonal(x, w):
    z = x * w
    z.diagonal().zero_()
    return z, z.diagonal()


def as_strided(x, w):
    z = x * w
    return z.as_strided((2, 2), (3, 1)), z


def copy_in_another_shape(x, w):
    return x.t().reshape(-1)


def written_through_a_view_of_all(x, w):
    y = x.view_as(x)
    y.mul_(2)
    return y, x


def parts_of_what_was_written(x, w):
    z = torch.arange(12.0).reshape(4, 3) * w
    v = z[:3]
    v += 1
    return v, z[1:], x.sum()


def a_part_before_the_whole(x, w):
    z = torch.arange(12.0).reshape(4, 3) * w
    v = z[:3]
    v += 1
    return v, z, x.sum()


def a_part_before_a_detached_whole(x, w):
    z = x * w
    v = z[:3]
    v += 1
    return v, v.t(), z.detach()


PROGRAMS = [
    write_and_return, write_a_view, views_before_their_base, views_of_views, inputs_and_views, detached_aliases, data_aliases, write_data,
    write_detached, write_without_gradient, made_without_gradient, result_written_without_gradient, write_views_of_a_result,
    write_a_detached_result, chain, turned, squeezed, one_twice, a_leaf_made_inside, masked, parts_copied, chunks, rows, halves,
    relu_of_the_input, relu_of_a_result, operand_written_later, kept_value_written_later, diagonal, as_strided, copy_in_another_shape,
    written_through_a_view_of_all, parts_of_what_was_written, a_part_before_the_whole, a_part_before_a_detached_whole,
]  # fmt: skip
# Where autograd goes through a call, an alias by `.data` shares the counter of what it is an alias of.
ONE_COUNTER = {data_aliases, write_data}


def described(tensor, others):
    shared = tensor.untyped_storage()._cdata
    try:
        history = [tensor.requires_grad, tensor.is_leaf, tensor.grad_fn is None]
    except RuntimeError as error:  # a view that autograd lets nothing through any more
        history = [str(error)]
    return [
        tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor._is_view(), tensor._version, *history,
        [tensor._base is one for one in [None, *others]], [tensor is one for one in others],
        [one.untyped_storage()._cdata == shared for one in others], tensor.data.clone(),
    ]  # fmt: skip


def error_of(call):
    try:
        call()
    except RuntimeError as error:
        return str(error)
    return None


@pytest.mark.parametrize("backend", ["codegen", "aot_eager"])
@pytest.mark.parametrize("program, kind", [(p, k) for p in PROGRAMS for k in KINDS if k not in TRAINED or p not in ONE_COUNTER])
def test_programs(program, kind, backend):
    def story(compiled):
        run, seen = compiled(program), []
        w = torch.linspace(0.5, 1.5, 3)
        x, others = kind()
        for call in range(3):
            try:
                results = run(x, w)
            except RuntimeError as error:
                return [*seen, str(error), x._version]
            results = results if isinstance(results, tuple | list) else (results,)
            everyone = [x, w, *others, *results]
            seen.append([described(one, everyone) for one in everyone])
            trained = [(one * torch.arange(1.0, one.numel() + 1).reshape(one.shape)).sum() for one in results if one.requires_grad]
            if trained:
                loss = torch.stack(trained).sum()
                seen.append(error_of(lambda loss=loss, call=call: loss.backward(retain_graph=call == 1)))
            if call == 1:
                for one in results:
                    one.data.mul_(1.5)
                    increment_version(one)
                seen.append([described(one, everyone) for one in everyone])
                seen.append(error_of(loss.backward) if trained else None)
            seen += [one.grad.clone() for one in others if one.is_leaf and one.grad is not None]
            if kind in TRAINED - {leaf}:
                others = others[:1]
                base = others[0] * 1
                x, others = (base, others) if kind is result else (base[1], [*others, base])
        return seen

    same_story(story, backend, fallbacks=("aot", "backward", "inputs-share", "training"))
