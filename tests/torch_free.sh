#!/usr/bin/env bash
# Builds the torch-free half of the runtime with the given Python in a scratch copy and runs the tests that need no torch.
set -euo pipefail
python=$1
here=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$python" -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip install -q 'setuptools>=70' wheel Cython==3.3.1 pytest==9.2.0 pytest-timeout==2.4.0 hypothesis==6.170.17
cp -r "$here/_frame" "$here/dyncomp" "$here/codegen" "$here/tests" "$here/setup.py" "$here/pyproject.toml" "$here/README.md" "$scratch/"
cd "$scratch"
rm -f _frame/*.so _frame/core.cpp _frame/exec.cpp
export DYNCOMP_WITHOUT_TORCH=1
"$scratch/venv/bin/python" -m pip install -q --no-build-isolation --no-deps -e .
"$scratch/venv/bin/python" -m pytest -q tests/bytecode tests/frame -m "not gpu"
