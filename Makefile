# make reproduce   install, run the laboratory's central contrast, show it and say where it is
#                  (ROWS=all: all of the laboratory, about an hour on two cores)
# make test        install, then lint, library notebooks, unit tests, a smoke pass of most experiments
# make check       install, then lint and the fast tests, of these what a change reaches: for daily work
# make ci          install, then every test there is: those of the benchmark scripts too, more examples of what is drawn
# make slow        every test, and the list of those that `make check` leaves out written again
# make lab         install, then open the notebooks in JupyterLab
# make site        install, then build the site, report/index.html, from the reference results and yours
# make house       install, then draw the picture of the packages in docs/extend.md again
#
# Each target makes its own virtual environment the first time. Settings, with their defaults:
#   make reproduce SCALE=laptop RUN="laboratory" ROWS=0,3,8,18,19 SEEDS=3 VENV=.venv PYTHON=python3.11 PIP_ARGS="--extra-index-url ..."
#   make test TESTS=tests/test_store.py JOBS=auto     (as many as the cores, up to eight; JOBS=0 runs one after another in this process)

VENV     ?= .venv
SCALE    ?= laptop
RUN      ?= laboratory
ROWS     ?= 0,3,8,18,19
SEEDS    ?= 3
PIP_ARGS ?=
JOBS     ?= auto
PYTHON   ?= $(shell for p in python3.11 python3.12 python3.13 python3 python; do \
	$$p -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
TORCH    := torch==2.13.0
# without byte code: Python writes that of the modules that are imported, a small part of torch and transformers;
# where it is told to write none, each of the hundreds of processes that tests start would compile them again
export PYTHONDONTWRITEBYTECODE :=
PIP      := $(VENV)/bin/python -m pip install -q --no-compile --disable-pip-version-check -c constraints.txt $(PIP_ARGS)

PART     := $(if $(filter all,$(ROWS)),,-p rows=$(ROWS) -p seeds=$(SEEDS))

LASTS    := How long: xlingual plan $(RUN) --scale $(SCALE), once installed.
ifeq ($(SCALE) $(RUN) $(ROWS) $(SEEDS),laptop laboratory 0,3,8,18,19 3)
LASTS    := About six minutes on two cores, with installation.
endif

.DEFAULT_GOAL := help
PYTEST   := $(VENV)/bin/python -m pytest -n $(JOBS) --dist worksteal

.PHONY: help announce reproduce site report test check ci slow lint lab house clean

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

# before anything else: the installation alone takes minutes, and says little
announce:
	@echo "Installs into $(VENV) (once), trains and measures the models of $(RUN) at scale $(SCALE), and shows its tables."
	@echo "$(LASTS) Writes: $(VENV)/, runs/ (models), yours/ (tables, figures, notebooks); nothing outside this folder."

# word vectors are gensim's, which the laboratory does without
# and which alone has rows: the original model, the copy read backwards, all three modifications, and untrained ones
reproduce: announce $(VENV)/$(if $(filter-out laboratory,$(RUN)),.lab,.runtime)
	$(VENV)/bin/xlingual run $(RUN) --scale $(SCALE) $(if $(filter laboratory,$(RUN)),$(PART))
ifeq ($(RUN),laboratory)
	@$(VENV)/bin/xlingual results laboratory --scale $(SCALE)
	@$(if $(filter all,$(ROWS)),,echo "All rows of the laboratory (about an hour on two cores): make reproduce ROWS=all")
endif
	@echo "Tables, figures and the executed notebooks are in yours/. Pages to read and search, with the reference results: make site"

site report: $(VENV)/.site
	$(VENV)/bin/xlingual report

test: lint
	$(PYTEST) -m "not ci" $(TESTS)

check: lint
	$(PYTEST) -m "not slow and not ci" --affected $(TESTS)

ci: lint
	$(PYTEST) --hypothesis-profile=ci $(TESTS)

slow: $(VENV)/.dev
	$(PYTEST) --processor-time costs.csv
	$(VENV)/bin/python tests/processor_time.py costs.csv

lint: $(VENV)/.dev
	$(VENV)/bin/python -m ruff check --quiet
	$(VENV)/bin/python -m ruff format --check --quiet

house: $(VENV)/.dev
	$(VENV)/bin/python tests/house.py

lab: $(VENV)/.lab
	$(VENV)/bin/python -m jupyterlab nbs

# torch goes first and alone: whatever build of it the machine's index prefers (CPU or CUDA) is then kept by what follows
$(VENV)/.torch: constraints.txt
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer with venv was found: install one, or say which: make PYTHON=/path/to/python3.11"; exit 2; }
	@echo "Making $(VENV) with $(PYTHON); installing torch (the largest part), then the rest. This is done once."
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH)
	@touch $@

$(VENV)/.runtime: $(VENV)/.torch pyproject.toml
	$(PIP) -e .
	@touch $@

$(VENV)/.site: $(VENV)/.torch pyproject.toml
	$(PIP) -e '.[docs]'
	@touch $@ $(VENV)/.runtime

$(VENV)/.lab: $(VENV)/.torch pyproject.toml
	$(PIP) -e '.[lab]'
	@touch $@ $(VENV)/.runtime

$(VENV)/.dev: $(VENV)/.torch pyproject.toml
	$(PIP) -e '.[all]'
	@touch $@ $(VENV)/.lab $(VENV)/.site $(VENV)/.runtime

clean:
	rm -rf $(VENV) report build *.egg-info .pytest_cache .ruff_cache
