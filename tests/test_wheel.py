"""A wheel installs one top-level name and works from any folder; building or importing beside the wrong torch says what to do."""

import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", str(out), str(ROOT)],
        check=True,
        capture_output=True,
        timeout=1500,
    )
    (path,) = out.glob("*.whl")
    return path


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_one_top_level_name_that_works_elsewhere(wheel, tmp_path):
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        top = {name.split("/")[0] for name in archive.namelist()}
        archive.extractall(site)
    assert {name for name in top if not name.endswith(".dist-info")} == {"dyncomp"}
    program = (
        "import torch, dyncomp, dyncomp.codegen, dyncomp._frame\n"
        "f = dyncomp.optimize(lambda x: torch.softmax(x.sin(), -1))\n"
        "x = torch.randn(4, 8)\n"
        "torch.testing.assert_close(f(x), torch.softmax(x.sin(), -1))\n"
        "assert dyncomp.stats().graphs == 1 and dyncomp.stats().kernels == 1\n"
        "print(dyncomp.__file__)\n"
    )
    env = dict(os.environ, PYTHONPATH=str(site), DYNCOMP_CACHE_DIR=str(tmp_path / "cache"))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert str(site) in done.stdout


def test_building_without_torch_says_what_to_do(tmp_path):
    program = f"import sys; sys.argv = ['setup.py', 'build_ext']; sys.path.insert(0, {str(ROOT)!r})\n" + (
        "import importlib.util\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *a: None if name == 'torch' else find(name, *a)\n"
        f"exec(compile(open({str(ROOT / 'setup.py')!r}).read(), {str(ROOT / 'setup.py')!r}, 'exec'), {{'__file__': {str(ROOT / 'setup.py')!r}, '__name__': '__main__'}})\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode != 0
    assert "pip install torch" in done.stderr and "--no-build-isolation" in done.stderr


def test_importing_beside_another_torch_says_what_to_do():
    program = "import torch\ntorch.__version__ = '9.9.9'\nimport dyncomp\ndyncomp.optimize\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert done.returncode != 0
    assert "built for torch" in done.stderr and "Rebuild" in done.stderr
