"""The pure modules of the lanes: ranges and addresses, spans of iterations, segments of tasks, words and exports."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.javascript import MODULES, evaluate

Json = dict[str, Any]


def base(module: str) -> str:
    """Where a module's expression finds its neighbours."""
    return (MODULES / "live" / module).as_uri()


def iteration(i: int, t: float, ms: float = 100.0, **more: object) -> Json:
    empty: Json = {"prompt": [], "gen": [], "skipped": [], "held": [], "phase": "continuous", "cohort": None, "queue": 0}
    return {"i": i, "t": t, "plan_ms": 0, "run_ms": ms, "settle_ms": 0} | empty | more


def task(number: int, slot: int, **times: float | None) -> Json:
    names = ("submitted", "assigned", "first_visit", "prompt_done", "first_token", "finished")
    told = {f"{name}_at": times.get(name) for name in names}
    return {"n": number, "task": number, "slot": slot, "client": f"client-{slot}"} | told


def segments(
    iterations: list[Json], tasks: list[Json], slot: int, over: tuple[float, float], slots: list[Json] | None = None
) -> Any:
    """What segments.js makes of one slot's time."""
    expression = (
        "await (async () => { const { Track } = await import(new URL('./track.js', value.base)); const track = new Track();"
        " track.add(value.iterations); const tasks = module.bySlot(value.tasks, value.slots, value.over[1]);"
        " return module.segments(track, tasks.get(value.slot) ?? [], value.slot, ...value.over); })()"
    )
    given = {
        "iterations": iterations,
        "tasks": tasks,
        "slots": slots or [],
        "slot": slot,
        "over": over,
        "base": base("segments.js"),
    }
    return evaluate("live/segments.js", expression, given)


def kinds(found: list[Json]) -> list[tuple[str, float, float]]:
    return [(one["kind"], round(one["from"], 3), round(one["to"], 3)) for one in found]


BLOCKED = [
    iteration(1, 10.0, 400, prompt=[[0, 2048]], skipped=[[1, "batch full, slot 0 took 2048 of 2048"]]),
    iteration(2, 10.4, 400, prompt=[[0, 2048]], skipped=[[1, "batch full, slot 0 took 2048 of 2048"]]),
    iteration(3, 10.8, 200, prompt=[[1, 500], [0, 100]]),
    iteration(4, 11.0, 50, gen=[[1, 1]]),
    iteration(5, 11.05, 50, gen=[[1, 1]]),
]
SHORT = task(7, 1, submitted=9.9, assigned=9.9, first_visit=10.8, prompt_done=11.0, first_token=11.0, finished=11.1)


def test_a_blocked_task_waits_then_reads_its_prompt_then_generates() -> None:
    found = segments(BLOCKED, [SHORT], 1, (9.0, 12.0))
    assert kinds(found) == [("waiting", 9.9, 10.8), ("prompt", 10.8, 11.0), ("generating", 11.0, 11.1)]
    assert (found[0]["i"], found[0]["j"], found[0]["why"]) == (1, 2, "batch full, slot 0 took 2048 of 2048")
    assert found[1]["n"] == 500


def test_a_slot_whose_iterations_are_not_known_is_drawn_by_the_stages_of_its_task() -> None:
    whole = task(7, 1, submitted=1.0, assigned=2.0, first_visit=3.0, prompt_done=5.0, first_token=6.0, finished=9.0)
    assert kinds(segments([], [whole], 1, (0.0, 10.0))) == [
        ("queued", 2.0, 3.0),
        ("prompt", 3.0, 5.0),
        ("held", 5.0, 6.0),
        ("generating", 6.0, 9.0),
    ]


def test_a_task_that_still_runs_lasts_until_now_in_the_state_it_is_in() -> None:
    slot = {
        "id": 1, "state": "waiting", "task": 7, "client": "chat", "submitted_at": 9.9, "waiting_for": "waits: batch full",
        "first_visit_at": None, "prompt_done_at": None, "first_token_at": None,
    }  # fmt: skip
    found = segments(BLOCKED[:1], [], 1, (9.0, 10.9), [slot])
    assert kinds(found) == [("waiting", 9.9, 10.9)]
    assert found[0]["open"] is True


def test_a_task_whose_assignment_is_not_known_begins_when_the_slot_was_free() -> None:
    waited_in_queue = task(8, 1, submitted=9.0, assigned=9.0)
    found = segments(BLOCKED, [SHORT, waited_in_queue], 1, (9.0, 12.0))
    assert [one["task"] for one in found] == [7, 7, 7, 8]
    assert kinds(found)[-1] == ("waiting", 11.1, 12.0)


def test_what_goes_on_since_the_last_batch_is_one_stretch_with_it() -> None:
    rows = [iteration(1, 10.0, 100, prompt=[[0, 10]]), iteration(2, 10.1, 400, prompt=[[1, 900]], held=[0])]
    times = {"submitted_at": 10.0, "first_visit_at": 10.0, "prompt_done_at": 10.1, "first_token_at": None}
    slot = {"id": 0, "state": "held", "task": 1, "client": "", "waiting_for": "held: cohort 1 waits for slot 1"} | times
    found = segments(rows, [], 0, (10.0, 12.0), [slot])
    assert kinds(found) == [("prompt", 10.0, 10.1), ("held", 10.1, 12.0)]
    assert found[1]["open"] is True


def test_held_slots_and_pauses_of_generation_are_no_service() -> None:
    rows = [
        iteration(1, 0.0, 100, prompt=[[0, 10]], phase="pp", cohort=3),
        iteration(2, 0.1, 400, prompt=[[1, 900]], held=[0], phase="pp", cohort=3),
        iteration(3, 0.5, 100, gen=[[0, 1], [1, 1]], phase="tg", cohort=3),
        iteration(4, 0.6, 500, prompt=[[2, 900]], skipped=[[0, "paused for prompts"]], phase="pp", cohort=4),
        iteration(5, 1.1, 100, gen=[[0, 1]], phase="tg", cohort=4),
    ]
    one = task(1, 0, submitted=0.0, assigned=0.0, first_visit=0.0, prompt_done=0.1, first_token=0.5, finished=1.2)
    assert kinds(segments(rows, [one], 0, (0.0, 2.0))) == [
        ("prompt", 0.0, 0.1),
        ("held", 0.1, 0.5),
        ("generating", 0.5, 0.6),
        ("waiting", 0.6, 1.1),
        ("generating", 1.1, 1.2),
    ]


def test_what_the_feed_left_out_is_bridged_when_short_and_not_known_when_long() -> None:
    rows = [iteration(1, 0.0, 10, gen=[[0, 1]]), iteration(40, 0.4, 10, gen=[[0, 1]]), iteration(900, 9.0, 10, gen=[[0, 1]])]
    expression = """(() => {
      const t = new module.Track();
      t.add(value);
      return [t.lanes.get(0).spans.length, t.knows(0.2), t.knows(5)];
    })()"""
    assert evaluate("live/track.js", expression, rows) == [2, True, False]


def test_a_track_stays_bounded_however_long_it_runs() -> None:
    expression = """(() => {
      const t = new module.Track();
      for (let i = 1; i <= value; i++) {
        const served = i % 2 ? { prompt: [[0, 5]], gen: [], skipped: [] } : { prompt: [], gen: [[0, 1]], skipped: [[1, "full"]] };
        t.add([{ i, t: i * 0.2, run_ms: 100, held: [], phase: "continuous", cohort: null, queue: i % 3, ...served }]);
      }
      const lane = t.lanes.get(0);
      const tokens = lane.spans.reduce((sum, one) => sum + (one.kind === "prompt" ? one.n : 0), 0);
      return [lane.spans.length <= 3000, t.lanes.get(1).waits.length <= 3000, t.queue.length <= 4000, tokens > 0];
    })()"""
    assert evaluate("live/track.js", expression, 20_000) == [True, True, True, True]


@pytest.mark.parametrize(
    ("search", "shown"),
    [
        ("", {"live": True, "span": 60}),
        ("?live=300", {"live": True, "span": 300}),
        ("?live=99999", {"live": True, "span": 900}),
        ("?live=nonsense", {"live": True, "span": 60}),
        ("?from=1764500000&to=1764500060.5", {"live": False, "from": 1764500000, "to": 1764500060.5}),
        ("?from=1764500000000&to=1764500060500", {"live": False, "from": 1764500000, "to": 1764500060.5}),
        ("?from=2025-11-30T10:00:00Z&to=2025-11-30T10:01:00Z", {"live": False, "from": 1764496800, "to": 1764496860}),
        ("?from=1764500060&to=1764500000", {"live": True, "span": 60}),
        ("?from=x&to=", {"live": True, "span": 60}),
    ],
)
def test_an_address_is_read_as_a_range(search: str, shown: Json) -> None:
    assert evaluate("live/range.js", "module.read(value)", search) == shown


def test_a_range_survives_its_address() -> None:
    ranges = [{"live": True, "span": 150}, {"live": False, "from": 1764500000.25, "to": 1764500003}]
    assert evaluate("live/range.js", "value.map((range) => module.read(module.write(range)))", ranges) == ranges


def test_zooming_keeps_what_is_pointed_at_in_its_place_and_never_reaches_into_the_future() -> None:
    zoomed = evaluate(
        "live/range.js",
        "[module.zoomed(value, 0.5, 125, 1000), module.zoomed(value, 4, 150, 220),"
        " ...[1, -0.5].map((by) => module.moved(value, by, 240))]",
        {"live": False, "from": 100.0, "to": 200.0},
    )
    assert [(one["from"], one["to"]) for one in zoomed] == [(112.5, 162.5), (-180, 220), (140, 240), (50, 150)]


def test_zooming_out_of_live_follows_a_longer_time() -> None:
    told = evaluate("live/range.js", "[60, 150, 900].map((span) => module.zoomed({ live: true, span }, 2, 0, 100).span)", None)
    assert told == [150, 300, 900]


def test_a_wait_is_told_with_who_was_served_meanwhile() -> None:
    expression = (
        "await (async () => { const { Track } = await import(new URL('./track.js', value.base)); const track = new Track();"
        " track.add(value.rows);"
        " return module.servedMeanwhile(track, 1, 9.9, 10.8); })()"
    )
    assert evaluate("live/lanewords.js", expression, {"rows": BLOCKED, "base": base("lanewords.js")}) == [{"slot": 0, "n": 3357}]


def test_the_verdict_on_a_wait_names_who_had_the_time() -> None:
    blocker = {"slot": 0, "client": "long-doc", "task": 4, "iterations": 7, "tokens": 14336, "seconds": 4.1, "share": 0.92}
    told = evaluate(
        "live/stall.js",
        "value.map((blockers) => module.verdict({ blockers }))",
        [[], [blocker], [blocker, blocker | {"slot": 3}]],
    )
    assert told == [
        "No other slot was served in this time.",
        "Slot 0 (long-doc) had 92 % of the time, in 7 iterations.",
        "Slot 0 (long-doc) had 92 % of the time, in 7 iterations; slot 3 had the rest.",
    ]


def test_iteration_numbers_are_told_as_stretches() -> None:
    told = evaluate("live/stall.js", "value.map((list) => module.iterationsText(list))", [[5], [5, 6, 7, 9], [*range(1, 40, 2)]])
    assert told == ["5", "5 to 7, 9", "1, 3, 5, 7, 9, 11 and 14 more stretches"]


def test_csv_is_safe_to_open_in_a_spreadsheet() -> None:
    rows = [{"client": "=HYPERLINK(1)", "n": -3.5, "why": 'a "word", and\nmore'}, {"client": "@x", "n": None, "why": "plain"}]
    text = evaluate("live/csv.js", "module.csv(['client', 'n', 'why'], value)", rows)
    assert text == 'client,n,why\r\n\'=HYPERLINK(1),-3.5,"a ""word"", and\nmore"\r\n\'@x,,plain\r\n'


def test_unknown_figures_are_words_and_not_zero() -> None:
    told = {"jain_slots": None, "stalls": 0, "max_service_gap_s": 0.44, "max_service_gap_slot": 2, "cache_hit": 0.5}
    shown = evaluate("live/fairness.js", "module.measures(value)", told)
    assert shown["jain_slots"][0] is None
    assert shown["stalls"][0] == "0"
    assert shown["max_service_gap_s"] == ["0.44 s", "slot 2"]
    assert shown["cache_hit"][0] == "50 %"
    assert evaluate("live/fairness.js", "module.percentiles(value)", {"p50": None, "p95": None, "p99": None, "n": 0}) == [
        "–",
        "–",
        "–",
        "0",
    ]


def test_a_day_of_tokens_keeps_their_sum_over_a_range() -> None:
    rows = [iteration(n, n * 0.5, 400, prompt=[[0, 100]], gen=[[1, 2]]) for n in range(1, 41)]
    rates = evaluate("live/rewind.js", "module.rates(value, 0, 25, 50)", rows)
    assert round(sum(v for _, v in rates["prompt"]) * 0.5) == 4000
    assert round(sum(v for _, v in rates["gen"]) * 0.5) == 80


PAST = """await (async () => {
  const { Track } = await import(new URL('./track.js', value.base));
  const track = new Track();
  track.add(value.rows);
  const detail = { oldest: 0, gaps: [], marks: [], ...value.detail, iterations: value.rows, tasks: value.tasks };
  const state = { t: 99, slots: [value.idle, { ...value.idle, id: 1 }], health: { state: "up" }, missing: {}, marks: [] };
  return module.rewound(state, { track, detail, tasks: value.tasks }, 9, 10.6);
})()"""


def past(rows: list[Json], tasks: list[Json], **detail: object) -> Any:
    idle = {"id": 0, "state": "idle", "task": None, "submitted_at": None, "n_ctx": 4096}
    given = {"rows": rows, "tasks": tasks, "idle": idle, "detail": detail, "base": base("rewind.js")}
    return evaluate("live/rewind.js", PAST, given)


def test_a_past_state_shows_each_slot_as_it_stood_then() -> None:
    cold = task(6, 0, submitted=9.0, assigned=9.0, first_visit=10.0, prompt_done=11.0, first_token=11.0, finished=11.05)
    state = past(BLOCKED, [cold | {"n_prompt": 4196, "n_cached": 0}, SHORT | {"n_prompt": 600, "n_cached": 100}])
    told = [(slot["state"], slot["task"], slot["n_processed"]) for slot in state["slots"]]
    assert told == [("prompt", 6, 2048), ("waiting", 7, 0)]
    assert state["slots"][1]["waiting_for"] == "batch full, slot 0 took 2048 of 2048"
    assert [it["i"] for it in state["iterations"]] == [1, 2]
    assert (round(state["figures"]["worst_stall_s"], 2), state["figures"]["worst_stall_slot"]) == (1.0, 0)


def test_what_is_not_kept_is_neither_idle_nor_zero() -> None:
    for detail in ({"oldest": None}, {"oldest": 50.0}):
        state = past([], [], **detail)
        assert state["slots"] == []
        assert (state["figures"]["prompt_tps"], state["queue"]["depth"]) == (None, None)
        assert "not kept" in state["missing"]["slots"]
    gone = past(BLOCKED[:1], [], gaps=[[9.2, 10.6, "no observer watched"]])
    assert gone["slots"] == []
    assert gone["missing"]["slots"] == "Nobody watched at the end of this time."
    assert gone["figures"]["prompt_tps"] > 0
    assert [slot["state"] for slot in past([], [])["slots"]] == ["idle", "idle"]
