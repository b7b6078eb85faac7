# What contributors and CI run. `make` alone lists the targets.
# VENV names the environment: `make test VENV=/tmp/venv` works in another one. PYTHON names the interpreter to make it with.
VENV ?= .venv
BIN := $(VENV)/bin
SHELL := /bin/bash
# Whole files to each of so many processes, in the order of collection. UNIT_JOBS run what computes; JOBS run process
# tests, which mostly wait: three times as many as CI has cores. Whoever changes a test keeps it so that it passes beside
# any number of others.
UNIT_JOBS ?= 3
JOBS ?= 6
SEEDS ?= 300
GROUP_SEEDS ?= 100
SEARCH_S ?= 60
PYTEST := $(BIN)/python -m pytest
BY_FILE := --dist loadfile --no-loadscope-reorder
CONTRACT_TESTS := tests/contract
REAL_API_TESTS := $(CONTRACT_TESTS) tests/integration/kube tests/integration/operator

# Byte code is kept, whatever the machine says: hundreds of short processes would compile the same modules otherwise.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help try try-spark setup extras fmt lint house types test openapi-check foreign spark-tests demo sim search sim-mutations faults bench bench-here soak bench-peers bench-peers-here ci lab-build lab-up lab-down images chart chart-made e2e e2e-readme e2e-kind everything h2spec contract clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

try: $(VENV)/.with-local  ## make .venv with what the README's tour needs
	@echo "ready: . $(BIN)/activate"

try-spark: $(VENV)/.with-spark  ## add PySpark to it
	@echo "ready: . $(BIN)/activate"

setup: $(VENV)/.with-dev  ## make .venv with what a contributor needs on most days; other targets add what they need
	@echo "ready: . $(BIN)/activate"

extras: setup $(addprefix $(VENV)/.with-,spark openapi peers pictures)  ## add what any target needs

fmt: setup  ## format the code and sort the imports
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix --select I .

lint: setup  ## ruff (check and format), layers, names and docstrings
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python .ci/house.py --check

house: setup  ## count files, lines, imports and names that are used twice (CHECK=--check fails where a rule is broken)
	$(BIN)/python .ci/house.py $(CHECK)

types: extras  ## mypy --strict, tests included
	$(BIN)/mypy

# The core is covered without its properties, so that no coverage depends on which examples they try.
test: setup  ## everything that must be green: unit, core coverage, integration, contract on the embedded API
	$(PYTEST) -n $(UNIT_JOBS) $(BY_FILE) tests/unit/core -m "not hypothesis" --cov=headrace.core --cov-branch --cov-fail-under=100
	PYTHONASYNCIODEBUG=1 $(PYTEST) -n $(UNIT_JOBS) $(BY_FILE) tests/unit -m "hypothesis or not core"
	$(PYTEST) -n $(JOBS) $(BY_FILE) tests/integration tests/contract

openapi-check: setup $(VENV)/.with-openapi  ## schemathesis: do brokers what /openapi.json says? (HTTP/1.1 and HTTP/2)
	$(PYTEST) -n 2 tests/openapi

foreign: setup  ## the example clients in curl, Node, Go and Java against real brokers
	$(PYTEST) tests/foreign

spark-tests: setup $(VENV)/.with-spark  ## the PySpark data source on a real Spark session against real brokers (needs Java 17 or newer)
	$(PYTEST) tests/spark

demo: $(VENV)/.with-demo  ## real flights through three brokers: produced, consumed, checked
	@# A home and ports of its own: it meets no other headrace dev, and a second run starts afresh.
	@export HEADRACE_HOME=$(abspath build/demo) PATH=$(abspath $(BIN)):$$PATH; \
	headrace dev stop >/dev/null; rm -rf "$$HEADRACE_HOME"; \
	trap 'headrace dev stop' EXIT; trap 'exit 130' INT; trap 'exit 143' TERM; \
	echo "starting headrace dev with three brokers"; \
	headrace dev --detach --brokers 3 --port 0 >/dev/null && python examples/flights/demo.py

sim: setup  ## the core in SEEDS simulated runs full of faults, and GROUP_SEEDS of a group (SEEDS="1 --first 33" for that seed alone)
	$(BIN)/python -m tests.sim $(SEEDS)
	$(BIN)/python -m tests.sim --group $(GROUP_SEEDS)

search: setup  ## other examples for every Hypothesis property than those of make test, for SEARCH_S seconds
	$(BIN)/python -m tests.search $(SEARCH_S)

sim-mutations: setup  ## does the simulator notice each safety rule that is deleted?
	$(BIN)/python -m tests.sim.hunting

faults: setup  ## crashes, partitions, bad disks and clocks on real processes, judged (FAULTS=--short, FAULTS="S3 S7")
	$(BIN)/python -m tests.faults $(FAULTS)

# Benchmarks prefer a Python that was built with PGO: `make bench` goes on as `make bench-here` in its environment.
bench bench-peers: setup
	@venv=$$(.ci/bench-venv $(VENV)) && $(MAKE) --no-print-directory $@-here VENV="$$venv"

bench: ## produce, fetch and latency beside what the machine can do (BENCH=--short for a quick look)
bench-here: setup
	$(BIN)/python -m bench $(BENCH)

bench-peers: ## Kafka 4.1, its clients and Spark's source for it beside Headrace (BENCH=--short for a quick look)
bench-peers-here: setup $(VENV)/.with-peers $(VENV)/.with-spark
	$(BIN)/python -m bench.peers --json build/bench-peers.json $(BENCH)

soak: setup  ## ten minutes at full load with kill -9, retention, compaction, slow readers; interrupted clients (SOAK=--short for one)
	$(BIN)/python -m tests.soak $(SOAK)

lab-build: setup  ## build the programs of a real Kubernetes from their Go modules (minutes the first time)
	$(BIN)/python -m e2e.lab build

lab-up: lab-build  ## start a real Kubernetes of one node on this machine, and leave it running (root, Linux)
	$(BIN)/python -m e2e.lab up

lab-down: setup  ## take it down, with all that is in it
	$(BIN)/python -m e2e.lab down

images: setup  ## build the images of broker, operator and Spark, and bring them into the lab if it is up (root, buildah)
	$(BIN)/python -m e2e.lab images

chart: lab-build  ## the chart with both Helms before a real API server, its alerts with promtool
	$(PYTEST) -n 2 --dist loadfile tests/chart

chart-made: setup  ## make the dashboards, and docs/configuration.md
	$(BIN)/python -m charts.tools

# KUBECONFIG on the command line (not in the environment, where it may mean anything) names another cluster than the lab.
e2e: lab-build $(VENV)/.with-pictures  ## the chart in a real cluster, under faults: the lab, or KUBECONFIG=... HEADRACE_E2E_REGISTRY=...
	HEADRACE_E2E_KUBECONFIG=$(if $(filter command line,$(origin KUBECONFIG)),$(KUBECONFIG)) $(PYTEST) e2e/tests

e2e-readme: lab-build  ## the README's way through a real cluster: a leader killed, a Spark job (the lab)
	$(PYTEST) e2e/tests/test_readme.py

e2e-kind: lab-build $(VENV)/.with-pictures  ## the same in a kind cluster (Docker)
	e2e/kind $(PYTEST) e2e/tests

h2spec: lab-build  ## HTTP/2 conformance and load of a real broker, in the clear and over TLS
	$(PYTEST) tests/conformance

contract: lab-build  ## contract and operator tests against a real kube-apiserver
	$(BIN)/python -m e2e.lab run $(PYTEST) -n $(JOBS) $(BY_FILE) $(REAL_API_TESTS)

ci:  ## what CI runs for the newest commits, in an environment of its own
	.ci/run

everything:  ## all that there is, the long forms in full: hours (COLD=1 makes all that CI keeps from nothing)
	.ci/run --everything $(if $(COLD),--cold)

clean:  ## remove what was built here
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage

# A stamp for each extra of pyproject.toml that is installed, so that pip runs again only when that file changed. `dev` has
# all of `local` and `demo`. What further extras need is added without Headrace itself, which tests may be running.
$(VENV)/.with-dev $(VENV)/.with-local $(VENV)/.with-demo: $(VENV)/.with-%: $(VENV)/bin/python pyproject.toml
	@.ci/pip-install $(BIN)/python "$(VENV), $*" -e '.[$*]'
	@touch $@ $(if $(filter dev,$*),$(VENV)/.with-local $(VENV)/.with-demo)

$(VENV)/.with-%: pyproject.toml | $(VENV)/.with-local
	@.ci/pip-install $(BIN)/python "$(VENV), $*" $$($(BIN)/python docker/install.py requirements $*)
	@touch $@

$(VENV)/bin/python:
	@echo "making an environment in $(VENV)"
	@python=$$(.ci/find-python $(PYTHON)) && "$$python" -m venv $(VENV)
