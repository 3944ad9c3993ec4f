"""Tensors as Python objects: attributes, data and grad, in-place, views, out=, numpy, subclasses, optimizers inside."""

import copy

import numpy as np
import torch
import torch.nn as nn

from tests.programs.program import ones, outcome, program


@program
def test_attribute_on_a_tensor(C):
    def f(x):
        x.tag = "seen"
        y = x + 1
        y.note = 5
        return y

    fast = C(f)
    x = ones()
    y = fast(x)
    z = fast(x)
    return y, x.tag, getattr(y, "note", None), z


@program
def test_attribute_of_an_input_tensor(C):
    fast = C(lambda x: x * x.scale if hasattr(x, "scale") else x)
    x = ones()
    out = [fast(x)]
    x.scale = 3
    out.append(fast(x))
    x.scale = 4
    out.append(fast(x))
    return out, fast(ones())


@program
def test_data_access_and_assignment(C):
    def f(x, y):
        x.data.add_(1)
        y.data = x * 2
        return x + y.data

    fast = C(f)
    x, y = ones(), ones()
    return fast(x, y), x, y


@program
def test_grad_read_and_write(C):
    w = ones().requires_grad_()

    def step(lr):
        with torch.no_grad():
            if w.grad is not None:
                w.sub_(w.grad * lr)
                w.grad = None
        return w * 2

    fast = C(step)
    out = [fast(0.5).detach()]
    (w * 3).sum().backward()
    out.append(fast(0.5).detach())
    return out, w.detach(), w.grad


@program
def test_grad_zeroed_inside(C):
    w = ones().requires_grad_()
    (w * 3).sum().backward()

    def f(x):
        w.grad.zero_()
        return x + w.grad

    fast = C(f)
    first = fast(ones())
    (w * 3).sum().backward()
    return first, fast(ones()), w.grad


@program
def test_backward_inside(C):
    w = ones().requires_grad_()

    def f(x):
        loss = (w * x).sum()
        loss.backward()
        return loss.detach()

    fast = C(f)
    return fast(ones()), fast(ones() * 2), w.grad


@program
def test_autograd_grad_inside(C):
    def f(x):
        y = (x * x * x).sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        return g * 2

    fast = C(f)
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    out = fast(x)
    out.sum().backward()
    return out.detach(), x.grad


@program
def test_optimizer_step_inside(C):
    torch.manual_seed(0)
    m = nn.Linear(2, 2)
    opts = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9), torch.optim.RMSprop(m.parameters(), lr=0.1)]

    def train(x, opt):
        opt.zero_grad()
        loss = m(x).pow(2).sum()
        loss.backward()
        opt.step()
        return loss.detach()

    fast = C(train)
    return [fast(ones(1, 2), opt) for opt in opts for _ in range(3)], m.weight.detach()


@program
def test_requires_grad_inside(C):
    def f(x):
        y = x * 1
        y.requires_grad_()
        z = (y * y).sum()
        return z, y.requires_grad, y.is_leaf

    fast = C(f)
    z, *rest = fast(ones())
    z.backward()
    return z.detach(), rest


@program
def test_detach_and_leaf_facts(C):
    def f(x):
        y = x * 2
        return y, y.detach(), x.is_leaf, y.is_leaf, y.requires_grad, y.detach().requires_grad, y.grad_fn is None

    fast = C(f)
    x = ones().requires_grad_()
    y, *rest = fast(x)
    y.sum().backward()
    return x.grad, rest


@program
def test_inplace_on_views_of_inputs(C):
    def f(x):
        a = x[0]
        b = x.view(-1)
        a.add_(1)
        b[3] = 50
        x.t()[0].mul_(2)
        return a, b, x.sum()

    fast = C(f)
    x = torch.zeros(2, 2)
    return fast(x), x


@program
def test_out_argument(C):
    def f(x, out):
        r = torch.add(x, 1, out=out)
        torch.mul(x, 3, out=out[0]) if out.ndim > 1 else None
        return r is out, out + 1

    fast = C(f)
    out = torch.zeros(2)
    return fast(ones(), out), out


@program
def test_out_argument_with_resize(C):
    def f(x, out):
        torch.add(x, 1, out=out)
        return out * 2

    fast = C(f)
    out = torch.empty(0)
    y = fast(ones(), out)
    return y, out


@program
def test_resize_and_set(C):
    def f(x):
        x.resize_(3)
        x.zero_()
        return x + 1

    fast = C(f)
    x = ones()
    y = fast(x)
    z = ones()

    def g(a, b):
        a.set_(b)
        a.add_(1)
        return a * 2

    b = ones(4)
    r = C(g)(z, b)
    return y, x, r, z, b


@program
def test_numpy_round_trip(C):
    def f(x):
        a = x.numpy()
        a = a * 2 + np.float32(1)
        return torch.from_numpy(a) + x

    fast = C(f)
    return fast(ones()), fast(ones())


@program
def test_numpy_shares_memory(C):
    def f(x):
        a = x.numpy()
        a[0] = 9
        x.add_(1)
        return x * 1, a.sum()

    fast = C(f)
    x = ones()
    y, total = fast(x)
    return y, float(total), x


@program
def test_numpy_array_argument(C):
    fast = C(lambda x, a: x + torch.as_tensor(a) + a.shape[0])
    return fast(ones(), np.ones(2, np.float32)), fast(ones(), np.full(2, 5, np.float32))


@program
def test_numpy_scalar_argument(C):
    fast = C(lambda x, s: x * s)
    return [fast(ones(), s) for s in (np.float32(2), np.int64(3), np.float64(0.5), np.bool_(True))]


@program
def test_item_tolist_int_float_bool(C):
    def f(x):
        n = int(x.sum())
        v = x[0].item() + float(x[1])
        return x * n + v, x.tolist(), bool(x.any()), x.long().tolist()

    fast = C(f)
    return fast(ones()), fast(ones() * 3)


@program
def test_tensor_iteration_and_unpacking(C):
    def f(x):
        a, b = x
        rows = [r * 2 for r in x]
        return a + b, rows, len(x), list(reversed(x))[0], sum(x), max(len(r) for r in x)

    return C(f)(torch.arange(4.0).reshape(2, 2))


@program
def test_tensor_in_list_and_dict_membership(C):
    def f(x):
        items = [x + 1, x]
        d = {x: "v"}
        return d[x], x in d, items.index(x) if False else 0, any(x is i for i in items), x + 1

    return C(f)(ones())


@program
def test_tensor_equality_in_list(C):
    def f(x, y):
        return x in [y], [x] == [x]

    fast = C(f)
    a = torch.tensor(1.0)
    return outcome(fast, a, torch.tensor(2.0)), outcome(fast, a, a)


@program
def test_tensor_subclass_plain(C):
    class T(torch.Tensor):
        def double(self):
            return self * 2

    fast = C(lambda x: (x + 1, x.double() if hasattr(x, "double") else x))
    x = ones().as_subclass(T)
    got = fast(x)
    return [type(g).__name__ for g in got], [g.as_subclass(torch.Tensor) for g in got]


@program
def test_tensor_subclass_with_torch_function(C):
    calls = []

    class T(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            calls.append(getattr(func, "__name__", str(func)))
            return super().__torch_function__(func, types, args, kwargs or {})

    fast = C(lambda x: (x + 1) * 2)
    x = ones().as_subclass(T)
    y = fast(x)
    return type(y).__name__, y.as_subclass(torch.Tensor), calls


@program
def test_object_with_torch_function(C):
    class D:
        def __init__(self, v):
            self.v = v

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            args = [a.v if isinstance(a, D) else a for a in args]
            return D(func(*args, **(kwargs or {})))

    fast = C(lambda x, d: torch.add(x, d))
    return fast(ones(), D(ones())).v, fast(ones(), ones())


@program
def test_parameter_made_inside(C):
    def f(x):
        p = nn.Parameter(x * 2)
        return p, isinstance(p, nn.Parameter), p.requires_grad

    p, *rest = C(f)(ones())
    return type(p).__name__, p.detach(), rest


@program
def test_deepcopy_and_clone_of_tensors_inside(C):
    def f(x):
        a = copy.deepcopy(x)
        a.add_(1)
        b = copy.copy(x)
        return a, b, x, b is x

    x = ones()
    return C(f)(x), x


@program
def test_version_counter(C):
    def f(x):
        x.add_(1)
        return x._version

    fast = C(f)
    x = ones()
    first = fast(x)
    return first, x._version, fast(x), x._version


@program
def test_storage_and_data_ptr(C):
    def f(x):
        y = x[1:]
        return y, y.data_ptr() - x.data_ptr(), y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()

    return C(f)(ones(3))


@program
def test_returned_views_alias_inputs(C):
    fast = C(lambda x: (x, x[0], x.t(), x.view(-1), x + 0))
    x = torch.zeros(2, 2)
    a, b, c, d, e = fast(x)
    x.fill_(5)
    return a is x, b, c, d, e


@program
def test_returned_intermediates_alias_each_other(C):
    def f(x):
        y = x + 1
        return y, y[0], y.view(-1)

    y, a, b = C(f)(torch.zeros(2, 2))
    y.fill_(7)
    return a, b


@program
def test_same_tensor_returned_twice(C):
    def f(x):
        y = x + 1
        return y, y, [y]

    a, b, c = C(f)(ones())
    return a is b, c[0] is a


@program
def test_input_returned_after_mutation(C):
    def f(x):
        x += 1
        return x

    fast = C(f)
    x = ones()
    return fast(x) is x, fast(x), x


@program
def test_random_ops_follow_the_seed(C):
    def f(x):
        return x + torch.rand(2), torch.randn(2), torch.randint(0, 9, (3,)), torch.randperm(4), torch.bernoulli(x * 0.5)

    fast = C(f)
    torch.manual_seed(7)
    out = [fast(ones()) for _ in range(3)]
    return out, torch.rand(1)


@program
def test_manual_seed_inside(C):
    def f(x):
        torch.manual_seed(5)
        return x + torch.rand(2)

    fast = C(f)
    return fast(ones()), fast(ones()), torch.rand(1)


@program
def test_fork_rng_and_generator(C):
    g = torch.Generator().manual_seed(3)

    def f(x):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            a = torch.rand(2)
        return x + a, torch.rand(2), torch.rand(2, generator=g)

    fast = C(f)
    torch.manual_seed(9)
    return fast(ones()), fast(ones()), torch.rand(1)


@program
def test_python_and_numpy_random(C):
    import random

    def f(x):
        return x * random.random() + random.randint(0, 5) + float(np.random.rand()), random.choice([1, 2, 3])

    fast = C(f)
    random.seed(1)
    np.random.seed(1)
    return [fast(ones()) for _ in range(4)], random.random()


@program
def test_shape_as_python_data(C):
    def f(x):
        a, b = x.shape
        return x.view(b, a), x.size(), x.shape[-1] * 2, tuple(x.shape) == (2, 3), str(x.shape), x.numel(), x.stride(), len(x.shape)

    fast = C(f)
    return fast(ones(2, 3)), fast(ones(4, 3))


@program
def test_legacy_constructors(C):
    def f(x):
        return torch.Tensor([1, 2]) + x, torch.FloatTensor([3.0]), torch.Tensor(x.size()).shape, torch.LongTensor([1]), x.new([1.0, 2.0])

    return C(f)(ones())


@program
def test_tensor_of_tensors_and_nested_lists(C):
    def f(x):
        return torch.tensor([[1, 2], [3, 4]]), torch.tensor([x[0], 2.0]), torch.stack([x, x]).sum(0), torch.as_tensor(x) is x

    return C(f)(ones())


@program
def test_type_and_dtype_conversions(C):
    def f(x):
        return x.type(torch.float64), x.type(), x.to(torch.int8), x.double().dtype is torch.float64, x.to(x), x.type_as(x.long()), x.is_floating_point()

    return C(f)(ones())


@program
def test_setitem_of_every_kind(C):
    def f(x, i):
        x[0] = 1
        x[1, :] = torch.arange(3.0)
        x[..., -1] = 7
        x[x > 6] = -1
        x[i] += 10
        x[[0, 2], [1, 1]] = 4.5
        return x.sum()

    fast = C(f)
    x = torch.zeros(3, 3)
    return fast(x, torch.tensor([2, 2])), x


@program
def test_getitem_of_every_kind(C):
    def f(x, i, m):
        return x[0], x[-1, 1], x[:, 1:], x[None], x[..., 0], x[i], x[[0, 1]], x[:, i], x[True], x[m], x[i, i], x[::2]

    x = torch.arange(9.0).reshape(3, 3)
    return C(f)(x, torch.tensor([0, 2]), torch.tensor([True, False, True]))


@program
def test_custom_autograd_function(C):
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.save_for_backward(x)
            ctx.k = k
            return x * x * k

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 2 * x * ctx.k * 100, None

    fast = C(lambda x: Square.apply(x * 1, 3).sum())
    x = ones().requires_grad_()
    y = fast(x)
    y.backward()
    return y.detach(), x.grad


@program
def test_vmap_jacrev_grad(C):
    def f(x):
        return torch.func.vmap(lambda r: r * 2 + r.sum())(x), torch.func.grad(lambda t: (t * t).sum())(x), torch.func.jacrev(torch.sin)(x[0])

    fast = C(f)
    return fast(ones(2, 2)), fast(ones(2, 2) * 2)


@program
def test_complex_sparse_quantized_inputs(C):
    fast = C(lambda x: x * 2)
    s = torch.eye(2).to_sparse()
    return fast(torch.tensor([1 + 2j])), fast(s).to_dense(), fast(torch.nested.nested_tensor([ones(1), ones(2)])).unbind()[1]


@program
def test_zero_size_and_zero_dim(C):
    fast = C(lambda x: (x + 1, x.sum(), x.reshape(-1), torch.cat([x.reshape(-1), x.reshape(-1)])))
    return fast(torch.ones(0, 3)), fast(torch.tensor(2.0)), fast(torch.ones(2, 0))


@program
def test_format_of_tensors(C):
    def f(x):
        y = x + 1
        return f"{y}", repr(y), f"{y.sum().item():.2f}", f"{x.shape}", f"{y[0]:.1f}"

    return C(f)(ones())


@program
def test_print_order(C):
    import contextlib
    import io

    def f(x):
        print("before")
        y = x + 1
        print("after", y.sum().item())
        return y

    fast = C(f)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        fast(ones())
        fast(ones())
    return out.getvalue()


@program
def test_grad_of_view_mutation(C):
    def f(x):
        y = x * 2
        y[0] = 0
        z = y.view(-1)
        z.mul_(3)
        return y.sum()

    x = ones(2, 2).requires_grad_()
    C(f)(x).backward()
    return x.grad


@program
def test_inplace_on_leaf_raises(C):
    def f(x):
        x.add_(1)
        return x

    fast = C(f)
    x = ones().requires_grad_()
    return outcome(fast, x), x.detach()


@program
def test_inference_tensor_inputs(C):
    with torch.inference_mode():
        x = ones()
    lin = nn.Linear(2, 2)
    fast = C(lin)
    with torch.inference_mode():
        a = fast(x)
    b = outcome(lambda: fast(ones()).requires_grad)
    return a.is_inference(), a.clone(), b, outcome(lambda: fast(x))[0] if isinstance(outcome(lambda: fast(x)), tuple) else "ok"
