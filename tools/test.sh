#!/bin/sh
# Everything that must pass: checks, unit, integration (real Valkey, Celery, llama.cpp), browser (real Chromium).
set -u
cd "$(dirname "$0")/.."
fail() { printf 'slotboard: %s\n' "$*" >&2; exit 1; }

SLOTBOARD_VAR_DIR=$(mktemp -d) || exit 1
export SLOTBOARD_VAR_DIR SLOTBOARD_ADMIN_PASSWORD=
trap 'rm -rf "$SLOTBOARD_VAR_DIR"' EXIT
trap 'exit 130' INT TERM
failed=""
part() { name=$1; shift; printf '\nslotboard: %s tests\n' "$name"; "$@" || failed="$failed $name"; }

sh tools/check.sh || failed="$failed checks"
part unit .venv/bin/python -m pytest tests/unit -q -n 2
# Three processes on two cores: these wait for others a good part of their time. A browser and its stack fill two cores alone.
part integration .venv/bin/python -m pytest tests/integration -q -n 3 --dist loadfile
chromium=$(sh tools/browser.sh) || fail "the browser tests need Chromium; the line above says what is missing."
CHROMIUM="$chromium" part browser .venv/bin/python -m pytest tests/browser -q -p no:randomly
[ -z "$failed" ] || fail "these failed:$failed"
printf '\nslotboard: all parts passed\n'
