"""What goes wrong outside of dyncomp is a clear error or one warning, and the answer stays right."""

import warnings

import pytest
import torch

import dyncomp
from dyncomp import config, errors
from dyncomp.backends import codegen as codegen_backend
from dyncomp.codegen import toolchain
from dyncomp.codegen.toolchain import disk


def fused(x):
    return torch.softmax(x.sin() * 2, -1)


def other(x):
    return x.exp().sum(-1) + 1


@pytest.fixture
def clean(fresh, tmp_path):
    """An empty kernel cache of the test's own, and no warning given yet."""
    told = codegen_backend._no_compiler_told
    codegen_backend._no_compiler_told = False
    disk._warned.clear()
    toolchain.forget()
    with config.patch(cache_dir=str(tmp_path), disk_cache=True):
        yield tmp_path
    toolchain.forget()
    codegen_backend._no_compiler_told = told


def compiled_and_right(function, x):
    """The texts of the warnings that compiling and two calls gave; the answers are eager's."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fast = dyncomp.optimize(function)
        for _ in range(2):
            torch.testing.assert_close(fast(x), function(x))
    return [str(w.message) for w in caught if issubclass(w.category, RuntimeWarning)]


# ---- compiler and cache --------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["knob", "nothing-on-the-path"])
def test_a_missing_compiler_is_one_warning(clean, monkeypatch, how):
    if how == "nothing-on-the-path":
        monkeypatch.setenv("PATH", "/nonexistent")
        monkeypatch.delenv("CXX", raising=False)
    with config.patch(cxx="/nonexistent/cc" if how == "knob" else ""):
        first = compiled_and_right(fused, torch.randn(3, 5))
        second = compiled_and_right(other, torch.randn(3, 5))
    assert len(first) == 1 and second == []
    assert "runs without generated kernels" in first[0] and "config.cxx" in first[0]
    stats = dyncomp.stats()
    assert stats.fallbacks["no-compiler"] == 2 and stats.kernels == 0


def test_a_compiler_that_fails_is_one_warning_with_its_command(clean, tmp_path):
    broken = tmp_path / "cc"
    broken.write_text('#!/bin/sh\n[ "$1" = --version ] && echo broken 1.0 && exit 0\necho out of order >&2\nexit 1\n')
    broken.chmod(0o755)
    with config.patch(cxx=str(broken)):
        texts = compiled_and_right(fused, torch.randn(3, 5))
    assert len(texts) == 1 and "out of order" in texts[0] and str(broken) in texts[0]


@pytest.mark.parametrize("damage", [b"", b"not a library", None], ids=["empty", "text", "flipped"])
def test_a_damaged_cache_file_is_one_warning_and_compiled_again(clean, damage):
    x = torch.randn(3, 5)
    assert compiled_and_right(fused, x) == []
    libraries = list(clean.rglob("*.so"))
    assert libraries
    for library in libraries:
        data = library.read_bytes()
        library.unlink()  # this process has it mapped; damage goes to a new file of that name
        flipped = data[:200] + bytes([data[200] ^ 255]) + data[201:]
        library.write_bytes(flipped if damage is None else damage)
    dyncomp.reset()
    toolchain.forget()
    texts = compiled_and_right(fused, x)
    assert len(texts) == 1 and "damaged" in texts[0] and str(libraries[0].parent) in texts[0]
    dyncomp.reset()
    toolchain.forget()
    assert compiled_and_right(fused, x) == []
    assert dyncomp.stats().kernel_cache_hits > 0


def test_a_cache_folder_that_cannot_be_made_is_one_warning(clean):
    blocked = clean / "file"
    blocked.write_text("")
    with config.patch(cache_dir=str(blocked / "below")):
        texts = compiled_and_right(fused, torch.randn(3, 5))
        assert compiled_and_right(other, torch.randn(3, 5)) == []
    assert len(texts) == 1 and str(blocked) in texts[0]
    assert dyncomp.stats().kernels > 0


# ---- backends ------------------------------------------------------------------------------------


class Refused(Exception):
    pass


def refusing(gm, example_inputs):
    raise Refused("not today")


class Net(torch.nn.Module):
    def forward(self, x):
        return fused(x)


@pytest.mark.parametrize("target", [fused, Net()], ids=["function", "module"])
def test_a_backend_that_raises_is_named(fresh, target):
    fast = dyncomp.optimize(target, backend=refusing)
    x = torch.randn(2, 3)
    for _ in range(2):
        with pytest.raises(
            errors.BackendError, match="backend 'refusing' failed on the graph of .*not today"
        ) as caught:
            fast(x)
        assert isinstance(caught.value.__cause__, Refused)
    torch.testing.assert_close(dyncomp.optimize(target)(x), fused(x))


def test_a_backend_that_raises_in_a_region(fresh):
    with dyncomp.enable(backend=refusing), pytest.raises(errors.BackendError, match="refusing"):
        fused(torch.randn(2, 3))
    fused(torch.randn(2, 3))


def test_a_backend_that_returns_no_callable(fresh):
    def forgetful(gm, example_inputs):
        return None

    with pytest.raises(errors.OptionError, match="'forgetful' must return a callable, it returned NoneType"):
        dyncomp.optimize(fused, backend=forgetful)(torch.randn(2, 3))


def test_compiled_code_of_a_backend_that_raises(fresh):
    def fragile(gm, example_inputs):
        def run(*inputs):
            if inputs[0].sum() > 100:
                raise Refused("too much")
            return gm(*inputs)

        return run

    fast = dyncomp.optimize(fused, backend=fragile)
    x = torch.randn(2, 3)
    for _ in range(3):
        torch.testing.assert_close(fast(x), fused(x))
        with pytest.raises(Refused, match="too much"):
            fast(torch.full((2, 3), 99.0))
    assert dyncomp.stats().graphs == 1


@pytest.mark.parametrize("name", ["codegn", "aot_eagre"])
def test_an_unknown_backend_names_the_nearest(name):
    with pytest.raises(errors.UnknownBackendError, match="Did you mean '(codegen|aot_eager)'"):
        dyncomp.optimize(fused, backend=name)
    with pytest.raises(errors.UnknownBackendError), dyncomp.enable(backend=name):
        pass


def test_a_backend_that_cannot_be_imported(monkeypatch):
    import importlib.metadata

    entry = importlib.metadata.EntryPoint("absent", "no_such_package:compile", "dyncomp_backends")
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda group: [entry] if group == "dyncomp_backends" else []
    )
    assert "absent" in dyncomp.list_backends()
    with pytest.raises(errors.DyncompError, match="absent.*no_such_package"):
        dyncomp.optimize(fused, backend="absent")
