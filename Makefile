# Everything is installed into .venv, from the versions in requirements.lock, and nowhere else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Keep compiled programs, so that the second run of anything starts sooner.
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.cache/jax
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0.2
# Keep compiled Python, too, even if the environment forbids it, as in containers: tests start many
# processes, and compiling the imports of one of them takes ten seconds.
export PYTHONDONTWRITEBYTECODE :=
# Notebooks run with this Python, whatever kernels the user has elsewhere.
export JUPYTER_PREFER_ENV_PATH := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

PYTEST := $(BIN)/python -m pytest -n logical --maxprocesses 4 --dist worksteal

# Folder for `make student`. Choose another one for a real class: `make clean` deletes build/.
COURSE ?= build/student

# Jupyter requires this option to run as root, as in a container.
LAB_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)

.DEFAULT_GOAL := help
.PHONY: help demo lab explore book slides print student access test full test-all fast
.PHONY: mutants roundings grading gpu
.PHONY: lint bench lock address chapters release clean style

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/runtime ## Train agents that remember, and one that cannot
	$(BIN)/python -m mmrl demo

lab: $(VENV)/lab ## Open the course in JupyterLab, at chapter 00
	$(BIN)/jupyter lab $(LAB_ROOT) --ServerApp.root_dir=$(CURDIR)/notebooks \
		--LabApp.default_url=/lab/tree/00_start_here.ipynb

explore: $(VENV)/app ## Train, watch and compare agents, and try the widgets, on a separate page
	$(BIN)/python -m mmrl explore

book: $(VENV)/book ## Run every notebook and build the site
	$(BIN)/python book/tools/build.py

access: $(VENV)/dev ## Operate every widget by keyboard, run axe on each page, and measure each slide
	$(BIN)/python tests/browser/access.py
	$(BIN)/python tests/browser/frames.py

slides: $(VENV)/book ## Make slides of every notebook, with its widgets: build/slides
	$(BIN)/python book/tools/slides.py

print: $(VENV)/book ## Print the course as one PDF, by Chromium: build/course.pdf
	$(BIN)/python book/tools/paper.py

student: $(VENV)/grading ## Make notebooks without solutions, and a course for nbgrader: build/student
	$(BIN)/python book/tools/student.py $(COURSE)

test: style ## Check style and types, and run the first tier of tests, with one chapter and its page
	$(PYTEST) -m "not full"

full: style ## Run the second tier: all notebooks, the whole site, and long training
	$(PYTEST) -m full

test-all: test full ## Run both tiers, that is every test

fast: $(VENV)/dev ## Run the quick tests; where each case compiles a program, only the first case
	$(PYTEST) -m "not slow and not full" --one-case

mutants: $(VENV)/dev ## Plant one mistake at a time, and check that a test fails
	$(BIN)/python tests/mutants/run.py --jobs 2

# Tests that depend on how sums are rounded; those of the site, the lab and addresses do not.
ROUNDED := -m slow --deselect tests/book/test_site.py --deselect tests/book/test_lab.py \
	--deselect tests/book/test_address.py --durations 40

# Tests compile quickly (tests/conftest.py); users' programs do not, and round sums differently.
QUICK := --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false \
	--xla_cpu_opt_preset=CPU_OPT_PRESET_FAST_COMPILE

roundings: $(VENV)/dev ## Run the slow tests under each instruction set, with fast and with full compilation
	@grep -qi ' sse4_2' /proc/cpuinfo || { echo "make roundings needs Linux on x86-64, with SSE4.2."; exit 1; }
	@for isa in SSE4_2 AVX2 AVX512; do \
		grep -qi " $$isa" /proc/cpuinfo || { echo "== $$isa: not on this processor"; continue; }; \
		for quickly in "$(QUICK)" ""; do \
			echo "== $$isa $$quickly"; \
			XLA_FLAGS="$$XLA_FLAGS $$quickly --xla_cpu_max_isa=$$isa" $(PYTEST) $(ROUNDED) \
				|| failed=1; \
		done; \
	done; exit $${failed:-0}

grading: $(VENV)/dev ## Grade right, half-right, wrong and endless notebooks, without a network
	$(BIN)/python tests/grading/run.py

lint: style ## Check style, formatting and types
	$(BIN)/pyright

style: $(VENV)/dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

release: $(VENV)/dev ## Build sdist and wheel, and try each in a fresh environment; upload nothing
	$(BIN)/python book/tools/release.py

bench: $(VENV)/dev ## Time mmrl against its peers
	$(BIN)/python tests/benchmarks/run.py

# Without .venv, PYTHON runs it; tests/benchmarks/wheels.py collects the packages that it needs.
GPU_OUT ?= book/results/gpu
GPU_PYTHON := $(or $(wildcard $(BIN)/python),$(PYTHON))
gpu: ## Measure missing rows on a GPU for 8 minutes; GPU_OUT=DIR continues in a copy of the results
	@mkdir -p $(GPU_OUT) && cp -rn book/results/gpu/* $(GPU_OUT) 2>/dev/null || true
	-$(GPU_PYTHON) tests/benchmarks/run.py many scan --missing --minutes 3 \
		--out $(GPU_OUT)/bench
	$(GPU_PYTHON) -m mmrl experiment --queue --device gpu --minutes 5 --out $(GPU_OUT)

lock: $(VENV)/dev ## Renew requirements.lock: one set of versions for every Python and system
	$(BIN)/uv pip compile pyproject.toml --all-extras --universal --fork-strategy fewest --upgrade \
		--no-annotate --no-emit-index-url --custom-compile-command "make lock" \
		--quiet --output-file requirements.lock

address: | $(VENV)/pyvenv.cfg ## Copy the repository's address from pyproject.toml to the files that contain it
	$(BIN)/python book/tools/address.py

chapters: $(VENV)/book ## Copy titles, parts, minutes and sessions from the chapters' headers
	$(BIN)/python book/tools/chapters.py

clean: ## Remove .venv, every cache, build/ and dist/; results stay
	rm -rf $(VENV) .cache .hypothesis .pytest_cache .ruff_cache build dist
	rm -rf book/_build book/api book/static/vendor

# A file marks each finished installation, so that it is not repeated.
$(VENV)/runtime $(VENV)/lab $(VENV)/app $(VENV)/book $(VENV)/grading $(VENV)/dev: \
		pyproject.toml requirements.lock mmrl/__init__.py | $(VENV)/pyvenv.cfg

$(VENV)/runtime:
	@echo "Installing mmrl into $(VENV) (once, about a minute)"
	@$(call install,.)
	@touch $@

$(VENV)/lab:
	@echo "Installing mmrl and JupyterLab into $(VENV) (once, about a minute)"
	@$(call install,".[notebooks]")
	@touch $@ $(VENV)/runtime

$(VENV)/app:
	@echo "Installing mmrl, JupyterLab and Voilà into $(VENV) (once, about a minute)"
	@$(call install,".[app]")
	@touch $@ $(VENV)/runtime $(VENV)/lab

$(VENV)/book:
	@echo "Installing mmrl, JupyterLab and Jupyter Book into $(VENV) (once, about a minute)"
	@$(call install,".[book]")
	@touch $@ $(VENV)/runtime $(VENV)/lab

$(VENV)/grading:
	@echo "Installing mmrl, JupyterLab and nbgrader into $(VENV) (once, about a minute)"
	@$(call install,".[grading]")
	@touch $@ $(VENV)/runtime $(VENV)/lab

$(VENV)/dev:
	@echo "Installing mmrl and its development tools into $(VENV) (once, about two minutes)"
	@$(call install,".[dev]")
	@touch $@ $(VENV)/runtime $(VENV)/lab $(VENV)/app $(VENV)/book

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
		"mmrl needs Python 3.11 or later. Name one: make PYTHON=python3.12 $(MAKECMDGOALS)")'
	$(PYTHON) -m venv $(VENV)
	-@$(BIN)/python -m pip install --quiet --constraint requirements.lock uv

# Uninstall mmrl, which is another project on the package index, and an earlier name of this one.
# uv is many times faster than pip; pip takes over if uv has no wheel or cannot reach the index.
define install
$(BIN)/python -m pip uninstall -qq --yes mmrl; \
$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint requirements.lock --editable $(1) \
	|| $(BIN)/python -m pip install --quiet --constraint requirements.lock --editable $(1)
endef
