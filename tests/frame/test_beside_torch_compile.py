"""torch.compile in the same process, before, inside and after our regions: both keep working."""

import subprocess
import sys

import pytest

pytest.importorskip("torch")

PROGRAM = """
import torch
from dyncomp._frame import _core

class Owner: pass
owner = Owner()

def users_inner(x): return x + 1
def users_outer(x): return users_inner(x) * 2

def on_miss(func, args, owner, cache):
    if func.__name__ == "users_inner":
        return _core.Entry(_core.GuardTree([(-1, "local", 0, [])], [0], None), lambda x: x + 100, True)

_core.set_callback(on_miss)
x = torch.ones(2)
ours = _core.Dispatcher(users_outer, owner)

def both():
    assert ours(x).tolist() == [202, 202] and users_outer(x).tolist() == [4, 4]
    with _core.Region(owner):
        assert users_outer(x).tolist() == [202, 202]
    assert not _core.hook_installed()

both()
theirs = torch.compile(lambda x: torch.sin(x) + 1, backend="eager")
torch.testing.assert_close(theirs(x), torch.sin(x) + 1)
both()
with _core.Region(owner):
    torch.testing.assert_close(theirs(x), torch.sin(x) + 1)
    late = torch.compile(lambda x: torch.cos(x) * 3, backend="eager")
    torch.testing.assert_close(late(x), torch.cos(x) * 3)
    assert users_outer(x).tolist() == [202, 202]
both()
torch.testing.assert_close(theirs(torch.ones(3)), torch.sin(torch.ones(3)) + 1)
torch.testing.assert_close(late(torch.ones(3)), torch.cos(torch.ones(3)) * 3)
both()
"""


@pytest.mark.slow
def test_both_compilers_take_turns():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr[-3000:]
