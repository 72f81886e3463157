"""What the blocks of a run of streams show, in the form in which pages read results."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from workers.analysis import paired
from workers.analysis.load import BlockLoad, Limits, StageRow, Times, block_load, compare, saturation, stage_rows, unit_of
from workers.analysis.load_sentences import load_sentence
from workers.analysis.summary import Measure
from workers.models import Block, Run, Sample
from workers.scenarios.reading import read

type Json = dict[str, Any]


def results(run: Run, labels: tuple[str, str], pair: int | None = None) -> Json:
    """As `workers.selectors.results`, with `outcomes` and `stages` by arm; `pairs` is empty: its form is that of two requests."""
    limits = limits_of(run)
    blocks = _blocks(run)
    complete = {number: arms for number, arms in blocks.items() if set(arms) == {"A", "B"}}
    both = [(block_load(arms["A"], limits), block_load(arms["B"], limits)) for arms in complete.values()]
    measures = compare(both)
    shown = pair if pair in complete else next(iter(complete), None)
    arms = {arm: [row for each in blocks.values() for row in each.get(arm, ())] for arm in "AB"}
    stages = {arm: stage_rows(rows, limits) for arm, rows in arms.items()}
    return {
        "pairs": [],
        "complete_pairs": len(complete),
        "measures": [_measure(each) for each in measures],
        "verdict": load_sentence(measures, list(limits), labels[1], run.policy_a == run.policy_b),
        "arms": {"A": labels[0], "B": labels[1]},
        "method": paired.METHOD,
        "noise": None,
        "warnings": list(run.warnings),
        "pair": shown,
        "timelines": {block.arm: block.timeline for block in run.blocks.filter(pair=shown)} if shown else {},
        "outcomes": {arm: _outcomes([each[0 if arm == "A" else 1] for each in both]) for arm in "AB"},
        "stages": {arm: [asdict(row) for row in rows] for arm, rows in stages.items()},
        "carries": {arm: _carried(rows) for arm, rows in stages.items()},
    }


def limits_of(run: Run) -> dict[str, Limits]:
    """Of each stream that has any, stretched as the run's times were."""
    stretch = run.conditions.get("fitted", {}).get("times", 1.0)
    found = {}
    for stream in read(run.scenario_text).streams:
        if stream.slo is not None:
            found[stream.name] = Limits(**{name: None if limit is None else limit * stretch for name, limit in stream.slo})
    return found


def _blocks(run: Run) -> dict[int, dict[str, list[Times]]]:
    """Counted requests of each finished block, by pair and arm."""
    blocks: dict[int, dict[str, list[Times]]] = defaultdict(dict)
    finished = run.blocks.filter(pair__gt=0, finished_at__isnull=False).defer("timeline").prefetch_related("samples")
    for block in finished.order_by("index"):
        blocks[block.pair][block.arm] = _rows(block)
    return dict(blocks)


def _rows(block: Block) -> list[Times]:
    return [times_of(sample) for sample in block.samples.all() if sample.counted]


def times_of(sample: Sample) -> Times:
    chunks = sample.chunks_ms
    return Times(
        stream=sample.role,
        outcome=sample.outcome,
        sent_at=sample.sent_at,
        done_at=sample.done_at,
        ttft_s=sample.ttft_s,
        e2e_s=sample.wall_s,
        gaps=tuple((after - before) / 1000.0 for before, after in pairwise(chunks)),
        n_generated=sample.n_generated,
        n_prompt=sample.n_prompt,
        n_cached=sample.n_cached,
        dispatch_s=None if sample.scheduled_at is None else sample.sent_at - sample.scheduled_at,
        stage=sample.stage,
    )


def _measure(found: Measure) -> Json:
    ratio = found.ratio
    return {
        "key": found.key,
        "label": found.label,
        "unit": unit_of(found.key),
        "a": asdict(found.a) if found.a else {"median": None, "min": None, "max": None},
        "b": asdict(found.b) if found.b else {"median": None, "min": None, "max": None},
        "ratio": asdict(ratio) if ratio else {"median": None, "low": None, "high": None, "level": None, "n": 0},
        "times_sooner": found.times_sooner,
        "verdict": found.verdict.value,
    }


def _outcomes(blocks: list[BlockLoad]) -> Json:
    summed: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for block in blocks:
        for stream, counts in block.outcomes.items():
            for outcome, count in counts.items():
                summed[stream][outcome] += count
    return {stream: dict(counts) for stream, counts in summed.items()}


def _carried(rows: list[StageRow]) -> Json | None:
    found = saturation(rows)
    return asdict(found) if found else None
