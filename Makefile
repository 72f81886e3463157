# make run   set up and run everything          make test   set up and pass everything
# make check linters and types, in seconds      make bench NAME=fairness|parity|overhead|...
.DEFAULT_GOAL := help
SHELL := /bin/sh
# Without compiled bytecode every start compiles every package anew, which takes longer than all the rest.
unexport PYTHONDONTWRITEBYTECODE
BIN := .venv/bin

help:
	@sed -n 's/^# //p' Makefile

setup:
	@sh tools/bootstrap.sh

run: setup
	@exec $(BIN)/python -m tools.run

check: setup
	@sh tools/check.sh

test: setup
	@sh tools/test.sh

bench: setup
	@test -n "$(NAME)" || { echo "slotboard: which one? make bench NAME=fairness (see docs/benchmarks.md)" >&2; exit 2; }
	@test -f benchmarks/$(NAME).py || { echo "slotboard: there is no benchmark named $(NAME); see docs/benchmarks.md" >&2; exit 2; }
	@$(BIN)/python -m benchmarks.$(NAME) $(ARGS)

# Known vulnerabilities of the locked packages; needs the network.
audit: setup
	@$(BIN)/python -m tools.audit

# Resolves requirements.lock anew from pyproject.toml.
lock: setup
	@$(BIN)/uv pip compile pyproject.toml --group dev --universal --generate-hashes --no-emit-index-url --no-header -p 3.12 -o requirements.lock --upgrade --quiet

.PHONY: help setup run check test bench audit lock
