# All targets set themselves up: what they need is Python 3.11 with venv, git and make.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

UV := .tools/bin/uv
UV_VERSION := 0.13.8
# Processes of jobs and tests import the package thousands of times. An empty PYTHONDONTWRITEBYTECODE, which some
# containers set, has the first import compile it for all others: else each one takes 0.3 s more.
RUN := PATH="$(CURDIR)/.venv/bin:$$PATH" PYTHONDONTWRITEBYTECODE=
READY := .venv/.ready
TESTS := pytest -q $(if $(THOROUGH),,-m "not thorough")

.PHONY: help setup demo check format lint types mypy pyright imports unit parallel kills test stalls bench dist docs reference fix clean

help: ## lists the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1: /p' $(MAKEFILE_LIST)

setup: $(READY) ## fetches uv into .tools, the locked packages into .venv, and Java where it may; builds native kernels

$(UV): Makefile
	python3 -m venv .tools
	.tools/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@

# A machine without a C compiler gets the one of a package, if that can be fetched.
$(READY): $(UV) pyproject.toml uv.lock hatch_build.py $(wildcard clonos_py/columns/kernels/*.[ch])
	$(UV) sync --locked --quiet
	@command -v cc > /dev/null || $(UV) sync --locked --quiet --group compiler 2> /dev/null || true
	@$(RUN) python hatch_build.py
	@$(RUN) deploy/java.sh
	@touch $@

demo: $(READY) ## kills a task of a running job on Ray and shows that nothing is lost or duplicated
	$(RUN) clonos nexmark demo

check: format lint imports ## format, lint, import rules, types and unit tests
	@$(MAKE) --no-print-directory -j3 types unit

format: $(READY)
	$(RUN) ruff format --check --quiet .

lint: $(READY)
	$(RUN) ruff check --quiet .

# Those of the checkers themselves use what mypy has kept of the package.
types: mypy pyright
	$(RUN) nice $(TESTS) tests/types

# The tests on Ray, beside which they run, leave some time.
mypy pyright: $(READY)
	$(RUN) nice $@

imports: $(READY)
	$(RUN) lint-imports

unit: $(READY)
	$(RUN) $(TESTS) -n auto tests/unit

parallel: $(READY)
	@$(RUN) deploy/test_tools.sh
	$(RUN) $(TESTS) -n auto tests --ignore=tests/ray --ignore=tests/clusters --ignore=tests/types

kills: $(READY)
	$(RUN) $(TESTS) tests/ray tests/clusters

test: format lint imports parallel ## everything: check, simulated faults, real servers, Spark, examples, real kills; more with THOROUGH=1
	@$(MAKE) --no-print-directory -j3 types kills

stalls: $(READY) ## the tests again, while all their processes stand still for four seconds again and again (root)
	$(RUN) python deploy/stalls.py $(MAKE) test

bench: $(READY) ## prints throughput, overhead and recovery figures of this machine
	$(RUN) python -m clonos_py.bench

dist: $(READY) ## builds wheel and sdist in dist, and runs a job of each in clean environments of Python 3.11 to 3.13
	rm -rf dist
	$(UV) build --quiet --out-dir dist
	$(RUN) python deploy/try_packages.py $(UV) dist 3.11 3.12 3.13

docs: $(READY) ## builds the site of the documents in build/site
	$(RUN) mkdocs build --strict

reference: $(READY) ## writes the pages of all commands and settings, and the diagrams of all machines, from the code
	$(RUN) python -m deploy.reference
	$(RUN) python -m deploy.diagrams

fix: $(READY) ## formats and applies safe lint fixes
	$(RUN) ruff check --fix --quiet . || true
	$(RUN) ruff format .

clean: ## removes what the targets above made
	rm -rf .tools .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	rm -f clonos_py/columns/kernels/native.so
