#!/bin/sh
# Finds or installs a Chromium for the browser tests and prints its path (empty: Playwright's own).
set -eu
cd "$(dirname "$0")/.."
say() { printf 'slotboard: %s\n' "$*" >&2; }

for name in "${CHROMIUM:-}" chromium chromium-browser google-chrome-stable google-chrome; do
    if [ -n "$name" ] && command -v "$name" >/dev/null 2>&1; then command -v "$name"; exit 0; fi
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    say "installing Debian's chromium for the browser tests"
    export DEBIAN_FRONTEND=noninteractive
    if apt-get update -qq >/dev/null 2>&1 && apt-get install -y -qq chromium fonts-liberation >/dev/null 2>&1; then
        command -v chromium
        exit 0
    fi
    say "apt-get could not install chromium; trying Playwright's own"
fi
.venv/bin/python -m playwright install chromium >&2 || { say "no Chromium is here and none could be installed; install chromium and try again."; exit 1; }
