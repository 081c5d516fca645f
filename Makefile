# Everything a contributor runs. `make` alone lists the targets.
#
# The first target that needs it creates a virtual environment and installs the package with the
# pinned versions of constraints.txt; later calls reuse it, until pyproject.toml or constraints.txt
# change. Another interpreter gets an environment of its own: `make test PYTHON=python3.12`.

PYTHON ?= python3
VENV ?= $(if $(filter python3,$(PYTHON)),.venv,.venv-$(notdir $(PYTHON)))
PYTEST_ARGS ?=
BENCH_ARGS ?=
FUZZ_ARGS ?=
NIGHTLY_ARGS ?=
REPLAY_ARGS ?= --against HEAD
FAMILY ?=
TARGET ?= interpreter

EXTRAS := dev,torch,onnx,jax,gpu,suites
BIN := $(VENV)/bin
PEERS := $(VENV)-bench
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# The targets share one environment and print for people to read, so they run one at a time even
# under `make -j`; pytest is parallel by itself.
.NOTPARALLEL:
# They start Python hundreds of times: the first to import a module writes its bytecode for the rest.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "  PYTHON=python3.12     use another interpreter, in an environment of its own"
	@echo "  PYTEST_ARGS='-k cse'  pass more arguments to pytest"
	@echo "  TARGET=cpu            compile what conformance and models run, instead of interpreting it"
	@echo "  FAMILY=matmul         one family of benchmarks: matmul, convolution, attention, models, …"
	@echo "  BENCH_ARGS='--quick'  pass more arguments to benchmarks.native"
	@echo "  FUZZ_ARGS='--seed 7'  pass more arguments to tests.fuzz"
	@echo "  NIGHTLY_ARGS='--suite ONNX,models'  pass more arguments to tests.nightly"
	@echo "  REPLAY_ARGS='--quick --against main'  what to replay, and what to compare with"

.PHONY: demo
demo: $(STAMP) ## Take a short tour of the compiler
	$(BIN)/monograph tour --short

.PHONY: test
test: lint types ## Run every check that CI runs: lint, types, tests
	$(BIN)/python -m pytest -n 2 -m 'not slow' $(PYTEST_ARGS)

.PHONY: test-slow
test-slow: $(STAMP) ## Run the tests that make test leaves out
	$(BIN)/python -m pytest -n 2 -m slow $(PYTEST_ARGS)

.PHONY: test-page
test-page: $(STAMP) ## Open reports in a headless Chromium (apt-get install chromium chromium-driver)
	$(BIN)/python -m pytest -m 'slow or not slow' tests/report $(PYTEST_ARGS)

.PHONY: page
page: ## Build the report's script and style anew (needs node; the result is committed)
	cd monograph/report/page && npm ci --no-audit --no-fund && npm run build

.PHONY: pictures
pictures: $(STAMP) ## Draw the pictures of the book anew (the result is committed)
	$(BIN)/python -m docs.pictures

.PHONY: test-gpu
test-gpu: $(STAMP) ## Run Triton kernels, op samples and whole models on a GPU and compare
	$(BIN)/python -m tests.targets.gpu.kernels --device cuda
	$(BIN)/python -m tests.targets.gpu.samples --device cuda --blocks --dtypes
	$(BIN)/python -m tests.targets.gpu.check --dtypes
	$(BIN)/python -m tests.targets.gpu.models

.PHONY: bench-gpu
bench-gpu: $(STAMP) ## Time programs and models on a GPU beside torch (BENCH_ARGS='BERT --peers eager')
	$(BIN)/python -m benchmarks.gpu $(BENCH_ARGS)

.PHONY: conformance
conformance: $(STAMP) ## Run ONNX's suite, torch's OpInfo samples and JAX's harnesses, and count
	$(BIN)/python -m tests.exporters.claims
	$(BIN)/python -m tests.frontends.onnx.conformance --target $(TARGET)
	$(BIN)/python -m tests.frontends.torch.opinfo --workers 2 --target $(TARGET)
	$(BIN)/python -m tests.frontends.torch.opinfo --workers 2 --target $(TARGET) --errors
	$(BIN)/python -m tests.frontends.jax.harnesses --workers 2 --target $(TARGET)

.PHONY: models
models: $(STAMP) ## Import whole models from PyTorch and ONNX and compare with eager
	$(BIN)/python -m tests.models.run --via torch,onnx --train --target $(TARGET)

.PHONY: samples
samples: $(STAMP) ## Compile every op's samples in every dtype, then for every width, fenced
	$(BIN)/python -m tests.targets.cpu.test_samples
	$(BIN)/python -m tests.targets.cpu.apart

.PHONY: fuzz
fuzz: $(STAMP) ## Compile 300 random programs every way, compare, and make small what differs
	$(BIN)/python -W ignore -m tests.fuzz $(FUZZ_ARGS)

.PHONY: nightly
nightly: $(STAMP) ## Run every suite on every target with new random draws, in one table (hours)
	$(BIN)/python -W ignore -m tests.nightly $(NIGHTLY_ARGS)

.PHONY: replay
replay: $(STAMP) ## Compare the generated code with that of the last commit, byte for byte
	$(BIN)/python -W ignore -m tests.replay $(REPLAY_ARGS)

.PHONY: lint
lint: $(STAMP) ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

.PHONY: format
format: $(STAMP) ## Format the code and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: types
types: $(STAMP) ## Check types (mypy, strict)
	$(BIN)/mypy

.PHONY: bench-scale
bench-scale: $(STAMP) ## Measure how the compiler scales with graph size
	$(BIN)/python -m benchmarks.scale

.PHONY: bench-import
bench-import: $(STAMP) ## Measure how long importing BERT-base takes
	$(BIN)/python -m benchmarks.import_speed

.PHONY: bench-setup
bench-setup: $(PEERS)/.installed ## Install the peers that benchmarks compare with

.PHONY: bench
bench: $(PEERS)/.installed ## Measure speed and error beside the peers (hours; FAMILY=…: one family)
	$(PEERS)/bin/python -m benchmarks.native --json build/bench/native.json --update \
		--markdown build/bench/native.md $(if $(FAMILY),--family $(FAMILY)) $(BENCH_ARGS)

.PHONY: bench-compile
bench-compile: $(PEERS)/.installed ## Measure compile time and memory of whole models beside the peers
	$(PEERS)/bin/python -m benchmarks.compile_time --json build/bench/compile_time.json \
		--only models $(BENCH_ARGS)

.PHONY: bench-shipped
bench-shipped: $(PEERS)/.installed ## Measure ONNX files of free sizes, as people ship them
	$(PEERS)/bin/python -W ignore -m benchmarks.shipped --json build/bench/shipped.json \
		--markdown build/bench/shipped.md $(BENCH_ARGS)

.PHONY: bench-stream
bench-stream: $(PEERS)/.installed ## Send requests of changing sizes: latencies, memory, compiling
	$(PEERS)/bin/python -W ignore -m benchmarks.shipped.stream --json build/bench/stream.json \
		--markdown build/bench/stream.md $(BENCH_ARGS)

.PHONY: bench-readme
bench-readme: $(STAMP) ## Write what was measured into the README's table
	$(BIN)/python -m benchmarks.readme build/bench/native.json \
		--compile-time build/bench/compile_time.json

# The peers live beside the project's environment, not in it: this one sees all of its packages.
$(PEERS)/.installed: benchmarks/requirements-peers.txt $(STAMP)
	test -x $(PEERS)/bin/pip || $(PYTHON) -m venv $(PEERS)
	site=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
		echo "import site; site.addsitedir('$$site')" \
		> $$($(PEERS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/project.pth
	$(PEERS)/bin/python -m pip install --quiet --constraint constraints.txt \
		--requirement benchmarks/requirements-peers.txt
	touch $@

.PHONY: setup
setup: $(STAMP) ## Create the environment, and nothing else

.PHONY: clean
clean: ## Remove caches and build outputs; keep the environment
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find monograph tests benchmarks examples docs -type d -name __pycache__ -prune \
		-exec rm -rf {} + 2>/dev/null || true

.PHONY: distclean
distclean: clean ## Remove the environment as well
	rm -rf $(VENV) monograph.egg-info

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$(EXTRAS)]'
	touch $@
