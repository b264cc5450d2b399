# Two commands on a fresh machine: `make quickstart` and `make test`. Both build the environment in .venv first.
PYTHON ?= python3
ARGS   ?=
BIN    := .venv/bin

.PHONY: quickstart test test-slow test-gpu test-browser test-extras examples lint types lectures atlas site check bench reliability audit sbom release lock test-minimal test-capped clean

quickstart: .venv/installed  ## the whole main job on the embedded default data; ARGS="--minutes 1 --out runs/try"
	$(BIN)/unmask quickstart $(ARGS)

test: .venv/tested  ## the test suite; ARGS="tests/nn -k rotary"
	$(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

# ONEDNN_MAX_CPU_ISA and ATEN_CPU_CAPABILITY take instructions from the libraries of PyTorch, bfloat16 among them.
test-capped: .venv/tested  ## what depends on the processor, as on one with AVX2 and no more, and with one thread
	ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(CAPPED) $(ARGS)

CAPPED = tests/kernels tests/nn/test_numbers.py \
	tests/models/test_inference_transformer.py tests/models/test_inference_encoder.py tests/train/test_step_numbers.py \
	tests/serve/test_vectors.py tests/models/test_t5.py::test_it_writes_in_bfloat16_what_it_writes_in_float32 \
	tests/serve/test_service.py::test_the_precision_is_that_of_the_predictor \
	tests/benchmarks/test_bench.py::test_the_smallest_comparison_of_decoding_runs_in_fresh_processes \
	tests/train/test_trainer.py::test_bf16_keeps_weights_in_fp32 tests/train/test_trainer.py::test_what_is_computed_is_said \
	tests/train/test_muon.py tests/benchmarks/test_bench_profile.py

test-slow: .venv/tested  ## checks that take minutes
	$(BIN)/python -m pytest -m slow $(ARGS)

test-gpu: .venv/tested  ## checks that need a CUDA device
	$(BIN)/python -m pytest -m gpu $(ARGS)

test-browser: .venv/tested  ## the page in a chromium that is installed already
	$(BIN)/python -m pytest -m browser $(ARGS)

lint: .venv/tested
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: .venv/tested
	$(BIN)/mypy && $(BIN)/mypy benchmarks reliability

lectures: .venv/tested  ## every figure and worked example of the lectures at its smallest size
	$(BIN)/unmask lecture --all --quick > /dev/null

atlas: .venv/tested  ## the figures and sections of docs/atlas, which lectures write; ARGS="peaking gru" for some
	$(BIN)/python tools/atlas.py $(ARGS)

examples: .venv/tested  ## the scripts of examples/, two at a time, in a folder that is removed
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && ls $(CURDIR)/examples/*.py | \
	(cd "$$folder" && OMP_NUM_THREADS=1 xargs -P 2 -n 1 $(CURDIR)/$(BIN)/python > /dev/null)

test-extras: .venv/extras/ready  ## trackers, spaCy, datatrove and notebooks, with the real packages in an environment of their own
	.venv/extras/bin/python -m pytest -m extras $$(grep -rl mark.extras tests) $(ARGS)

site: .venv/installed .venv/site/ready  ## site/: the documents as pages, with the reference of the commands and of Python
	.venv/site/bin/python -m doctest tools/site/docstrings.py
	$(BIN)/python tools/site/pages.py build/site
	.venv/site/bin/zensical build --strict -f build/site/site.yml
	$(BIN)/python tools/site/finish.py build/site/html site

check: lint types test test-capped lectures

bench: .venv/installed  ## speed beside what people use instead; ARGS="pretrain --quick", "--out bench.json --table bench.md"
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[bench]'
	PYTHONPATH=benchmarks $(BIN)/python -m bench $(ARGS)

reliability: .venv/tested  ## faults injected for real: kills, refused writes, hostile files; docs/reliability.md
	$(BIN)/python reliability/kill.py
	$(BIN)/python reliability/nodes.py
	$(BIN)/python reliability/storage.py
	$(BIN)/python reliability/hostile.py
	$(BIN)/python reliability/fuzz.py --minutes 2
	$(BIN)/python reliability/long.py
	$(BIN)/python reliability/service.py

audit:  ## known holes in what is pinned; says in a sentence where nobody can be asked
	@if $(MAKE) --silent .venv/tools/ready; then .venv/tools/bin/python tools/audit.py; \
	else echo "audit: its tools cannot be installed from here; nothing was checked."; fi

sbom: .venv/tested .venv/tools/ready  ## dist/sbom.cdx.json: what the checks ran with, as CycloneDX
	mkdir -p dist
	.venv/tools/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o dist/sbom.cdx.json $(BIN)/python

release: check audit sbom  ## dist/: source, wheel and the list of parts
	rm -rf build/lib build/bdist.*
	.venv/tools/bin/python -m build --no-isolation --outdir dist .
	$(BIN)/python tools/smoke.py dist

lock: .venv/tools/ready  ## requirements/*.txt from constraints.txt; asks the index for every checksum, some minutes
	CUSTOM_COMPILE_COMMAND="make lock" $(COMPILE) --extra dev -c constraints.txt -o requirements/ci.txt pyproject.toml
	CUSTOM_COMPILE_COMMAND="make lock" $(COMPILE) -o requirements/tools.txt requirements/tools.in
	CUSTOM_COMPILE_COMMAND="make lock" $(COMPILE) -o requirements/site.txt requirements/site.in

COMPILE = .venv/tools/bin/pip-compile --quiet --generate-hashes --strip-extras --no-annotate --unsafe-package torch \
	--unsafe-package unmask --no-emit-find-links --no-emit-index-url

# torch is the one that is at hand: its own lowest version is another build for each device.
test-minimal:  ## the tests with the lowest version of everything else that pyproject.toml states
	rm -rf .venv/minimal
	$(PYTHON) -m venv .venv/minimal
	$(PYTHON) tools/minimal.py > .venv/minimal/versions.txt
	.venv/minimal/bin/python -m pip install --quiet torch==2.13.0 -r .venv/minimal/versions.txt
	.venv/minimal/bin/python -m pip install --quiet --no-deps -e .
	.venv/minimal/bin/python -m pytest -n auto --dist worksteal $(ARGS)

# torch first, by its exact version: it decides between the CPU build at hand and the CUDA build.
.venv/installed: pyproject.toml constraints.txt
	$(NEW)
	$(BIN)/python -m pip install --quiet -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	touch $@

define NEW
$(PYTHON) -c 'import sys; sys.exit("unmask needs Python 3.11 or newer; set PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
test -x $(BIN)/python || $(PYTHON) -m venv .venv
endef

# By checksum, and nothing else: what is there already is not fetched again. torch and what only its CUDA build needs
# come by their version.
.venv/tested: pyproject.toml constraints.txt requirements/ci.txt
	$(NEW)
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps -r requirements/ci.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation -e '.[dev]'
	touch .venv/installed $@

.venv/tools/ready .venv/site/ready: .venv/%/ready: requirements/%.txt
	$(PYTHON) -m venv .venv/$*
	.venv/$*/bin/python -m pip install --quiet --require-hashes --no-deps -r requirements/$*.txt
	touch $@

# Beside .venv, not in it: trackio needs an older pillow. What this environment lacks, Python finds in .venv.
.venv/extras/ready: .venv/tested requirements/extras.txt
	$(PYTHON) -m venv .venv/extras
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' > \
	"$$(.venv/extras/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/base.pth"
	.venv/extras/bin/python -m pip install --quiet -r requirements/extras.txt
	touch $@

clean:
	rm -rf .venv build dist site src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
