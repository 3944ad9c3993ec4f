"""The runtime alone: its callbacks are ours during a test. Needs no torch (`tests/torch_free.sh`)."""

import importlib.util
import pathlib
import sys
import types

import pytest

WITH_TORCH = importlib.util.find_spec("torch") is not None

if not WITH_TORCH and "dyncomp" not in sys.modules:
    # The package's own __init__ needs torch; its native half does not.
    package = types.ModuleType("dyncomp")
    package.__path__ = [str(pathlib.Path(__file__).parents[2])]
    sys.modules["dyncomp"] = package

from dyncomp._frame import _core  # noqa: E402

collect_ignore = [] if WITH_TORCH else ["executor"]


class Owner:
    """Stands for the options in force."""


class Compiler:
    """The compile callback of a test: `rules[name](func, args)` answers misses of functions of that name."""

    def __init__(self):
        self.rules = {}
        self.misses = []
        self.reports = []

    def __call__(self, func, args, owner, cache):
        rule = self.rules.get(func.__name__)
        if rule is None:
            return None
        self.misses.append(func.__name__)
        return rule(func, args)

    @staticmethod
    def entry(checks, run, whole=True, name="test"):
        """An entry that checks the argument slots one by one and captures all of them."""
        nodes = [(-1, "local", slot, of_slot) for slot, of_slot in enumerate(checks)]
        return _core.Entry(
            _core.GuardTree(nodes, list(range(len(nodes))), _core.global_state()), run, whole, name
        )

    def rule(self, name, run, whole=True, guard=None):
        """Compiles functions called `name` to `run(*slots)`; guards: each argument's type, or `guard`."""

        def make(func, args):
            checks = [[("type", type(arg))] if guard is None else guard(arg) for arg in args]
            return self.entry(checks, run, whole, name)

        self.rules[name] = make


@pytest.fixture
def core():
    return _core


@pytest.fixture
def owner():
    return Owner()


@pytest.fixture
def compiler():
    compiler = Compiler()
    before = (
        _core.set_callback(compiler),
        _core.set_report(lambda kind, detail: compiler.reports.append((kind, detail))),
    )
    _core.reset()
    yield compiler
    _core.set_callback(before[0])
    _core.set_report(before[1])
    _core.reset()
    assert not _core.hook_installed()
