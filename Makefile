# Every target sets up what it needs in .venv, once: plain python3 and pip.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help demo test test-all check bench oracle clean

help: ## Say what each target does
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{printf "%-18s %s\n", $$1, $$2}'

demo: .venv/.core ## Simulate Llama-2 7B under FSDP2 on 8 A100s; leave the picture and the report in out/demo
	@echo "Simulating scenarios/llama2-7b-fsdp2-8xa100.yaml"
	@$(BIN)/dryfit run llama2-7b-fsdp2-8xa100 --out out/demo
	@echo "Look at out/demo/memory.png and out/demo/timeline.png; the same as data: out/demo/result.json"

test: .venv/.dev ## Run the quick tests
	$(BIN)/python -m pytest -n 2 -m "not slow and not bench"

test-all: .venv/.dev ## Run every test but the benchmarks
	$(BIN)/python -m pytest -n 2 -m "not bench"

check: .venv/.dev ## Lint, check the format, the types and who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/.dev ## Print how long the work takes, with the targets beside it
	$(BIN)/python -m pytest -m bench

oracle: .venv-oracle/.ready ## Ask real PyTorch what a training run allocates: CASE=NAME, or DO="record NAME"
	@PYTHONPATH=tests/oracle .venv-oracle/bin/python -m recorder $(or $(DO),$(if $(CASE),ask $(CASE),list))

clean: ## Remove the environment and everything that was built
	rm -rf .venv .venv-oracle out build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .benchmarks

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "dryfit needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Making .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv .venv

.venv/.core: pyproject.toml | .venv/bin/python
	@echo "Installing dryfit and what it needs to run into .venv (once, about a minute)"
	@$(PIP) install --editable .
	@touch $@

.venv/.dev: pyproject.toml | .venv/.core
	@echo "Installing the tools of the tests and checks into .venv (once, about a minute)"
	@$(PIP) install --editable '.[dev]'
	@touch $@

.venv-oracle/.ready: tests/oracle/requirements.txt $(wildcard tests/oracle/shim/*)
	@echo "Installing PyTorch for the recorder into .venv-oracle (once, some minutes; needs g++)"
	@$(PYTHON) -m venv .venv-oracle
	@.venv-oracle/bin/python -m pip --disable-pip-version-check --quiet install -r tests/oracle/requirements.txt
	@.venv-oracle/bin/python tests/oracle/shim/build.py .venv-oracle/fake_cuda.so
	@touch $@
