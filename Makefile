# Each target builds .venv from constraints.txt if it is missing or out of date.
# Needed on the machine: make and Python 3.11 or newer.

BIN := .venv/bin
STAMP := .venv/.installed

# The first interpreter that is new enough and can make environments.
CANDIDATES := python3.11 python3 python3.12 python3.13 python3.14
NEW_ENOUGH := 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))'
PYTHON ?= $(firstword $(foreach p,$(CANDIDATES),$(shell $(p) -c $(NEW_ENOUGH) >/dev/null 2>&1 && echo $(p))))

# Test workers share the cores; BLAS threads on top of them only get in the way.
PYTEST := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadgroup

.PHONY: demo test test-slow test-optional mutants compare browser lint bench docs wheel real-data clean
.DELETE_ON_ERROR:

demo: $(STAMP)
	$(BIN)/polyattn demo

test: lint
	$(PYTEST)

test-slow: $(STAMP)
	$(PYTEST) -m "slow or hypothesis" --hypothesis-profile long

# Mutation testing of the numerical core, an hour on one core: results stay in .mutants and the
# next run goes on from there.  MUTANTS="--only solve --seed 2" tries others, and
# MUTANTS="--folders cli --folders sources --sample 40" what the core does not have.
mutants: .venv/.mutants
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python benchmarks/mutants $(MUTANTS)

.venv/.mutants: $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation -e ".[mutants]"
	@touch $@

# Some thousand random public calls in this tree and in that of a commit, with all differences in
# answers and the ratio of times.  COMPARE="--only certify --seed 2" asks for others.
compare: $(STAMP)
	$(BIN)/python benchmarks/compare --base $(BASE) $(COMPARE)

# Tests that look at pages need Chromium and its driver, and are skipped where these are missing.
# Nothing else installs anything outside the repository, and this only where it needs no questions.
PACKAGES := chromium chromium-driver
APT := apt-get -qq -o Acquire::Retries=0 -o Acquire::http::Timeout=30
browser:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ]; then root=env; else root="sudo -n env"; fi; \
	if command -v apt-get >/dev/null && $$root true 2>/dev/null && \
		$$root DEBIAN_FRONTEND=noninteractive sh -c '$(APT) update && \
			$(APT) install -y --no-install-recommends $(PACKAGES)' </dev/null >/dev/null 2>&1; \
	then echo "installed $(PACKAGES)"; \
	else echo "no $(PACKAGES), and they could not be installed: browser tests will be skipped"; fi

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# One script per claim; each prints both sides of its comparison and fails if answers differ.
bench: $(STAMP)
	@set -e; for script in benchmarks/[!_]*.py; do \
		echo "== $$script"; $(BIN)/python "$$script"; \
	done

# The site is the folder docs/_build/html, gallery included, and can be published anywhere or opened
# as files: links are relative, and nothing is fetched from elsewhere.  Then the examples of
# README.md, docs/ and all docstrings run, and links lead somewhere.  Any warning is an error.
# Adapters whose toolboxes are not there have their examples run by test-optional.
ADAPTERS := $(patsubst %,--ignore=src/polyattn/interop/%.py,aeon sktime)
docs: $(STAMP)
	$(BIN)/sphinx-build -W --keep-going -d docs/_build/doctrees -b html docs docs/_build/html
	$(BIN)/pytest -W error -m "slow or not slow" --doctest-modules $(ADAPTERS) tests/test_docs.py \
		tests/test_commands.py src/polyattn

# What `pip install` takes where there is no repository; version and CHANGELOG belong to it.
wheel: $(STAMP)
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

# Packages that are compiled by numba, or that few need, have an environment of their own: the
# time-series toolboxes whose estimator checks ours pass, and those that real data are compared by.
OPTIONAL := aeon sktime tslearn reservoirpy polars duckdb fastapi httpx pandas pyarrow pytest
test-optional: .venv-optional/.installed
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 .venv-optional/bin/pytest -W default --confcutdir tests/optional tests/optional

# About an hour on one core, mostly of 1NN-DTW; then the tables of docs/real_data.md are written.
real-data: .venv-optional/.installed
	cd examples/real_data && ../../.venv-optional/bin/python -W ignore compare.py --out results.json
	.venv-optional/bin/python examples/real_data/tables.py --write

.venv-optional/.installed: constraints-optional.txt pyproject.toml
	$(PYTHON) -m venv .venv-optional
	.venv-optional/bin/python -m pip install --quiet -c $< hatchling editables
	.venv-optional/bin/python -m pip install --quiet -c $< --no-build-isolation $(OPTIONAL) -e .
	@touch $@

clean:
	rm -rf .venv .venv-optional .mutants .compare build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "polyattn needs Python 3.11 or newer with venv; none was found (set PYTHON=...)" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt hatchling editables
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation -e ".[dev]"
	@touch $@
