"""The math functions of generated kernels over all 2^32 floats: `python bench/sweep_math.py [--isa avx2] [exp ...]`.

Prints one line a function: the greatest distance to libm's double (or long double) result in units of the float
spacing there, and how many results that are not finite differ. The limit is 2; exit status 1 if one is over it.
All functions take about an hour of processor time.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from dyncomp.codegen.toolchain.compiler import BASE_FLAGS, find_compiler
from dyncomp.codegen.toolchain.isa import _ISAS, current_isa

HERE = pathlib.Path(__file__).parent / "math_sweep"
HEADERS = pathlib.Path(__file__).parent.parent / "codegen" / "emit" / "cpp"


def build(folder: str, isa: str) -> str:
    command = list(find_compiler().command)
    kernel_flags = [f for f in BASE_FLAGS if f != "-shared"]
    kernels, program = os.path.join(folder, "kernels.o"), os.path.join(folder, "sweep")
    subprocess.run(
        [*command, *kernel_flags, *_ISAS[isa].flags, f"-I{HEADERS}", "-c", str(HERE / "kernels.cpp"), "-o", kernels],
        check=True,
    )
    subprocess.run(
        [*command, "-std=c++17", "-O2", "-pthread", str(HERE / "sweep.cpp"), kernels, "-o", program], check=True
    )
    return program


def main() -> int:
    everything = re.findall(r"KERNEL\((\w+)\)", (HERE / "functions.inc").read_text())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("functions", nargs="*", default=everything, metavar="function")
    parser.add_argument("--isa", choices=sorted(_ISAS), default=current_isa().name)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--every", type=int, default=1, help="one block of 65,536 floats in this many")
    options = parser.parse_args()
    unknown = sorted(set(options.functions) - set(everything))
    if unknown:
        parser.error(f"no such function: {', '.join(unknown)}; there are {', '.join(everything)}")
    over = 0
    with tempfile.TemporaryDirectory() as folder:
        program = build(folder, options.isa)
        for name in options.functions:
            done = subprocess.run([program, name, str(options.threads), str(options.every)], capture_output=True, text=True)
            _, worst, at, got, special, special_at = done.stdout.split()
            note = f"at {at} (got {got})" + (f"; {special} special results differ, one at {special_at}" if int(special) else "")
            print(f"{options.isa} {name:10} {worst} ulp {note}", flush=True)
            over += done.returncode != 0
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
