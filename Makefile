# Tasks of the project. `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory

# The first of these that is 3.11 or newer; or say which: make setup PYTHON=/path/to/python3.12
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	  command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' && { echo $$p; break; }; done)
BIN := .venv/bin
# A container's environment may forbid to keep compiled modules: then each of hundreds of processes that a run of the tests
# starts would compile all of them, and each pytest rewrite all tests.
export PYTHONDONTWRITEBYTECODE :=
INSTALLED := .venv/.installed
# What set-up installs beside coordlib itself, and the exact versions of all that it brings.
EXTRAS := spark,cli,dev
LOCK := conf/requirements.lock

.PHONY: help
help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1|/' | awk -F'|' '{printf "  make %-12s %s\n", $$1, $$2}'

.PHONY: setup
setup: $(INSTALLED)  ## environment and jars; does nothing when both are up to date
	@$(BIN)/python -m coordlib.local.jars

$(BIN)/python:
	@if [ -z "$(PYTHON)" ]; then printf '%s\n' "Python 3.11 or newer was not found" \
	  "looked for python3.11, python3.12, python3.13 and python3 on the PATH" \
	  "Install it, or name it: make setup PYTHON=/path/to/python3.12" >&2; exit 1; fi
	@$(PYTHON) -m venv .venv

# pip runs only when one of these files changed since it last ended well.
$(INSTALLED): pyproject.toml $(LOCK) | $(BIN)/python
	@sum=$$(cat pyproject.toml $(LOCK) | cksum); if [ "$$(cat $@ 2>/dev/null || true)" != "$$sum" ]; then \
	  $(BIN)/python -m pip install --quiet -c $(LOCK) -e '.[$(EXTRAS)]' && echo "$$sum" > $@; else touch $@; fi

.PHONY: lock
lock: | $(BIN)/python  ## pin the newest packages that pyproject.toml allows (then read the diff)
	@$(BIN)/python -m tests.tools.lock $(EXTRAS)

.PHONY: checksums
checksums: $(INSTALLED)  ## accept what coordlib/conf/jars.xml now resolves to (then read the diff)
	@$(BIN)/python -m coordlib.local.jars --write-checksums

PYTEST := $(BIN)/python -m pytest
# Its warning is about the next version of MkDocs, which is not installed here.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs
.PHONY: docs
docs: $(INSTALLED)  ## the documentation as a site: build/site/index.html
	$(MKDOCS) build --config-file conf/mkdocs.yml

.PHONY: check
check: $(INSTALLED)  ## lint, format, types, direction of imports, links of the documentation, size of files
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MKDOCS) build --config-file conf/mkdocs.yml
	$(PYTEST) --quiet tests/architecture/test_house.py

# What shares one job runs in one process, what shares one Spark in another (tests/conftest.py): these wait more than they
# compute, so four processes keep two cores busy. They begin in the order that conftest.py gives them.
STACK := -n 4 --dist loadgroup --no-loadscope-reorder --durations=20 --durations-min=5

# The checks take one core for half a minute: beside the tests, whose processes often wait. They run test_house.py.
.PHONY: test all-tests
test: setup  ## everything: set-up, checks, all tests but those of make chaos and make nightly
	@$(MAKE) --jobs=2 check all-tests

all-tests:
	$(PYTEST) $(STACK) --ignore=tests/architecture/test_house.py

.PHONY: test-fast
test-fast: $(INSTALLED)  ## tests that need neither broker nor Spark
	$(PYTEST) -m "not stack and not fault and not chaos" -n 2 --dist worksteal

.PHONY: test-stack
test-stack: setup  ## the others, on a broker, a job and a Spark of their own
	$(PYTEST) -m "(stack or fault) and not chaos" $(STACK)

.PHONY: chaos
chaos: setup  ## break real stacks in every way that is known, and what else takes minutes: hours; a cut run goes on
	@$(BIN)/python -m pip install --quiet -c $(LOCK) -e '.[chaos]' || \
	  echo "Without libfaketime no broker's clock can be set: that scenario is skipped" >&2
	$(PYTEST) -m "chaos or fault" --timeout=1200 --durations=0 --durations-min=1 --results build/chaos.txt

.PHONY: up
up: setup  ## broker and job on this machine (coord up)
	@$(BIN)/coord up

.PHONY: down
down:  ## stop them, data is kept (WIPE=1 deletes it, asking first; YES=1 does not ask)
	@$(BIN)/coord down $(if $(WIPE),--wipe) $(if $(YES),--yes)

.PHONY: demo
demo: setup  ## a guided run in a folder of its own (ACT=classic or assigned: one act of it)
	@$(BIN)/coord demo $(foreach each,$(ACT),--act $(each))

SEEDS ?= 20000
.PHONY: nightly
nightly: $(INSTALLED)  ## simulated worlds for hours: each situation must have been met (SEEDS=20000), 500 at a time, a cut run goes on; all examples of properties
	COORD_ALL_EXAMPLES=1 $(PYTEST) -m "hypothesis and not chaos" tests/core
	@mkdir -p build; touch build/nightly.txt; commit=$$($(BIN)/python -m tests.tools.results); \
	for seed in $$(seq 0 500 $$(($(SEEDS) - 1))); do \
	  count=$$(($(SEEDS) - seed < 500 ? $(SEEDS) - seed : 500)); \
	  grep -qx "$$commit $$seed $$count" build/nightly.txt && continue; \
	  $(BIN)/python -m tests.tools.sim --seed $$seed --seeds $$count; \
	  echo "$$commit $$seed $$count" >> build/nightly.txt; \
	done; rm build/nightly.txt

.PHONY: bench
bench: setup  ## measure latency and throughput on this machine
	@$(BIN)/python -m tests.tools.bench

.PHONY: fuzz
fuzz: $(INSTALLED)  ## ten million hostile inputs against the decoders, and streams of them through a shard
	@$(BIN)/python -m tests.tools.fuzz

.PHONY: transcripts
transcripts: $(INSTALLED)  ## write transcripts and tables by state afresh (then read the diff)
	@$(BIN)/python -m tests.tools.transcript --rewrite tests/transcripts/*.txt
	@$(BIN)/python -m tests.tools.by_state --rewrite

.PHONY: diagrams
diagrams: $(INSTALLED)  ## draw the tables on the pages about states from the code's own tables
	@$(BIN)/python -m tests.tools.state_diagram

.PHONY: journey
journey: $(INSTALLED)  ## which files a request passes (OF=heartbeat, commit, join, client)
	@$(BIN)/python -m tests.tools.journey $(OF)

.PHONY: mutants
mutants: $(INSTALLED)  ## known bugs, one after another: the simulation must still find each (ONLY=name); a cut run goes on
	@$(BIN)/python -m tests.tools.mutants $(if $(ONLY),--only $(ONLY),--results build/mutants.jsonl)

EVERY ?= 20
.PHONY: mutation
mutation: $(INSTALLED)  ## small changes in the core's rules: which does no test notice? (EVERY=n-th, OF=pattern)
	@nice -n 15 $(BIN)/python -m tests.tools.mutation --every $(EVERY) $(if $(OF),--of '$(OF)')
