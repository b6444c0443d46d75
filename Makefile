# SPDX-License-Identifier: GPL-3.0-or-later
# `make` lists the verbs. They expect what `./satlab --install test` installs; `./satlab test` ends here, too.
PY := .venv/bin/python
# One build for clippy, the tests of the crates, and the programs that the other tests run: by clippy's compiler, which
# prints what it finds as warnings of the build (also in src/satlab/common/install.py).
lint-rust rust generate: export RUSTC_WORKSPACE_WRAPPER := $(shell command -v clippy-driver)
# noq where the compiler is new enough (docs/decisions/0010-noq.md)
NOQ := $(shell printf '1.88\n%s\n' "$$(rustc --version | cut -d' ' -f2)" | sort -VC && echo ,satpep/noq,satperf/noq,satvirtual/noq)
WHOLE := --profile ci --workspace --features satperf/quiche$(NOQ) --locked
# A test waits more than it works: four workers more than cores.
WORKERS ?= $(shell echo $$(($$(nproc) + 4)))
PYTEST := $(PY) -m pytest -n $(WORKERS) --dist loadscope
unit python vm-nspawn soak: export SATLAB_PROGRAMS ?= $(CURDIR)/target/ci
export CARGO_TERM_COLOR ?= never

.DEFAULT_GOAL := help
help: ## list the verbs
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-11s %s\n", $$1, $$2}'

test: lint rust python ## everything but the VM lab (root)

lint: lint-rust lint-python lint-ansible site ## formatting, linters, type checks
	shellcheck satlab .ci/run docs/ci/action.sh

# The fuzzers are checked, not linked: LLVM's library is not compiled.
lint-rust:
	cargo fmt --all --check
	! grep -rnE --include='*.rs' '(&&|[|][|]) let ' crates # let chains need Rust 1.88, Cargo.toml promises 1.85, and Clippy has no lint for syntax
	cargo build $(WHOLE) --all-targets 2>&1 | tee target/lint.log; ! grep -Eq '^(error|warning: `.* generated )' target/lint.log
	RUSTC_WORKSPACE_WRAPPER= CUSTOM_LIBFUZZER_PATH=/usr/lib/libFuzzer.a cargo check -q --profile ci --manifest-path crates/fuzz/Cargo.toml --locked --target-dir target

lint-python:
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy src collect openbach-scenarios benches tests tools
	$(PY) tools/structure.py --check

lint-ansible:
	.venv/bin/ansible-lint -q -c openbach-scenarios/.ansible-lint openbach-scenarios/jobs/*/*install_*.yml
	.venv/bin/yamllint -s -c ansible/.yamllint ansible
	cd ansible && ../.venv/bin/ansible-lint -q --offline
	vagrant validate

rust: ## unit, property and corpus tests of the crates
	cargo test $(WHOLE) --bins --lib --tests # there are none in documentation and examples (tests/test_plugin.py)

unit: ## tests beside the code (ARGS go to pytest)
	$(PYTEST) -q src collect benches openbach-scenarios web-targets -m 'not net and not browser' $(ARGS)

python: ## unit, network and browser tests (root; ARGS go to pytest; -n 0: one after the other)
	$(PYTEST) $(ARGS)

vm-nspawn: ## the whole VM lab in booted containers (root, about 15 minutes)
	$(PY) -m pytest tests/vm -m nspawn $(ARGS)

vm-tcg: ## the small VM lab under software emulation, with our own box (root, about an hour)
	$(PY) -m pytest -s tests/vm -m vm $(ARGS)

soak: ## 500 rounds of kill -9, SIGSTOP and a full disk, then hostile raw files (root, about 80 minutes)
	$(PY) -m tests.soak.soak --minutes 150 --state .satlab/soak.jsonl $(ARGS)
	$(PY) -m tests.security.hostile_run

bench: ## benchmarks for developers: make bench ARGS=link (root)
	$(PY) -m benches $(ARGS)

generate: ## write the files that are made from others: OpenSAND profiles, schemas, pages of the reference
	SATLAB_GENERATE=1 cargo test -q $(WHOLE) --lib --bins schema_file
	$(PY) tools/generate.py

pictures: ## draw the pictures of the documentation (docs/pictures)
	SATLAB_PICTURES=docs/pictures $(PYTEST) -n 0 -q tests/browser/test_pictures.py

site: ## the documentation as a site, into dist/site/index.html; a broken link fails
	./satlab --install docs
	$(PY) -m sphinx -q -W --keep-going -c docs/site -b html . dist/site

dist: ## Debian packages of what guests of the VM lab run, into dist/
	cargo build --release --locked -p satlink
	$(PY) -m satlab.vm.debian_packages dist

box: ## a Vagrant box made from Debian packages alone, into dist/ (root)
	$(PY) -m satlab.vm.box dist

release: ## the appliance as a Debian package and an OCI image, into dist/ (root)
	./satlab --install release
	$(PY) -m tools.release dist --image

lock: ## the newest versions of Python packages, into uv.lock
	.satlab/uv/bin/uv lock --upgrade

format: ## rewrite the sources in the project's format
	cargo fmt --all
	.venv/bin/ruff format
	.venv/bin/ruff check --fix

clean: ## remove build output (not runs/)
	rm -rf target .venv .satlab

.PHONY: help test lint lint-rust lint-python lint-ansible rust unit python vm-nspawn vm-tcg soak bench generate pictures site dist box release lock format clean
