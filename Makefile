# Everything runs in .venv, which is made once and again when pyproject.toml changes. Needs Python 3.11 or newer and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 2
MINUTES ?= 60
SEED ?= 0
PYTEST := $(BIN)/python -m pytest -q

# BLAS threads of several test workers would fight for the same cores.
test conformance fuzz attack test-slow test-training: export OPENBLAS_NUM_THREADS ?= 1

.PHONY: help demo test check docs conformance test-slow test-training fuzz attack bench release kernels clean

help:
	@echo "make demo         classify a few pictures with the model that ships with the project"
	@echo "make test         lint, types and the whole test suite"
	@echo "make check        lint and types alone"
	@echo "make docs         write the pages of the documentation that are made from the code"
	@echo "make conformance  the ONNX backend suite through the stock harness"
	@echo "make test-slow    the tests that need other packages or much time"
	@echo "make test-training  training and converters with PyTorch, in an environment of its own"
	@echo "make fuzz         mutated models, many thousand of them"
	@echo "make attack       random and hostile cases of all kinds for an hour; MINUTES= and SEED= choose others"
	@echo "make bench        side by side with onnxruntime"
	@echo "make release      build the wheel and the sdist, check them, and try the wheel in an environment of its own"
	@echo "make kernels      compile the packs of sardonyx-kernels ahead, and build their wheel"
	@echo "make clean        remove the virtual environment and caches"

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "sardonyx needs Python 3.11 or newer, $(PYTHON) is " + sys.version.split()[0])'
	@echo "Setting up $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(READY)
	@$(BIN)/python examples/demo.py

check: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

test: check
	@$(PYTEST) -n $(WORKERS) -m "not slow"

docs: $(READY)
	@$(BIN)/python -m docs.pages

conformance: $(READY)
	@$(BIN)/python -m tests.conformance

test-slow: $(READY)
	@echo "Setting up the environment of other people's packages (once)"
	@$(BIN)/python tests/slow/environment.py
	@$(BIN)/python tests/slow/environment.py torch
	@$(PYTEST) -m slow -o faulthandler_timeout=0

.venv-training/.ready: pyproject.toml
	@echo "Setting up .venv-training (once)"
	@$(PYTHON) -m venv .venv-training
	@.venv-training/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,train]' transformers
	@touch $@

test-training: .venv-training/.ready
	@.venv-training/bin/python -m pytest -q tests/training tests/transformers/pytorch

fuzz: $(READY)
	@SARDONYX_FUZZ_CASES=$${SARDONYX_FUZZ_CASES:-100000} $(PYTEST) -n $(WORKERS) -o faulthandler_timeout=0 tests/fuzz

attack: $(READY)
	@$(BIN)/python -m tests.attack --minutes $(MINUTES) --seed $(SEED) --workers $(WORKERS)

bench: $(READY)
	@$(BIN)/python -m benchmarks

release: $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check build twine
	@$(BIN)/python packaging/release.py

kernels: $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check build
	@$(BIN)/python packaging/kernels/compile_kernels.py

clean:
	rm -rf $(VENV) .venv-slow* .venv-training build dist packaging/*/build packaging/kernels/sardonyx_kernels/*.kernels *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
