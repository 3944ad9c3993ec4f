"""Makes a program that differs smaller: statements, results and blocks go as long as it differs in the same kind."""

from __future__ import annotations

import ast
import multiprocessing
from collections.abc import Callable, Iterator

import dyncomp
from dyncomp import config
from tests.fuzz.comparing import differences
from tests.fuzz.running import Program, function_of, run


def reduced(program: Program, use: int, backend: str, without: list[str]) -> tuple[Program, str]:
    """(a program whose only use is that one, the kind it differs in); "" where the use alone does not differ."""
    small = Program(program.seed, program.function, [program.uses[use]])
    wanted = _kind(small, backend, without)
    if not wanted:
        return small, ""
    progress = True
    while progress:
        progress = False
        for candidate in _smaller(small):
            if _kind(candidate, backend, without) == wanted:
                small, progress = candidate, True
                break
    return small, wanted


def _kind(program: Program, backend: str, without: list[str]) -> str:
    """In which kind it differs first, found in a process of its own, which may die."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_tell, args=(program, backend, without, theirs))
    process.start()
    theirs.close()
    try:
        kind = ours.recv() if ours.poll(60) else "too long"
    except EOFError:
        kind = "process ended"
    process.kill()
    process.join()
    return kind


def _tell(program: Program, backend: str, without: list[str], pipe) -> None:
    pipe.send(_differs(program, backend, without))


def _differs(program: Program, backend: str, without: list[str]) -> str:
    dyncomp.reset()
    with config.patch(strict=True, remember_sizes=False):
        eager = function_of(program)
        fast = dyncomp.optimize(function_of(program), backend=backend)
        for seed in range(2):
            want, got = run(program, 0, eager, seed), run(program, 0, fast, seed)
            if want.error is not None and want.error[0] in ("NameError", "ValueError", "UnboundLocalError"):
                return ""  # something that is needed has gone
            for kind, _, sides in differences(got, want):
                if kind not in without:
                    return f"{kind} {sides[:60]}" if kind.startswith(("loud", "silent", "error")) else kind
    return ""


def _smaller(program: Program) -> Iterator[Program]:
    """Programs with one thing less, the last lines first."""
    function, use = ast.parse(program.function), ast.parse(program.uses[0])
    for tree in (use, function):
        for change in _changes(tree):
            undo = change()
            yield _made(program, function, use)
            undo()
    returned = function.body[0].body[-1]
    if isinstance(returned, ast.Return) and isinstance(returned.value, ast.Tuple):
        calls = [node for node in ast.walk(use) if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("f(")]
        for position in range(len(returned.value.elts)):
            lists = [returned.value.elts, *[node.targets[0].elts for node in calls if isinstance(node.targets[0], ast.Tuple)]]
            taken = [one.pop(position) for one in lists]
            yield _made(program, function, use)
            for one, element in zip(lists, taken, strict=True):
                one.insert(position, element)


def _made(program: Program, function: ast.AST, use: ast.AST) -> Program:
    return Program(program.seed, ast.unparse(function) + "\n", [ast.unparse(use) + "\n"])


def _changes(tree: ast.AST) -> Iterator[Callable[[], Callable[[], None]]]:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for position in reversed(range(len(body))):
            if not isinstance(body[position], ast.Return | ast.FunctionDef):
                if len(body) > 1:
                    yield lambda body=body, position=position: _replaced(body, position, [])
                if isinstance(body[position], ast.With):
                    yield lambda body=body, position=position: _replaced(body, position, body[position].body)


def _replaced(body: list, position: int, by: list) -> Callable[[], None]:
    before = list(body)
    body[position : position + 1] = by
    return lambda: body.__setitem__(slice(None), before)
