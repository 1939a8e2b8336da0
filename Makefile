# Loom's commands. A fresh machine needs Python 3.11+ and make; everything else is installed into .venv on first use.
#
#   make test PYTHON=python3.13     choose the interpreter (for a new .venv)
#   make test ARGS="-k retry"       pass arguments on to the tool behind the target
#   LOOM_FULL=1 make test           collect the long forms of tests too

PYTHON ?= python3
ARGS ?=
# Many tests wait for other processes, so that two more than the cores have room.
JOBS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 2)))

VENV := .venv
BENCH_VENV := .venv-bench
LOCK_VENV := .venv-lock
TEMPORAL_VENV := .venv-temporal
DOCS_VENV := .venv-docs
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH_READY := $(BENCH_VENV)/.ready
TEMPORAL_READY := $(TEMPORAL_VENV)/.ready
DOCS_READY := $(DOCS_VENV)/.ready

# Some machines tell Python to keep no bytecode. Then each of the many processes of a test run compiles Loom anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(READY) ## Run the demo
	@$(BIN)/python examples/demo.py $(ARGS)

UI_READY := ui/node_modules/.package-lock.json

$(UI_READY): ui/package-lock.json ui/package.json
	@npm --prefix ui ci --silent
	@touch $@

.PHONY: ui
ui: $(UI_READY) ## Make the page that the server shows, from ui/ (needs Node 20.19+)
	@cd ui && npm run --silent types && npm run --silent check && npm run --silent test && npm run --silent build

.PHONY: ui-check
ui-check: ui ## Check that the page in the repository is what its sources give
	@git diff --exit-code --stat -- src/loom/web/dist ui/src/api/schema.d.ts
	@test -z "$$(git status --porcelain -- src/loom/web/dist)"

.PHONY: test
test: $(READY) ## Run all tests
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

.PHONY: tutorials
tutorials: $(READY) ## Type the tutorials into clean environments with the built wheel (needs the network): ARGS="order temporal"
	@$(BIN)/python tests/docs/run_tutorials.py $(ARGS)

# The tests of the page drive a real browser. Where none is installed and none can be, they are skipped, with the reason.
.PHONY: browser
browser: ## Install Debian's chromium for the tests of the page, if there is none
	@if command -v chromium > /dev/null || command -v chromium-browser > /dev/null || command -v google-chrome > /dev/null; then exit 0; fi; \
	if command -v apt-get > /dev/null && [ "$$(id -u)" = 0 ]; then \
	  echo "Installing chromium ..."; apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium > /dev/null; \
	else \
	  echo "No browser: the tests of the page will be skipped. Install chromium to run them."; \
	fi

.PHONY: screenshots
screenshots: $(READY) browser ## Take the pictures of docs/ui.md anew
	@$(BIN)/python docs/screenshots.py $(ARGS)

.PHONY: pictures
pictures: $(READY) ## Draw the pictures of the docs anew from the code's tables
	@$(BIN)/python tools/pictures.py $(ARGS)

.PHONY: recording
recording: $(READY) ## Record the demo in a terminal as docs/images/demo.svg
	@$(BIN)/python tools/recording.py $(ARGS)

.PHONY: kill
kill: $(READY) ## Kill processes at 5,000 points and check what is left
	@$(BIN)/python tests/kill/kill_sweep.py $(ARGS)

.PHONY: kill-server
kill-server: $(READY) ## Kill a server under load fifty times and check what it acknowledged
	@$(BIN)/python tests/kill/server_kill.py $(ARGS)

.PHONY: kill-temporal
kill-temporal: $(READY) ## Kill the workers of a Temporal cluster and its server for five minutes and check what is left
	@$(BIN)/python tests/kill/temporal_kill.py $(ARGS)

.PHONY: conformance-temporal
conformance-temporal: $(READY) ## Run the whole conformance suite on Temporal
	@LOOM_FULL=1 $(BIN)/python -m pytest -n $(JOBS) tests/conformance/runtimes -k temporal $(ARGS)

.PHONY: loop-temporal
loop-temporal: $(READY) ## Let a flow loop 10,000 times over an activity on Temporal
	@$(BIN)/python tests/integration/temporal/temporal_loop.py $(ARGS)

.PHONY: many
many: $(READY) ## Start 10,000 waiting runs over HTTP, let them be released, wake each one
	@$(BIN)/python tests/integration/many_waiting.py $(ARGS)

.PHONY: fuzz
fuzz: $(READY) ## Fuzz the whole HTTP API by its OpenAPI document
	@$(BIN)/python tests/integration/openapi_fuzz.py $(ARGS)

.PHONY: faults
faults: $(READY) ## Let the disk fail at 1,000 points and check what is left
	@$(BIN)/python tests/faults/fault_points.py $(ARGS)

.PHONY: chaos
chaos: $(READY) ## Stop PostgreSQL hard under load for ten minutes and check what is left
	@$(BIN)/python tests/faults/chaos.py $(ARGS)

.PHONY: hostile
hostile: $(READY) ## Do hostile things to a server for ten minutes and check that it stays well
	@$(BIN)/python tests/hostile/hostile_sweep.py $(ARGS)

.PHONY: sim
sim: $(READY) ## Simulate crashes, faults and clocks for 10 million ticks
	@$(BIN)/python -m loom.testing.simulation_sweep --ticks 10000000 $(ARGS)

.PHONY: golden
golden: $(READY) ## Record the golden histories of this version: make golden ARGS=0.2
	@$(BIN)/python tests/golden/golden_record.py $(ARGS)

.PHONY: golden-temporal
golden-temporal: $(READY) ## Record the histories of a policy on a Temporal server: make golden-temporal ARGS=1
	@$(BIN)/python tests/golden/temporal_record.py $(ARGS)

.PHONY: temporal-oldest
temporal-oldest: $(TEMPORAL_READY) ## Test the Temporal adapter with the oldest SDK that it supports
	@$(TEMPORAL_VENV)/bin/python -m pytest -n auto -W "ignore:[TMPRL1103]" tests/unit/temporal \
	  tests/golden/test_temporal_replay.py \
	  --deselect tests/golden/test_temporal_replay.py::test_no_history_follows_the_order_of_hashes $(ARGS)

.PHONY: lint
lint: $(READY) ## Check style, format, types and layers
	@$(BIN)/python -m ruff check .
	@$(BIN)/python -m ruff format --check .
	@$(BIN)/python -m mypy
	@$(BIN)/lint-imports --no-logo --no-cache

# The tests of the pure engine: those of the two packages, and whole flows on them. Left out is what reads a clock, which
# a measured process is too slow for, and what reads definitions from outside of the repository. They run in one process
# and in order: Hypothesis draws constants from the modules that are loaded, so the figures would vary otherwise.
COVERAGE_TESTS := tests/unit/core tests/unit/flows tests/unit/cli/test_flow_graph.py tests/unit/cli/test_flow_validate.py \
  tests/scenarios tests/conformance/flows tests/property \
  --ignore tests/property/test_expression_laws.py --ignore tests/property/test_temporal_laws.py \
  --ignore tests/conformance/flows/test_definitions_run.py --ignore tests/conformance/flows/test_definitions_load.py
# Percent of lines and branches: what was measured (98.06 and 96.10), with a point of room for other versions of Python.
CORE_FLOOR := 97
FLOWS_FLOOR := 95

.PHONY: coverage
coverage: $(READY) ## Measure how much of loom.core and loom.flows the fast tests reach, each with a floor
	@mkdir -p build
	@HYPOTHESIS_PROFILE=ci $(BIN)/python -m coverage run -m pytest -q $(COVERAGE_TESTS) $(ARGS)
	@$(BIN)/python -m coverage report --include='src/loom/core/*' --fail-under=$(CORE_FLOOR); core=$$?; \
	  $(BIN)/python -m coverage report --include='src/loom/flows/*' --fail-under=$(FLOWS_FLOOR) && exit $$core

.PHONY: fix
fix: $(READY) ## Fix what the style checker can fix, and format
	@$(BIN)/python -m ruff check --fix .
	@$(BIN)/python -m ruff format .

.PHONY: bench
bench: $(BENCH_READY) ## Compare Loom with its peers (in an environment of its own)
	@$(BENCH_VENV)/bin/python -m bench $(ARGS)

# Nothing is fetched, and every warning is an error. The notice about the next major version of mkdocs is not for readers.
.PHONY: docs
docs: $(DOCS_READY) ## Make the documentation site in build/site
	@PYTHONPATH=docs/site $(DOCS_VENV)/bin/python -m loomsite pages build
	@NO_MKDOCS_2_WARNING=1 PYTHONPATH=docs/site $(DOCS_VENV)/bin/mkdocs build --strict --config-file build/mkdocs.yml
	@PYTHONPATH=docs/site $(DOCS_VENV)/bin/python -m loomsite search build
	@echo build/site/index.html

.PHONY: docs-serve
docs-serve: docs ## Make the site and show it at http://127.0.0.1:8000/
	@$(DOCS_VENV)/bin/python -m http.server --bind 127.0.0.1 --directory build/site 8000

.PHONY: words
words: $(READY) ## Add the words that pages use to docs/site/words.txt; read the diff
	@PYTHONPATH=docs/site $(BIN)/python -m loomsite words

.PHONY: sentences
sentences: $(READY) ## List the long sentences of the pages
	@PYTHONPATH=docs/site $(BIN)/python -m loomsite sentences

.PHONY: lock
lock: ## Pin the requirement files anew (needs the network)
	@$(call check_python)
	@test -x $(LOCK_VENV)/bin/pip-compile || { $(PYTHON) -m venv $(LOCK_VENV) && $(LOCK_VENV)/bin/pip install --quiet pip-tools; }
	@cd requirements && for name in run dev deploy docs bench temporal-oldest; do \
	  ../$(LOCK_VENV)/bin/pip-compile --quiet --no-config --generate-hashes --allow-unsafe --strip-extras --no-header \
	    --no-emit-index-url --no-emit-trusted-host --no-emit-find-links $(ARGS) --output-file=$$name.txt $$name.in || exit 1; \
	done

.PHONY: sbom
sbom: $(READY) ## Write the bill of materials of the image to build/sbom.json
	@mkdir -p build && $(BIN)/python deploy/sbom.py > build/sbom.json && echo build/sbom.json

.PHONY: release-check
release-check: $(READY) ## Build a release, install it in a clean environment, run the examples from it, list what it is made of
	@$(BIN)/python tools/release_check.py $(ARGS)

.PHONY: changelog
changelog: $(READY) ## Make the section of a release from changelog.d; print it alone with ARGS=--draft
	@$(BIN)/python tools/changelog.py $(ARGS)

.PHONY: clean
clean: ## Remove environments, caches and build results
	rm -rf $(VENV) $(BENCH_VENV) $(LOCK_VENV) $(TEMPORAL_VENV) .venv-portable $(DOCS_VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment is ready when its stamp is newer than the pins and the project file; a second run costs nothing.
# The pins are complete. With --no-deps pip does not look for others, which a new release of one of them could break.
$(READY): requirements/dev.txt pyproject.toml
	@$(call install,$(VENV),requirements/dev.txt)

$(BENCH_READY): requirements/bench.txt pyproject.toml
	@$(call install,$(BENCH_VENV),requirements/bench.txt)

$(TEMPORAL_READY): requirements/temporal-oldest.txt pyproject.toml
	@$(call install,$(TEMPORAL_VENV),requirements/temporal-oldest.txt)

$(DOCS_READY): requirements/docs.txt pyproject.toml
	@$(call install,$(DOCS_VENV),requirements/docs.txt)

define check_python
	command -v $(PYTHON) > /dev/null || { echo "Loom needs Python 3.11 or newer; '$(PYTHON)' was not found. Try: make PYTHON=/path/to/python3.11" >&2; exit 1; }; \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Loom needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.11" >&2; exit 1; }
endef

define install
	set -e; \
	if [ ! -x $(1)/bin/python ] || ! $(1)/bin/python -m pip --version > /dev/null 2>&1; then \
	  $(call check_python); \
	  echo "Creating $(1) with $$($(PYTHON) -V) ..."; \
	  $(PYTHON) -m venv --clear $(1); \
	fi; \
	echo "Installing $(2) into $(1) ..."; \
	$(1)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $(2); \
	$(1)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .; \
	touch $(1)/.ready
endef
