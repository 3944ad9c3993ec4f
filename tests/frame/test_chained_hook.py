"""Other frame evaluators in the same process: theirs keep running, whichever came first."""

import contextlib
import ctypes
import shutil
import subprocess
import sysconfig

import pytest

from dyncomp._frame import _core

SOURCE = r"""
#include <Python.h>
static long frames;
static _PyFrameEvalFunction below;
static PyObject *evaluate(PyThreadState *thread, struct _PyInterpreterFrame *frame, int throwflag) {
    frames++;
    return below(thread, frame, throwflag);
}
long frames_seen(void) { return frames; }
void install(void) {
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    below = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate);
}
void removed(void) { _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), below); }
int current(void) { return _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get()) == evaluate; }
"""


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """Another evaluator, as a debugger or another compiler would install it."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("evaluator")
    source, library = folder / "evaluator.c", folder / "evaluator.so"
    source.write_text(SOURCE)
    include = sysconfig.get_paths()["include"]
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", f"-I{include}", source, "-o", library], check=True)
    return ctypes.PyDLL(str(library))


def inner(x):
    return x + 1


def outer(x):
    return inner(x)


def test_an_evaluator_that_was_there_first(compiler, owner, other):
    compiler.rule("inner", lambda x: "compiled")
    other.install()
    try:
        assert other.current()
        with _core.Region(owner):
            assert _core.hook_installed()
            before = other.frames_seen()
            result = outer(1)
            assert other.frames_seen() > before
        assert other.current()
    finally:
        other.removed()
    assert result == "compiled"


def test_an_evaluator_put_on_top_stays(compiler, owner, other):
    compiler.rule("inner", lambda x: "compiled")
    with _core.Region(owner):
        other.install()
        inside = outer(1)
    try:
        assert other.current(), "ours was not first in line, so it must leave the other in place"
        assert outer(1) == 2
        # Ours goes on top of one that still hands frames down to ours.
        with _core.Region(owner):
            again = outer(1)
            assert outer_without_rule(4) == 4
        assert other.current() and outer(1) == 2
    finally:
        other.removed()
    assert inside == again == "compiled"
    # What the other restores is ours, idle; the next region takes it away.
    with _core.Region(owner):
        assert outer(1) == "compiled"
    assert not other.current() and not _core.hook_installed()


def helper(x):
    return x


@pytest.mark.parametrize("above", [False, True])
def test_others_do_not_see_the_compilers_frames(compiler, owner, other, above):
    seen = []

    def make(func, args):
        before = other.frames_seen()
        for _ in range(50):
            helper(0)
        seen.append(other.frames_seen() - before)
        return compiler.entry([[("type", int)]], lambda x: "compiled")

    compiler.rules["inner"] = make
    with contextlib.ExitStack() as stack:
        if above:
            stack.enter_context(_core.Region(owner))
        other.install()
        stack.callback(other.removed)
        if not above:
            stack.enter_context(_core.Region(owner))
        assert outer(1) == "compiled"
        before = other.frames_seen()
        assert helper(3) == 3
        assert other.frames_seen() > before
        if above:
            assert other.current()
    assert seen[0] <= 1  # its own call, before it was known that this is the compiler
    assert not _core.hook_installed() or above


def test_others_do_not_see_generated_code_below_ours(owner, other, compiler):
    generated = eval(compile("lambda: helper(1)", "<generated>", "eval"), {"helper": helper})
    _core.own(generated.__code__)
    other.install()
    try:
        with _core.Region(owner):
            before = other.frames_seen()
            generated()
            assert other.frames_seen() - before == 1  # helper's
    finally:
        other.removed()


def test_many_turns(compiler, owner, other):
    compiler.rule("inner", lambda x: "compiled")
    for turn in range(20):
        with _core.Region(owner):
            other.install()
            assert outer(1) == "compiled"
        for _ in range(turn % 3):
            with _core.Region(owner):
                assert outer(1) == "compiled" and outer_without_rule(3) == 3
            assert outer(1) == 2
        other.removed()
    with _core.Region(owner):
        assert outer(1) == "compiled"
    assert not other.current() and not _core.hook_installed()


def outer_without_rule(n):
    return n if n == 0 else outer_without_rule(n - 1) + 1
