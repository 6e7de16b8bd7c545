# Every target sets itself up: a virtual environment in .venv, made once and again when the requirements change.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-long check mutants bench clean

demo: .venv/.installed ## train the toy and show what it learnt
	@$(BIN)/glassformer demo

test: .venv/.installed-for-tests ## run all tests
	$(BIN)/python -m pytest -q

test-long: .venv/.installed-for-tests ## run the tests that take minutes
	$(BIN)/python -m pytest -q -m long -s

check: .venv/.installed-for-tests ## format, lint, types, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q --ignore tests/contract/test_style.py

mutants: .venv/.installed-for-tests ## plant known bugs one at a time; each must be caught
	$(BIN)/python dev/mutants.py

bench: .venv/.installed-for-tests ## speed beside peers, and the toy run with five seeds; nothing else may run meanwhile
	$(BIN)/python bench/toy_speed.py
	$(BIN)/python bench/toy_seeds.py
	$(BIN)/python bench/decode_speed.py
	$(BIN)/python bench/long_context.py
	$(BIN)/python bench/tasks.py

clean: ## remove everything that the other targets made, but not runs/
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -exec rm -rf {} +

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "glassformer needs Python 3.11 or newer; say where with: make PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.installed: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing glassformer and PyTorch into .venv (once; some minutes) ..."
	$(PIP) --editable .
	@touch $@

.venv/.installed-for-tests: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing glassformer with its test tools into .venv (once; some minutes) ..."
	$(PIP) --editable '.[test]'
	@touch $@ .venv/.installed
