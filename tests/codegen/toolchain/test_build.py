"""Finding the compiler, building kernels, the disk cache and its faults."""

import ctypes
import os
import pathlib
import stat
import subprocess
import sys
import threading
import warnings

import pytest

from dyncomp import config, counters
from dyncomp.codegen import toolchain
from dyncomp.codegen.toolchain import compiler, disk
from dyncomp.codegen.toolchain.source import PLACEHOLDER, KernelSource
from dyncomp.errors import OptionError, ToolchainError

HEAD = f'extern "C" __attribute__((visibility("default"))) int {PLACEHOLDER}() '


@pytest.fixture(autouse=True)
def cache(tmp_path):
    """Each test has a cache folder and a process table of its own."""
    disk._warned.clear()
    toolchain.forget()
    with config.patch(cache_dir=str(tmp_path), disk_cache=True):
        yield tmp_path / disk.FORMAT
    toolchain.forget()


def source(number):
    return KernelSource.from_text(HEAD + f"{{ return {number}; }}\n")


def call(built, kernel):
    return ctypes.CFUNCTYPE(ctypes.c_int)(built.addresses[kernel.symbol])()


def test_builds_and_names_by_content():
    one, same, two = source(1), source(1), source(2)
    assert one == same and one.symbol != two.symbol
    built = toolchain.build([one, two, same])
    assert call(built, one) == 1 and call(built, two) == 2
    assert len(built.addresses) == 2


def test_second_build_compiles_nothing(monkeypatch):
    kernels = [source(n) for n in range(5)]
    toolchain.build(kernels)
    monkeypatch.setattr(compiler.Compiler, "compile", lambda *a: pytest.fail("compiled again"))
    assert call(toolchain.build(kernels), kernels[3]) == 3
    toolchain.forget()
    before = counters.stats().kernel_cache_hits
    assert call(toolchain.build(kernels), kernels[4]) == 4
    assert counters.stats().kernel_cache_hits == before + 5


def test_libraries_outlive_the_table():
    kernel = source(11)
    built = toolchain.build([kernel])
    toolchain.forget()
    assert call(built, kernel) == 11


def test_another_process_finds_the_kernels(cache):
    kernel = source(21)
    toolchain.build([kernel])
    code = f"""
from dyncomp import config
from dyncomp.codegen import toolchain
from dyncomp.codegen.toolchain.compiler import Compiler
Compiler.compile = None
config.cache_dir = {str(cache.parent)!r}
built = toolchain.build([toolchain.KernelSource({kernel.symbol!r}, {kernel.text!r})])
print(len(built.addresses))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "1", done.stderr


def test_folder_is_private(cache):
    toolchain.build([source(31)])
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert not list(cache.glob("tmp-*"))


def test_folder_of_others_is_not_used(cache):
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    kernel = source(41)
    with pytest.warns(RuntimeWarning, match="writable by you alone"):
        built = toolchain.build([kernel])
    assert call(built, kernel) == 41
    assert not list(cache.iterdir())


@pytest.mark.parametrize("damage", ["truncate", "garbage", "flip", "empty-ref", "garbage-ref", "missing"])
def test_damaged_entry_is_compiled_again(cache, damage):
    kernel = source(51)
    toolchain.build([kernel])
    toolchain.forget()
    (library,) = (cache / "lib").iterdir()
    (reference,) = (cache / "ref").iterdir()
    data = library.read_bytes()
    library.unlink()  # this process has it mapped; damage goes to a new file of that name
    if damage == "truncate":
        library.write_bytes(data[: len(data) // 2])
    elif damage == "garbage":
        library.write_bytes(b"not a library")
    elif damage == "flip":
        library.write_bytes(data[:100] + bytes([data[100] ^ 255]) + data[101:])
    elif damage == "empty-ref":
        reference.write_text("")
    elif damage == "garbage-ref":
        reference.write_bytes(b"\xff\x00\xfe/../..")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        built = toolchain.build([kernel])
    assert call(built, kernel) == 51
    if damage in ("truncate", "garbage", "flip"):
        assert len(caught) == 1 and "damaged" in str(caught[0].message)
    toolchain.forget()
    assert call(toolchain.build([kernel]), kernel) == 51


def test_size_is_bounded(cache):
    toolchain.build([source(60)])
    size = next((cache / "lib").iterdir()).stat().st_size
    opened = disk.DiskCache(cache)
    for number in range(61, 66):
        toolchain.build([source(number)])
    for age, path in enumerate(sorted((cache / "lib").iterdir())):
        os.utime(path, (1_000_000 + age, 1_000_000 + age))
    toolchain.forget()
    toolchain.build([source(60)])  # a hit makes it the most recent
    opened.trim(size * 2)
    assert len(list((cache / "lib").iterdir())) == len(list((cache / "ref").iterdir())) == 2
    toolchain.forget()
    before = counters.stats().kernel_cache_hits
    toolchain.build([source(60)])
    assert counters.stats().kernel_cache_hits == before + 1


def test_without_disk_cache_nothing_is_written(cache):
    with config.patch(disk_cache=False):
        kernel = source(71)
        assert call(toolchain.build([kernel]), kernel) == 71
    assert not cache.exists()


def test_missing_compiler(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ToolchainError, match="compiler found .tried g.*clang.*config.cxx"):
        toolchain.build([source(81)])


def test_chosen_compiler_is_not_replaced():
    with config.patch(cxx="/nonexistent/cc"), pytest.raises(ToolchainError, match="/nonexistent/cc"):
        toolchain.build([source(82)])


def test_compiler_with_arguments():
    with config.patch(cxx="g++ -DEXTRA"):
        kernel = KernelSource.from_text("#ifdef EXTRA\n" + HEAD + "{ return 83; }\n#endif\n")
        assert call(toolchain.build([kernel]), kernel) == 83


def test_rejected_source_is_reported_and_kept():
    bad = KernelSource.from_text(HEAD + "{ return nonsense; }\n")
    with pytest.raises(ToolchainError) as caught:
        toolchain.build([bad])
    text = str(caught.value)
    assert "nonsense" in text and "-O1" in text
    kept = pathlib.Path(text.rsplit("kept as: ", 1)[1])
    assert "nonsense" in kept.read_text()
    kept.unlink()


def test_threads_may_build_the_same_kernels():
    kernels = [source(n) for n in range(90, 96)]
    results, errors = [], []

    def work():
        try:
            built = toolchain.build(kernels)
            results.append([call(built, k) for k in kernels])
        except Exception as e:  # noqa: BLE001  (reported by the assertion)
            errors.append(e)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors and results == [list(range(90, 96))] * 4


def test_isa_beyond_the_machine_is_refused(monkeypatch):
    from dyncomp.codegen.toolchain import isa

    monkeypatch.setattr(isa, "_machine_isa", lambda: "avx2")
    assert toolchain.current_isa().name == "avx2"
    with config.patch(vector_isa="avx512"), pytest.raises(OptionError, match="'avx2' at most"):
        toolchain.current_isa()
