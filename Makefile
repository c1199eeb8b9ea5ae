# Each target is a line or two that can be typed by hand; README.md shows them.
PYTHON ?= python3

.PHONY: install demo test bench

install: .venv/installed

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	.venv/bin/pip install -e '.[dev]'
	@touch $@

demo: install
	.venv/bin/python -m demo_app $(ARGS)

test: install
	.venv/bin/python -m pytest $(ARGS)

bench: install
	.venv/bin/python -m bench $(ARGS)
