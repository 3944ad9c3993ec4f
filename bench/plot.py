"""Draws the newest line of every case of bench/results/*.jsonl: dyncomp's time relative to the other sides."""

import json
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

RESULTS = pathlib.Path(__file__).parent / "results"


def newest():
    cases = {}
    for path in sorted(RESULTS.glob("*.jsonl")):
        for text in path.read_text().splitlines():
            line = json.loads(text)
            cases[line["suite"], line["case"]] = line
    return list(cases.values())


def main():
    lines = newest()
    if not lines:
        raise SystemExit("no results yet: run make bench")
    names = sorted({name for line in lines for name in line["ratio"]})
    figure, axes = plt.subplots(figsize=(10, 0.35 * len(lines) + 1.5))
    height = 0.8 / len(names)
    for i, name in enumerate(names):
        where = [row + i * height for row, line in enumerate(lines) if name in line["ratio"]]
        axes.barh(
            where,
            [1 / line["ratio"][name] for line in lines if name in line["ratio"]],
            height,
            label=f"speed-up over {name}",
        )
    axes.set_yticks(range(len(lines)), [f"{line['suite']}: {line['case']}" for line in lines], fontsize=7)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.legend()
    figure.tight_layout()
    figure.savefig(RESULTS / "bench.png", dpi=120)
    print(RESULTS / "bench.png")


if __name__ == "__main__":
    main()
