"""What pages may read of runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from django.db.models import Count, QuerySet

from scheduler_api.models import Server
from workers import load_results, side_by_side
from workers.analysis import paired, sentences, summary
from workers.analysis.load_sentences import floor_sentence
from workers.measure_rows import measure_row
from workers.models import ACTIVE, Block, Run, RunState, Sample

type Json = dict[str, Any]

ROLES = ("short", "cold")
SAMPLE_COLUMNS = (
    *("run", "block", "pair", "arm", "role", "slot", "ok", "sent_at", "first_token_at", "done_at", "offset_s"),
    *("wall_s", "wait_s", "prompt_s", "hold_s", "generation_s", "ttft_s", "n_prompt", "n_cached", "policy_version", "error"),
    *("client", "outcome", "counted", "scheduled_at", "headers_at", "first_byte_at", "first_content_at", "last_token_at"),
    *("n_generated", "tokens_from", "stage", "place", "floor"),
)


def list_runs(server: Server | None = None, limit: int = 100, within: QuerySet[Server] | None = None) -> list[Run]:
    """Newest first; `within`: of these servers alone."""
    rows = Run.objects.select_related("server", "created_by")
    if within is not None:
        rows = rows.filter(server__in=within)
    if server is not None:
        rows = rows.filter(server=server)
    return list(rows[:limit])


def count_by_state(within: QuerySet[Server]) -> dict[str, int]:
    """How many runs of these servers are in each state that any is in."""
    rows = Run.objects.filter(server__in=within).order_by().values_list("state").annotate(n=Count("pk"))
    return dict(rows)


def get_run(pk: int) -> Run:
    """Raises Run.DoesNotExist."""
    return Run.objects.select_related("server", "created_by").get(pk=pk)


def active_run(server: Server) -> Run | None:
    return Run.objects.select_related("server", "created_by").filter(server=server, state__in=ACTIVE).first()


PROGRESS_KEYS = ("planned", "sent", "done", "failed", "rate_per_s", "ttft_p50_s", "ttft_p95_s", "at")


def progress(run: Run) -> Json | None:
    """The load that a run is sending, or sent last; None for a run that has not sent any, and for warm-behind-cold.

    Keys: planned, sent, done and failed (requests of the block, of all shards; done counts the failed too), rate_per_s (requests
    that ended a second, over the last seconds), ttft_p50_s and ttft_p95_s (of the block's requests so far, None without any), at
    (Unix seconds of the figures). Written at most twice a second. It is read from `run` as it was loaded.
    """
    live = run.live
    return None if not live else {key: live.get(key) for key in PROGRESS_KEYS}


def log(run: Run, limit: int = 500) -> list[Json]:
    """The run's last lines, oldest first: at (aware datetime), level (info | warning | error), source (worker, shard 2, console,
    reaper), text.
    """
    rows = run.log_lines.order_by("-id").values("at", "level", "source", "text")[:limit]
    return [dict(row) for row in reversed(rows)]


def arm_labels(run: Run) -> tuple[str, str]:
    """What sets the arms apart, in words: ("physical", "rotating")."""
    return sentences.arm_words(run.policy_a, run.policy_b), sentences.arm_words(run.policy_b, run.policy_a)


def results(run: Run, pair: int | None = None) -> Json:
    """What the pairs that are complete so far show.

    Keys: pairs, complete_pairs (how many), measures (each as `workers.measure_rows.measure_row` says), verdict (a sentence),
    arms ({"A": words, "B": words}), method, noise ({"run", "difference", "text"} of the run's own floor, else of the last run
    with equal arms on this server, or None), floor_pairs (how many), notes and warnings (sentences), pair (whose timelines
    follow) and timelines ({"A", "B"}). A run of streams has more: `workers.load_results.results`.

    `pair` chooses the timelines; without it, or with one that is not complete, the pair nearest to the median is shown.
    """
    if run.scenario_text:
        return load_results.results(run, arm_labels(run), pair)
    pairs, floor = complete_pairs(run), floor_pairs(run)
    found = summary.measures(pairs, floor, run.seed)
    listed = list(found.values())
    shown = pair if pair in {each.number for each in pairs} else summary.typical_pair(pairs)
    label_a, label_b = arm_labels(run)
    return {
        "pairs": [_pair(each) for each in pairs],
        "complete_pairs": len(pairs),
        "measures": [measure_row(each) for each in listed],
        "verdict": sentences.verdict_sentence(found, label_b, _equal_arms(run)),
        "arms": {"A": label_a, "B": label_b},
        "method": paired.METHOD,
        "noise": load_results.floor_noise(listed, run, len(floor)) or _noise(run),
        "floor_pairs": len(floor),
        "notes": [],
        "warnings": [text for text in (*run.warnings, *_robustness(pairs), floor_sentence(listed)) if text],
        "pair": shown,
        "timelines": {block.arm: block.timeline for block in run.blocks.filter(pair=shown)} if shown else {},
    }


def compare(first: Run, second: Run) -> Json:
    """Any two runs side by side, those of other consoles included.

    Keys: first, second ({"run", "scenario", "version", "server", "imported", "state", "at", "pairs", "arms"}), comparable,
    reasons (sentences: why not), configuration ([{"key", "label", "first", "second" (texts), "differs", "forbids"}]) and
    measures (`workers.analysis.runs.compared`: of each arm both runs' blocks, the second minus the first with an unpaired
    bootstrap interval and its word; and what B did against A in each). Words are "not comparable" where there is a reason.
    """
    return side_by_side.compare(first, second, results)


def trend(run: Run) -> Json:
    """The finished runs of the same scenario in the same version, with the same arms on the same server, oldest first.

    Keys: scenario, version, arms, runs ([{"run", "at", "pairs", "build", "scale", "same_build", "same_scale", "shown"}], where
    shown says that it is the one asked about), left_out (how many older ones), and measures: [{"key", "who", "metric", "stat",
    "group", "label", "unit", "better", "points"}], a point being a run's entry with "a", "b" (medians), "ratio" ({"median",
    "low", "high", "level", "n"}), "word" and "below_floor". An imported run stands alone.
    """
    return side_by_side.trend(run, results)


def sample_rows(run: Run) -> Iterator[list[str | int | float | None]]:
    """Rows for a CSV file, its header first. Text that a spreadsheet would take as a formula gets an apostrophe in front."""
    yield list(SAMPLE_COLUMNS)
    rows = run.samples.select_related("block").defer("chunks_ms", "block__timeline", "block__warnings")
    for sample in rows.iterator():
        yield [_cell(sample, column) for column in SAMPLE_COLUMNS]


def _cell(sample: Sample, column: str) -> str | int | float | None:
    if column == "run":
        return sample.run_id
    if column == "block":
        return sample.block.index
    if column == "floor":
        return sample.block.floor
    if column == "policy_version":
        return sample.block.policy_version
    value: str | int | float | None = getattr(sample, column)
    if isinstance(value, bool):
        return int(value)
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def runs_between(server_id: int, t_from: float, t_to: float) -> list[dict[str, Any]]:
    """Runs of a server that touched the time, as its history shows them; `to` is None while one goes on."""
    start, end = (datetime.fromtimestamp(t, UTC) for t in (t_from, t_to))
    found = Run.objects.filter(server_id=server_id, started_at__lte=end).exclude(finished_at__lt=start)
    return [
        {
            "id": run.pk,
            "from": run.started_at.timestamp(),
            "to": None if run.finished_at is None else run.finished_at.timestamp(),
            "name": run.scenario,
        }
        for run in found.order_by("started_at")
        if run.started_at is not None
    ]


def blocks_between(server_id: int, t_from: float, t_to: float, limit: int = 200) -> dict[int, list[dict[str, Any]]]:
    """The arms' blocks of a server that touched the time, by run, oldest first; `to` is None while one goes on."""
    start, end = (datetime.fromtimestamp(t, UTC) for t in (t_from, t_to))
    found = Block.objects.filter(run__server_id=server_id, pair__gt=0, started_at__lte=end).exclude(finished_at__lt=start)
    blocks: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for block in found.order_by("-started_at").defer("timeline")[:limit]:
        to = None if block.finished_at is None else block.finished_at.timestamp()
        told = {"index": block.index, "arm": block.arm, "from": block.started_at.timestamp(), "to": to}
        blocks[block.run_id].insert(0, told)
    return dict(blocks)


def complete_pairs(run: Run) -> list[summary.Pair]:
    """Pairs whose both blocks have a good sample of each role."""
    blocks: dict[int, dict[str, Block]] = defaultdict(dict)
    for block in run.blocks.filter(pair__gt=0).defer("timeline").prefetch_related("samples"):
        blocks[block.pair][block.arm] = block
    return _pairs(blocks)


def floor_pairs(run: Run) -> list[summary.Pair]:
    """Of the floor: both of a pair's blocks have arm A, the first one stands for A and the second one for B."""
    blocks: dict[int, dict[str, Block]] = defaultdict(dict)
    for block in run.blocks.filter(floor__gt=0).defer("timeline").prefetch_related("samples").order_by("index"):
        sides = blocks[block.floor]
        sides["B" if sides else "A"] = block
    return _pairs(blocks)


def _pairs(blocks: dict[int, dict[str, Block]]) -> list[summary.Pair]:
    found = []
    for number, arms in sorted(blocks.items()):
        a, b = (_arm_times(arms.get(arm)) for arm in ("A", "B"))
        if a is not None and b is not None:
            found.append(summary.Pair(number, a, b, touched=any(block.warnings for block in arms.values())))
    return found


def _arm_times(block: Block | None) -> summary.ArmTimes | None:
    # A block may also hold a re-warming request, which is no part of what is compared.
    samples = {sample.role: sample for sample in block.samples.all() if sample.ok and sample.role in ROLES} if block else {}
    short, cold = (_times(samples.get(role)) for role in ROLES)
    if short is None or cold is None:
        return None
    ends = [sample.done_at for sample in samples.values() if sample.done_at is not None]
    return summary.ArmTimes(short, cold, max(ends) - min(sample.sent_at for sample in samples.values()))


def _times(sample: Sample | None) -> summary.Times | None:
    if sample is None or sample.wall_s is None or sample.wait_s is None or sample.prompt_s is None:
        return None
    return summary.Times(sample.wall_s, sample.wait_s, sample.prompt_s)


def _pair(pair: summary.Pair) -> Json:
    arms = {name: _arm(times) for name, times in (("A", pair.a), ("B", pair.b))}
    return {"pair": pair.number, **arms, "touched": pair.touched}


def _arm(times: summary.ArmTimes) -> Json:
    roles = {
        role: {"wall_s": each.wall, "wait_s": each.wait, "prompt_s": each.prompt}
        for role, each in zip(ROLES, (times.short, times.cold), strict=True)
    }
    return {**roles, "makespan_s": times.makespan}


def _equal_arms(run: Run) -> bool:
    return bool(run.policy_a == run.policy_b)


def _noise(run: Run) -> Json | None:
    """From the last finished run with equal arms on this server, of the same scenario and about the same size."""
    if run.server_id is None:
        return _noted_noise(run)
    rows = Run.objects.filter(server_id=run.server_id, scenario=run.scenario, state=RunState.FINISHED).exclude(pk=run.pk)
    for other in rows.filter(scale__gte=run.scale / 2, scale__lte=run.scale * 2)[:50]:
        if _equal_arms(other) and (difference := summary.largest_difference(complete_pairs(other))) is not None:
            return {"run": other.pk, "difference": difference, "text": sentences.noise_sentence(difference, other.pk)}
    return None


def _noted_noise(run: Run) -> Json | None:
    """What an imported run quoted where it was made; its run has no number here."""
    noise = (run.imported or {}).get("noise")
    return None if noise is None else {"run": None, **noise}


def _robustness(pairs: list[summary.Pair]) -> list[str]:
    touched = [pair.number for pair in pairs if pair.touched]
    ratio = summary.measure("short_wall", [pair for pair in pairs if not pair.touched]).ratio
    return [sentences.robust_sentence(touched, ratio)] if touched and ratio else []
