"""Runs as the JSON API tells and takes them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from ninja import Field, Schema
from pydantic import field_validator

from scheduler_api.api_paging import LARGEST
from scheduler_api.api_schema import example
from workers import stored
from workers.analysis.order import ORDERS
from workers.experiments import MOST_FLOOR, MOST_REPETITIONS, MOST_SHARDS
from workers.loadrun import MOST_SEED
from workers.scenarios.schema import SCALE_MAX, SCALE_MIN

type Json = dict[str, Any]

LISTED: Json = {
    "id": 12,
    "scenario": "warm-behind-cold",
    "server": 1,
    "server_name": "local",
    "state": "finished",
    "arms": {"A": {"prefill_order": "physical"}, "B": {"prefill_order": "rotating"}},
    "pairs": 8,
    "progress": {"done": 19, "total": 19, "text": ""},
    "by": "mira",
    "created_at": "2026-05-01T09:00:00Z",
    "not_before": None,
    "started_at": "2026-05-01T09:00:01Z",
    "finished_at": "2026-05-01T09:05:40Z",
    "imported": False,
    "verdict": "4.1 × sooner",
    "error": "",
}
LINE = {"at": "2026-05-01T09:00:01Z", "level": "info", "source": "console", "text": "Sent to the workers by mira."}
RATIO = {"median": 0.24, "low": 0.22, "high": 0.27, "level": 0.9922, "n": 8}
RESULT: Json = {
    "run": 12,
    "complete_pairs": 8,
    "verdict": "The short request finished sooner under rotating.",
    "arms": {"A": "physical", "B": "rotating"},
    "measures": [{"key": "short_wall", "label": "short request", "unit": "s", "ratio": RATIO, "word": "faster"}],
    "warnings": [],
    "notes": [],
}
EXPORT: Json = {
    "application/json": {"schema": {"type": "object"}, "example": {"format": "slotboard-run", "format_version": 1, "run": {}}}
}
STARTED: Json = {"server": 1, "scenario": "warm-behind-cold", "arms": "physical,rotating", "pairs": 8, "wait": True}


class ProgressOut(Schema):
    """Blocks that are done, of all; `load`: the requests of the block that is being sent (workers.selectors.progress)."""

    done: int
    total: int
    text: str
    load: dict[str, Any] | None = None

    model_config = example(**LISTED["progress"])


class RunOut(Schema):
    """`state`: waiting, queued, running, stopping, finished, stopped, failed or lost. `server` null: it came from a file.
    `verdict` in few words, "" while there is none, null in a list that was not asked for `verdicts`."""

    id: int
    scenario: str
    server: int | None
    server_name: str
    state: str
    arms: dict[str, dict[str, Any]]
    pairs: int
    progress: ProgressOut
    by: str
    created_at: datetime
    not_before: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    imported: bool
    verdict: str | None
    error: str

    model_config = example(**LISTED)


class LogLineOut(Schema):
    at: datetime
    level: str
    source: str
    text: str

    model_config = example(**LINE)


class RunDetail(RunOut):
    """With all that starts the same again, and the last lines of its log. `scenario_text` is "" for warm-behind-cold."""

    order: str
    floor: int
    scale: float
    scale_auto: bool
    share: float
    shards: int
    seed: int
    scenario_text: str
    stop_reason: str
    warnings: list[str]
    policy_restored: bool | None = Field(..., description="null: it did not change the policy, or is not over")
    log: list[LogLineOut]

    model_config = example(
        **LISTED,
        order="abba",
        floor=1,
        scale=1.0,
        scale_auto=False,
        share=0.1,
        shards=1,
        seed=7,
        scenario_text="",
        stop_reason="",
        warnings=[],
        policy_restored=True,
        log=[LINE],
    )


class RunIn(Schema):
    """The scenario by name, or as YAML in `text`. The arms in words ("A,B" for the scenario's own, "physical,rotating"), or as
    objects of policy fields; without either, the scenario's own."""

    server: int = Field(..., le=LARGEST)
    scenario: str = Field("", max_length=80)
    text: str = Field("", max_length=stored.MOST_BYTES)
    arms: str = Field("", max_length=400)
    a: dict[str, Any] | None = None
    b: dict[str, Any] | None = None
    pairs: int = Field(8, ge=1, le=MOST_REPETITIONS)
    scale: Literal["auto"] | float | None = Field(
        None, description=f'from {SCALE_MIN:g} to {SCALE_MAX:g}, or "auto"; without it the scenario\'s own'
    )
    share: float | None = Field(None, ge=0, lt=1, description="when the short request of warm-behind-cold is sent")
    seed: int | None = Field(None, ge=0, lt=MOST_SEED, description="of an earlier run, for the same load again")
    shards: int = Field(1, ge=1, le=MOST_SHARDS)
    order: str | None = Field(None, description=f"of the blocks: {' or '.join(ORDERS)}")
    floor: int | None = Field(None, ge=0, le=MOST_FLOOR, description="pairs with arm A on both sides that go first")
    wait: bool = Field(False, description="behind a run that has the server, which refuses a second one otherwise")
    not_before: datetime | None = Field(None, description="a moment to wait for; without an offset, of the console's time zone")

    model_config = example(**STARTED)

    @field_validator("scale", mode="before")
    @classmethod
    def _scale(cls, value: Any) -> Any:
        """One sentence in place of one for each of the types."""
        usable = isinstance(value, int | float) and not isinstance(value, bool)
        if value is None or value == "auto" or usable:
            return value
        raise ValueError("must be a number, or auto")


class ResultOut(Schema):
    """`workers.selectors.results` without timelines: docs/experiments.md says what each key is."""

    run: int
    complete_pairs: int
    verdict: str
    arms: dict[str, str]
    measures: list[dict[str, Any]]
    warnings: list[str]
    notes: list[str]

    model_config = example(**RESULT) | {"extra": "allow"}
