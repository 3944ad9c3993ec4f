"""Small plans for the executor's tests, and the C kernels they call."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import tempfile
from functools import cache
from typing import Any

import torch

from dyncomp._frame import _exec

SOURCE = pathlib.Path(__file__).with_name("exec_kernels.c")
NAMES = ("add_one", "add_strided", "line", "chunk", "raise_flag", "fill_bytes", "wait_for")
ADD_ONE, ADD_STRIDED, LINE, CHUNK, RAISE_FLAG, FILL_BYTES, WAIT_FOR = range(len(NAMES))
Slot = _exec.Slot
F32 = torch.float32


def compile_kernels(folder: pathlib.Path) -> pathlib.Path:
    """Builds exec_kernels.c into a shared object in this folder."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler is not None, "the tests need a C compiler"
    library = folder / "kernels.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, SOURCE], check=True)
    return library


@cache
def kernels() -> Any:
    """The library with the kernels above, built once a process."""
    with tempfile.TemporaryDirectory() as folder:
        return _exec.load_kernels(compile_kernels(pathlib.Path(folder)))


def plan(inputs: int, code: list[Any], outputs: list[Any], **more: Any) -> Any:
    """A plan over the kernels above; the number of slots is 16."""
    library = kernels()
    rows = [(library.address(name), name) for name in NAMES]
    return _exec.Plan(
        inputs=inputs, slots=16, code=code, outputs=outputs, kernels=rows, libraries=[library], **more
    )


def op_plan(
    inputs: int, name: str, args: Any, kwargs: Any = (), outs: Any = (15,), outputs: Any = None
) -> Any:
    """A plan of one operator: `aten::add.Tensor`."""
    base, _, overload = name.partition(".")
    code = [("op", 0, args, kwargs, outs)]
    return _exec.Plan(
        inputs=inputs,
        slots=16,
        ops=[(base, overload)],
        code=code,
        outputs=outputs or [("slot", 15)],
        single=outputs is None,
    )


def contiguous(*sizes: int) -> tuple[int, ...]:
    """Strides of a contiguous tensor."""
    return torch.empty(sizes, device="meta").stride()


def alloc(slot: int, *sizes: int, dtype: torch.dtype = F32) -> tuple[Any, ...]:
    return ("alloc", slot, dtype, sizes, contiguous(*sizes), "cpu")


def same_error(run: Any, reference: Any) -> None:
    """Both raise the same class with the same text."""
    expected = got = None
    try:
        reference()
    except Exception as error:  # noqa: BLE001 - whatever eager raises is what is wanted
        expected = error
    try:
        run()
    except Exception as error:  # noqa: BLE001
        got = error
    assert expected is not None, "eager raises nothing"
    assert type(got) is type(expected) and str(got) == str(expected)
