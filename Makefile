# make train   from nothing to a trained network: sets up .venv, installs Ringlet, trains on built-in data
# make test    sets up all that the tests need, then lint, types, import rules, documentation and all tests
# make help    the rest

PYTHON ?= python3
VENV ?= .venv
TRAIN_OPTIONS ?=
PYTEST_OPTIONS ?=
PYTEST_WORKERS ?= 2
# Tests of one group run in one process; the order is that of tests/conftest.py.
PYTEST_DISTRIBUTION := --dist loadgroup --no-loadscope-reorder --max-worker-restart 0
# What `make test` insists on; `make test KERNELS=reference` accepts a machine without a C++ compiler.
KERNELS ?= compiled
# What `make bench` measures; all that `python -m benchmarks --list` shows, if it is empty.
PARTS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
SOURCES := pyproject.toml CMakeLists.txt README.md LICENSE NOTICE $(shell find src native -type f \
	! -name '*.so' ! -name '*.pyc' ! -path '*/__pycache__/*')
CHECKED := src tests benchmarks examples scripts
# The optional dependencies that the tests need; torch comes by itself.
EXTRAS := database dev docs jax keras mlflow mpi onnx openvino optuna prometheus remote report tensorboard wandb watch
comma := ,
empty :=

# One thread per process, as the tests run in PYTEST_WORKERS processes; where a test has more, they do not spin while they
# wait. Caches stay inside the repository's build folder, compiled modules among them: hundreds of processes load them.
TEST_ENVIRONMENT := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 OMP_WAIT_POLICY=passive RINGLET_CACHE=$(CURDIR)/build/test-cache \
	RINGLET_TEST_WHEEL=$(CURDIR)/dist PYTHONDONTWRITEBYTECODE=

# The variable silences an advertisement of the theme's makers. With --quiet warnings would not count as errors.
SITE = NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.DELETE_ON_ERROR:
.PHONY: help install prepare train test test-arm64 lint check-docs check-kernels bench docs package clean

help:  ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*##  *\(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do \
		printf '  make %-14s %s\n' "$$name" "$$text"; done

install: $(VENV)/.installed  ## install Ringlet into .venv

prepare: $(VENV)/.installed-dev  ## install Ringlet and all that the tests need

train: $(VENV)/.installed  ## train a small network on the built-in digits (TRAIN_OPTIONS="--model … --dataset …")
	$(BIN)/ringlet train $(TRAIN_OPTIONS)

test:  ## lint, types, import rules, documentation and all tests
	$(MAKE) --no-print-directory --jobs 2 lint check-docs check-kernels
	$(TEST_ENVIRONMENT) $(BIN)/python -m pytest -n $(PYTEST_WORKERS) $(PYTEST_DISTRIBUTION) $(PYTEST_OPTIONS)

test-arm64: $(VENV)/.created  ## kernels and workers on 64-bit ARM, emulated on other machines (docs/portability.md)
	HOST_PYTHON=$(abspath $(BIN)/python) PYTEST_WORKERS=$(PYTEST_WORKERS) scripts/arm64.sh

lint: $(VENV)/.installed-dev  ## ruff, mypy, import-linter, tables and diagrams of the documentation
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/update_docs.py --check
	$(BIN)/python scripts/diagrams.py --check

# Warnings are errors: a dead link, a page that is in no menu, a name that the code does not have.
check-docs: $(VENV)/.installed-dev
	$(SITE)

# Without a compiler the installation falls back to the reference kernels; the suite must not pass like that unnoticed.
check-kernels: $(VENV)/.installed-dev
	@$(BIN)/python -c "import sys; from ringlet.kernels import available as found; print('kernels to test:', *found()); \
	'$(KERNELS)' in found() or sys.exit('the $(KERNELS) kernels were not built. With a C++20 compiler: make clean test; \
	to see why: $(PIP) install -v --no-build-isolation . ; to accept it: make test KERNELS=reference')"

bench: $(VENV)/.installed-dev  ## all measurements of the documentation, some hours (PARTS="exchange memory" for some)
	$(BIN)/python -m benchmarks $(PARTS)

docs: $(VENV)/.installed-dev  ## rewrite the tables and diagrams in docs/ from the code and build the site: build/site/index.html
	$(BIN)/python scripts/update_docs.py
	$(BIN)/python scripts/diagrams.py
	$(SITE)

package: dist/.built  ## source distribution and wheel, into dist/
	$(BIN)/python -c 'from scikit_build_core.build import build_sdist; build_sdist("dist")'

clean:  ## remove .venv, build results and caches (runs/ stays)
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests benchmarks scripts -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -f src/ringlet/kernels/_native*.so

# Build tools live in .venv, so that a change in Python files does not rebuild the kernels. A system's CMake serves;
# where there is none, its wheel is tried.
$(VENV)/.created:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Ringlet needs Python 3.11 or newer: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv $(VENV) || { echo 'no venv: on Debian and Ubuntu, apt install python3-venv' >&2; exit 1; }
	$(PIP) install 'scikit-build-core>=0.11' 'nanobind>=2.4' ninja
	command -v cmake > /dev/null || $(PIP) install cmake || true
	touch $@

# The wheel is what users get. It is installed, not linked: what is tested is that very file.
dist/.built: $(SOURCES) $(VENV)/.created
	rm -rf dist && mkdir dist
	$(PIP) wheel --no-build-isolation --no-deps --wheel-dir dist .
	touch $@

# pip keeps an installed package that has the version of the file: the old one goes first.
$(VENV)/.installed: dist/.built
	$(PIP) uninstall --quiet --yes ringlet
	$(PIP) install dist/ringlet-*.whl
	touch $@

# What Ringlet needs for the tests is installed while its wheel is compiled (make --jobs 2); pip would compile modules on one core.
# torch comes first and pinned: the plain name could bring another build of it. Some packages have files that are no Python.
# Networks to compare with lie apart: torchvision's compiled part fits one build of torch, and others would import it.
$(VENV)/.dependencies: pyproject.toml constraints.txt $(VENV)/.created
	$(PIP) install --no-compile -c constraints.txt torch
	$(BIN)/python scripts/requirements.py $(EXTRAS) > $(VENV)/requirements.txt
	$(PIP) install --no-compile -c constraints.txt -r $(VENV)/requirements.txt
	rm -rf $(VENV)/networks && $(PIP) install --no-compile --no-deps --target $(VENV)/networks -c constraints.txt torchvision timm
	$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	touch $@

$(VENV)/.installed-dev: dist/.built $(VENV)/.dependencies
	$(PIP) uninstall --quiet --yes ringlet
	$(PIP) install -c constraints.txt "$$(echo dist/ringlet-*.whl)[$(subst $(empty) $(empty),$(comma),$(EXTRAS))]"
	touch $(VENV)/.installed $@
