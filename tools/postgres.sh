#!/bin/sh
# Finds or installs PostgreSQL's server programs for the tests against it and prints the folder that they lie in.
set -eu
say() { printf 'slotboard: %s\n' "$*" >&2; }

find_folder() {
    for folder in "${POSTGRES_BIN:-}" $(ls -d /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql@*/bin 2>/dev/null | sort -rV); do
        if [ -n "$folder" ] && [ -x "$folder/initdb" ] && [ -x "$folder/postgres" ]; then echo "$folder"; return; fi
    done
    if command -v initdb >/dev/null 2>&1; then dirname "$(command -v initdb)"; return; fi
    return 1
}

find_folder && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    say "installing Debian's postgresql for the tests against it"
    export DEBIAN_FRONTEND=noninteractive
    # Debian starts a fresh PostgreSQL on port 5432: nobody asked for that one.
    policy=/usr/sbin/policy-rc.d
    [ -e "$policy" ] && policy="" || { printf '#!/bin/sh\nexit 101\n' > "$policy"; chmod +x "$policy"; }
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends postgresql; } >/dev/null 2>&1 || true
    [ -z "$policy" ] || rm -f "$policy"
    find_folder && exit 0
fi
say "no PostgreSQL server is here and none could be installed; install postgresql and try again."
exit 1
