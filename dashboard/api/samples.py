"""The JSON API of a run's samples: one request each, as its client saw it."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any

from django.http import HttpRequest, StreamingHttpResponse
from ninja import Field, Router, Schema
from ninja.pagination import paginate
from ninja.params.functions import Query

from dashboard.api.runs import run_of
from scheduler_api.api_paging import LARGEST, Pages, Shown
from scheduler_api.api_schema import example
from workers import sample_values, selectors
from workers.models import Run, Sample

type Json = dict[str, Any]

router = Router(tags=["runs"])

SAMPLE: Json = {
    "pair": 1,
    "arm": "B",
    "floor": 0,
    "stream": "short",
    "client": "",
    "outcome": "ok",
    "ok": True,
    "counted": True,
    "slot": 1,
    "stage": 0,
    "place": None,
    "policy_version": 42,
    "scheduled_at": None,
    "sent_at": 1764500090.0,
    "first_token_at": 1764500091.1,
    "done_at": 1764500091.4,
    "wait_s": 0.2,
    "prompt_s": 0.9,
    "hold_s": 0.0,
    "generation_s": 0.3,
    "ttft_s": 1.1,
    "wall_s": 1.4,
    "n_prompt": 41500,
    "n_cached": 40000,
    "n_generated": 88,
    "tokens_from": "usage",
    "error": "",
}
_SAME = tuple(name for name in SAMPLE if name not in ("stream", "policy_version", "floor"))


class SampleOut(Schema):
    """Times are Unix seconds, durations seconds, null where the stage was not reached. `counted`: part of what is compared.
    `floor`: of the pairs with arm A on both sides, from 1; 0 for the others. `n_prompt` holds the cached tokens too."""

    pair: int
    arm: str
    floor: int
    stream: str
    client: str
    outcome: str
    ok: bool
    counted: bool
    slot: int | None = Field(..., description="null: the server chose")
    stage: int
    place: int | None
    policy_version: int | None
    scheduled_at: float | None
    sent_at: float
    first_token_at: float | None
    done_at: float | None
    wait_s: float | None
    prompt_s: float | None
    hold_s: float | None
    generation_s: float | None
    ttft_s: float | None
    wall_s: float | None
    n_prompt: int | None
    n_cached: int | None
    n_generated: int | None
    tokens_from: str
    error: str

    model_config = example(**SAMPLE)


@router.get("/{int:run_id}/samples", response=list[SampleOut], summary="Samples, by block and time of sending")
@paginate(Pages)
def list_samples(
    request: HttpRequest,
    run_id: int,
    stream: str = "",
    arm: str = "",
    outcome: str = "",
    pair: int | None = Query(None, le=LARGEST),
) -> Shown[Sample]:
    run = run_of(request, run_id)
    given = {"stream": stream, "arm": arm, "outcome": outcome, "pair": "" if pair is None else pair}
    wanted = {sample_values.FILTERS[name]: value for name, value in given.items() if value != ""}
    rows = run.samples.filter(**wanted).select_related("block").order_by("block__index", "sent_at", "pk")
    return Shown(rows.defer("chunks_ms", "block__timeline", "block__tally", "block__warnings"), lambda page: map(_out, page))


def _out(sample: Sample) -> Json:
    told = {name: getattr(sample, name) for name in _SAME}
    return told | {"stream": sample.role, "policy_version": sample.block.policy_version, "floor": sample.block.floor}


CSV = {"text/csv": {"schema": {"type": "string"}, "example": f"{','.join(selectors.SAMPLE_COLUMNS)}\r\n"}}


@router.get(
    "/{int:run_id}/samples.csv",
    summary="All samples as CSV",
    openapi_extra={"responses": {200: {"description": "The rows of the page's own export", "content": CSV}}},
)
def samples_csv(request: HttpRequest, run_id: int) -> StreamingHttpResponse:
    """Text that a spreadsheet would take as a formula has an apostrophe in front."""
    run = run_of(request, run_id)
    headers = {"Content-Disposition": f'attachment; filename="slotboard-run-{run.pk}.csv"', "X-Content-Type-Options": "nosniff"}
    return StreamingHttpResponse(_lines(run), content_type="text/csv; charset=utf-8", headers=headers)


class _Echo:
    """A file that gives back what is written to it."""

    def write(self, text: str) -> str:
        return text


def _lines(run: Run) -> Iterator[str]:
    writer = csv.writer(_Echo(), lineterminator="\r\n")
    for row in selectors.sample_rows(run):
        yield writer.writerow(row)
