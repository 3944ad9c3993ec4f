"""Building plans, calling them, and what they own."""

from __future__ import annotations

import gc
import os
import sys
import threading
import weakref

import pytest
import torch

from dyncomp._frame import _exec
from tests.frame.executor.exec_support import ADD_ONE, F32, WAIT_FOR, Slot, alloc, kernels, op_plan, plan

ADD = [alloc(1, 4), ("kernel", ADD_ONE, 4, 64, [0, 1], [])]


def test_a_plan_returns_a_tuple_or_the_single_value():
    x = torch.randn(4)
    (y,) = plan(1, ADD, [("slot", 1)])(x)
    z = plan(1, ADD, [("slot", 1)], single=True)(x)
    assert torch.equal(y, x + 1) and torch.equal(z, x + 1)
    assert type(y) is torch.Tensor and not y.requires_grad


def test_the_single_form_of_a_plan_shares_its_program():
    x = torch.randn(4)
    pair = plan(1, ADD, [("slot", 1)])
    one = pair.single()
    assert torch.equal(one(x), x + 1) and torch.equal(pair(x)[0], x + 1)
    assert one.data() == {**pair.data(), "single": True}
    del pair
    gc.collect()
    assert torch.equal(one(x), x + 1)
    with pytest.raises(ValueError, match="2 outputs has no single form"):
        plan(1, ADD, [("slot", 1), ("input", 0)]).single()


def test_profile_times_every_instruction():
    x = torch.randn(4)
    p = plan(1, ADD, [("slot", 1)])
    spent = p.profile(x)
    assert len(spent) == len(p.data()["code"]) and all(ns >= 0 for ns in spent)
    with pytest.raises(TypeError, match="was called with 2"):
        p.profile(x, x)


def test_every_kind_of_output():
    x, marker = torch.randn(4), object()
    code = [*ADD, ("size", 0, 0, 0)]
    out = plan(1, code, [("slot", 1), ("input", 0), ("const", marker), ("s", 0), ("slot", 1), ("slot", 0)])(x)
    assert torch.equal(out[0], x + 1)
    assert out[1] is x and out[2] is marker and out[3] == 4 and out[4] is out[0] and out[5] is x
    assert plan(0, [], [])() == ()


def test_constants_are_the_tensors_given():
    c = torch.randn(4)
    p = plan(
        0,
        [alloc(1, 4), ("kernel", ADD_ONE, 4, 64, [2, 1], [])],
        [("slot", 1), ("slot", 2)],
        constants=[(2, c)],
    )
    for _ in range(2):
        y, same = p()
        assert torch.equal(y, c + 1) and same is c


def test_data_makes_the_same_plan_and_is_frozen():
    code = [*ADD]
    p = plan(1, code, [("slot", 1)], single=True)
    code.clear()
    data = p.data()
    assert data["code"][1] == ("kernel", ADD_ONE, 4, 64, (0, 1), ())
    x = torch.randn(4)
    again = _exec.Plan(**data, libraries=[kernels()])
    assert torch.equal(again(x), x + 1) and again.data() == data


def test_constant_outputs_stay_what_they_are():
    value = [1, {"a": [2]}]
    p = plan(0, [], [("const", value)], single=True)
    assert p() is value and p.data()["outputs"][0][1] is value


def test_data_may_come_in_subclasses_of_list_tuple_and_dict():
    immutable = torch.fx.immutable_collections
    args, kwargs = immutable.immutable_list([Slot(0), torch.Size([4, 1])]), immutable.immutable_dict({})
    p = op_plan(1, "aten::reshape", args, kwargs)
    assert p(torch.ones(4)).shape == (4, 1)
    code = p.data()["code"]
    assert code == (("op", 0, (Slot(0), (4, 1)), (), (15,)),) and type(code[0][2][1]) is tuple
    assert repr(p) == "<Plan: 1 inputs, 1 instructions, 1 outputs>"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ([("kernel", 0, 4, 64, [0, 1], [])], "slot 1 is read before it is written"),
        ([alloc(1, 4), ("free", 1), ("kernel", 0, 4, 64, [0, 1], [])], "or after it was freed"),
        ([alloc(16, 4)], "no slot 16"),
        ([alloc(-1, 4)], "no slot -1"),
        ([alloc(0, 4)], "is an input or a constant"),
        ([alloc(1, 4), alloc(1, 4)], "slot 1 is still in use"),
        ([("alloc", 1, F32, (4,), (1,))], "takes 5 fields after its name, got 4"),
        ([("alloc", 1, "float32", (4,), (1,), "cpu")], "dtype must be a torch.dtype, not str"),
        ([("alloc", 1, F32, (4,), (1, 1), "cpu")], "1 sizes but 2 strides"),
        ([("alloc", 1, F32, (-4,), (1,), "cpu")], "negative size -4"),
        ([("alloc", 1, F32, (4,), (1,), "gpu")], "gpu"),
        ([("alloc", 1, F32, (4.0,), (1,), "cpu")], "sizes must be an int, not float"),
        ([("alloc", 1, F32, (("s", 0),), (1,), "cpu")], "register 0 is read before it is written"),
        ([("kernel", 99, 4, 64, [0], [])], "no kernel 99"),
        ([("kernel", 0, 4, 0, [0], [])], "grain must be at least 1"),
        ([("kernel", 0, -4, 1, [0], [])], "negative units"),
        ([("scratch", 1, F32, (4,), (1,), 0)], "beyond the arena of 0 bytes"),
        ([("fly", 1)], "no such instruction; known: alloc"),
        ([()], "is empty"),
        ([("write_back", 1, 0)], "no input 1"),
        ([("op", 0, (), {}, ())], "no op 0"),
        ([("int", 0, "pow", 1, 2)], "no integer operation 'pow'"),
    ],
)
def test_mistakes_name_the_instruction(code, message):
    with pytest.raises(ValueError, match="instruction") as caught:
        plan(1, code, [])
    assert message in str(caught.value) and str(code[-1])[:10] in str(caught.value)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (dict(outputs=[("slot", 3)]), "slot 3 is read before"),
        (dict(outputs=[("slot", 99)]), "no slot 99"),
        (dict(outputs=[("input", 1)]), "no input 1"),
        (dict(outputs=[("thing", 1)]), "no output kind 'thing'"),
        (dict(outputs=[], single=True), "cannot be single"),
        (dict(ops=[("aten::nothing", "")]), "no operator aten::nothing"),
        (dict(kernels=[(0, "k")]), "has no address"),
        (dict(constants=[(0, torch.ones(1))]), "is an input or a constant"),
        (dict(constants=[(1, 3)]), "is no tensor"),
        (dict(slots=0), "inputs=1"),
        (dict(arena=-1), "negative arena"),
    ],
)
def test_mistakes_outside_the_code(more, message):
    with pytest.raises(ValueError, match=message):
        _exec.Plan(**{**dict(inputs=1, slots=4, code=[], outputs=[]), **more})


def test_wrong_arguments_are_type_errors():
    p, x = plan(1, ADD, [("slot", 1)]), torch.randn(4)
    for call in (lambda: p(), lambda: p(x, x), lambda: p(3), lambda: p(x=x), lambda: p(None)):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(TypeError, match="needs inputs"):
        _exec.Plan(inputs=1)


def test_parameters_and_inputs_that_require_grad_give_outputs_that_do_not():
    w = torch.nn.Parameter(torch.randn(4))
    y = op_plan(1, "aten::mul.Tensor", (Slot(0), Slot(0)))(w)
    assert not y.requires_grad and y.grad_fn is None and torch.equal(y, w.detach() ** 2)


def test_nothing_is_kept_after_a_call_or_an_error():
    code = [alloc(1, 4), ("op", 0, (Slot(1), Slot(0)), {}, (2,)), ("view", 3, 2, (4,), (1,), 0)]
    p = plan(1, code, [("slot", 3)], ops=[("aten::matmul", "")], arena=64)
    x, bad = torch.randn(4, 4), torch.randn(5, 5)
    counts = sys.getrefcount(x), sys.getrefcount(bad)
    for _ in range(3):
        p(x)
        with pytest.raises(RuntimeError):
            p(bad)
    assert (sys.getrefcount(x), sys.getrefcount(bad)) == counts
    (y,) = p(x)
    seen = weakref.ref(y)
    storage = weakref.ref(x.untyped_storage())
    del y, x, bad
    assert seen() is None and storage() is None


def test_memory_returns_to_the_pool():
    before = _exec.pool_stats()["live_bytes"]
    p = plan(
        1, [alloc(2, 1000), alloc(1, 4), ("kernel", ADD_ONE, 4, 64, [0, 1], [])], [("slot", 1)], arena=4096
    )
    y = p(torch.zeros(4))
    assert _exec.pool_stats()["live_bytes"] == before + 64
    del y
    assert _exec.pool_stats()["live_bytes"] == before


def test_a_plan_is_freed_with_what_it_holds():
    c = torch.randn(3)
    p = plan(0, [], [("slot", 1), ("const", c)], constants=[(1, c)])
    p()
    dead, held = weakref.ref(p), weakref.ref(c)
    del p, c
    gc.collect()
    assert dead() is None and held() is None


def test_a_cycle_through_a_plan_is_collected():
    holder: list[object] = []
    p = plan(0, [], [("const", {"holder": holder})])
    holder.append(p)
    dead = weakref.ref(p)
    del p, holder
    gc.collect()
    assert dead() is None


def test_a_plan_may_run_inside_itself():
    depth = 0

    @torch.library.custom_op("dyncomp_test::nested", mutates_args=())
    def nested(x: torch.Tensor) -> torch.Tensor:
        nonlocal depth
        depth += 1
        return outer(x - 1) if depth < 5 else x.clone()

    code = [
        ("scratch", 1, F32, (4,), (1,), 0),
        ("kernel", ADD_ONE, 4, 64, [0, 1], []),
        ("op", 0, (Slot(1),), (), (2,)),
        ("op", 1, (Slot(1), Slot(2)), (), (3,)),
    ]
    ops = [("dyncomp_test::nested", ""), ("aten::add", "Tensor")]
    outer = plan(1, code, [("slot", 3)], single=True, ops=ops, arena=64)

    def reference(x, depth):
        return x + 1 + (reference(x + 1 - 1, depth + 1) if depth < 5 else (x + 1).clone())

    x = torch.randn(4)
    assert torch.equal(outer(x), reference(x, 1))


def test_threads_share_a_plan():
    code = [
        ("scratch", 1, F32, (4096,), (1,), 0),
        ("kernel", ADD_ONE, 4096, 512, [0, 1], []),
        alloc(2, 4096),
        ("kernel", ADD_ONE, 4096, 512, [1, 2], []),
        ("op", 0, (Slot(2),), (), (3,)),
    ]
    p = plan(1, code, [("slot", 3), ("slot", 2)], ops=[("aten::sin", "")], arena=4096 * 4)
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = torch.full((4096,), float(seed))
        for _ in range(200):
            y, z = p(x)
            if not (torch.equal(z, x + 2) and torch.equal(y, (x + 2).sin())):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("units", [2, ("s", 0)])
def test_other_threads_run_during_long_kernels(units):
    code = [("int", 0, "add", 1, 1), alloc(1, 1, dtype=torch.int64), ("kernel", WAIT_FOR, units, 1, [0, 1], [])]
    p, x, seen = plan(1, code, [("slot", 1)], single=True), torch.zeros(1, dtype=torch.int64), []
    thread = threading.Thread(target=lambda: seen.append(p(x).item()))
    thread.start()
    x.fill_(5)
    thread.join()
    assert seen == [5]


def test_a_plan_swapped_away_during_its_call_finishes():
    holder = {}

    @torch.library.custom_op("dyncomp_test::swap", mutates_args=())
    def swap(x: torch.Tensor) -> torch.Tensor:
        holder.clear()
        gc.collect()
        return x + 1

    holder["run"] = op_plan(1, "dyncomp_test::swap", (Slot(0),))
    dead = weakref.ref(holder["run"])
    y = holder["run"](torch.ones(2))
    assert y.tolist() == [2, 2] and dead() is None


def test_plans_and_their_memory_survive_a_fork():
    code = [
        ("scratch", 1, F32, (4,), (1,), 0),
        ("kernel", ADD_ONE, 4, 8, [0, 1], []),
        alloc(2, 4),
        ("kernel", ADD_ONE, 4, 8, [1, 2], []),
    ]
    p = plan(1, code, [("slot", 2)], single=True, arena=64)
    x = torch.ones(4)
    kept = p(x)
    child = os.fork()
    ok = p(x).tolist() == kept.tolist() == [3, 3, 3, 3]
    if child == 0:
        os._exit(0 if ok else 1)
    assert ok and os.waitpid(child, 0)[1] == 0


def test_autocast_of_the_caller_is_left_behind():
    p = op_plan(2, "aten::mm", (Slot(0), Slot(1)))
    a, b = torch.randn(3, 3), torch.randn(3, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = p(a, b)
    assert y.dtype is F32 and torch.equal(y, a @ b)
