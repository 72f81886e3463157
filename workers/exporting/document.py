"""A run as one JSON object: everything that its result is made of, and the result itself for readers without the console.

`{"format", "format_version", "run", "server", "noise", "blocks": [{..., "samples": [...]}], "result"}`; docs/experiments.md
describes it. It holds no address, key or person of the console. Equal runs give equal bytes: nothing in it tells when it was
written.
"""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from workers import selectors
from workers.errors import ExportRefused
from workers.exporting.fields import written
from workers.models import Run

type Json = dict[str, Any]

FORMAT = "slotboard-run"
FORMAT_VERSION = 1


def document(run: Run) -> Json:
    """Raises ExportRefused while the run is not over."""
    if run.active:
        raise ExportRefused("A run that is still under way cannot be exported; wait for its end, or stop it.")
    origin = run.imported or {}
    found = selectors.results(run)
    blocks = run.blocks.order_by("index").prefetch_related("samples")
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "run": {"number": origin.get("run", run.pk), **written(run)},
        "server": origin.get("server") or {"name": run.server.name, "kind": run.server.kind},
        "noise": without_run(found["noise"]),
        "blocks": [
            {**written(block), "samples": [written(sample) for sample in sorted(block.samples.all(), key=lambda each: each.pk)]}
            for block in blocks
        ],
        "result": {**{name: value for name, value in found.items() if name != "timelines"}, "noise": without_run(found["noise"])},
    }


def without_run(noise: Json | None) -> Json | None:
    """The number of a run means nothing on another console."""
    return None if noise is None else {name: value for name, value in noise.items() if name != "run"}


def as_json(run: Run) -> bytes:
    """Strict JSON, UTF-8. Raises ExportRefused."""
    text = json.dumps(document(run), ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str)
    return f"{text}\n".encode()


def as_csv(run: Run) -> str:
    """Every request, one a line, as `workers.selectors.sample_rows` has them."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows(selectors.sample_rows(run))
    return out.getvalue()


def file_name(run: Run, ending: str) -> str:
    """ "slotboard-run-12.json"; an imported run says so."""
    number = (run.imported or {}).get("run", run.pk)
    return f"slotboard-{'imported-' if run.imported is not None else ''}run-{number}.{ending}"
