"""`make bench`: all benchmarks (or those named: overhead compile_time kernels models), then the plot. `--peer no` leaves torch.compile out."""

import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def main():
    names = [a for a in sys.argv[1:] if (HERE / f"test_{a}.py").exists()]
    rest = [a for a in sys.argv[1:] if a not in names]
    files = [str(HERE / f"test_{n}.py") for n in names or ("overhead", "kernels", "models", "compile_time")]
    status = subprocess.call(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "--rootdir", str(HERE), *files, *rest]
    )
    subprocess.call([sys.executable, str(HERE / "plot.py")])
    return status


if __name__ == "__main__":
    sys.exit(main())
