# Everything a newcomer needs, with python3 and make only. Each command sets itself up and is quick when nothing changed.

PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.made-in
DEV := $(VENV)/.installed-dev
DEMO := $(VENV)/.installed-demo
PIP := $(BIN)/python -m pip --quiet --quiet --disable-pip-version-check

# Tests start hundreds of processes: without byte code on disk, each would compile torch and Flower again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help test coverage check types types-of-tests demo slow zoo paper paper-quick docs release fmt constraints clean FORCE

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / { sub("%", "NAME", $$1); printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: check ## Set up, check and run every test but the slow ones (ARGS="-k filter" to choose)
	@$(BIN)/python -m pytest $(ARGS)

coverage: check ## The same, and how much of each room it reaches: what .ci/run runs
	@mkdir -p build/coverage
	@$(BIN)/python -m pytest --cov --cov-report= $(ARGS)
	@$(BIN)/python scripts/coverage_of_rooms.py

check: $(DEV) ## The quick checks alone: lint, format, types, import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(MAKE) --no-print-directory -j2 types types-of-tests
	@$(BIN)/lint-imports --no-logo

types types-of-tests: $(DEV)
	@$(BIN)/mypy $(if $(findstring tests,$@),--config-file tests/mypy.ini)

# Whoever already has the developers' environment needs no other.
demo: $(if $(wildcard $(DEV)),$(DEV),$(DEMO)) ## Run a private, verified federation on this machine (ARGS="--rounds 6" to choose)
	@$(BIN)/lrdp run --folder "build/demo-$$(date +%Y%m%d-%H%M%S)" $(ARGS)

slow: $(DEV) ## The slow tests alone
	@$(BIN)/python -m pytest -m slow $(ARGS)

zoo: $(DEV) ## Judge public models, measure them beside Opacus, and write docs/results/zoo.md (ARGS="--only bert" to choose)
	@PYTHONPATH=tests $(BIN)/python -m training.zoo $(ARGS)

# Data sets are not shipped: docs/evaluation.md says what they are and where they come from.
DATA ?= $(or $(LRDP_DATA_DIR),$(wildcard ../shared/data),data)
STUDIES := noise hospitals memory sensitivity utility
STUDY = $(BIN)/lrdp experiments

paper: $(DEV) ## Every figure of the paper's evaluation: takes hours, and resumes where it stopped (DATA=FOLDER)
	@for study in $(STUDIES) "utility --model cnn" "utility --model minilm-lora"; do \
	  $(STUDY) $$study --data-dir "$(DATA)" $(ARGS) || exit $$?; done

paper-quick: $(DEV) ## The same with a few cells of each study, in minutes
	@for study in $(STUDIES); do \
	  $(STUDY) $$study --data-dir "$(DATA)" --out build/experiments-quick --quick $(ARGS) || exit $$?; done

docs: $(DEV) ## The documentation as a site, in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "build/site/index.html"

release: check ## Build wheel and source archive in dist/, check them, and try each in a fresh environment
	@rm -rf dist build/release && $(PYTHON) -m venv build/release/tools
	@build/release/tools/bin/python -m pip --quiet --disable-pip-version-check install hatchling twine
	@build/release/tools/bin/hatchling build
	@build/release/tools/bin/twine check --strict dist/*
	@for package in dist/*.whl dist/*.tar.gz; do \
	  rm -rf build/release/fresh && $(PYTHON) -m venv build/release/fresh && \
	  build/release/fresh/bin/python -m pip --quiet --disable-pip-version-check install "$$package" && \
	  build/release/fresh/bin/lrdp --version && \
	  build/release/fresh/bin/lrdp epsilon -n 5000 -b 128 -t 1000 --noise-multiplier 6 --delta 1e-5 || exit $$?; done

bench-%: benchmarks/%.py $(DEV) ## Run benchmarks/NAME.py, as in: make bench-accounting ARGS="--quick --json"
	@$(BIN)/python $< $(ARGS)

fmt: $(DEV) ## Format the code and mend what can be mended
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

# Flower holds typer below 0.21, which calls what click 8.5 deprecates, and here a warning is an error.
constraints: ## Pin the newest versions that fit together, in constraints.txt
	@rm -rf build/constraints && $(PYTHON) -m venv build/constraints
	@build/constraints/bin/python -m pip --quiet --quiet install torch==2.13.0 "click<8.5" --editable ".[dev,flower]"
	@{ echo "# Every extra, on Python 3.11 and Linux. Made by: make constraints"; \
	   build/constraints/bin/python -m pip freeze --all --exclude-editable | sed '/^pip==/d; s/+cpu$$//'; } > build/constraints.txt
	@mv build/constraints.txt constraints.txt && rm -rf build/constraints

clean: ## Remove everything these commands made
	@rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# An environment holds absolute paths: one that was copied or moved here is made again.
ifneq ($(shell cat $(READY) 2>/dev/null),$(CURDIR))
$(READY): FORCE
endif

$(READY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "lrdp needs Python 3.11 or newer, but '$(PYTHON)' is $$($(PYTHON) --version 2>/dev/null || echo missing):" \
	       "name a newer one, as in 'make PYTHON=python3.12 $(or $(MAKECMDGOALS),test)'." >&2; exit 1; }
	@echo "Setting up $(VENV)" >&2
	@$(PYTHON) -m venv --clear $(VENV)
	@echo "$(CURDIR)" > $@

# Byte code is made when a module is first used: most of these 25,000 files never are.
INSTALL = $(PIP) install --no-compile --constraint constraints.txt --editable

$(DEV): pyproject.toml constraints.txt $(READY)
	@echo "Installing the developers' environment: about 2.4 GB, a few minutes, once" >&2
	@$(INSTALL) ".[dev]"
	@touch $@

$(DEMO): pyproject.toml constraints.txt $(READY)
	@echo "Installing lrdp with torch and Flower: about 1.6 GB, a few minutes, once" >&2
	@$(INSTALL) ".[plot,flower,experiments]"
	@touch $@
