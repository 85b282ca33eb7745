# `make demo`: the whole loop on the toy world.  `make test`: all tests.  Both set up .venv first.

VENV := .venv
BIN := $(VENV)/bin
CONFIG ?= demo

# 3.12.0 and 3.12.1 crash when checkpoints are collected as garbage (https://github.com/python/cpython/issues/111049).
NEW_ENOUGH := sys.exit(sys.version_info < (3, 11) or (3, 12) <= sys.version_info < (3, 12, 2))
CANDIDATES := python3 python3.13 python3.12 python3.11
PYTHON ?= $(shell for name in $(CANDIDATES); do $$name -c 'import ensurepip, sys; $(NEW_ENOUGH)' 2>/dev/null && echo $$name && break; done)
GIVEN = $(or $(PYTHON),python3)

# One thread per process: the tiny models are slower with more, and the flow runs several processes at once.
export OMP_NUM_THREADS ?= 1
# Containers set it, and then every worker compiles our packages again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo demo-small test lint clean

define set-up
	@$(GIVEN) -c 'import ensurepip, sys; $(NEW_ENOUGH)' 2>/dev/null || { echo "Python 3.11 or newer, but not 3.12.0 or 3.12.1, with its venv module is needed, and\
	$(GIVEN) is $$($(GIVEN) -V 2>/dev/null || echo not there): install one (on Debian also python3-venv), or name one:\
	make $(or $(firstword $(MAKECMDGOALS)),demo) PYTHON=/path/to/python3.12" >&2; exit 1; }
	@{ test -e $(VENV)/.made && $(BIN)/python -c 'import sys; $(NEW_ENOUGH)' 2>/dev/null; } || \
	{ $(GIVEN) -m venv --clear $(VENV) && touch $(VENV)/.made; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '$(1)'
	@touch $@
endef

$(VENV)/.ready: pyproject.toml constraints.txt
	$(call set-up,.)

$(VENV)/.ready-to-test: pyproject.toml constraints.txt
	$(call set-up,.[dev])
	@touch $(VENV)/.ready

demo: $(VENV)/.ready
	$(BIN)/pipeline run all --config $(CONFIG)

demo-small: CONFIG = demo-small
demo-small: demo

test: $(VENV)/.ready-to-test
	$(BIN)/python -m pytest -n 2 --dist loadgroup

lint: $(VENV)/.ready-to-test
	$(BIN)/ruff check .
	$(BIN)/ty check
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) runs build dist
