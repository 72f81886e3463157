#!/bin/sh
# Finds or installs an nginx for the test behind a proxy and prints its path.
set -eu
say() { printf 'slotboard: %s\n' "$*" >&2; }
PATH="$PATH:/usr/sbin:/usr/local/sbin"

command -v nginx && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    say "installing Debian's nginx-light for the test behind a proxy"
    export DEBIAN_FRONTEND=noninteractive
    # Debian starts a fresh nginx on port 80: nobody asked for that one.
    policy=/usr/sbin/policy-rc.d
    [ -e "$policy" ] && policy="" || { printf '#!/bin/sh\nexit 101\n' > "$policy"; chmod +x "$policy"; }
    { apt-get update -qq && apt-get install -y -qq nginx-light; } >/dev/null 2>&1 || true
    [ -z "$policy" ] || rm -f "$policy"
    command -v nginx && exit 0
fi
say "no nginx is here and none could be installed; install nginx and try again."
exit 1
