# make run    create .venv, install, and make the built-in softmax task fast   (ARGS="layer_norm --attempts 20")
# make test   format, lint, types, tests, and the built wheel run away from the checkout   (PYTEST_ARGS="-k memory")
# make docs   build the documentation into site/, strictly (make read: serve it at http://127.0.0.1:8000 while you write)
# make format format and repair what ruff can repair

PYTHON ?= python3
VENV ?= .venv
ARGS ?= softmax
PYTEST_ARGS ?= -n 2 --dist loadfile

IN_VENV := $(VENV)/bin/python
STAMP := $(VENV)/installed
GPU_STAMP := $(VENV)/installed-compilers

.PHONY: run test check wheel docs read format install

run: install
	$(IN_VENV) -m evokernel run $(ARGS)

test: check wheel

check: install $(GPU_STAMP)
	$(IN_VENV) -m ruff format --check
	$(IN_VENV) -m ruff check
	$(IN_VENV) -m mypy
	$(IN_VENV) -m pytest $(PYTEST_ARGS)

wheel: check
	scripts/check_wheel.sh $(IN_VENV)

docs read: export NO_MKDOCS_2_WARNING := 1  # tells of another project with each build

docs: install
	$(IN_VENV) -m mkdocs build --strict --quiet
	@echo "Built site/index.html; make read serves it with its search."

read: install
	$(IN_VENV) -m mkdocs serve

format: install
	$(IN_VENV) -m ruff format
	$(IN_VENV) -m ruff check --fix

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "EvoKernel needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	@echo "Installing into $(VENV): a few minutes the first time, most of it torch ..."
	@$(PYTHON) -m venv $(VENV)
	@$(IN_VENV) -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev,docs,model,mcp,train]'
	@touch $@
	@echo "Installed."

$(GPU_STAMP): $(STAMP)
	@echo "Installing compilers for GPUs, which tests use (300 MB, no GPU needed) ..."
	@$(IN_VENV) -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[compilers]'
	@touch $@
