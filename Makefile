# Every target makes the environment it needs; with the environment there, none of them waits for it.
.DEFAULT_GOAL := help
.PHONY: help demo test lint fuzz bench tables-peers docs clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS_READY := $(VENV)/.docs-ready
PEERS := .venv-peers
JAX := .venv-jax
TABLES := .venv-tables
# Data sets that the tests use where they are at hand (see the README).
BAYESDROP_DATA ?= $(wildcard ../shared/data)
export BAYESDROP_DATA

help:
	@echo "make demo   train a dropout network on the CO2 record and draw what it does not know (seconds, once installed)"
	@echo "make test   lint, types and all tests"
	@echo "make lint   ruff and mypy --strict"
	@echo "make fuzz   N=10000 hostile tables, model files, arguments and threads each"
	@echo "make bench  the speed claims, as ratios"
	@echo "make tables-peers  the environment of NGBoost, CatBoost and LightGBM, for the experiment \"tables\""
	@echo "make docs   the documentation, into docs/_build/html"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

$(DOCS_READY): $(READY)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	@touch $@

demo: $(READY)
	$(BIN)/bayesdrop demo --output bayesdrop-demo.png

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

N ?= 1000
SEED ?= 0
fuzz: $(READY)
	$(BIN)/python tests/adversary --count $(N) --seed $(SEED)

# Other libraries live apart: some of them bring what must not be in the main environment.
$(PEERS)/.ready: benchmarks/peers-requirements.txt benchmarks/peers-constraints.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --no-deps -c benchmarks/peers-constraints.txt \
		-r benchmarks/peers-requirements.txt
	@touch $@

$(JAX)/.ready: benchmarks/jax-requirements.txt
	$(PYTHON) -m venv $(JAX)
	$(JAX)/bin/python -m pip install --quiet --no-deps -r benchmarks/jax-requirements.txt
	@touch $@

$(TABLES)/.ready: benchmarks/tables-requirements.txt
	$(PYTHON) -m venv $(TABLES)
	$(TABLES)/bin/python -m pip install --quiet --no-deps -r benchmarks/tables-requirements.txt
	@touch $@

tables-peers: $(TABLES)/.ready

bench: $(READY) $(PEERS)/.ready $(JAX)/.ready
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/engine_jax.py
	$(BIN)/python benchmarks/moments.py
	$(BIN)/python benchmarks/images.py
	PYTHONPATH=src $(PEERS)/bin/python benchmarks/training.py
	$(BIN)/python benchmarks/stacked.py
	PYTHONPATH=src $(PEERS)/bin/python benchmarks/peers_faults.py
	$(BIN)/python benchmarks/linear.py
	$(BIN)/python benchmarks/tables.py
	$(BIN)/python benchmarks/rollout.py
	$(BIN)/python benchmarks/compiled.py
	$(BIN)/python benchmarks/export.py
	$(BIN)/python benchmarks/threads.py
	$(BIN)/python benchmarks/worlds.py

docs: $(DOCS_READY)
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

clean:
	rm -rf $(VENV) $(PEERS) $(JAX) $(TABLES) docs/_build .mypy_cache .ruff_cache .pytest_cache
