"""What the blocks of a run of streams show, in the form in which pages read results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from workers.analysis import paired
from workers.analysis.load import BlockLoad, Limits, StageRow, Times, block_load, compare, saturation, stage_rows
from workers.analysis.load_sentences import chance_sentence, floor_sentence, load_sentence
from workers.analysis.naming import CLIENT
from workers.analysis.search_sentences import search_sentence
from workers.analysis.sentences import floor_words
from workers.analysis.summary import Measure
from workers.load.tallied import block_load as tally_load
from workers.load.tallied import bound_sentence
from workers.load.tallied import stage_rows as tally_stages
from workers.load.tally import Tally
from workers.measure_rows import measure_row
from workers.models import Block, Run, Sample
from workers.scenarios.reading import read

type Json = dict[str, Any]

NOT_ALONE = "How long a request of each stream takes alone was not measured, so slowdowns are unknown."


def results(run: Run, labels: tuple[str, str], pair: int | None = None) -> Json:
    """As `workers.selectors.results`, for a run of streams. `pairs` is empty: its form is that of two requests.

    `measures` has those of the streams and of the whole block (groups "times" and "rates"), `clients` the same of each client
    label, `fairness` {"measures" (of group "fairness", of streams, clients and the block), "alone" ({stream: seconds} of a
    request by itself), "unknown" (why there is no slowdown, or "")}; each as `workers.measure_rows.measure_row` gives it.
    Besides: `outcomes` {arm: {stream: {outcome: count}}}, `stages` and `carries` by arm, and `searches` {arm: [of each block, as
    `workers.searching.Searching.found` gives it]} of a scenario that searches for a rate: its other measures are not compared,
    since the arms were not sent the same rates.
    """
    limits = limits_of(run)
    blocks, floor = _blocks(run)
    alone = run.conditions.get("alone") or {}
    complete = {number: arms for number, arms in blocks.items() if set(arms) == {"A", "B"}}
    both = [(_load(arms["A"], limits, alone), _load(arms["B"], limits, alone)) for arms in complete.values()]
    equal = [(_load(first, limits, alone), _load(second, limits, alone)) for first, second in floor]
    measures = compare(both, equal, run.seed, list(complete))
    of_streams = [each for each in measures if not each.name.who.startswith(CLIENT) and each.name.told.group != "fairness"]
    shown = pair if pair in complete else next(iter(complete), None)
    stages = {arm: _stages([each[arm] for each in blocks.values() if arm in each], limits) for arm in "AB"}
    searches = {arm: [found for each in blocks.values() if arm in each and (found := each[arm].search)] for arm in "AB"}
    warnings = [*run.warnings, floor_sentence(measures)]
    return {
        "pairs": [],
        "complete_pairs": len(complete),
        "measures": [measure_row(each) for each in of_streams],
        "clients": [
            measure_row(each) for each in measures if each.name.who.startswith(CLIENT) and each.name.told.group != "fairness"
        ],
        "fairness": {
            "measures": [measure_row(each) for each in measures if each.name.told.group == "fairness"],
            "alone": alone,
            "unknown": _not_alone(alone, [stream for block, _ in both for stream in block.outcomes]),
        },
        "verdict": search_sentence(searches, labels, measures)
        if any(searches.values())
        else load_sentence(measures, list(limits), labels[1], run.policy_a == run.policy_b),
        "arms": {"A": labels[0], "B": labels[1]},
        "method": paired.METHOD,
        "noise": floor_noise(of_streams, run, len(floor)),
        "floor_pairs": len(floor),
        "notes": [
            text
            for text in (
                chance_sentence([each for each in measures if not each.name.who.startswith(CLIENT)]),
                bound_sentence([each.tally for arms in blocks.values() for each in arms.values() if each.tally is not None]),
            )
            if text
        ],
        "warnings": [text for text in warnings if text],
        "pair": shown,
        "timelines": {block.arm: block.timeline for block in run.blocks.filter(pair=shown)} if shown else {},
        "outcomes": {arm: _outcomes([each[0 if arm == "A" else 1] for each in both]) for arm in "AB"},
        "stages": {arm: [asdict(row) for row in rows] for arm, rows in stages.items()},
        "carries": {arm: _carried(rows) for arm, rows in stages.items()},
        "searches": searches,
    }


def _not_alone(alone: Json, streams: Sequence[str]) -> str:
    """Of which streams the slowdown is unknown, in words; empty when it is known of all."""
    if not alone:
        return NOT_ALONE
    missing = [stream for stream in dict.fromkeys(streams) if stream not in alone]
    return f"Alone, no request of {', '.join(missing)} ended well, so the slowdown there is unknown." if missing else ""


def floor_noise(measures: Sequence[Measure], run: Run, pairs: int) -> Json | None:
    """Of the run's own floor: the largest departure among times of whole blocks, means and medians. None without one."""
    told = [each.floor for each in measures if each.name.told.group == "times" and each.name.stat in ("", "mean", "p50")]
    known = [floor for floor in told if floor is not None]
    if not known or not pairs:
        return None
    return {"run": run.pk, "difference": max(known), "text": floor_words(max(known), pairs)}


def limits_of(run: Run) -> dict[str, Limits]:
    """Of each stream that has any, stretched as the run's times were."""
    stretch = run.conditions.get("fitted", {}).get("times", 1.0)
    found = {}
    for stream in read(run.scenario_text).streams:
        if stream.slo is not None:
            found[stream.name] = Limits(**{name: None if limit is None else limit * stretch for name, limit in stream.slo})
    return found


@dataclass(frozen=True, slots=True)
class Kept:
    """What is there of a block: its requests that count, or the tally of a large load; and what its search found."""

    rows: list[Times]
    tally: Tally | None
    search: Json | None


type Arms = dict[str, Kept]


def _blocks(run: Run) -> tuple[dict[int, Arms], list[tuple[Kept, Kept]]]:
    """Of each finished block by pair and arm, and of each complete pair of the floor."""
    blocks: dict[int, Arms] = defaultdict(dict)
    floor: dict[int, list[Kept]] = defaultdict(list)
    finished = run.blocks.exclude(arm="").filter(finished_at__isnull=False, interrupted=False)
    for block in finished.defer("timeline").prefetch_related("samples").order_by("index"):
        if block.floor:
            floor[block.floor].append(_kept(block))
        else:
            blocks[block.pair][block.arm] = _kept(block)
    return dict(blocks), [(sides[0], sides[1]) for sides in floor.values() if len(sides) == 2]


def _kept(block: Block) -> Kept:
    rows = [times_of(sample) for sample in block.samples.all() if sample.counted]
    return Kept(rows, Tally.of_json(block.tally) if block.tally else None, block.search)


def _load(kept: Kept, limits: dict[str, Limits], alone: dict[str, float]) -> BlockLoad:
    found = block_load(kept.rows, limits, alone) if kept.tally is None else tally_load(kept.tally, limits, alone)
    if kept.search is None:
        return found
    low = kept.search["low_per_s"]
    values = {} if low is None else {(kept.search["stream"], "capacity"): low}
    return BlockLoad(values, found.outcomes, found.counts)


def _stages(blocks: Sequence[Kept], limits: dict[str, Limits]) -> list[StageRow]:
    """Of all blocks of an arm together; none of searches, whose tries have other rates in each block."""
    if any(each.search for each in blocks):
        return []
    if any(each.tally is not None for each in blocks):
        whole = Tally()
        for each in blocks:
            whole.merge(each.tally or Tally())
        return tally_stages(whole, limits)
    return stage_rows([row for each in blocks for row in each.rows], limits)


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
        client=sample.client,
        wait_s=sample.wait_s,
    )


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
