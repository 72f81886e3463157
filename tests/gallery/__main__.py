"""One trial of the console for each area and amount, in a folder that is gone afterwards."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.gallery.looks import AMOUNTS, AREAS
from tests.gallery.trial import collect_static


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gallery", description="Pictures of every page.")
    parser.add_argument("out", type=Path)
    parser.add_argument("area", nargs="?", choices=AREAS)
    parser.add_argument("amount", nargs="?", choices=AMOUNTS)
    parser.add_argument("--only", default="", help="pages whose name contains this")
    args = parser.parse_args()
    failed = []
    with tempfile.TemporaryDirectory(prefix="slotboard-gallery-") as made:
        collect_static(Path(made))
        for area in [args.area] if args.area else AREAS:
            for amount in [args.amount] if args.amount else AMOUNTS:
                # Django is set up once in a process, for one database.
                command = [sys.executable, "-m", "tests.gallery.trial", str(args.out), made, area, amount, args.only]
                if subprocess.run(command, check=False).returncode:
                    failed.append(f"{area} {amount}")
    if failed:
        sys.exit(f"these failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
