"""Tensor checks: every part of the metadata, open dimensions, and what is refused."""

import pickle

import pytest

torch = pytest.importorskip("torch")

from dyncomp._frame import _core  # noqa: E402


def guard(tensor, **changes):
    spec = _core.tensor_spec(tensor)._replace(**changes)
    return _core.GuardTree([(-1, "local", 0, [("tensor", spec)])], [0], None)


def why(tree, value):
    explained = tree.explain(None, (value,))
    assert (explained is None) == tree.check(None, (value,))
    return explained and explained[2]


BASE = torch.empty(2, 3)

OTHERS = {
    "dtype: expected torch.float32, found torch.float64": torch.empty(2, 3, dtype=torch.float64),
    "device: expected device(type='cpu'), found device(type='meta')": torch.empty(2, 3, device="meta"),
    "requires_grad: expected False, found True": torch.empty(2, 3, requires_grad=True),
    "sizes: expected (2, 3), found (2, 4)": torch.empty(2, 4),
    "strides: expected (3, 1), found (1, 2)": torch.empty(3, 2).t(),
    "found (6,)": torch.empty(6),
    "found <class 'torch.nn.parameter.Parameter'>": torch.nn.Parameter(torch.empty(2, 3)),
    "dispatch keys: expected": torch.empty(2, 3, dtype=torch.complex64).conj(),
}


def test_equal_metadata_passes():
    for other in (BASE, torch.ones(2, 3), torch.empty(4, 3)[1:3], BASE.detach()):
        assert why(guard(BASE), other) is None


@pytest.mark.parametrize("text", OTHERS)
def test_each_difference_is_seen_and_named(text):
    assert text in why(guard(BASE), OTHERS[text])


def test_negative_bit_and_inference_tensors():
    imaginary = torch.empty(2, 3, dtype=torch.complex64).conj().imag
    assert imaginary.is_neg()
    assert "dispatch keys" in why(guard(torch.empty(2, 6)[:, ::2]), imaginary)
    with torch.inference_mode():
        inside = torch.empty(2, 3)
    assert "dispatch keys" in why(guard(BASE), inside)


def test_other_objects_fail():
    for value in (None, 5, "x", [BASE], torch.float32):
        assert "tensor: expected <class 'torch.Tensor'>" in why(guard(BASE), value)


def test_metadata_changed_in_place():
    tensor = torch.empty(2, 3)
    tree = guard(tensor)
    tensor.requires_grad_()
    assert "requires_grad" in why(tree, tensor)
    tensor.requires_grad_(False)
    assert why(tree, tensor) is None
    tensor.t_()
    assert "sizes" in why(tree, tensor)
    tensor.t_()
    tensor.data = torch.empty(2, 3, dtype=torch.float16)
    assert "dtype" in why(tree, tensor)


def test_views_require_grad_with_their_base():
    leaf = torch.ones(4, 3, requires_grad=True)
    with torch.no_grad():
        for view in (leaf[1:], leaf.view(3, 4), leaf.t(), leaf[None].squeeze(0)):
            assert view.requires_grad and view.grad_fn is None
            assert why(guard(view), view) is None
            assert "requires_grad" in why(guard(view.detach()), view)
    base = torch.ones(2, 3)
    view = base[:]
    tree = guard(view)
    assert why(tree, view) is None
    base.mul_(leaf[:2])
    assert "requires_grad: expected False, found True" in why(tree, view)
    assert why(guard(view), view) is None


def test_open_dimensions():
    tree = guard(BASE, sizes=(None, 3), strides=(None, 1))
    assert why(tree, torch.empty(9, 3)) is None
    assert "found (9, 4)" in why(tree, torch.empty(9, 4))
    assert why(tree, torch.empty(9, 6)[:, :3]) is None
    assert why(tree, torch.empty(3, 9).t()[:, :3]) is not None
    anything = guard(BASE, sizes=(None, None), strides=(None, None))
    assert why(anything, torch.empty(7, 8).t()) is None
    assert why(anything, torch.empty(7)) is not None


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float16,
        torch.bfloat16,
        torch.int8,
        torch.int64,
        torch.bool,
        torch.complex64,
        torch.float8_e4m3fn,
    ],
)
def test_every_dtype_is_its_own(dtype):
    tensor = torch.empty(2, 3).to(dtype)
    assert why(guard(tensor), torch.empty(2, 3).to(dtype)) is None
    assert "dtype" in why(guard(tensor), BASE)


def test_scalars_and_empty_tensors():
    assert why(guard(torch.tensor(1.0)), torch.tensor(2.0)) is None
    assert why(guard(torch.tensor(1.0)), torch.ones(1)) is not None
    assert why(guard(torch.empty(0, 3)), torch.empty(0, 3)) is None


def test_the_spec_is_plain_data():
    spec = _core.tensor_spec(torch.nn.Parameter(torch.empty(2, 3)))
    assert (
        spec.cls is torch.nn.Parameter and spec.dtype is torch.float32 and spec.device == torch.device("cpu")
    )
    assert spec.sizes == (2, 3) and spec.strides == (3, 1) and spec.requires_grad is True
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_tensors_without_plain_metadata_are_refused():
    with pytest.raises(TypeError, match="plain strided"):
        _core.tensor_spec(torch.eye(3).to_sparse())
    with pytest.raises(TypeError, match="expected a tensor"):
        _core.tensor_spec([1])
    sparse = torch.eye(2).to_sparse()
    assert not guard(torch.eye(2)).check(None, (sparse,))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"cls": int}, "not a tensor class"),
        ({"sizes": (1,)}, "differ in length"),
        ({"device": "nonsense"}, "unknown device"),
        ({"sizes": ("a", "b")}, ""),
        ({"dtype": 5}, ""),
    ],
)
def test_wrong_specs(changes, error):
    with pytest.raises((TypeError, ValueError), match=error or None):
        guard(BASE, **changes)


def test_a_subclass_is_not_the_class():
    class Mine(torch.Tensor):
        pass

    assert "class: expected" in why(guard(BASE), torch.empty(2, 3).as_subclass(Mine))


def test_gradient_of_a_parameter_by_a_c_function():
    parameter = torch.nn.Parameter(torch.ones(2))
    read = torch.Tensor.grad.__get__
    tree = _core.GuardTree([(-1, "local", 0, []), (0, "call", read, [("id", None)])], [], None)
    assert tree.check(None, (parameter,))
    parameter.grad = torch.ones(2)
    assert not tree.check(None, (parameter,))


def test_a_module_with_many_parameters_follows_every_change():
    module = torch.nn.Sequential(*[torch.nn.Linear(3, 3) for _ in range(10)])
    nodes = [(-1, "local", 0, []), (0, "instance_dict", None, []), (1, "dict_item", "_modules", [])]
    for i in range(10):
        at = len(nodes)
        nodes += [
            (2, "dict_item", str(i), [("type", torch.nn.Linear)]),
            (at, "instance_dict", None, []),
            (at + 1, "dict_item", "_parameters", []),
        ]
        spec = _core.tensor_spec(module[i].weight)
        nodes += [
            (at + 2, "dict_item", "weight", [("tensor", spec)]),
            (at + 1, "dict_item", "training", [("equals", True)]),
        ]
    tree = _core.GuardTree(nodes, [], None)
    assert tree.check(None, (module,))
    module[7].weight = torch.nn.Parameter(torch.empty(3, 3))
    assert tree.check(None, (module,))
    module[7].weight = torch.nn.Parameter(torch.empty(3, 4))
    assert "sizes" in tree.explain(None, (module,))[2]
    module[7] = torch.nn.Linear(3, 3)
    assert tree.check(None, (module,))
    module.eval()
    assert tree.explain(None, (module,))[1] == "equals"
    module.train()
    del module[7].weight
    assert tree.explain(None, (module,))[2] == "dict_item 'weight': not there"
