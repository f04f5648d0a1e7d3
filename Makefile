# Every target sets .venv up first; once that is done, the check takes a tenth of a second.
# All paths are relative, so the folder's name may hold spaces, quotes or dollar signs.

.DEFAULT_GOAL := help
.PHONY: help setup lab test thorough book notebooks measure grade clean

export PYTHON SUBMISSIONS ASSIGNMENT OUT
# The set-up leaves byte code to the first import. Containers often forbid it, and every start would pay again.
unexport PYTHONDONTWRITEBYTECODE

# Programs run as `python program`: the first line that pip writes into them does not survive every folder name.
python := .venv/bin/python

help: ## Show this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 12

setup: ## Install everything into .venv (PYTHON=… names the Python to take)
	@for candidate in "$$PYTHON" python3 python3.13 python3.12 python3.11 python3.10; do \
		if "$$candidate" -c "" 2>/dev/null; then exec "$$candidate" -I bootstrap.py; fi; \
	done; \
	echo "There is no Python here. Install one, then run this again (Debian and Ubuntu: apt install python3 python3-venv)." >&2; \
	exit 1

lab: setup ## Open JupyterLab at the next chapter
	@$(python) -m tile.cli lab

test: setup ## Lint, check types, run every test, and compare every notebook with what it prints
	$(python) -m ruff check .
	$(python) -m ruff format --check .
	$(python) -m mypy
	$(python) -m pytest --nbval -n 2 --dist loadfile --no-loadscope-reorder -m "not slow"

thorough: setup ## Run what takes minutes: mutants of every answer, attacks on the grader, chapters in JupyterLab, a new chapter
	$(python) -m pytest -n 2 -m slow

book: setup ## Build the site into _build/html
	$(python) .venv/bin/jupyter-book build . --toc book/_toc.yml -W -n --keep-going

notebooks: setup ## Write everything generated again: chapters, exercises, the page of measurements
	$(python) -m tile.cli execute
	$(python) -m tile.cli generate
	$(python) -m lab.measure.page

measure: setup ## Measure every chapter's kernels on the GPU here
	for recipe in book/measurements/*.py; do $(python) -m tile.cli measure "$$(basename "$$recipe" .py)" || exit; done

grade: setup ## Grade a class: SUBMISSIONS=folder ASSIGNMENT=01_vector_add OUT=folder
	@if [ -z "$$SUBMISSIONS" ] || [ -z "$$ASSIGNMENT" ] || [ -z "$$OUT" ]; then \
		echo "Say what to grade: make grade SUBMISSIONS=folder ASSIGNMENT=01_vector_add OUT=folder" >&2; exit 1; \
	fi; \
	$(python) -m tile.cli grade "$$SUBMISSIONS" --assignment "$$ASSIGNMENT" --out "$$OUT"

clean: ## Remove .venv, the site and caches; answers and progress stay
	rm -rf .venv _build build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
