# Every chore of the project. Each target sets up what it needs in $(VENV), once.
# Needed beforehand: Python 3.11, 3.12 or 3.13, make and a C compiler.

VENV ?= .venv
LOCK := requirements/lock.txt
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST_ARGS ?=
BENCH_ARGS ?=

# $(call find_python,CANDIDATES,LOWEST,HIGHEST) sets the shell variable `python` (minor versions of Python 3).
# Each candidate is really run: a name on the PATH may be a shim with nothing behind it.
define find_python
python=; tried=; for candidate in $(1); do \
  version=$$("$$candidate" -c 'import ensurepip, sys, venv; print("%d.%d" % sys.version_info[:2])' 2>/dev/null); \
  case "$$version" in 3.*) minor=$${version#3.} ;; *) minor=0 ;; esac; \
  if test "$$minor" -ge $(2) && test "$$minor" -le $(3); then python=$$candidate; break; fi; \
  tried="$$tried $$candidate ($${version:-does not run or has no venv module}),"; \
done; \
if test -z "$$python"; then \
  echo "error: Python 3.$(2) to 3.$(3) is needed. Tried$${tried%,}. Name one with: make PYTHON=/path/to/python" >&2; \
  exit 1; \
fi
endef

.DEFAULT_GOAL := help
.PHONY: help demo page test coverage bench lint format types docs tutorials lock clean
.DELETE_ON_ERROR:
# Two pips in one environment would trip over each other.
.NOTPARALLEL:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.base ## simulate Alice choosing laptops, learn her utilities and say what was found
	@$(BIN)/choicegp demo

page: $(VENV)/.page ## serve the demo study with laptops, ready to click
	@$(BIN)/python -m choicegp.apps.server.demo

test: $(VENV)/.test ## run all tests (PYTEST_ARGS="-k name" for some)
	@$(BIN)/python -m pytest -n 2 --dist worksteal $(PYTEST_ARGS)

# Kept programs would hide the numerical core: it runs only when a program is first traced.
coverage: $(VENV)/.test ## run all tests and list the lines that none of them runs (PYTEST_ARGS as above)
	@folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	CHOICEGP_CACHE="$$folder" $(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=term-missing $(PYTEST_ARGS)

bench: $(VENV)/.test ## measure speed, bounds and accuracy (BENCH_ARGS="--methods dense" leaves out the slow ones)
	@$(BIN)/python benchmarks/bench.py $(BENCH_ARGS)

lint: $(VENV)/.lint ## check style and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(VENV)/.lint ## fix style and formatting
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: $(VENV)/.lint ## check types
	@$(BIN)/mypy

docs: $(VENV)/.docs ## build the documentation into docs/_build
	@$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build
	@echo "open docs/_build/index.html"

tutorials: ## build the documentation with the tutorials at full size, which takes many minutes
	@rm -rf docs/auto_tutorials docs/auto_gallery
	@CHOICEGP_TUTORIALS=full $(MAKE) docs

lock: ## renew the pinned versions (with Python 3.11)
	@$(call find_python,$(or $(PYTHON),python3.11 python3 python),11,11); \
	set -e; folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	echo "resolving all extras in a fresh environment"; \
	"$$python" -m venv "$$folder/venv"; \
	"$$folder/venv/bin/python" -m pip --disable-pip-version-check install -qq '.[problems,test,lint,docs]'; \
	{ echo "# Pinned versions of all dependencies and extras, used as constraints (pip install -c)."; \
	  echo "# Made by 'make lock': pip freeze of a fresh Python 3.11 environment, the project itself left out."; \
	  "$$folder/venv/bin/python" -m pip freeze --exclude choicegp; } > "$$folder/lock.txt"; \
	if grep -n -v -E '^(#.*|[A-Za-z0-9._-]+==[^ @/]+)$$' "$$folder/lock.txt"; \
	then echo "error: the lines above are not name==version; $(LOCK) is left as it was" >&2; exit 1; fi; \
	cp "$$folder/lock.txt" $(LOCK); echo "$(LOCK) renewed"

clean: ## remove the environment and everything built
	@rm -rf $(VENV) build dist docs/_build docs/auto_tutorials docs/auto_gallery .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.*
	@find src tests docs benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.made:
	@$(call find_python,$(or $(PYTHON),python3.11 python3.12 python3.13 python3 python),11,13); \
	echo "making $(VENV) with $$("$$python" --version)"; \
	"$$python" -m venv $(VENV)
	@touch $@

$(VENV)/.base: $(VENV)/.made pyproject.toml $(LOCK)
	@echo "installing choicegp with pinned versions (minutes, once)"
	@$(PIP) install -qq -e . -c $(LOCK)
	@touch $@

# One stamp per extra, each on top of the base.
$(VENV)/.test $(VENV)/.lint $(VENV)/.docs $(VENV)/.page: $(VENV)/.%: $(VENV)/.base
	@echo "installing what '$*' needs"
	@$(PIP) install -qq -e '.[$*]' -c $(LOCK)
	@touch $@
