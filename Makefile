# SPDX-License-Identifier: GPL-3.0-or-later
# `make` lists the verbs. They expect what `./satlab` installs; CI and users run `./satlab test`, which ends here.
PY := .venv/bin/python
export PYTHONPATH := lab:.
export CARGO_TERM_COLOR ?= never

.DEFAULT_GOAL := help
help: ## list the verbs
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-14s %s\n", $$1, $$2}'

test: lint rust python ## everything CI runs (root)

lint: ## formatting, linters, type checks
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy lab collect openbach-scenarios tests
	.venv/bin/ansible-lint -q openbach-scenarios/jobs/*/*install_*.yml
	if command -v shellcheck >/dev/null; then shellcheck satlab .ci/run; fi

rust: ## unit, property and corpus tests of the crates
	cargo test --workspace --locked

python: ## unit, network and browser tests (ARGS go to pytest)
	$(PY) -m pytest $(ARGS)

format: ## rewrite the sources in the project's format
	cargo fmt --all
	.venv/bin/ruff format
	.venv/bin/ruff check --fix

clean: ## remove build output (not runs/)
	rm -rf target .venv .satlab

.PHONY: help test lint rust python format clean
