# `make` tells what there is. Every target does its own set-up; see tools/setup.sh.
PYTHON := .venv/bin/python
COUNT ?= 5
SEED ?= 1
ONLY ?=

.DEFAULT_GOAL := help
.PHONY: help setup test lint demo chaos clean distclean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|' 2>/dev/null \
	  || sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1  \2/p' $(MAKEFILE_LIST)

setup: ## Python environment, Redis, Java and Kafka for the tests (Debian, Ubuntu; elsewhere it says what to install)
	@tools/setup.sh test

test: setup ## linters, then all tests on a real Kafka and a real Redis
	@$(MAKE) --no-print-directory lint
	$(PYTHON) -m pytest $(PYTEST_ARGS)

lint: ## ruff, mypy and the arrows between the packages
	@tools/setup.sh lint
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy holdfast tests $(wildcard examples)
	.venv/bin/lint-imports

demo: ## a group with and without holdfast, side by side; needs Python 3.11+ and nothing else
	@tools/setup.sh demo
	.venv-demo/bin/python -m examples.lab.demo

chaos: setup ## the scenarios again and again: COUNT=5 SEED=1 ONLY=crash; results in chaos-out/
	$(PYTHON) -m tests.scenarios.chaos --count $(COUNT) --seed $(SEED) $(if $(ONLY),--only $(ONLY))

clean: ## remove caches and results, keep the environments
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis demo-out chaos-out
	find holdfast tests tools $(wildcard examples) -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove the environments and Kafka too
	rm -rf .venv .venv-demo .servers
