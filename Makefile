# The two commands are `make demo` and `make test`. Where PostgreSQL and RabbitMQ come from:
# deploy/local/with-services.sh.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

SERVICES := deploy/local/services.sh
WITH_SERVICES := deploy/local/with-services.sh
STAYING := $(CURDIR)/target/services
CARGO_FLAGS := --locked
# With both URLs given, tests that start, stop and kill servers of their own are left out.
NEXTEST_PROFILE := $(if $(and $(DATABASE_URL),$(AMQP_URL)),given,default)

.PHONY: help demo test up down bench lint

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The development profile: optimised dependencies, a build of minutes on a fresh clone. The
# demo's time goes to the disk, the broker and the restarts.
demo: ## the main job on real input with faults, then a table and a verdict
	@cargo build $(CARGO_FLAGS) --bin oncebox --examples
	@PYTHON="$$(deploy/local/python.sh || true)" $(WITH_SERVICES) cargo run $(CARGO_FLAGS) --quiet --example demo

test: ## every test, with private services that are gone afterwards
	@if command -v cargo-nextest >/dev/null; then \
	  cargo nextest run $(CARGO_FLAGS) --no-run; \
	  PYTHON="$$(deploy/local/python.sh || true)" $(WITH_SERVICES) cargo nextest run $(CARGO_FLAGS) --profile $(NEXTEST_PROFILE) --no-fail-fast $(TEST_ARGS); \
	  cargo test $(CARGO_FLAGS) --doc; \
	else \
	  cargo test $(CARGO_FLAGS) --no-run; \
	  PYTHON="$$(deploy/local/python.sh || true)" $(WITH_SERVICES) cargo test $(CARGO_FLAGS) --no-fail-fast $(TEST_ARGS); \
	fi

up: ## PostgreSQL and RabbitMQ that stay, under target/services; prints how to reach them
	@$(SERVICES) install
	@$(SERVICES) up $(STAYING)

down: ## stop what `make up` started, and remove its data
	@$(SERVICES) down $(STAYING)

bench:
	@echo "there is no benchmark yet: it comes with the performance work" >&2; exit 2

lint: ## formatting, clippy, documentation, licences and bans, shell scripts
	cargo fmt --check
	cargo clippy $(CARGO_FLAGS) --all-targets -- -D warnings
	RUSTDOCFLAGS=-Dwarnings cargo doc $(CARGO_FLAGS) --no-deps --document-private-items
	@if command -v cargo-deny >/dev/null; then cargo deny --offline check licenses bans sources; \
	  else echo "skipped: licences, bans and sources, because cargo-deny is not installed"; fi
	@if command -v shellcheck >/dev/null; then shellcheck -x deploy/local/*.sh .ci/run; \
	  else echo "skipped: shell scripts, because shellcheck is not installed"; fi
