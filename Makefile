# `make demo`: the whole loop on the toy world.  `make test`: all tests.  Both set up .venv first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CONFIG ?= configs/demo.yaml

# One thread per process: the tiny models are slower with more, and the flow runs several processes at once.
export OMP_NUM_THREADS ?= 1

.PHONY: demo demo-small test lint clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

demo: $(READY)
	$(BIN)/pipeline run all --config $(CONFIG)

demo-small: CONFIG = configs/demo-small.yaml
demo-small: demo

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadgroup

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ty check
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) runs build dist
