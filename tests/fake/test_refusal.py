"""What a rule or a meta kernel refuses is refused with eager's error, or not at all; programs may catch it."""

import pytest
import torch
import torch.nn.functional as F

import dyncomp
from dyncomp.fake import FakeError, FakeMode, NoShapeRule

INT, BOOL = torch.ones(2, 3, dtype=torch.int64), torch.ones(2, 3, dtype=torch.bool)
DOUBLE = torch.ones(3, 3, dtype=torch.float64)
CALLS = {
    "sub of truths": lambda: torch.sub(BOOL, BOOL),
    "neg of truths": lambda: -BOOL,
    "layer norm of integers": lambda: F.layer_norm(INT, (3,)),
    "layer norm over no dimension": lambda: F.layer_norm(torch.ones(()), ()),
    "group norm of integers": lambda: F.group_norm(INT[None], 2),
    "leaky relu of integers": lambda: F.leaky_relu(INT),
    "softplus of integers": lambda: F.softplus(INT),
    "softshrink of integers": lambda: F.softshrink(INT),
    "elu of truths": lambda: F.elu(BOOL),
    "pooling of bytes": lambda: F.avg_pool1d(INT.to(torch.uint8)[None], 2),
    "complex of integers": lambda: torch.complex(INT, INT),
    "polar of integers": lambda: torch.polar(INT, INT),
    "amax along no dimension": lambda: torch.amax(torch.ones(2, 3), dim=5),
    "aminmax along no dimension": lambda: torch.aminmax(torch.ones(2, 3), dim=5),
    "cat along no dimension": lambda: torch.cat([torch.ones(2, 3), torch.ones(2, 3)], dim=4),
    "narrow copy beyond the end": lambda: torch.narrow_copy(torch.ones(5), 0, 8, 1),
    "embedding in a vector": lambda: F.embedding(torch.tensor([1]), torch.ones(4)),
    "floor division of complex numbers": lambda: torch.ones(2, dtype=torch.complex64) // 2,
    "geometric of truths": lambda: BOOL.clone().geometric_(0.5),
    "matrices of two dtypes": lambda: torch.ones(3, 3) @ DOUBLE,
    "a matrix and a vector of two dtypes": lambda: torch.ones(3, 3) @ DOUBLE[0],
    "vectors of two dtypes": lambda: torch.ones(3) @ DOUBLE[0],
    "batches of two dtypes": lambda: torch.ones(1, 3, 3).bmm(DOUBLE[None]),
    "linear of two dtypes": lambda: F.linear(torch.ones(3, 3), torch.ones(3, 3), DOUBLE[0]),
    "addmm of two dtypes": lambda: torch.addmm(DOUBLE, torch.ones(3, 3), torch.ones(3, 3)),
    "convolution of two dtypes": lambda: F.conv1d(torch.ones(1, 3, 3), DOUBLE[None]),
    "layer norm with another dtype": lambda: F.layer_norm(torch.ones(3, 3), (3,), DOUBLE[0]),
    "batch norm with another dtype": lambda: F.batch_norm(torch.ones(3, 3), DOUBLE[0].clone(), DOUBLE[1].clone(), training=True),
    "index add of another dtype": lambda: torch.ones(3, 3).index_add(0, torch.tensor([0]), DOUBLE[:1]),
    "index put of another dtype": lambda: torch.ones(3, 3).index_put((torch.tensor([0]),), DOUBLE[0]),
    "index put of another dtype in place": lambda: torch.ones(3, 3).__setitem__(torch.tensor([0]), DOUBLE[0]) or torch.ones(3),
    "index select by a matrix": lambda: torch.ones(3, 3).index_select(0, torch.tensor([[0]])),
    "softmax along no dimension": lambda: torch.ones(3, 3).softmax(3),
    "sort along no dimension": lambda: torch.ones(3, 3).sort(4)[0],
    "stable sort along no dimension": lambda: torch.ones(3, 3).sort(stable=True, dim=4)[0],
    "largest of nothing": lambda: torch.ones(0, 3).max(),
    "largest of nothing along a dimension": lambda: torch.ones(0, 3).max(0)[0],
    "matrices that do not fit": lambda: torch.ones(2, 3) @ torch.ones(2, 3),
}
if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13):  # before, the meta kernel takes it, and the graph raises
    CALLS["embedding by floats"] = lambda: F.embedding(torch.ones(3), torch.ones(4, 2))


def outcome(function, *args):
    try:
        return None, function(*args)
    except FakeError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is
        return type(error), None


@pytest.mark.parametrize("name", CALLS)
def test_the_class_of_the_error_is_eagers(name):
    want, _ = outcome(CALLS[name])
    assert want is not None
    got, result = outcome(lambda: FakeMode().run(CALLS[name]))
    assert got is want, result


@pytest.mark.parametrize("name", CALLS)
def test_programs_that_catch_it(fresh, name):
    want, _ = outcome(CALLS[name])

    def f(x):
        try:
            y = CALLS[name]().sum()
        except want:
            y = 1
        except Exception:  # noqa: BLE001 - whatever it is
            y = 2
        return x.sin() + y

    x = torch.rand(3)
    torch.testing.assert_close(dyncomp.optimize(f)(x), x.sin() + 1)


def test_a_call_that_eager_runs_is_not_refused(monkeypatch):
    """The kernel for tensors without data is stricter: the operation cannot be shaped, which is no error of the program."""
    from dyncomp.fake import infer

    def strict(op, args, kwargs):
        raise IndexError("never")

    monkeypatch.setattr(infer, "_by_rule_or_kernel", strict)
    mode = FakeMode()
    with pytest.raises(NoShapeRule, match=r"aten\.cumsum.*IndexError: never, which eager does not raise"):
        mode.run(lambda x: x.cumsum(0), (mode.from_real(torch.rand(4)),))
    assert dyncomp.optimize(lambda t: t.cumsum(0))(torch.ones(3)).tolist() == [1, 2, 3]


def test_asking_leaves_random_numbers_alone(fresh):
    def f(x):
        try:
            torch.ones(4, dtype=torch.bool).log_normal_()
        except (RuntimeError, NotImplementedError):
            pass
        return x + torch.rand(3)

    x = torch.ones(3)
    torch.manual_seed(1)
    want = f(x)
    torch.manual_seed(1)
    torch.testing.assert_close(dyncomp.optimize(f)(x), want, rtol=0, atol=0)


@pytest.mark.parametrize("shape", [(4096, 4096), (2, 3)])
def test_large_calls_keep_the_first_error(shape):
    """Asking takes memory and time; the kernel's own error stands then, whatever its class."""
    with pytest.raises((RuntimeError, NotImplementedError)):
        FakeMode().run(lambda: F.layer_norm(torch.empty(shape, dtype=torch.int64), shape[-1:]))


def test_an_error_that_depends_on_the_data_is_nobodys_word(fresh):
    """Lengths of 0 are refused; which ones come shows at the call alone."""

    def program(x, lengths):
        try:
            packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        except RuntimeError:
            return x
        return packed.data * 2

    compiled = dyncomp.optimize(program)
    x = torch.randn(2, 5, 3)
    for lengths in ([3, 5], [0, 5], [1, 1]):
        lengths = torch.tensor(lengths)
        assert torch.equal(compiled(x, lengths), program(x, lengths))
    assert not any(record.reason == "eager-error" for record in dyncomp.counters.breaks())
