"""load_kernels: addresses, lifetime, and damaged files."""

from __future__ import annotations

import gc
import struct

import pytest
import torch

from dyncomp._frame import _exec
from tests.frame.executor.exec_support import alloc, compile_kernels


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return compile_kernels(tmp_path_factory.mktemp("kernels"))


def loaded(path) -> bool:
    with open("/proc/self/maps") as maps:
        return str(path) in maps.read()


def test_a_plan_keeps_its_kernels_loaded(built):
    library = _exec.load_kernels(built)
    assert library.path == str(built) and str(built) in repr(library)
    with pytest.raises(KeyError, match="no symbol 'nothing'"):
        library.address("nothing")
    p = _exec.Plan(
        inputs=1,
        slots=2,
        code=[alloc(1, 3), ("kernel", 0, 3, 8, [0, 1], [])],
        outputs=[("slot", 1)],
        single=True,
        kernels=[(library.address("add_one"), "add_one")],
        libraries=[library],
    )
    del library
    gc.collect()
    assert loaded(built) and torch.equal(p(torch.ones(3)), torch.full((3,), 2.0))
    del p
    gc.collect()
    assert not loaded(built)


def test_a_missing_file(tmp_path):
    with pytest.raises(OSError, match="cannot load kernels from .*absent.so: it cannot be read"):
        _exec.load_kernels(tmp_path / "absent.so")


@pytest.mark.parametrize("size", [0, 10, 64, 100, 500, 5000, -200])
def test_a_truncated_file_is_an_error_not_a_crash(built, tmp_path, size):
    data = built.read_bytes()
    cut = tmp_path / "cut.so"
    cut.write_bytes(data[:size] if size >= 0 else data[: _end_of_segments(built) + size])
    with pytest.raises(OSError, match="cannot load kernels from .*cut.so"):
        _exec.load_kernels(cut)


def _end_of_segments(path) -> int:
    data = path.read_bytes()
    (start,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    ends = []
    for i in range(count):
        kind, _, offset, _, _, in_file = struct.unpack_from("<IIQQQQ", data, start + i * size)
        if kind == 1:
            ends.append(offset + in_file)
    return max(ends)


@pytest.mark.parametrize("text", [b"hello", b"\x7fELF" + b"\0" * 200, b"\x7fELF" + b"\xff" * 200])
def test_something_else(tmp_path, text):
    path = tmp_path / "else.so"
    path.write_bytes(text)
    with pytest.raises(OSError, match="it is no shared object"):
        _exec.load_kernels(path)
