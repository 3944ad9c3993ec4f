"""Imports go one way, also those inside functions; the peer's compiler is named only in the opt-in interop backend."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Lowest first: a module imports only from rows above its own, or from its own row.
LAYERS = [
    {"errors"},
    {"config", "log", "counters", "marks", "size_marks", "context", "entry", "skipfiles"},
    {"dump"},
    {"bytecode"},
    {"shape"},
    {"fake"},
    {"guards"},
    {"values"},
    {"interp"},
    {"aot"},
    {"backends"},
    {"driver", "dynamic", "patience"},
    {"compiled_autograd"},
    {"optimized_module"},
    {"api"},
    {"report"},
    {"__main__", "__init__"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
CODEGEN_MAY_USE = {"errors", "config", "log", "counters", "shape", "fake", "_frame", "codegen"}
PEER = re.compile(
    r"torch\._dynamo|torch\._inductor|torch\.compile\b|torch\.export|_functorch\.(aot|partitioners|compile)|make_fx|_subclasses\.fake|symbolic_shapes"
)


def files(folder):
    return sorted(p for p in (ROOT / folder).rglob("*.py"))


def imported(path):
    """(line, first component below dyncomp) of every import of the project, wherever it stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "dyncomp" else [node.module]
            )
        elif isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError(f"{path}:{node.lineno}: relative import")
        for name in names:
            parts = name.split(".")
            if parts[0] == "dyncomp" and len(parts) > 1:
                yield node.lineno, parts[1]


@pytest.mark.parametrize("path", files("dyncomp"), ids=lambda p: str(p.relative_to(ROOT)))
def test_dyncomp_imports_go_down(path):
    own = path.relative_to(ROOT / "dyncomp").parts[0].removesuffix(".py")
    for line, name in imported(path):
        if name in ("_frame", own):
            continue
        assert name != "codegen", f"{path}:{line}: the code generator is loaded by name"
        assert RANK[name] <= RANK[own], f"{path}:{line}: {own} imports {name}, which lies above it"


@pytest.mark.parametrize("path", files("codegen"), ids=lambda p: str(p.relative_to(ROOT)))
def test_codegen_imports_little(path):
    for line, name in imported(path):
        assert name in CODEGEN_MAY_USE, f"{path}:{line}: codegen imports dyncomp.{name}"


def test_the_runtime_imports_nothing_of_the_project():
    for path in files("_frame"):
        assert not list(imported(path)), path


@pytest.mark.parametrize("folder", ["dyncomp", "codegen", "_frame"])
def test_the_peer_is_named_in_the_interop_backend_alone(folder):
    for path in files(folder):
        if path.name == "interop.py":
            continue
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                text = ast.unparse(node)
                assert not PEER.search(text), f"{path}:{node.lineno}: {text}"
