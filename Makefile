# Two commands do everything on a fresh machine: `make demo` and `make test`.
# Both make .venv first, from the locked versions in requirements/.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
UV     := $(BIN)/uv

.DEFAULT_GOAL := help

# Container images set it. Without bytecode each of the many child processes compiles Dagster and PySpark anew.
unexport PYTHONDONTWRITEBYTECODE

VOICED := README.md CHANGELOG.md CONTRIBUTING.md docs examples java lua orchestration_queue pyspark_* tests tools

.PHONY: help demo demo-ui demo-airflow test quick compat durations mutants lua-coverage bench bench-peers chaos airflow lint voice types check archive bytecode generate lock docs wheel sbom audit clean

help: ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(UV):
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

# A stamp per lock file: what it names is installed, and so is this package, editable.
$(VENV)/.%.stamp: requirements/%.lock pyproject.toml | $(UV)
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --require-hashes -r $<
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --editable .
	@touch $@

# Files that are not in Git are made by the installation, and again when their sources have changed.
.PHONY: generated
generated: | $(UV)
	@$(BIN)/python tools/generate.py

DEMO = $(VENV)/.demo.stamp generated
DEV = $(VENV)/.dev.stamp generated

demo: $(DEMO) ## Run the flights pipeline end to end on real data (ARGS=--kill-worker kills a worker on the way, SCALE=30 takes 10 million flights)
	$(BIN)/python -m examples.flights.demo $(if $(SCALE),--scale=$(SCALE)) $(ARGS)

demo-ui: $(DEMO) ## Look at the same pipeline in the browser: `dagster dev` beside the console
	$(BIN)/python -m examples.flights.demo --ui $(ARGS)

# Tests work a third of their time, so five processes share two cores; tests/session.py puts the longest files first, and
# files that share a Spark server or a worker into one process.
PARALLEL = --numprocesses=5 --dist=loadfile --no-loadscope-reorder

# The archive of Spark's classes saves 7 of 15 seconds of a core at each of the many starts of Spark. Some Javas make none.
ARCHIVE = -$(BIN)/oq spark archive

test: $(DEV) ## Run every test, and see that they reach the Lua (ARGS="tests/unit -k keys" runs some)
	$(if $(ARGS),,$(ARCHIVE))
	$(BIN)/python -m pytest $(or $(ARGS),$(PARALLEL) --lua-coverage=95)

quick: $(DEV) ## Run the tests of the inner loop: units, Lua, contracts
	$(BIN)/python -m pytest $(PARALLEL) tests/unit tests/lua tests/property tests/typing tests/fundamentals $(ARGS)

durations: $(DEV) ## Measure the tests, for the order of later runs (ARGS=tests/lua measures some)
	$(ARCHIVE)
	$(BIN)/python -m pytest $(PARALLEL) --write-durations $(ARGS)

compat: $(DEV) ## Test the lowest and newest versions of all dependencies, other Pythons and servers (ARGS=lowest tests one)
	$(BIN)/python tools/compat.py $(ARGS)

mutants: $(DEV) ## Change operators of the pure layers and print what no unit test notices (ARGS="--only flows")
	$(BIN)/python tools/mutants.py $(ARGS)

lua-coverage: $(DEV) ## Print which lines of lua/ its tests run
	$(BIN)/python -m pytest tests/lua --lua-coverage=95 $(ARGS)

bench: $(DEV) ## Measure every row of docs/explanation/performance.md, in under five minutes; JSON, and its table on standard error
	@$(BIN)/python -m tests.bench $(ARGS)

bench-peers: $(DEV) $(VENV)/.peers.stamp ## The same with more Python queues (OQ_TEST_REDIS86=redis://... adds chasquimq)
	@$(BIN)/python -m tests.bench --peers taskiq saq dramatiq streaq bullmq $(if $(OQ_TEST_REDIS86),chasquimq) $(ARGS)

chaos: $(DEV) ## Bring about every fault under 100,000 jobs, and print what was lost, doubled or hung (ARGS="--jobs=2000")
	$(BIN)/python -m tests.chaos.campaign $(ARGS)

# Airflow and Dagster want environments of their own: this one has a lock, an installation and tests that no other target has.
AIRFLOW = .venv-airflow
$(AIRFLOW)/.stamp: requirements/airflow.lock pyproject.toml | $(UV)
	test -x $(AIRFLOW)/bin/python || $(UV) venv --quiet --python $(PYTHON) $(AIRFLOW)
	$(UV) pip install --quiet --python $(AIRFLOW)/bin/python --no-deps --require-hashes -r $<
	$(UV) pip install --quiet --python $(AIRFLOW)/bin/python --no-deps --editable .
	@touch $@

airflow: $(AIRFLOW)/.stamp generated ## Check types and run the tests of what Airflow needs, in .venv-airflow (ARGS="-k executor")
	$(AIRFLOW)/bin/mypy $$(find orchestration_queue/airflow tests/airflow examples/airflow examples/flights/on_airflow -name '*.py')
	$(AIRFLOW)/bin/python -m pytest tests/airflow $(ARGS)

demo-airflow: $(AIRFLOW)/.stamp generated ## Run the flights pipeline as a DAG of Airflow on our executor, with a worker killed on the way
	$(AIRFLOW)/bin/python -m examples.flights.on_airflow.demo $(ARGS)

lint: $(DEV) voice ## Check style, wording, layers, revisions, the listener's jar, Lua (needs luacheck: Debian's lua-check)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/bundle_lua.py --check
	$(BIN)/python tools/build_listener.py --check
	$(BIN)/python tools/draw_diagrams.py --check
	luacheck --config lua/.luacheckrc lua

voice: $(DEV) ## Check the wording
	$(BIN)/python tools/check_voice.py $(VOICED)

types: $(DEV) ## mypy --strict
	$(BIN)/mypy

docs: $(DEV) ## Build the documentation's site in build/site; a dead link fails
	PATH="$(abspath $(BIN)):$$PATH" NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

wheel: $(DEV) ## Build the wheel from a source archive and from here, look at what is in it, and try its promises in an empty environment
	rm -rf dist build/wheel && mkdir -p build/wheel
	$(UV) build --quiet --python $(BIN)/python
	$(UV) build --quiet --python $(BIN)/python --out-dir build/wheel/again
	$(UV) build --quiet --python $(BIN)/python --wheel --out-dir build/wheel/tree
	$(BIN)/python tools/check_wheel.py dist build/wheel/again build/wheel/tree
	cp -r tests/fundamentals build/wheel
	$(UV) venv --quiet --python $(BIN)/python build/wheel/venv
	$(UV) pip install --quiet --python build/wheel/venv/bin/python --constraint requirements/dev.lock \
	  "$$(ls dist/*.whl)[cli,embedded]" pytest pytest-asyncio pytest-timeout
	build/wheel/venv/bin/oq --version | grep --fixed-strings "($$(git describe --always --dirty --abbrev=12 --exclude='*'))"
	cd build/wheel && venv/bin/python -m pytest -q --asyncio-mode=auto --rootdir=. fundamentals

archive: $(DEV) ## Have Spark start sooner from now on, as `make test` does (200 MB in your cache directory)
	$(BIN)/oq spark archive

# Each of the processes of `make test` would compile every module of the tests, and what they import, for itself: 17 of the
# 27 seconds of a core that it takes to collect them.
bytecode: $(DEV) ## Compile the tests, so that the first `make test` starts sooner
	$(BIN)/python -m pytest --collect-only --quiet --quiet >/dev/null

sbom: | $(UV) ## List what the locked installation consists of, as CycloneDX, in build/sbom.json
	mkdir -p build
	$(UV) tool run --quiet --from 'cyclonedx-bom>=6' cyclonedx-py requirements requirements/demo.lock \
	  --pyproject pyproject.toml --output-reproducible --output-file build/sbom.json

audit: | $(UV) ## Ask PyPI's database of vulnerabilities about the locked versions (needs the internet)
	$(UV) tool run --quiet --from 'pip-audit>=2.9' pip-audit --disable-pip --require-hashes -r requirements/demo.lock

check: lint types docs wheel test ## All that CI runs

generate: $(DEV) ## Number changed libraries, and write again what is drawn from other files and still committed
	$(BIN)/python tools/bundle_lua.py
	$(BIN)/python tools/write_drawn.py
	$(BIN)/python tools/build_listener.py
	$(BIN)/python tools/draw_diagrams.py

# Hashes instead of addresses: any mirror will do.
COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
          --no-header --no-annotate --override requirements/overrides.txt $(LOCK_ARGS) pyproject.toml
ALL = --extra all --extra testing --group examples
lock: | $(UV) ## Resolve the locked versions anew (LOCK_ARGS=--upgrade for the newest)
	$(COMPILE) $(ALL) --output-file requirements/demo.lock
	$(COMPILE) $(ALL) --group bench --group test --group libraries --group lint --group docs --output-file requirements/dev.lock
	$(COMPILE) $(ALL) --group peers --constraint requirements/dev.lock --output-file requirements/peers.lock
	$(COMPILE) --extra airflow --extra cli --extra embedded --extra spark --group airflow --output-file requirements/airflow.lock

clean: ## Remove what the commands above left behind
	rm -rf $(VENV) $(AIRFLOW) dist build .demo .oq .bench .mypy_cache .pytest_cache .ruff_cache .hypothesis .generated*
