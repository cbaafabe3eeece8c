# Two commands are all a newcomer needs: `make demo` and `make test`. Both set up what they use.
PYTHON ?= python3
RUN := .venv/bin/python
DEV := .venv-dev/bin/python
NEEDS_PYTHON = import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")

.PHONY: demo test lint types contracts check bench soak protos schema lock clean

demo: .venv/installed
	$(RUN) -m device_plugin demo

test: .venv-dev/installed
	$(DEV) -m pytest --numprocesses=auto --dist=loadfile --cov --cov-report=term

check: lint types contracts

lint: .venv-dev/installed
	$(DEV) -m ruff check .
	$(DEV) -m ruff format --check .

types: .venv-dev/installed
	$(DEV) -m mypy

contracts: .venv-dev/installed
	.venv-dev/bin/lint-imports

# How fast, how heavy: docs/performance.md. `make bench BENCH="--check --only life"` passes options on.
bench: .venv/installed
	$(RUN) -m bench $(BENCH)

# Five minutes of config swaps and kubelet restarts, after which nothing may have grown.
soak: .venv/installed
	$(RUN) -m bench.soak

# The gRPC stubs from the contracts in api/. The mapped include path makes protoc write their imports under `device_plugin`.
protos: .venv-dev/installed
	PATH="$(CURDIR)/.venv-dev/bin:$$PATH" $(DEV) -m grpc_tools.protoc -I device_plugin/kubelet/api=api \
		--python_out=. --grpc_python_out=. --mypy_out=. --mypy_grpc_out=. \
		$$(find api -name '*.proto' | LC_ALL=C sort)

# What is made from the config model: the JSON Schema in api/ and the reference table of docs/configuration.md.
schema: .venv/installed
	$(RUN) -m device_plugin.config.schema

# The run-time set alone: what the image holds.
.venv/installed: requirements/runtime.lock
	@$(PYTHON) -c '$(NEEDS_PYTHON)'
	$(PYTHON) -m venv .venv
	$(RUN) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/runtime.lock
	touch $@

.venv-dev/installed: requirements/dev.lock
	@$(PYTHON) -c '$(NEEDS_PYTHON)'
	$(PYTHON) -m venv .venv-dev
	$(DEV) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	touch $@

# The lock files from their inputs. Versions stay as they are unless an input asks otherwise or UPGRADE=--upgrade is given.
UV ?= uv
COMPILE = cd requirements && $(UV) pip compile --quiet $(UPGRADE) --universal --python-version 3.11 --generate-hashes --no-header --no-annotate

lock:
	$(COMPILE) runtime.in --output-file runtime.lock
	$(COMPILE) build.in --output-file build.lock
	$(COMPILE) dev.in --constraint runtime.lock --constraint build.lock --output-file dev.lock

clean:
	rm -rf .venv .venv-dev .coverage .import_linter_cache .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info
