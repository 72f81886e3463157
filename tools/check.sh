#!/bin/sh
# Linters, types, import rules, migrations. Every one runs; the exit code says whether all passed.
set -u
cd "$(dirname "$0")/.."
failed=""
mkdir -p "${SLOTBOARD_VAR_DIR:-$PWD/var}"
step() { name=$1; shift; printf 'check: %s\n' "$name"; "$@" || failed="$failed $name"; }

export SLOTBOARD_VAR_DIR="${SLOTBOARD_VAR_DIR:-$PWD/var}"
step ruff .venv/bin/ruff check --quiet .
step format .venv/bin/ruff format --quiet --check .
step templates sh -c 'git ls-files "*.html" | xargs -r .venv/bin/djade --check --target-version 6.0'
step mypy .venv/bin/mypy engine scheduler_api workers dashboard slotboard_client benchmarks tools tests manage.py
step imports sh -c '.venv/bin/lint-imports --no-cache >"$SLOTBOARD_VAR_DIR/imports.log" 2>&1 || { cat "$SLOTBOARD_VAR_DIR/imports.log"; exit 1; }'
step migrations .venv/bin/python manage.py makemigrations --check --dry-run --verbosity 0
[ -z "$failed" ] || { printf 'check: failed:%s\n' "$failed" >&2; exit 1; }
