"""State that changes what tensor code does: seen, named, and restored."""

import contextlib
import threading

import pytest

torch = pytest.importorskip("torch")

from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from dyncomp._frame import _core  # noqa: E402


class FunctionMode(TorchFunctionMode):
    """One that fails on every call: the runtime must not make any."""


class DispatchMode(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls):
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def setting(set_value, value, before):
    set_value(value)
    try:
        yield
    finally:
        set_value(before)


STATES = {
    "grad_mode": lambda: torch.no_grad(),
    "inference_mode": lambda: torch.inference_mode(),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "default_dtype": lambda: setting(torch.set_default_dtype, torch.float64, torch.float32),
    "deterministic": lambda: setting(torch.use_deterministic_algorithms, True, False),
    "function_modes": lambda: FunctionMode(),
    "modes": lambda: torch.device("meta"),
    "dispatch_modes": lambda: DispatchMode(),
    "torch_function": lambda: torch._C.DisableTorchFunction(),
}


ARGUMENT = (torch.empty(1),)
ELSEWHERE = (torch.empty(1, device="meta"),)


def tree(args=ARGUMENT):
    return _core.GuardTree(
        [(-1, "local", 0, [("tensor", _core.tensor_spec(args[0]))])], [], _core.global_state()
    )


@pytest.mark.parametrize("name", STATES)
def test_each_change_is_seen_and_named(name):
    outside = tree()
    assert outside.check(None, ARGUMENT)
    with STATES[name]():
        assert not outside.check(None, ARGUMENT)
        node, kind, text = outside.explain(None, ARGUMENT)
        assert (node, kind) == (-1, "state") and f"{name}: now" in text
    assert outside.check(None, ARGUMENT)


@pytest.mark.parametrize("name", STATES)
def test_a_tree_made_inside_holds_inside(name):
    with STATES[name]():
        inside = tree()
        for _ in range(3):
            assert inside.check(None, ARGUMENT)
    assert not inside.check(None, ARGUMENT)
    with STATES[name]():
        assert inside.check(None, ARGUMENT), inside.explain(None, ARGUMENT)


def test_autocast_dtype_and_cache():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = tree()
        assert half.check(None, ARGUMENT)
    with torch.autocast("cpu", dtype=torch.float16):
        assert "Half" in half.explain(None, ARGUMENT)[2]
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
        assert not half.check(None, ARGUMENT)
    with torch.autocast("cpu", enabled=False):
        assert not half.check(None, ARGUMENT)


def test_default_device_is_compared_by_device():
    with torch.device("meta"):
        meta = tree()
        assert meta.check(None, ARGUMENT)
    with torch.device("cpu"):
        text = meta.explain(None, ARGUMENT)[2]
        assert "now (('DeviceContext', 'cpu'),), expected (('DeviceContext', 'meta'),)" in text.replace(
            "torch.utils._device.", ""
        )
    torch.set_default_device("meta")
    try:
        assert meta.check(None, ARGUMENT) and meta.check(None, ARGUMENT)
    finally:
        torch.set_default_device(None)
    assert not meta.check(None, ARGUMENT)


def test_deterministic_warn_only_matters_while_deterministic():
    before = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        strict = tree()
        torch.use_deterministic_algorithms(True, warn_only=True)
        assert "deterministic_warn_only" in strict.explain(None, ARGUMENT)[2]
    finally:
        torch.use_deterministic_algorithms(False, warn_only=before)


def test_matmul_precision_matters_off_the_cpu():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(before)  # the setting and "never set" are two states
    on_cpu, elsewhere = tree(), tree(ELSEWHERE)
    assert elsewhere.check(None, ELSEWHERE)
    torch.set_float32_matmul_precision("medium")
    try:
        assert on_cpu.check(None, ARGUMENT)
        assert "matmul_precision" in elsewhere.explain(None, ELSEWHERE)[2]
    finally:
        torch.set_float32_matmul_precision(before)
    assert elsewhere.check(None, ELSEWHERE)


def test_functorch_layers_are_seen():
    outside = tree()
    seen = []

    def body(x):
        seen.append(outside.explain(None, ARGUMENT))
        return x

    torch.func.vmap(body)(torch.ones(2))
    assert seen[0][1] == "state"


def test_state_is_of_the_thread():
    tree_here, results = tree(), []
    with torch.no_grad():
        thread = threading.Thread(target=lambda: results.append(tree_here.check(None, ARGUMENT)))
        thread.start()
        thread.join()
    assert results == [True]


def test_the_state_is_plain_data():
    state = _core.global_state()
    assert isinstance(state, tuple) and all(isinstance(name, str) for name, _ in state)
    assert _core.GuardTree([], [], eval(repr(state))).check(None, ())
    with pytest.raises(ValueError, match="lacks grad_mode"):
        _core.GuardTree([], [], ())
    with pytest.raises(TypeError, match="global_state"):
        _core.GuardTree([], [], [])
