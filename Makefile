# Two commands do everything on a fresh machine: make demo, make test.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= auto
export KALVI_DATA ?= $(if $(wildcard ../shared/data),$(abspath ../shared/data))
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.jax_cache
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0.1

.PHONY: demo test test-slow check format bench reproduce docs dist all clean

all: check test docs

# one stamp per set of extras: a second run finds it newer than pyproject.toml and starts at once
.venv/%.stamp: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing kalvi[$*] into .venv ..."
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

demo: .venv/all.stamp
	@$(BIN)/kalvi demo --force

# tests compile far more than they compute: light optimisation saves a quarter of their time, and XLA's
# older way to emit loops half of the rest
test: export XLA_FLAGS ?= --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false
test: .venv/dev.stamp
	$(BIN)/pytest --numprocesses $(WORKERS) $(ARGS)

# what measures time has the machine to itself; 5: ARGS name no test of that kind
test-slow: .venv/dev.stamp
	$(BIN)/pytest -m "slow and not alone" --numprocesses $(WORKERS) $(ARGS) || test $$? = 5
	$(BIN)/pytest -m "slow and alone" $(ARGS) || test $$? = 5

check: .venv/dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/pyright

format: .venv/dev.stamp
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# the peers live apart from what the tests see; torchvision, which laplace-torch names and does not use,
# comes built for another torch than the one without CUDA, and its import fails
.venv-bench/bench.stamp: pyproject.toml
	@test -x .venv-bench/bin/python || $(PYTHON) -m venv .venv-bench
	@echo "installing kalvi[bench] and its peers into .venv-bench ..."
	@.venv-bench/bin/pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@.venv-bench/bin/pip uninstall --quiet --yes torchvision
	@touch $@

# everything, and docs/benchmarks.md; ARGS="--quick", or parts by name: ARGS="gp networks"
bench: .venv-bench/bench.stamp
	.venv-bench/bin/python -m benchmarks $(ARGS)

# every figure and table at full size, the shortest first; after a stop it goes on where it was;
# ARGS="--processes 8" makes eight parts of a figure at a time
reproduce: .venv/papers.stamp
	$(BIN)/python -m papers all --resume $(ARGS)

# the pages with the pictures of the gallery, then every code block of every page and docstring
docs: .venv/docs.stamp .venv/dev.stamp
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html
	XLA_FLAGS="--xla_backend_optimization_level=0" $(BIN)/pytest tests/test_docs.py -m docs --numprocesses $(WORKERS)

# wheel and sdist, each tried out in a clean environment with the five-minute start
dist: .venv/dist.stamp
	$(BIN)/python docs/dist.py

clean:
	rm -rf .venv .venv-bench .jax_cache docs/_build docs/auto_gallery dist build results
