"""Runs the product's ES modules in the Node that comes with Playwright, so that pure ones are tested without a browser."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import playwright

NODE = Path(playwright.__file__).parent / "driver" / "node"
MODULES = Path(__file__).parents[2] / "dashboard" / "static" / "dashboard" / "js"
WAIT_S = 60


def evaluate(module: str, expression: str, value: Any) -> Any:
    """The JSON value of `expression`, in which `module` is the imported module and `value` the given value."""
    script = (
        'let text = ""; for await (const part of process.stdin) text += part; const value = JSON.parse(text);'
        f"const module = await import({json.dumps((MODULES / module).as_uri())});"
        f"process.stdout.write(JSON.stringify({expression}));"
    )
    done = subprocess.run(
        [str(NODE), "--input-type=module", "-e", script],
        input=json.dumps(value),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
