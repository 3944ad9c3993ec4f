"""dynamic=None: static first, then what changed is symbolic; what is remembered, and what marks promise."""

import functools
import json
import logging
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest
import torch

import dyncomp
from dyncomp import config, log
from dyncomp.errors import DyncompError
from dyncomp.interp import varied
from tests.support import assert_same


@pytest.fixture(autouse=True)
def automatic():
    dyncomp.reset()
    with config.patch(automatic_dynamic=True):
        yield
    dyncomp.reset()


def calls(function, *argument_lists, compiles, **options):
    """Runs each call compiled and in eager; `compiles`: how many frames may be compiled in all."""
    options = {"backend": "eager", **options}
    fast = dyncomp.optimize(function, **options)
    before = dyncomp.stats().frames
    for args in argument_lists:
        assert_same(fast(*args), function(*args), repr(args))
    made = dyncomp.stats().frames - before
    assert made <= compiles, f"{made} compiles instead of at most {compiles}"
    return fast


def tensors(*shapes):
    return [(torch.randn(shape),) for shape in shapes]


# -- what varies
def test_static_then_one_dimension_then_the_other_then_a_batch_of_one():
    shapes = [(2, 16), (2, 24), (2, 9), (3, 9), (5, 40), (1, 12), (1, 30), (7, 2)]
    calls(lambda x: torch.relu(x).sum(-1), *tensors(*shapes), compiles=4)


@pytest.mark.parametrize("values", [range(-4, 8), range(0, 9), [5, 1, 0, 1, 0, 7, 2**40, -3]])
def test_ints(values):
    calls(lambda x, n: x * n + n, *[(torch.ones(3), n) for n in values], compiles=2)


@pytest.mark.parametrize("backend", ["aot_eager", "codegen"])
def test_writes_to_slices(backend):
    def shifted(x):
        out = torch.zeros_like(x)
        out[:, 1:] = x[:, :-1]
        out[:, 0] = 7.0
        return out

    with torch.no_grad():
        calls(shifted, *tensors((4, 6), (4, 9), (5, 9), (8, 5), (3, 31)), compiles=3, backend=backend)


def test_a_cache_is_asked_for_each_number():
    asked = []

    @functools.lru_cache
    def slow(n):
        asked.append(n)
        return n * 2

    ours = dyncomp.optimize(lambda x, n: x + slow(n), backend="eager")
    for n in (1, 1, 2, 5, 1, 2, 5):
        assert_same(ours(torch.ones(2), n), torch.ones(2) + 2 * n)
    assert asked == [1, 2, 5]


@pytest.mark.parametrize("values", [[0.1 * k for k in range(9)], [0.0, -0.0, 1.5, float("inf"), 1e300, -7.25]])
def test_floats(values):
    calls(lambda x, lr: (x - lr * x, lr * 2), *[(torch.ones(3), v) for v in values], compiles=2)


def test_numbers_in_generated_kernels_over_plain_sizes():
    calls(
        lambda x, n, p: (x * n + n) * p,
        *[(torch.ones(3), n, n / 4) for n in range(2, 7)],
        compiles=2,
        backend="codegen",
    )
    assert "no-compiler" not in dyncomp.stats().fallbacks


def test_nan_is_like_any_other_float():
    fast = calls(lambda x, lr: x * lr, *[(torch.ones(2), v) for v in (1.0, 2.0)], compiles=2)
    before = dyncomp.stats().frames
    assert fast(torch.ones(2), float("nan")).isnan().all()
    assert dyncomp.stats().frames == before


def test_a_number_that_is_now_int_now_float():
    values = [0.5, 1, 0.25, 2, 0.125, 3, 7]
    calls(lambda x, lr: x * lr, *[(torch.ones(3), v) for v in values], compiles=4)


def test_branches_on_floats_are_guarded():
    def f(x, p):
        return x * p if p > 0.5 else x + p

    calls(f, *[(torch.ones(3), p) for p in (0.7, 0.9, 0.1, 0.2, 0.6, 0.5, 0.51)], compiles=3)


def test_python_errors_of_numbers_are_pythons():
    def f(x, n):
        try:
            return x * (8 // n) + (1 << n)
        except (ZeroDivisionError, ValueError) as error:
            return x, type(error).__name__

    calls(f, *[(torch.ones(2), n) for n in (3, 4, 0, -1, 5, 0, -2)], compiles=6)


@pytest.mark.parametrize("values", [[2, 3, -1, -2, 4], [3, -2, 0, 5, -1]])
def test_powers_with_exponents_of_both_signs(values):
    calls(lambda x, n: (x + 1, (-2) ** n if n else 0, 3**n), *[(torch.ones(2), n) for n in values], compiles=5)


def test_numbers_beyond_64_bits_are_pythons():
    calls(
        lambda x, n: (x + 1, n**9 * 10**17, n * 10**18 > 2**62),
        *[(torch.ones(2), n) for n in (3, 5, 7, 40, 99)],
        compiles=5,
    )


def test_attributes_of_modules():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.step, self.ema = 0, 0.5

        def forward(self, x):
            self.step += 1
            self.ema = self.ema * 0.9
            return x * self.step + self.ema

    model, fast = Model(), dyncomp.optimize(Model(), backend="eager")
    before = dyncomp.stats().frames
    for _ in range(8):
        assert torch.equal(fast(torch.ones(2)), model(torch.ones(2)))
    assert (fast.step, fast.ema) == (model.step, model.ema)
    assert dyncomp.stats().frames - before <= 3


def test_strides():
    rows = [(torch.randn(6, 40)[:, :width],) for width in (8, 8)] + [(torch.randn(6, 50 + k)[:, :8],) for k in range(5)]
    calls(lambda x: x * 2 + x.stride(0), *rows, compiles=2)


def test_storage_offsets_do_not_count():
    base = torch.randn(40)
    calls(lambda x: x * 2, *[(base[k : k + 8],) for k in range(6)], compiles=1)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * 2, x.storage_offset()),
        lambda x: (x * 2, x[2:].storage_offset()),
        lambda x: x.as_strided((3,), (1,), 4) + 1,
        lambda x: torch.as_strided(x[1:], (2, 2), (2, 1), storage_offset=5) * 2,
    ],
)
@pytest.mark.parametrize("dynamic", [None, True])
def test_storage_offsets_that_the_program_depends_on(function, dynamic):
    base = torch.randn(40)
    compiles = 1 if dynamic else 2
    for backend in ("eager", "aot_eager", "codegen"):
        calls(function, *[(base[k : k + 8],) for k in (0, 3, 3, 5, 0, 1)], compiles=compiles, dynamic=dynamic, backend=backend)
        calls(function, *[(base[k : k + 8],) for k in (3, 0, 5, 4)], compiles=compiles, dynamic=dynamic, backend=backend)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_places_in_storages_that_several_tensors_share(dynamic, backend):
    def f(x, y):
        z = x[1:]
        x.mul_(2 + z.storage_offset())
        part = y.as_strided((2,), (2,), y.storage_offset() + 1)
        return z, y.t().diagonal() * y.storage_offset(), part + 1, part.storage_offset(), (x + 1)[3:].storage_offset(), y.unfold(0, 1, 1)

    compiles = 1 if dynamic else 2
    for gap in (20, 0):
        ours, theirs = torch.arange(80.0), torch.arange(80.0)
        fast = dyncomp.optimize(f, backend=backend, dynamic=dynamic)
        before = dyncomp.stats().frames
        for k in (3, 0, 5, 7, 1):
            got, want = (f(b[k : k + 8], b[k + gap : k + gap + 9].view(3, 3)) for f, b in ((fast, ours), (f, theirs)))
            assert_same(got, want)
            assert [t.storage_offset() for t in got if isinstance(t, torch.Tensor)] == [
                t.storage_offset() for t in want if isinstance(t, torch.Tensor)
            ]
            assert_same(ours, theirs)
        assert dyncomp.stats().frames - before <= compiles


def test_strides_that_the_program_reads_are_symbolic_at_once_with_dynamic_true():
    rows = [(torch.randn(6, 9 + k)[:, :8],) for k in range(4)]
    calls(lambda x: x * 2 + x[1:].stride(0), *rows, compiles=1, dynamic=True)
    calls(lambda x: x * x.stride()[0], *rows, compiles=1, dynamic=True, backend="codegen")


def test_a_frame_with_nothing_to_compile_keeps_its_older_versions():
    def f(x, n):
        return x * 2 if n > 3 else n

    fast = dyncomp.optimize(f, backend="eager")
    for n in (4, 9, 2, 8, 1, 7):
        assert_same(fast(torch.ones(2), n), f(torch.ones(2), n))
    assert any(entry.info.open_numbers for entry in fast.cache.entries())


def test_a_list_that_grows_compiles_for_each_length_and_says_so():
    fast = calls(lambda xs: sum(xs), *[([torch.ones(2)] * n,) for n in (2, 3, 4)], compiles=3)
    reasons = []
    dyncomp.api.context_of(fast).observers.append(lambda record: reasons.append(record.recompile_reason))
    fast([torch.ones(2)] * 5)
    assert reasons == ["L['xs']: length: expected 4, found 5"]


def test_sizes_of_parameters_are_not_of_the_call():
    class Scale(torch.nn.Module):
        def __init__(self, n):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(n))

        def forward(self, x):
            return x * self.weight

    seen = []
    call = dyncomp.optimize(lambda m, x: m(x), backend=lambda gm, inputs: seen.append(gm) or gm)
    for n in (3, 4, 5):
        call(Scale(n), torch.ones(n))
    shapes = [n.meta["example_value"].shape for gm in seen for n in gm.graph.nodes if n.op == "placeholder"]
    assert all(isinstance(s, int) for shape in shapes[:2] for s in shape)


# -- limits, and versions that do worse
def test_open_versions_are_not_counted_as_endless_recompiles():
    def f(x, kind):
        return x + 1 if kind == "a" else x - 1 if kind == "b" else x * 2

    args = [(torch.ones(n, m), kind) for kind in ("a", "b", "c") for n, m in ((2, 3), (4, 3), (4, 5), (1, 6), (7, 1))]
    fast = dyncomp.optimize(f, backend="eager", recompile_limit=4)
    for arg in args * 2:
        assert_same(fast(*arg), f(*arg))
    assert "recompile-limit" not in dyncomp.stats().fallbacks


def test_a_loop_over_the_number_ends_at_the_limit():
    def f(x, n):
        for _ in range(n):
            x = x + 1
        return x

    fast = dyncomp.optimize(f, backend="eager", recompile_limit=3)
    with pytest.warns(RuntimeWarning, match="recompile_limit"):
        for n in range(2, 9):
            assert_same(fast(torch.ones(2), n), f(torch.ones(2), n))
    assert dyncomp.stats().frames == 3


def test_list_lengths_end_at_the_limit_with_a_cure():
    fast = dyncomp.optimize(lambda xs: torch.cat(xs) * 2, backend="eager", recompile_limit=3)
    with pytest.warns(RuntimeWarning, match="length: expected 3, found 4.*stack the items"):
        for n in range(1, 8):
            xs = [torch.randn(2) for _ in range(n)]
            assert_same(fast(xs), torch.cat(xs) * 2)
    assert dyncomp.stats().frames == 3


@pytest.mark.parametrize("dynamic, compiles", [(None, 4), (True, 1)])
def test_height_and_width_are_two_numbers_also_of_a_square(dynamic, compiles):
    shapes = [(2, 8, 8), (2, 12, 8), (2, 9, 9), (3, 6, 7), (4, 7, 7)]
    inputs = [(torch.randn(shape), torch.randn(shape)) for shape in shapes]
    calls(lambda x, y: x.sum(1) + y.amax(2).sum(), *inputs, compiles=compiles, dynamic=dynamic)


def test_equal_sizes_are_one_number_where_an_operation_needs_it():
    calls = [((4, 4), (4, 4)), ((3, 5), (3, 5)), ((3, 5), (3, 6)), ((7, 4), (2, 7))]
    apart, rows_equal = (lambda x, y: (x.relu(), y * 2)), (lambda x, y: torch.cat([x, y], 1))
    for function, count in ((apart, 4), (rows_equal, 3)):
        dyncomp.reset()
        fast = dyncomp.optimize(function, backend="eager", dynamic=True)
        for a, b in calls[:count]:
            args = torch.randn(a), torch.randn(b)
            assert_same(fast(*args), function(*args))
        assert dyncomp.stats().graphs == 1


def test_tensors_of_one_shape_share_their_numbers():
    records = []
    with config.patch(duck_sizes=True):
        fast = dyncomp.optimize(lambda x, y: (torch.cat([x, x]).relu(), y * 2), backend="eager", dynamic=True)
        dyncomp.api.context_of(fast).observers.append(records.append)
        for shape in ((4, 4), (3, 5)):
            fast(torch.randn(shape), torch.randn(shape))
        fast(torch.randn(3, 5), torch.randn(3, 6))
    assert len(records) == 2 and "L['y'].size(1) == s1" in records[1].recompile_reason


def test_offsets_of_views_are_not_pinned_unless_they_are_read():
    base = torch.arange(40.0)
    calls(lambda x: x * 2, *[(base[k : k + 5],) for k in range(6)], compiles=1)
    calls(lambda x: (x.view(-1)[1:], x + 1), *[(base[k:],) for k in range(6)], compiles=2)
    calls(lambda x: x + x.storage_offset(), *[(base[k : k + 5],) for k in (1, 2, 1, 2)], compiles=2)


def test_what_symbolic_numbers_cannot_do_is_compiled_for_each_size():
    def refuses(gm, inputs):
        inputs = [n.meta["example_value"] for n in gm.graph.nodes if n.op == "placeholder"]
        if any(isinstance(n, torch.SymInt) for x in inputs for n in x.shape):
            raise DyncompError("not with symbolic sizes")
        return gm

    fast = dyncomp.optimize(lambda x: x * 2, backend=refuses)
    for n in (2, 3, 4, 5):
        assert torch.equal(fast(torch.ones(n)), torch.ones(n) * 2)
    assert dyncomp.stats().fallbacks.get("dynamic-to-static: DyncompError") == 1


def test_a_break_that_both_versions_have_is_no_reason_to_compile_twice():
    def f(x):
        y = x * 2
        print(end="")
        return y + 1

    calls(f, *tensors((2, 3), (4, 3), (5, 3)), compiles=4)
    assert not any(name.startswith("dynamic-to-static") for name in dyncomp.stats().fallbacks)


# -- marks
def marked(shape, dim=0, **bounds):
    tensor = torch.randn(shape)
    dyncomp.mark_dynamic(tensor, dim, **bounds)
    return tensor


def test_a_mark_after_a_static_compile_is_kept():
    fast = dyncomp.optimize(lambda x: x * 2, backend="eager", dynamic=None)
    x = torch.randn(11, 3, dtype=torch.float64)
    seen = []
    dyncomp.api.context_of(fast).observers.append(seen.append)
    fast(x)
    dyncomp.mark_dynamic(x, 0)
    fast(x)
    assert len(seen) == 2 and not any(n.state == "symbolic" for n in seen[0].numbers)
    assert [n.state for n in seen[1].numbers] == ["symbolic", "plain"]
    fast(torch.randn(5, 3, dtype=torch.float64))
    fast(torch.randn(8, 3, dtype=torch.float64))
    assert len(seen) == 2


def test_different_marks_are_different_versions_and_unmarked_tensors_take_any():
    marked((2, 2), 0), marked((2, 2), 1)  # so that several marks are in use before the first compile
    fast = dyncomp.optimize(lambda x: x * 2, backend="eager", dynamic=False)
    seen = []
    dyncomp.api.context_of(fast).observers.append(seen.append)
    fast(marked((4, 6), 0)), fast(marked((4, 6), 1)), fast(marked((9, 6), 0)), fast(marked((4, 8), 1))
    assert len(seen) == 2
    fast(torch.randn(7, 6)), fast(torch.randn(4, 9))
    assert len(seen) == 2
    static = torch.randn(9, 6)
    dyncomp.mark_static(static)
    assert torch.equal(fast(static), static * 2) and len(seen) == 3


def test_a_mark_that_cannot_be_kept_raises_also_after_a_static_compile():
    def f(x):
        return x.view(12, -1) if x.shape[0] == 12 else x

    fast = dyncomp.optimize(f, backend="eager")
    x = torch.randn(12, 5, dtype=torch.float16)
    fast(x)
    dyncomp.mark_dynamic(x, 0)
    with pytest.raises(DyncompError, match=r"L\['x'\].size\(0\) was marked as dynamic.*test_dynamic_policy.py:\d+"):
        fast(x)


# -- explaining
def test_explain_lists_numbers_with_the_lines_that_pinned_them():
    def f(x, y, n):
        for _ in range(n):
            x = x + 1
        return x * y if x.shape[0] % 4 == 0 else x

    told = dyncomp.explain(f, backend="eager", dynamic=True)(torch.ones(8, 5), torch.ones(8, 1), 3)
    by_origin = {number.origin: number for number in told.numbers}
    assert by_origin["L['n']"].state == "pinned" and "test_dynamic_policy.py:" in by_origin["L['n']"].by[0]
    assert by_origin["L['n']"].cure
    rows = by_origin["L['x'].size(0)"]
    assert rows.state == "symbolic" and "4*" in rows.range and "test_dynamic_policy.py:" in rows.by[0]
    assert by_origin["L['x'].size(1)"].range == "2 and more"
    assert by_origin["L['y'].size(1)"].state == "plain" and "mark_unbacked" in by_origin["L['y'].size(1)"].cure
    assert "number L['n'] = 3: pinned" in str(told)
    assert json.loads(told.json())["frames"][0]["numbers"][0]["origin"]


def test_log_tells_the_same(caplog):
    logging.getLogger("dyncomp").addHandler(caplog.handler)
    log.set_logs("dynamic")
    try:
        calls(lambda x: x + 1, *tensors((2, 3), (4, 3)), compiles=2)
    finally:
        log.set_logs()
    assert any("L['x'].size(0) = 4: symbolic" in record.getMessage() for record in caplog.records)


# -- what is kept for the next process
PROGRAM = """
    import torch, dyncomp
    from dyncomp import config
    config.automatic_dynamic = True

    def f(x, scale):
        return x * scale

    fast = dyncomp.optimize(f, backend="eager")
    for n in {sizes}:
        assert torch.equal(fast(torch.ones(n, 3), n / 2), torch.ones(n, 3) * (n / 2))
    print(dyncomp.stats().frames)
"""


def process(tmp_path, sizes, **environment):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(PROGRAM.format(sizes=sizes)))
    env = {**dict(os.environ), "DYNCOMP_CACHE_DIR": str(tmp_path / "cache"), "DYNCOMP_REMEMBER_SIZES": "1"}
    done = subprocess.run(
        [sys.executable, str(script)], env={**env, **environment}, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout), done.stderr


def test_the_next_process_starts_with_what_varied(tmp_path):
    assert process(tmp_path, [2, 3, 4])[0] == 2
    assert process(tmp_path, [5, 6, 7])[0] == 1
    assert process(tmp_path, [5, 6], DYNCOMP_REMEMBER_SIZES="0")[0] == 2
    files = list((tmp_path / "cache" / varied.FORMAT).iterdir())
    assert len(files) == 1
    files[0].write_text('{"x": [1, [7]]}')
    made, told = process(tmp_path, [5, 6])
    assert made == 2 and told.count("RuntimeWarning: ") == 1


def test_other_code_at_the_same_place_knows_nothing():
    namespace: dict = {}
    names = []
    for body in ("x + 1", "x + 2", "x + 2"):
        exec(compile(f"def f(x): return {body}", "same.py", "exec"), namespace)
        names.append(varied._name(namespace["f"].__code__))
    assert names[0] != names[1] == names[2]


def test_a_folder_that_others_may_write_is_not_used(tmp_path):
    folder = pathlib.Path(tmp_path) / varied.FORMAT
    folder.mkdir()
    folder.chmod(0o777)
    with config.patch(remember_sizes=True, cache_dir=str(tmp_path)):
        varied._warned.clear()
        with pytest.warns(RuntimeWarning, match="is not used"):
            calls(lambda x: x + 1, *tensors((2,), (3,)), compiles=2)
    assert not list(folder.iterdir())
