"""Cost of the native runtime alone, in nanoseconds a call: dispatch, guards, frame hook.

    python bench/overhead_native.py

The compiled code of every case is a builtin that does next to nothing; its own time is shown and subtracted.
"""

from __future__ import annotations

import statistics
import time
import timeit
from collections.abc import Callable
from typing import Any

import torch

from dyncomp._frame import _core
from dyncomp.shape.env import ShapeEnv
from dyncomp.shape.program import guard_program
from dyncomp.shape.symbolic import is_symbolic, layout_of


class Owner:
    """Stands for the options in force."""


OWNER = Owner()
ANY_ARGUMENTS = "".format  # a C function that takes any arguments and ignores them


def nanoseconds(function: Callable[..., Any], *args: Any) -> float:
    """Best time of one call; the loop's own cost is in it."""
    calls = "; ".join(["f(*a)" if len(args) > 10 else f"f({', '.join(f'a{i}' for i in range(len(args)))})"] * 10)
    scope = {"f": function, "a": args, **{f"a{i}": arg for i, arg in enumerate(args)}}
    timer = timeit.Timer(calls, timer=time.process_time, globals=scope)  # this process alone, on a shared machine
    return min(timer.repeat(7, 20_000)) / 20_000 / 10 * 1e9


def tensor_checks(args: tuple[Any, ...]) -> list[Any]:
    return [(-1, "local", i, [("tensor", _core.tensor_spec(arg))]) for i, arg in enumerate(args)]


def dispatcher(function: Any, nodes: list[Any], captures: list[int], run: Any, state: Any) -> Any:
    entry = _core.Entry(_core.GuardTree(nodes, captures, state), run, True, "bench")
    cache = _core.Cache()
    cache.add(entry)
    return _core.Dispatcher(function, OWNER, cache)


def with_open_sizes(args: tuple[Any, ...]) -> list[Any]:
    """Guards on tensors whose sizes all vary, as the shape engine makes them: ranges, row-major strides."""
    env, nodes, inputs = ShapeEnv(), [], {}
    for i, arg in enumerate(args):

        def size_at(dim: int, i: int = i, arg: Any = arg) -> Any:
            return env.create_int(arg.shape[dim], (i, "size", dim), duck=False)

        sizes, strides = layout_of(env, arg.shape, arg.stride(), size_at, lambda dim, i=i: (i, "stride", dim))
        open_ones = [tuple(None if is_symbolic(n) else n for n in numbers) for numbers in (sizes, strides)]
        spec = _core.tensor_spec(arg)._replace(sizes=open_ones[0], strides=open_ones[1])
        nodes.append((-1, "local", i, [("tensor", spec)]))
        inputs.update({(i, what, dim): (i, what, dim) for what in ("size", "stride") for dim in range(arg.ndim)})
    program = guard_program(env)
    assert program is not None
    reads = tuple(inputs[origin] for origin in program.inputs)
    nodes[-1][-1].append(("int_program", (reads, program.code, program.texts)))
    return nodes


def symbolic_costs(rounds: int = 9) -> None:
    """Medians of rounds in which static and symbolic guards take turns, on the same two tensors."""
    args = (torch.randn(6, 8), torch.randn(3, 5))
    state = _core.global_state()
    sides = {"static": dispatcher(takes_two, tensor_checks(args), [], dict, state)}
    sides["4 sizes that vary"] = dispatcher(takes_two, with_open_sizes(args), [], dict, state)
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, call in sides.items():
            times[name].append(nanoseconds(call, *args))
    medians = {name: statistics.median(found) for name, found in times.items()}
    more = medians["4 sizes that vary"] - medians["static"]
    print(f"{'dispatcher, 2 tensors, 4 sizes that vary: more than static':58} {more:8.1f}  {medians}")


def module_nodes(module: torch.nn.Module) -> tuple[list[Any], list[int]]:
    """Guards as the interpreter makes them: dict links, `training`, metadata of every parameter."""
    nodes: list[Any] = [(-1, "local", 0, [("type", type(module))])]
    parameters = []

    def visit(current: torch.nn.Module, at: int) -> None:
        attributes = len(nodes)
        nodes.append((at, "instance_dict", None, [("no_item", ("forward",))]))
        nodes.append((attributes, "dict_item", "training", [("equals", current.training)]))
        slots = len(nodes)
        nodes.append((attributes, "dict_item", "_parameters", []))
        for name, parameter in current._parameters.items():
            parameters.append(len(nodes))
            nodes.append((slots, "dict_item", name, [("tensor", _core.tensor_spec(parameter))]))
        children = len(nodes)
        nodes.append((attributes, "dict_item", "_modules", []))
        for name, child in current._modules.items():
            child_at = len(nodes)
            nodes.append(
                (
                    children,
                    "dict_item",
                    name,
                    [("type", type(child)), ("class_attrs", (("forward", type(child).forward),))],
                )
            )
            visit(child, child_at)

    visit(module, 0)
    return nodes, parameters


def takes_nothing() -> None: ...
def takes_one(a: Any) -> None: ...
def takes_two(a: Any, b: Any) -> None: ...
def takes_ten(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any, i: Any, j: Any) -> None: ...
def calls_one(a: Any) -> None:
    takes_one(a)


def main() -> None:
    ten = tuple(torch.randn(2, 2) for _ in range(10))
    one = ten[:1]
    state = _core.global_state()
    base = nanoseconds(dict)
    print(f"{'an empty builtin (subtracted below)':58} {base:8.1f}")

    def show(what: str, function: Any, *args: Any) -> None:
        print(f"{what:58} {nanoseconds(function, *args) - base:8.1f}")

    show("dispatcher, no argument, no state", dispatcher(takes_nothing, [], [], dict, None))
    show("dispatcher, no argument", dispatcher(takes_nothing, [], [], dict, state))
    show("dispatcher, 1 tensor", dispatcher(takes_one, tensor_checks(one), [], dict, state), *one)
    show("dispatcher, 1 tensor, captured", dispatcher(takes_one, tensor_checks(one), [0], id, state), *one)
    show("dispatcher, 10 tensors", dispatcher(takes_ten, tensor_checks(ten), [], dict, state), *ten)
    show(
        "dispatcher, 10 tensors, captured",
        dispatcher(takes_ten, tensor_checks(ten), list(range(10)), ANY_ARGUMENTS, state),
        *ten,
    )
    symbolic_costs()
    module = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(50)])
    nodes, parameters = module_nodes(module)
    show(
        f"dispatcher, module of 100 parameters ({len(nodes)} nodes)",
        dispatcher(takes_one, nodes, [], dict, state),
        module,
    )
    show(
        "the same, parameters captured",
        dispatcher(takes_one, nodes, parameters, ANY_ARGUMENTS, state),
        module,
    )
    show("plain Python call of a Python call", calls_one, 1)
    with _core.Region(OWNER):
        calls_one(1)
        show("the same under the hook, both frames skipped", calls_one, 1)


if __name__ == "__main__":
    _core.set_callback(lambda func, args, owner, cache: None)
    main()
