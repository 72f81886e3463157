"""The command that starts an experiment from a shell as a form or an earlier run has it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from workers.models import Run

PROGRAM = "python manage.py experiment"


def command(
    scenario: str,
    server: str,
    policies: Mapping[str, Mapping[str, Any]],
    pairs: int,
    scale: float | str,
    *,
    share: float | None = None,
    seed: int | None = None,
    shards: int = 1,
    order: str | None = None,
    floor: int | None = None,
    wait: bool = False,
    not_before: datetime | None = None,
) -> str:
    """`scenario`: a name, or a file. Three lines that a shell takes as one; what is as usual is left out."""
    arms = [f"--{arm} {shlex.quote(json.dumps(policies[arm], sort_keys=True))}" for arm in ("a", "b")]
    size = [f"--pairs {pairs}", f"--scale {scale if isinstance(scale, str) else f'{scale:.10g}'}"]
    size += [f"--share {share:.10g}"] if share is not None else []
    size += [f"--seed {seed}"] if seed is not None else []
    size += [f"--order {order}"] if order else []
    size += [f"--floor {floor}"] if floor is not None else []
    size += [f"--shards {shards}"] if shards != 1 else []
    size += ["--wait"] if wait else []
    size += [f"--not-before {not_before.isoformat()}"] if not_before else []
    lines = [f"{PROGRAM} {shlex.quote(scenario)} --server {shlex.quote(server)}", " ".join(arms), " ".join(size)]
    return " \\\n  ".join(lines)


def of_run(run: Run) -> str:
    """Without its seed, so that the load is drawn anew."""
    return command(
        run.scenario,
        run.server.name if run.server else "",
        {"a": run.policy_a, "b": run.policy_b},
        run.repetitions,
        "auto" if run.scale_auto else run.scale,
        share=None if run.scenario_text else run.share,
        shards=run.shards,
        order=run.order,
        floor=run.floor,
    )
