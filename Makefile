# Two commands do everything on a fresh machine: `make demo` and `make test`. Both make .venv first.
# DYNCOMP_PYTHON=python3 uses an interpreter that has all dependencies already (no .venv, nothing is downloaded).

PYTHON ?= python3
ifdef DYNCOMP_PYTHON
PY := $(DYNCOMP_PYTHON)
READY := .built-$(shell $(DYNCOMP_PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
else
PY := .venv/bin/python
READY := .venv/.ready
endif

SOURCES := $(shell find _frame -name '*.cpp' -not -name core.cpp -not -name exec.cpp -o -name '*.h' -o -name '*.pyx') setup.py pyproject.toml

.PHONY: demo test test-gpu bench lint build wheel clean

demo: build
	$(PY) examples/demo.py

test: build
	$(PY) -m pytest tests -m "not gpu" $(PYTEST_ARGS)

test-gpu: build
	$(PY) -m pytest tests -m gpu $(PYTEST_ARGS)

bench: build
	$(PY) bench/run.py $(BENCH_ARGS)

lint: build
	$(PY) -m ruff check .
	$(PY) -m mypy

build: $(READY)

.venv/.ready: requirements-dev.txt $(SOURCES)
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 13) else "dyncomp needs Python 3.11, 3.12 or 3.13; found %d.%d. Run: make PYTHON=python3.11 ..." % v)'
	test -x .venv/bin/python || $(PYTHON) -m venv .venv
	.venv/bin/python -m pip install -q -r requirements-dev.txt
	.venv/bin/python -m pip install -q --no-build-isolation --no-deps -e .
	touch $@

.built-%: $(SOURCES)
	$(DYNCOMP_PYTHON) -m pip install -q --no-build-isolation --no-deps -e .
	touch $@

wheel: build
	$(PY) -m pip wheel -q --no-build-isolation --no-deps -w dist .

clean:
	rm -rf build dist *.egg-info .built-* .venv/.ready _frame/*.so _frame/core.cpp _frame/exec.cpp
