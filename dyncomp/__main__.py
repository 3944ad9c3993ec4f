"""Command line: `python -m dyncomp doctor | explain script.py | run script.py [args] | cache [--clear]`."""

from __future__ import annotations

import argparse
import importlib
import runpy
import sys


def _run(script: str, args: list[str], explain: bool) -> int:
    dyncomp = importlib.import_module("dyncomp")
    sys.argv = [script, *args]
    frames: list[object] = []
    with dyncomp.enable(observer=frames.append if explain else None):
        runpy.run_path(script, run_name="__main__")
    if explain:
        report = importlib.import_module("dyncomp.report.explain")
        print(report.Explanation(script, frames))
    return 0


def _cache(clear: bool) -> int:
    toolchain = importlib.import_module("dyncomp.codegen.toolchain")
    if clear:
        toolchain.clear_cache()
    print(toolchain.describe_cache())
    return 0


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="dyncomp", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="what this machine has")
    for name, text in (
        ("run", "run a script with everything enabled"),
        ("explain", "the same, and print what was captured"),
    ):
        sub = commands.add_parser(name, help=text)
        sub.add_argument("script")
        sub.add_argument("args", nargs=argparse.REMAINDER)
    cache = commands.add_parser("cache", help="where the kernel cache is and how large")
    cache.add_argument("--clear", action="store_true", help="delete all cached kernels")
    given = parser.parse_args(argv)
    if given.command == "doctor":
        return importlib.import_module("dyncomp.report.doctor").main()
    if given.command == "cache":
        return _cache(given.clear)
    return _run(given.script, given.args, explain=given.command == "explain")


if __name__ == "__main__":
    sys.exit(main())
