# Two commands do everything on a fresh machine: make demo, make test.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
READY := $(VENV)/.ready

.PHONY: demo test test-slow test-faults test-services test-browser test-lowest test-gpu lint \
	generate results examples docs wheel bench clean

# Tests start many processes: without the bytecode of the first, each compiles the program anew.
unexport PYTHONDONTWRITEBYTECODE

INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# What a run needs; the rest only what develops the program.
$(RUNTIME): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) -e .
	touch $(RUNTIME)

$(READY): $(RUNTIME)
	$(INSTALL) -e ".[dev]"
	touch $(READY)

demo: $(RUNTIME)
	$(BIN)/tune-calib ablate mac_cal --seeds 5 --controls --out runs/demo

FAST := not slow and not faults and not postgres and not s3 and not browser

test: $(READY)
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "$(FAST)"

# Each test of Ray takes both cores.
test-slow: $(READY)
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "(slow or sampled) and not ray"
	$(BIN)/python -m pytest -q -m "slow and ray"

test-faults: $(READY)
	$(BIN)/python -m pytest -q -m faults tests/faults

test-services: $(READY)
	test -n "$$(ls /usr/lib/postgresql/*/bin/pg_ctl 2>/dev/null || command -v pg_ctl)" || \
		(apt-get update && apt-get install -y postgresql)
	$(INSTALL) -e ".[services]"
	$(BIN)/python -m pytest -q -m "postgres or s3" tests/services

# Debian's Chromium where apt can bring it; without one the tests say that they are skipped.
test-browser: $(READY)
	command -v chromedriver >/dev/null || \
		{ apt-get update -qq && apt-get install -y -qq chromium chromium-driver; } || true
	$(INSTALL) -e ".[browser]"
	$(BIN)/python -m pytest -q -rs -m browser tests/analysis/page/test_browser.py

# With the lowest versions that pyproject.toml allows; pip can only install the highest.
test-lowest:
	test -x $(VENV)/lowest/bin/python || $(PYTHON) -m venv $(VENV)/lowest
	$(VENV)/lowest/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(VENV)/lowest/bin/uv pip install --quiet --python $(VENV)/lowest/bin/python \
		--resolution lowest-direct -e ".[dev]"
	$(VENV)/lowest/bin/python -m pytest -q -n 2 --dist worksteal -m "$(FAST) and not ray" \
		$(addprefix tests/,analysis cli data engine library methods metrics results spec tuning)

# Without a GPU, the tests say that they are skipped.
test-gpu: $(READY)
	$(BIN)/python -m pytest -q -rs -m gpu tests/engine tests/methods

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# All that the program writes into the repository; the tests fail if a file is stale.
generate: $(READY)
	$(BIN)/python -m docs.generate.index
	$(BIN)/python -m docs.generate.stubs
	$(BIN)/python -m docs.generate
	$(BIN)/python -m docs.results

# The pages of claims, and every table of results that README and pages compute from docs/claims.
results: $(READY)
	$(BIN)/python -m docs.results

# Runs the examples of the gallery and records what they print: minutes.
examples: $(READY)
	$(BIN)/python -m docs.gallery
	$(BIN)/python -m docs.generate

# The pages come to build/docs; they ask no other server for anything.
docs: $(READY)
	$(INSTALL) -e ".[docs]"
	$(BIN)/python -m pytest -q -m "slow and not ray" tests/docs tests/analysis/test_notebooks.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict -f docs/mkdocs.yml

# The wheel comes to dist; files that an earlier build left in build/lib would be packed too.
wheel: $(READY)
	rm -rf build/lib build/bdist.* dist
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps -w dist .

bench: $(READY)
	$(BIN)/python -m tests.benchmarks.run

clean:
	rm -rf $(VENV) runs build dist *.egg-info
