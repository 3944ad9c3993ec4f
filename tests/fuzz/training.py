"""Runs random training programs compiled and in eager, and prints one line for each seed that differs.

    python -m tests.fuzz.training FROM TO [-n JOBS] [-v] [--reduce] [--backend codegen] [--without KIND]

With -v also the program and both sides. Exit status 1 if any differed.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import subprocess
import sys
import traceback
from collections.abc import Iterator

import torch

import dyncomp
from dyncomp import config
from tests.fuzz.comparing import Difference, differences
from tests.fuzz.programs import Program, make_program
from tests.fuzz.reducing import reduced
from tests.fuzz.running import Record, function_of, run

_RUNS = [(0, 0), (1, 1), (2, 2), (0, 3)]  # use, seed of its numbers; the last one is warm all the way
_LONGEST = 120  # seconds a program may take


def check(program: Program, backend: str = "codegen") -> Iterator[tuple[int, list[Difference], Record, Record]]:
    """(use, differences, ours, eager's) of each run that differs."""
    dyncomp.reset()
    with config.patch(strict=True, remember_sizes=False):
        eager = function_of(program)
        fast = dyncomp.optimize(function_of(program), backend=backend)
        for use, seed in _RUNS:
            want = run(program, use, eager, seed)
            got = run(program, use, fast, seed)
            found = differences(got, want)
            if found:
                yield use, found, got, want


def _report(program: Program, given: argparse.Namespace) -> bool:
    """Whether a program differs; prints how it does first."""
    for use, found, got, want in check(program, given.backend):
        found = [one for one in found if one[0] not in given.without]
        if not found:
            continue
        kinds = dict.fromkeys(kind for kind, _, _ in found)
        print(f"seed {program.seed} use {use}: {', '.join(kinds)}: {found[0][1]} {found[0][2][:160]!r}", flush=True)
        if given.reduce:
            program, kind = reduced(program, use, given.backend, given.without)
            print(f"{program.function}\n{program.uses[0]}\n-> {kind or 'not by this use alone'}\n", flush=True)
        elif given.v:
            print(f"{program.function}\n# use {use}\n{program.uses[use]}")
            for kind, where, sides in found:
                print(f"  {kind} {where}: {sides}")
            for name, record in (("compiled", got), ("eager", want)):
                if record.raised is not None:
                    print(f"  {name}:", "".join(traceback.format_exception(record.raised)))
        return True
    return False


def _work(first: int, last: int, every: int, given: argparse.Namespace) -> int:
    wrong = 0
    counted: collections.Counter[str] = collections.Counter()
    for seed in range(first, last, every):
        print(f"# {seed}", flush=True)
        faulthandler.dump_traceback_later(_LONGEST, exit=True)
        program = make_program(seed)
        wrong += _report(program, given)
        stats = dyncomp.stats()
        counted.update({"graphs": stats.graphs, "graph breaks": stats.graph_breaks, "frames left alone": stats.skipped, **stats.fallbacks})
        counted.update({f"break: {reason}": count for reason, count in stats.break_reasons.items()})
    faulthandler.cancel_dump_traceback_later()
    print(f"# counted {dict(counted)}", flush=True)
    return wrong


def _spread(given: argparse.Namespace) -> collections.Counter[str]:
    """How many programs differ, by the kind of the first difference. A worker that dies is started again behind the seed it died at."""
    running = [_Worker(given.first + job, given) for job in range(given.n)]
    for worker in running:
        worker.start()
    while any(worker.process is not None for worker in running):
        for worker in running:
            worker.read()
    return sum([worker.kinds for worker in running], collections.Counter())


class _Worker:
    """A process that runs every n-th seed."""

    def __init__(self, first: int, given: argparse.Namespace):
        self.next, self.given = first, given
        self.kinds: collections.Counter[str] = collections.Counter()
        self.lines: list[str] = []  # of the seed that it is at, printed together
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        given = self.given
        command = [sys.executable, "-m", "tests.fuzz.training", str(self.next), str(given.last), "--every", str(given.n), "--backend", given.backend]
        command += [f"--without={kind}" for kind in given.without] + ["-v"] * given.v + ["--reduce"] * given.reduce
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def read(self) -> None:
        if self.process is None:
            return
        line = self.process.stdout.readline()
        if line.startswith("# ") and line[2:].strip().isdigit():
            self.next = int(line[2:]) + self.given.n
            self.say()
        elif line:
            if line.startswith("seed "):
                self.kinds[line.partition(": ")[2].partition(": ")[0].partition(",")[0]] += 1
            self.lines.append(line)
        elif self.process.wait() in (0, 1):
            self.say()
            self.process = None
        else:
            self.kinds["process ended"] += 1
            self.say()
            seed = self.next - self.given.n
            print(f"seed {seed}: process ended with {self.process.returncode}", flush=True)
            for use in range(3 if self.given.reduce else 0):
                program, kind = reduced(make_program(seed), use, self.given.backend, self.given.without)
                if kind:
                    print(f"{program.function}\n{program.uses[0]}\n-> {kind}\n", flush=True)
                    break
            self.start()


    def say(self) -> None:
        print("".join(self.lines), end="", flush=True)
        self.lines.clear()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("-n", type=int, default=1, help="worker processes")
    parser.add_argument("-v", action="store_true", help="print programs and both sides")
    parser.add_argument("--reduce", action="store_true", help="make each program that differs as small as it goes")
    parser.add_argument("--backend", default="codegen")
    parser.add_argument("--without", action="append", default=[], metavar="KIND", help="a kind of difference to leave out")
    parser.add_argument("--every", type=int, default=0, help=argparse.SUPPRESS)  # as a worker: every n-th seed, in this process
    given = parser.parse_args()
    if given.every:
        torch.set_num_threads(1)
        return 1 if _work(given.first, given.last, given.every, given) else 0
    kinds = _spread(given)
    print(f"{sum(kinds.values())} of {given.last - given.first} programs differ: {dict(kinds.most_common())}", flush=True)
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
