# Two commands on a fresh machine: `make quickstart` and `make test`. Both build the environment in .venv first.
PYTHON ?= python3
ARGS   ?=
BIN    := .venv/bin

.PHONY: quickstart test test-slow test-gpu test-browser lint types check bench reliability audit clean

quickstart: .venv/installed  ## the whole main job on the embedded default data; ARGS="--minutes 1 --out runs/try"
	$(BIN)/unmask quickstart $(ARGS)

test: .venv/tested  ## the test suite; ARGS="tests/nn -k rotary"
	$(BIN)/python -m pytest -n auto $(ARGS)

test-slow: .venv/tested  ## checks that take minutes
	$(BIN)/python -m pytest -m slow $(ARGS)

test-gpu: .venv/tested  ## checks that need a CUDA device
	$(BIN)/python -m pytest -m gpu $(ARGS)

test-browser: .venv/tested  ## the page in a chromium that is installed already
	$(BIN)/python -m pytest -m browser $(ARGS)

lint: .venv/tested
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: .venv/tested
	$(BIN)/mypy

check: lint types test

bench: .venv/installed  ## speed beside what people use instead; ARGS="pretrain --quick", "--out bench.json --table bench.md"
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[bench]'
	$(BIN)/unmask bench $(ARGS)

reliability: .venv/tested  ## faults injected for real: kills, refused writes, hostile files; docs/reliability.md
	$(BIN)/python reliability/kill.py
	$(BIN)/python reliability/storage.py
	$(BIN)/python reliability/hostile.py
	$(BIN)/python reliability/fuzz.py --minutes 2
	$(BIN)/python reliability/long.py

audit: .venv/installed  ## known holes in what is installed, and a list of it; says so where there is no network
	$(BIN)/python -m pip inspect > sbom.json && echo "sbom.json lists what is installed"
	-$(BIN)/python -m pip install --quiet pip-audit && $(BIN)/python -m pip_audit -r constraints.txt

# torch first, by its exact version: it decides between the CPU build at hand and the CUDA build.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("unmask needs Python 3.11 or newer; set PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	touch $@

.venv/tested: .venv/installed
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
