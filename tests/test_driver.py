"""What a compile does to the process around it, and what it hands to the runtime."""

import gc
import subprocess
import sys

import pytest
import torch

import dyncomp
from dyncomp._frame import _exec


def seen_by_backend(look):
    """What `look` returns while a backend runs."""
    seen = []

    def backend(graph, inputs):
        seen.append(look())
        return graph

    dyncomp.optimize(lambda x: x + 1, backend=backend)(torch.ones(2))
    return seen[0]


def test_no_garbage_collection_during_a_compile():
    assert gc.isenabled()
    assert seen_by_backend(gc.isenabled) is False
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off():
    gc.disable()
    try:
        seen_by_backend(gc.isenabled)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_collector_comes_back_after_an_error():
    def backend(graph, inputs):
        raise RuntimeError("no")

    with pytest.raises(dyncomp.errors.BackendError):
        dyncomp.optimize(lambda x: x + 1, backend=backend)(torch.ones(2))
    assert gc.isenabled()


def test_a_frame_that_returns_its_one_output_runs_the_plan_alone():
    def sin_cos(x):
        return torch.sin(torch.cos(x))

    fast = dyncomp.optimize(sin_cos)
    x = torch.rand(4)
    torch.testing.assert_close(fast(x), sin_cos(x))
    plans = [p for p in gc.get_objects() if type(p) is _exec.Plan and p.data()["single"]]
    assert plans


LIGHT = """
import sys, torch, dyncomp
x = torch.ones(4)
dyncomp.optimize(lambda x: torch.sin(torch.cos(x)))(x)
heavy = {"sympy", "torch.distributed.tensor", "torch.fx.experimental.symbolic_shapes"} & set(sys.modules)
assert not heavy, heavy
"""


def test_a_first_call_without_symbolic_sizes_imports_nothing_heavy():
    subprocess.run([sys.executable, "-c", LIGHT], check=True, timeout=300)


def test_callbacks_of_the_collector_are_left_alone(fresh):
    def callback(phase, info):
        pass

    def outer(x):
        print(end="")  # the frame goes on as plain Python, under the hook
        gc.collect()
        return x + 1

    gc.callbacks.append(callback)
    try:
        assert dyncomp.optimize(outer)(torch.ones(2)).sum() == 4
    finally:
        gc.callbacks.remove(callback)
    assert "skipped-frame: nothing-to-compile" not in dyncomp.stats().fallbacks


def test_what_a_first_import_runs_is_not_compiled(fresh, tmp_path, monkeypatch):
    lines = [*(f"def made_{i}(x):\n    return x + {i}\nmade_{i}(1)" for i in range(20)), "K = 5"]
    (tmp_path / "imported_inside.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)

    def function(x):
        import imported_inside

        return x + imported_inside.K

    x = torch.ones(2)
    assert dyncomp.optimize(function, backend="eager")(x).equal(x + 5)
    assert dyncomp.stats().frames < 10
