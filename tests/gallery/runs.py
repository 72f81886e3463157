"""Runs for the pictures, each by a name: the database of a trial is new, so a run's number is its place among them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db.models import F
from django.utils import timezone

from scheduler_api.models import Server
from tests.support import sample_loads, sample_rows
from tests.support.sample_loads import Ask
from tests.support.sample_states.examples import NAMES
from workers.models import Block, LogLine, Run

type Maker = Callable[[], Run]

FIRST_OWN = 50  # number of a server that no player has
SLOWER: dict[str, Any] = {"policy_a": sample_rows.ROTATING, "policy_b": sample_rows.PHYSICAL}
SAME: dict[str, Any] = {"policy_b": sample_rows.PHYSICAL}


def on(name: str) -> Server:
    """A server of that name; each has one active run at most. Those that are played have their number from the player."""
    number = NAMES.index(name) + 1 if name in NAMES else FIRST_OWN + Server.objects.count()
    return Server.objects.get_or_create(name=name, defaults={"pk": number, "kind": "engine", "base_url": "http://127.0.0.1:9"})[0]


def someone() -> User | None:
    return User.objects.first()


def pair(pairs: int = 8, server: str = "studio-1", **fields: Any) -> Run:
    return sample_rows.make_run(on(server), someone(), pairs=pairs, **fields)


def load(pairs: int = 8, server: str = "studio-1", **fields: Any) -> Run:
    return sample_loads.make_load_run(on(server), someone(), pairs=pairs, **fields)


def under_way(state: str, server: str, done: int = 0, **fields: Any) -> Run:
    """A run that is not over, with `done` of 8 pairs behind it."""
    now = timezone.now()
    known: dict[str, Any] = {"finished_at": None, "policy_restored": None, "heartbeat_at": now}
    if state in ("waiting", "queued"):
        known |= {"started_at": None, "heartbeat_at": None, "policy_before": None, "policy_version": None, "progress_done": 0}
        known |= {"enqueued_at": now} if state == "queued" else {}
    else:
        known |= {"started_at": now - timedelta(seconds=14 * done + 9), "progress_done": 2 * done + bool(done)}
    make = fields.pop("make", pair)
    run: Run = make(done, server, planned=8, state=state, **known | fields)
    if run.started_at is not None:
        lines = ("The worker took the run.", "The policy found is version 3: prefill physical.", "Calibrated: 4100 tokens/s.")
        for number, line in enumerate(lines):
            LogLine.objects.create(run=run, at=run.started_at + timedelta(seconds=2 * number), source="worker", text=line)
    return run


def live_counts(**given: Any) -> dict[str, Any]:
    counts = {"planned": 11, "sent": 7, "done": 5, "failed": 0, "rate_per_s": 1.3, "ttft_p50_s": 0.82, "ttft_p95_s": 2.4}
    return {**counts, "at": timezone.now().timestamp(), **given}


def floored(make: Maker, amount: int, seed: int = 50) -> Run:
    """A run of warm-behind-cold, and before it pairs of blocks with arm A on both sides."""
    run = make()
    for number in range(1, amount + 1):
        for side in (0, 1):
            index = 900 + 2 * number + side
            block = sample_rows.add_block(run, index, 40 + number, "A", seed + number + 7 * side)
            block.samples.update(pair=0)
            Block.objects.filter(pk=block.pk).update(pair=0, floor=number)
    Run.objects.filter(pk=run.pk).update(floor=amount)
    return run


def behind() -> Run:
    """The generator sent late."""
    run = load(warnings=["The generator was behind: requests were sent up to 0.35 s late, so times say less of the server."])
    run.samples.exclude(scheduled_at=None).update(scheduled_at=F("sent_at") - 0.35)
    return run


def failing(pair: int, arm: str, asks: list[Ask]) -> None:
    for place, outcome in ((3, "timeout"), (5, "truncated"), (6, "cancelled")):
        if arm == "A" or place == 6:
            asks[place].outcome, asks[place].tokens, asks[place].done = outcome, [], None


def overloaded(pair: int, arm: str, asks: list[Ask]) -> None:
    for ask in asks:
        if ask.stage > (1 if arm == "A" else 2):
            ask.tokens = [moment + 30 for moment in ask.tokens]
            ask.done = ask.tokens[-1]


def restarted() -> Run:
    run = load(6)
    run.blocks.filter(pair=3, arm="B").update(interrupted=True)
    return run


def streams_text(name: str, streams: int) -> str:
    rows = "".join(
        f"  - {{name: tenant-{number:02}, arrivals: {{kind: poisson, rate: 1, for_s: 9}}, prompt: {{tokens: 210}}, output: 8}}\n"
        for number in range(1, streams + 1)
    )
    head = f"name: {name}\nversion: 1\ntitle: Tenants\nsummary: Each sends prompts of its own size.\n"
    return f"{head}written_for: 4000\nstreams:\n{rows}"


def tenants(streams: int, each: int, pairs: int) -> Run:
    asks = partial(sample_loads.many_streams, streams, each, 0.02)
    return load(pairs, scenario="tenants", text=streams_text("tenants", streams), asks=asks, kept_iterations=each < 100)


def stepped() -> Run:
    rates = ", ".join(f"{{rate: {2**power}, for_s: 9}}" for power in range(4))
    text = (
        "name: steps\nversion: 1\ntitle: Steps\nsummary: Rates.\nwritten_for: 4000\nstreams:\n  - name: request\n"
        f"    arrivals: {{kind: stages, stages: [{rates}]}}\n"
        "    prompt: {tokens: 800}\n    output: 16\n    slo: {ttft_s: 1.5}\n"
    )
    return load(3, scenario="steps", text=text, asks=sample_loads.levels, spoil=overloaded)


def searched(cut_short: bool = False) -> Run:
    """A search of saturation in each block: arm B carries about a third more."""
    run = load(6, scenario="saturation", asks=sample_loads.levels)
    for block in run.blocks.exclude(arm=""):
        more = 1.33 if block.arm == "B" else 1.0
        tries = [
            {
                "rate_per_s": rate * more,
                "requests": round(8 * rate) + 3,
                "good": round(8 * rate) + (3 if good else 1),
                "carried": good,
            }
            for rate, good in ((0.5, True), (1.0, True), (2.0, True), (4.0, False), (2.8, True), (3.4, False))
        ]
        low = (2.8 + 0.1 * (block.pair % 3)) * more
        block.search = {
            "stream": "request",
            "share": 0.9,
            "tries": tries,
            "low_per_s": low,
            "high_per_s": 1.2 * low,
            "cut_short": cut_short,
        }
        block.save(update_fields=["search"])
    return run


def imported() -> Run:
    run = load(2, imported={"server": {"name": "forge-9"}, "run": 12})
    Run.objects.filter(pk=run.pk).update(server=None)
    return run


RUNS: Mapping[str, Maker] = {
    "run-pairs": pair,
    "run-one-pair": partial(pair, 1),
    "run-three-pairs": partial(pair, 3),
    "run-forty-pairs": partial(pair, 40),
    "run-same": partial(pair, **SAME),
    "run-slower": partial(pair, **SLOWER),
    "run-no-pair": partial(pair, 0, planned=8, state="failed", error="The server answered 503 to the calibration: loading model"),
    "run-floor": partial(floored, pair, 3),
    "run-floor-above": partial(floored, partial(pair, **SAME), 2, 90),
    "run-lost": partial(pair, 3, planned=8, state="lost", error="The worker was not heard of for 15 s", policy_restored=False),
    "run-stopped": partial(pair, 5, planned=8, state="stopped", stop_reason="Stopped by mira"),
    "run-refused": partial(
        pair, 0, planned=8, state="failed", policy_before=None, policy_version=None, policy_restored=None,
        error="The server is at run 41 of another console; nothing was sent.",
    ),
    "load-victim": load,
    "load-failures": partial(load, spoil=failing),
    "load-behind": behind,
    "load-restart": restarted,
    "load-levels": stepped,
    "load-search": searched,
    "load-cut-short": partial(searched, True),
    "load-streams": partial(tenants, 20, 4, 3),
    "load-many": partial(tenants, 12, 210, 4),
    "imported": imported,
    "now-waiting": partial(under_way, "waiting", "studio-2", not_before=timezone.now() + timedelta(hours=3)),
    "now-queued": partial(under_way, "queued", "studio-3"),
    "now-lease": partial(under_way, "running", "studio-4", progress_text="Waiting: another console has the server"),
    "now-calibrating": partial(under_way, "running", "studio-5", progress_text="Calibrating: how long each request takes alone"),
    "now-middle": partial(under_way, "running", "busy", 4, progress_text="Pair 5 of 8, block A under physical"),
    "now-load": partial(
        under_way, "running", "studio-7", 2, make=load, progress_text="Pair 3 of 8, block B under rotating", live=live_counts()
    ),
    "now-stopping": partial(under_way, "stopping", "barrier", 3, stop_requested=True, progress_text="Stopping"),
    "now-silent": partial(under_way, "running", "studio-9", 3, progress_text="Pair 4 of 8, block A under physical"),
}  # fmt: skip
NUMBERS = {name: number for number, name in enumerate(RUNS, 1)}
LITTLE = 1  # with little data the first of them is there alone


def fill_runs(amount: str) -> None:
    for name in list(RUNS)[: LITTLE if amount == "little" else len(RUNS)]:
        made = RUNS[name]()
        assert made.pk == NUMBERS[name], name
    if amount == "much":
        _a_long_past()
        threading.Thread(target=_hearts, daemon=True).start()


def _a_long_past() -> None:
    """Runs of weeks before, so that lists and trends are long."""
    now = timezone.now()
    for number in range(40):
        run = pair(6, seed=100 + number, started_at=now - timedelta(days=40 - number))
        Run.objects.filter(pk=run.pk).update(created_at=run.started_at)
    for number in range(240):
        state, error = (("lost", ""), ("failed", "The server did not answer within 10 s"), ("stopped", ""))[number % 3]
        run = load(0, "studio-1", planned=4, state=state, error=error)
        Run.objects.filter(pk=run.pk).update(created_at=now - timedelta(days=50 + number))


def _hearts() -> None:
    """The workers of the runs under way report, but for the one that is silent."""
    told = threading.Event()
    while not told.wait(2):
        held = Run.objects.filter(state__in=["running", "stopping"]).exclude(pk=NUMBERS["now-silent"])
        held.update(heartbeat_at=timezone.now())
