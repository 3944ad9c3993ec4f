"""nn.Module: hooks of every kind, state churn, parametrizations, weight norm, copies, optimised modules inside others."""

import copy
import pickle
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrizations, parametrize

from tests.programs.program import ones, outcome, program


@program
def test_forward_hooks_added_and_removed(C):
    m = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    fast = C(m)
    log = []
    out = [fast(ones()).detach()]
    h1 = m.register_forward_hook(lambda mod, args, y: y * 10)
    out.append(fast(ones()).detach())
    h2 = m[0].register_forward_pre_hook(lambda mod, args: (args[0] + 1,))
    h3 = m[1].register_forward_hook(lambda mod, args, y: log.append(type(mod).__name__))
    out.append(fast(ones()).detach())
    h1.remove()
    out.append(fast(ones()).detach())
    h2.remove()
    h3.remove()
    out.append(fast(ones()).detach())
    return out, log


@program
def test_hooks_with_kwargs_prepend_always_call(C):
    class M(nn.Module):
        def forward(self, x, *, k=1):
            if k < 0:
                raise ValueError("k")
            return x * k

    m = M()
    fast = C(m)
    log = []
    out = [fast(ones(), k=2)]
    m.register_forward_pre_hook(lambda mod, args, kw: (args, {"k": kw["k"] + 1}), with_kwargs=True)
    m.register_forward_hook(lambda mod, args, kw, y: log.append(sorted(kw)), with_kwargs=True, prepend=True)
    out.append(fast(ones(), k=2))
    m.register_forward_hook(lambda *a: log.append("always"), always_call=True)
    out.append(fast(ones(), k=5))
    return out, outcome(fast, ones(), k=-9), log


@program
def test_global_forward_hook(C):
    from torch.nn.modules.module import register_module_forward_hook

    m = nn.Linear(2, 2)
    fast = C(m)
    first = fast(ones()).detach()
    handle = register_module_forward_hook(lambda mod, args, y: y + 100)
    try:
        second = fast(ones()).detach()
    finally:
        handle.remove()
    return first, second, fast(ones()).detach()


@program
def test_tensor_hooks_registered_inside(C):
    seen = []

    def f(x):
        y = x * 3
        y.register_hook(lambda g: seen.append(g.clone()) or g * 2)
        return (y * y).sum()

    fast = C(f)
    x = ones().requires_grad_()
    fast(x).backward()
    return x.grad, seen


@program
def test_full_backward_hook(C):
    lin = nn.Linear(2, 2)
    seen = []
    lin.register_full_backward_hook(lambda mod, gi, go: seen.append(go[0].clone()))
    fast = C(lin)
    x = ones().requires_grad_()
    fast(x).sum().backward()
    return x.grad, seen, lin.weight.grad


@program
def test_state_dict_and_load_between_calls(C):
    m = nn.Linear(2, 2)
    fast = C(m)
    first = fast(ones()).detach()
    state = {k: torch.ones_like(v) for k, v in m.state_dict().items()}
    fast.load_state_dict(state)
    second = fast(ones()).detach()
    m.load_state_dict({k: v * 2 for k, v in state.items()}, assign=True)
    return first, second, fast(ones()).detach(), list(fast.state_dict())


@program
def test_weight_norm_and_spectral_norm(C):
    torch.manual_seed(3)
    a = parametrizations.weight_norm(nn.Linear(3, 3))
    b = parametrizations.spectral_norm(nn.Linear(3, 3))
    fast = C(lambda x: b(a(x)))
    out = [fast(ones(2, 3)).detach() for _ in range(2)]
    b.eval()
    out.append(fast(ones(2, 3)).detach())
    fast(ones(2, 3)).sum().backward()
    return out, a.parametrizations.weight.original0.grad, b.bias.grad


@program
def test_old_weight_norm(C):
    torch.manual_seed(3)
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        m = torch.nn.utils.weight_norm(nn.Linear(3, 3))
    fast = C(m)
    first = fast(ones(3)).detach()
    m.weight_g.data.mul_(2)
    return first, fast(ones(3)).detach()


@program
def test_custom_parametrization_added_later(C):
    class Double(nn.Module):
        def forward(self, w):
            return w * 2

    lin = nn.Linear(2, 2)
    fast = C(lin)
    first = fast(ones()).detach()
    parametrize.register_parametrization(lin, "weight", Double())
    second = fast(ones()).detach()
    parametrize.remove_parametrizations(lin, "weight", leave_parametrized=False)
    return first, second, fast(ones()).detach()


@program
def test_deepcopy_of_the_compiled_module(C):
    m = nn.Sequential(nn.Linear(2, 2))
    fast = C(m)
    fast(ones())
    twin = copy.deepcopy(fast)
    with torch.no_grad():
        twin[0].weight.add_(1)
    again = pickle.loads(pickle.dumps(fast))
    return fast(ones()).detach(), twin(ones()).detach(), again(ones()).detach(), torch.equal(m[0].weight, fast[0].weight)


@program
def test_deepcopy_of_a_holder_of_a_compiled_function(C):
    class Holder:
        def __init__(self):
            self.scale = 2.0
            self.fn = C(_scaled)

    h = Holder()
    other = copy.deepcopy(h)
    other.scale = 5.0
    return h.fn(ones(), h.scale), other.fn(ones(), other.scale)


def _scaled(x, s):
    return x * s


@program(graphs=1)
def test_optimised_module_inside_a_captured_function(C):
    inner = C(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    outer = C(lambda x: inner(x) + 1)
    return outer(ones()).detach(), outer(ones()).detach()


@program(graphs=1)
def test_optimised_submodules_inside_an_optimised_module(C):
    m = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    m[0] = C(m[0])
    m.add_module("late", C(nn.ReLU()))
    fast = C(m)
    return fast(ones()).detach(), fast(ones()).detach(), list(fast.state_dict())


@program(graphs=1)
def test_optimised_function_inside_a_captured_function(C):
    inner = C(lambda x, k=2: x * k)
    outer = C(lambda x: inner(x) + inner(x, k=3))
    return outer(ones()), outer(ones())


@program(graphs=1)
def test_optimised_method_inside(C):
    class A:
        def __init__(self):
            self.n = 3
            self.fast = C(self.slow)

        def slow(self, x):
            return x * self.n

    a = A()
    outer = C(lambda x: a.fast(x) + 1)
    return outer(ones()), outer(ones())


@program(graphs=1)
def test_decorated_method_of_a_class(C):
    class A(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(2, 2)

        @C
        def helper(self, x):
            return self.lin(x)

        def forward(self, x):
            return self.helper(x) * 2

    m = A()
    fast = C(m)
    return fast(ones()).detach(), fast(ones()).detach()


@program
def test_optimise_twice(C):
    lin = nn.Linear(2, 2)
    fast = C(C(lin))
    fn = C(C(lambda x: x + 1))
    return fast(ones()).detach(), fn(ones()), isinstance(fast, nn.Linear), list(fast.state_dict())


@program
def test_attributes_written_inside_and_outside(C):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = None
            self.history = []

        def forward(self, x):
            if self.last is not None:
                x = x + self.last
            self.last = x.detach() * 2
            self.history.append(x.shape)
            return x

    m = M()
    fast = C(m)
    out = [fast(ones()) for _ in range(3)]
    fast.last = None
    out.append(fast(ones()))
    return out, m.last, fast.last is m.last, len(m.history)


@program
def test_buffers_updated_in_training(C):
    m = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    fast = C(m)
    torch.manual_seed(2)
    x = torch.randn(4, 2)
    out = [fast(x).detach() for _ in range(3)]
    m.eval()
    out.append(fast(x).detach())
    return out, m[1].running_mean, m[1].num_batches_tracked


@program
def test_parameter_created_inside(C):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = None

        def forward(self, x):
            if self.w is None:
                self.w = nn.Parameter(torch.full((x.shape[-1],), 2.0))
            return x * self.w

    m = M()
    fast = C(m)
    out = [fast(ones()).detach() for _ in range(3)]
    fast(ones()).sum().backward()
    return out, [n for n, _ in m.named_parameters()], m.w.grad


@program
def test_register_inside_forward(C):
    class M(nn.Module):
        def forward(self, x):
            if not hasattr(self, "b"):
                self.register_buffer("b", torch.zeros(2))
                self.extra = nn.Linear(2, 2, bias=False)
                nn.init.eye_(self.extra.weight)
            self.b += 1
            return self.extra(x) + self.b

    m = M()
    fast = C(m)
    return [fast(ones()).detach() for _ in range(3)], list(m.state_dict()), m.b


@program
def test_lazy_modules(C):
    m = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())
    fast = C(m)
    torch.manual_seed(1)
    y = fast(ones(4, 2))
    return y.shape, fast(ones(4, 2)).shape, type(m[0]).__name__, type(m[1]).__name__


@program
def test_module_getattr_override(C):
    class Wrap(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattr__("inner"), name)

        def forward(self, x):
            return F.linear(x, self.weight, self.bias) + self.in_features

    m = Wrap(nn.Linear(2, 2))
    fast = C(m)
    return fast(ones()).detach(), fast(ones()).detach(), outcome(lambda: fast.nope)[0]


@program
def test_named_iterators_inside(C):
    m = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.ReLU()))

    def f(x):
        names = [n for n, _ in m.named_parameters()]
        total = sum(p.sum() for p in m.parameters())
        kids = [n for n, _ in m.named_children()], [type(k).__name__ for k in m.modules()]
        return x + total, names, kids, len(list(m.buffers()))

    fast = C(f)
    y, *rest = fast(ones())
    return y.detach(), rest


@program
def test_apply_train_requires_grad_inside(C):
    m = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))

    def f(x):
        m.eval()
        y = m(x)
        m.train()
        return y

    fast = C(f)
    return fast(ones()).detach(), m.training, m[1].training, fast(ones()).detach()


@program
def test_forward_replaced_on_instance(C):
    m = nn.ReLU()
    fast = C(m)
    x = torch.tensor([-1.0, 1.0])
    out = [fast(x)]
    m.forward = lambda t: t * 5
    out.append(fast(x))
    del m.forward
    out.append(fast(x))
    nn.ReLU.forward, saved = (lambda self, t: t + 50), nn.ReLU.forward
    try:
        out.append(fast(x))
    finally:
        nn.ReLU.forward = saved
    return out


@program
def test_call_overridden(C):
    class M(nn.Linear):
        def __call__(self, x):
            return super().__call__(x) * 2

    m = M(2, 2)
    fast = C(m)
    outer = C(lambda x: m(x) + 1)
    return fast(ones()).detach(), outer(ones()).detach()


@program
def test_shared_module_called_twice_with_counter(C):
    class Counted(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x + self.calls

    c = Counted()
    m = nn.Sequential(c, nn.ReLU(), c)
    fast = C(m)
    return [fast(ones()) for _ in range(3)], c.calls


@program
def test_subclass_of_sequential_with_extra_args(C):
    class Seq(nn.Sequential):
        def forward(self, x, k):
            for layer in self:
                x = layer(x) * k
            return x

    m = Seq(nn.ReLU(), nn.Tanh())
    fast = C(m)
    return fast(ones(), 2), fast(ones(), k=3), fast[0] is m[0], len(fast)


@program
def test_methods_of_the_wrapper(C):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(2, 2)

        def forward(self, x):
            return self.lin(x)

        def encode(self, x):
            return self.lin(x) * 2

    m = M()
    fast = C(m)
    return fast.encode(ones()).detach(), fast.eval() is not None, m.training, [n for n, _ in fast.named_modules()]


@program
def test_functional_call(C):
    lin = nn.Linear(2, 2)

    def f(x, w):
        return torch.func.functional_call(lin, {"weight": w}, (x,))

    fast = C(f)
    return fast(ones(), torch.eye(2)).detach(), fast(ones(), torch.eye(2) * 3).detach(), lin(ones()).detach()


@program
def test_checkpointing(C):
    from torch.utils.checkpoint import checkpoint

    lin = nn.Linear(2, 2)
    fast = C(lambda x: checkpoint(lambda t: torch.sin(lin(t)), x, use_reentrant=False))
    x = ones().requires_grad_()
    y = fast(x)
    y.sum().backward()
    return y.detach(), x.grad, lin.weight.grad


@program(graphs=1)
def test_modules_made_inside_after_another_compiler_ran(C):
    with warnings.catch_warnings():  # torch's own word about a bug of CPython 3.13.0
        warnings.filterwarnings("ignore", "Guards may run slower on Python 3.13.0", RuntimeWarning)
        torch.compile(nn.Linear(2, 2), backend="eager")(torch.ones(1, 2))  # from now on it notes every new module
    layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])

    def f(x):
        for layer in layers[:2]:
            x = layer(x)
        return x

    with torch.no_grad():
        return C(f)(ones())
