"""Fixture `compare`: several sides of one case, timed in turn in one run, medians and ratios kept as one JSON line a case.

pytest-benchmark times dyncomp's side; before each of its rounds every other side runs once, so drift hits all alike.
"""

import json
import pathlib
import platform
import statistics
import time

import pytest
import torch

RESULTS = pathlib.Path(__file__).parent / "results"


def pytest_addoption(parser):
    parser.addoption("--peer", action="store", default="yes", choices=["yes", "no"], help="also run torch.compile")
    parser.addoption("--rounds", action="store", type=int, help="timed rounds of each case (default: the case's own)")


@pytest.fixture
def peer(request):
    """True when torch.compile takes part."""
    return request.config.getoption("--peer") == "yes"


@pytest.fixture
def compare(request, benchmark):
    def run(case, sides, rounds=15, inner=1, warmup=3, **facts):
        """`sides`: {"eager": call, "dyncomp": call, "torch.compile": call}; `inner` calls are timed as one."""

        rounds = request.config.getoption("--rounds") or rounds
        warmup = min(warmup, rounds)

        def repeat(call):
            def many():
                for _ in range(inner):
                    call()

            return many

        calls = {name: repeat(call) for name, call in sides.items()}
        for call in calls.values():
            for _ in range(warmup):
                call()
        times = {name: [] for name in calls}

        def others():
            for name, call in calls.items():
                if name != "dyncomp":
                    start = time.perf_counter()
                    call()
                    times[name].append(time.perf_counter() - start)

        def ours():
            start = time.perf_counter()
            calls["dyncomp"]()
            times["dyncomp"].append(time.perf_counter() - start)

        benchmark.group = case
        benchmark.pedantic(ours, setup=others, rounds=rounds)
        return record(
            request.module.__name__, case, {n: statistics.median(t) / inner for n, t in times.items()}, **facts
        )

    return run


def record(suite, case, seconds, **facts):
    """Appends one JSON line: medians in seconds, and how dyncomp's time compares (below 1 is faster)."""
    ours = seconds["dyncomp"]
    line = {
        "suite": suite.rpartition(".")[2].removeprefix("test_"),
        "case": case,
        "seconds": seconds,
        "ratio": {name: ours / other for name, other in seconds.items() if name != "dyncomp"},
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        **facts,
    }
    RESULTS.mkdir(exist_ok=True)
    with open(RESULTS / f"{line['suite']}.jsonl", "a", encoding="utf-8") as f:
        f.write(json.dumps(line) + "\n")
    print(
        "\n"
        + json.dumps(
            {
                "case": case,
                "seconds": {k: round(v, 9) for k, v in seconds.items()},
                "ratio": {k: round(v, 4) for k, v in line["ratio"].items()},
            }
        )
    )
    return line
