"""`make audit`: known vulnerabilities of what requirements.lock names, as pip-audit finds them.

Apart from `make check`, since it asks a service on the network. Exit code 0: all were looked up and nothing is known; 1:
something is known; 2: it could not be found out.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OFFLINE = "the vulnerability service cannot be reached, so nothing was audited; run make audit where the network allows it."
NO_DATA = "the index that answers has no data on any of the packages, so nothing was audited; it may be a mirror."
UNREACHABLE = ("ConnectionError", "ProxyError", "Max retries exceeded", "Timeout", "timed out", "NameResolution", "ServiceError")
#: The lock is complete and hashed: nothing is resolved, and nothing is installed.
LOCK = ("--requirement", "requirements.lock", "--require-hashes", "--disable-pip")
COMMAND = (*LOCK, "--progress-spinner", "off", "--format", "json")


def told(output: str, complaint: str = "") -> tuple[int, str]:
    """Exit code and words for what pip-audit wrote: its JSON, or without one its complaint."""
    try:
        found: list[dict[str, Any]] = json.loads(output)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return 2, OFFLINE if any(word in complaint for word in UNREACHABLE) else f"pip-audit failed: {complaint.strip()[-600:]}"
    known = [(each, hole) for each in found for hole in each.get("vulns", ())]
    skipped = [each["name"] for each in found if "skip_reason" in each]
    if known:
        lines = [f"{each['name']} {each['version']}: {hole['id']}{_mended(hole)}" for each, hole in known]
        return 1, "\n".join(["known vulnerabilities:", *lines])
    if len(skipped) == len(found):
        return (
            2,
            NO_DATA,
        )
    if skipped:
        return (
            2,
            f"nothing is known of {len(found) - len(skipped)} packages, but these could not be looked up: {', '.join(skipped)}.",
        )
    return 0, f"no known vulnerabilities in {len(found)} packages."


def _mended(hole: dict[str, Any]) -> str:
    versions = ", ".join(hole.get("fix_versions") or ())
    return f", mended in {versions}" if versions else ", not mended yet"


def main() -> int:
    tool = str(Path(sys.executable).parent / "pip-audit")
    done = subprocess.run([tool, *COMMAND], cwd=ROOT, capture_output=True, text=True, check=False)
    code, text = told(done.stdout, done.stderr)
    print(f"slotboard: {text}", file=sys.stderr if code else sys.stdout)
    return code


if __name__ == "__main__":
    sys.exit(main())
