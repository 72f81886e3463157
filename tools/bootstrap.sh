#!/bin/sh
# Makes .venv with exactly what requirements.lock names. Quick when it is already so.
set -eu
cd "$(dirname "$0")/.."

say() { printf 'slotboard: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1; }

find_python() {
    for name in ${PYTHON:-} python3.13 python3.12 python3.14 python3 python; do
        if command -v "$name" >/dev/null 2>&1 && new_enough "$name"; then command -v "$name"; return; fi
    done
    if command -v uv >/dev/null 2>&1; then uv python find '>=3.12' 2>/dev/null && return; fi
    [ "${SEARCH_ELSEWHERE:-yes}" = yes ] || return 1
    for path in "$HOME"/.pyenv/versions/3.1[2-9]*/bin/python /usr/local/bin/python3.1[2-9] /opt/python*/bin/python3; do
        if [ -x "$path" ] && new_enough "$path"; then echo "$path"; return; fi
    done
    return 1
}

hash_of_lock() { cksum requirements.lock | cut -d' ' -f1,2; }

[ -x .venv/bin/python ] && new_enough .venv/bin/python || {
    python=$(find_python) || fail "no Python 3.12 or newer was found; install one (or set PYTHON=/path/to/python3.13) and try again."
    say "making .venv with $("$python" --version 2>&1)"
    rm -rf .venv
    if command -v uv >/dev/null 2>&1; then
        uv venv --quiet --python "$python" .venv || fail "uv could not make a virtual environment with $python."
    else
        "$python" -m venv .venv || fail "$python cannot make a virtual environment; install its venv module (Debian: python3-venv)."
    fi
}

if [ "$(cat .venv/.installed 2>/dev/null || true)" != "$(hash_of_lock)" ]; then
    say "installing the locked packages (about 200 MB the first time)"
    if command -v uv >/dev/null 2>&1; then installer=uv; else
        [ -x .venv/bin/uv ] || .venv/bin/python -m pip install --quiet --disable-pip-version-check uv 2>.venv/pip.log \
            || { cat .venv/pip.log >&2; fail "pip could not install uv; is the package index reachable?"; }
        installer=.venv/bin/uv
    fi
    "$installer" pip install --quiet --python .venv/bin/python --require-hashes -r requirements.lock \
        || fail "the packages of requirements.lock could not be installed; the lines above say why."
    hash_of_lock > .venv/.installed
fi
ln -sf ../../tools/slotboard-engine .venv/bin/slotboard-engine
ln -sf ../../tools/slotboard .venv/bin/slotboard
