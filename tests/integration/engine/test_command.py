"""The command as an operator starts it: from any folder, by a link."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from tests.support.engine import ROOT


def test_it_starts_from_any_folder_and_leaves_nothing_there(tmp_path: Path) -> None:
    link = tmp_path / "bin" / "slotboard-engine"
    link.parent.mkdir()
    link.symlink_to(ROOT / "tools" / "slotboard-engine")
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "engine").mkdir(parents=True)
    (elsewhere / "engine" / "__main__.py").write_text("raise SystemExit('not this one')")
    said = subprocess.run([link, "--version"], cwd=elsewhere, capture_output=True, text=True, timeout=30, check=True).stdout
    assert said.startswith("slotboard-engine")
    output = tmp_path / "output"
    with output.open("wb") as stdout:
        process = subprocess.Popen(
            [link, "--backend", "simulated", "--port", "0", "-ngl", "99"],
            cwd=elsewhere,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=stdout,
            stderr=subprocess.STDOUT,
        )
    deadline = time.monotonic() + 30
    while "Serving" not in output.read_text() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    assert output.read_text().count("-ngl has no effect here.") == 1
    assert [path.name for path in elsewhere.iterdir()] == ["engine"]
