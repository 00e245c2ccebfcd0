# Two commands for a fresh clone: `make demo` and `make test`. Both make their own environment in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint docs dist clean

$(VENV)/run.stamp: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/test.stamp: $(VENV)/run.stamp bench/pyproject.toml
	$(BIN)/python -m pip install --quiet --editable . --editable "bench[tables,plots]"
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	touch $@

demo: $(VENV)/run.stamp
	$(BIN)/dagveil sample asia --rows 100000 -o out/demo/asia.csv
	$(BIN)/dagveil discover out/demo/asia.csv --schema out/demo/asia.toml --epsilon 1 --delta 1e-6 \
		--ledger out/demo/ledger.sqlite -o out/demo
	@echo "open out/demo/report.html in a browser"

test: $(VENV)/test.stamp lint
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -q --durations 20

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' src/dagveil/_version.py)
# each version has a folder of its own, and site/index.html leads to the one built last
docs: $(VENV)/run.stamp
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	DAGVEIL_DOCS="dagveil $(VERSION)" $(BIN)/mkdocs build --strict --site-dir site/$(VERSION)
	echo '<!DOCTYPE html><meta http-equiv="refresh" content="0; url=$(VERSION)/index.html"><title>dagveil</title>' > site/index.html

# wheels and sdists of both distributions, installed from the wheels and then the sdists into clean environments:
# `make dist PYTHONS="python3.11 python3.13"`
PYTHONS ?= $(PYTHON)
dist: $(VENV)/run.stamp
	$(BIN)/python -m pip install --quiet build
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m build --outdir dist bench
	set -e; for python in $(PYTHONS); do for kind in whl tar.gz; do \
		rm -rf out/dist; $$python -m venv out/dist; \
		out/dist/bin/python -m pip install --quiet dist/*.$$kind; \
		cd out/dist; \
		bin/dagveil doctor --ledger ledger.sqlite > doctor.txt || { cat doctor.txt; exit 1; }; \
		bin/dagveil sample asia --rows 2000 -o asia.csv; \
		bin/dagveil discover asia.csv --schema asia.toml --epsilon 1 --ledger ledger.sqlite -o found > discover.txt; \
		bin/dagveil bench --help > bench.txt; \
		cd ../..; echo "$$python: dist/*.$$kind can be installed and used"; \
	done; done

clean:
	rm -rf $(VENV) out site dist
