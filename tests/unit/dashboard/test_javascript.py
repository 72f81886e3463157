"""The pure modules of the live page: state and deltas, words, and what the batch strip draws."""

from __future__ import annotations

from itertools import pairwise

import pytest

from dashboard import first_view, present
from scheduler_api import frames
from tests.support.javascript import evaluate
from tests.support.sample_states import EXAMPLES

SECONDS = [0, 0.04, 3.21, 9.94, 9.96, 12, 59.4, 60, 65, 300, 599, 601, 3600, 3700, 86_399, 86_400, 200_000, 863_999, 900_000]


def test_durations_and_numbers_read_alike_on_both_sides() -> None:
    numbers = [0, 7, 9999, 10_000, 1_234_567, -12_345, -3]
    shown = evaluate(
        "frame/format.js",
        "[value[0].map((s) => module.duration(s)), value[1].map((n) => module.grouped(n))]",
        [SECONDS, numbers],
    )
    assert shown == [[present.duration(s) for s in SECONDS], [present.grouped(n) for n in numbers]]


def test_the_browsers_state_follows_the_deltas_as_the_server_applies_them() -> None:
    server = EXAMPLES["barrier"](1)
    states = [server.state()]
    for _ in range(60):
        server.step()
        states.append(server.state())
    deltas = [frames.diff(old, new) for old, new in pairwise(states)]
    final = evaluate(
        "live/state.js", "value.deltas.reduce((s, d) => module.apply(s, d), value.first)", {"first": states[0], "deltas": deltas}
    )
    assert final == states[-1]


def test_the_browser_splices_series_and_appends_tasks_as_the_server_does() -> None:
    def state(seq: int) -> dict[str, object]:
        points = [[2.0 * at, at % 5 if at < seq + 8 else None] for at in range(seq, seq + 10)]
        figures = {"prompt_tps": seq % 3, "prompt_series": points, "gen_series": points[:-1] if seq % 2 else points}
        tasks = [{"n": n} for n in range(max(0, seq * 40 - 120), seq * 40)]
        return {"seq": seq, "t": float(seq), "figures": figures if seq != 4 else None, "tasks": tasks}

    states = [state(seq) for seq in range(8)]
    deltas = [frames.diff(old, new) for old, new in pairwise(states)]
    assert any(delta["series"] for delta in deltas)
    followed = "value.deltas.reduce((all, d) => [...all, module.apply(all.at(-1), d)], [value.first])"
    assert evaluate("live/state.js", followed, {"first": states[0], "deltas": deltas}) == states


def test_what_nobody_tells_of_any_more_reads_alike_on_both_sides() -> None:
    state = EXAMPLES["busy"](1).state()
    old = evaluate("live/words.js", "module.ofNow(value, true)", state)
    assert old == present.of_now(state, state["t"] + present.OLD_S + 1)
    assert old["health"]["text"] == "Not reported"
    assert evaluate("live/words.js", "module.ofNow(value, false)", state) == present.of_now(state, state["t"] + 1) == state


def test_a_gap_and_a_repeat_do_not_follow() -> None:
    told = evaluate("live/state.js", "value.map((seq) => module.follows({seq: 7}, {seq}))", [6, 7, 8, 9])
    assert told == [False, False, True, False]


def test_a_servers_clock_is_told_from_batches_that_just_ended_and_not_from_old_ones() -> None:
    def frame(t: float, i: int, end: float) -> dict[str, object]:
        return {"t": t, "iterations": [{"i": i, "t": end - 0.1, "run_ms": 100}]}

    told = """(() => {
      const skew = new module.Skew();
      return value.map((state) => { skew.see(state); return Math.round(skew.value); });
    })()"""
    idle_then_ahead = [frame(1000, 5, 100), frame(1001, 5, 100), frame(1002, 6, 1031.9), frame(1003, 7, 1032.5)]
    assert evaluate("live/state.js", told, idle_then_ahead) == [0, 0, 30, 30]
    assert evaluate("live/state.js", told, [frame(1000, 5, 999.9), frame(1001, 6, 1000.4)]) == [0, 0]


def test_policy_words_and_summaries_read_alike_on_both_sides() -> None:
    slots = EXAMPLES["wide"](1).state()["slots"]
    values = [None, True, False, 512, "shortest_first"]
    shown = evaluate("live/words.js", "[module.summary(value[0]), value[1].map((v) => module.value(v))]", [slots, values])
    assert shown == [first_view.summary(slots), [first_view.words(value) for value in values]]


def iteration(i: int, **more: object) -> dict[str, object]:
    empty: dict[str, object] = {"prompt": [], "gen": [], "skipped": [], "held": [], "phase": "continuous", "cohort": None}
    return {"i": i, "t": i, "plan_ms": 0, "run_ms": 10, "settle_ms": 0} | empty | more


def test_stacks_rise_in_the_order_of_contribution() -> None:
    stacks = evaluate("live/stripmodel.js", "module.stacks(value)", [iteration(1, prompt=[[2, 3], [0, 5]])])
    assert stacks == [{"slot": 2, "at": 0, "from": 0, "tokens": 3}, {"slot": 0, "at": 0, "from": 3, "tokens": 5}]


def test_runs_join_neighbours_of_one_kind_and_end_when_the_kind_changes() -> None:
    rows = [
        iteration(1, gen=[[0, 1]]),
        iteration(2, gen=[[0, 1]]),
        iteration(3, held=[0]),
        iteration(4, skipped=[[0, "batch full"]]),
    ]
    assert evaluate("live/stripmodel.js", "module.runs(value)", rows) == [
        {"slot": 0, "kind": "gen", "from": 0, "to": 1},
        {"slot": 0, "kind": "held", "from": 2, "to": 2},
        {"slot": 0, "kind": "wait", "from": 3, "to": 3},
    ]


def test_bands_follow_phase_and_cohort() -> None:
    rows = [
        iteration(1),
        iteration(2, phase="pp", cohort=3),
        iteration(3, phase="pp", cohort=3),
        iteration(4, phase="tg", cohort=3),
        iteration(5, phase="tg"),
    ]
    bands = evaluate("live/stripmodel.js", "module.bands(value).map((b) => [b.from, b.to, module.bandWords(b)[0]])", rows)
    assert bands == [
        [0, 0, "continuous: prompts and generation share each batch"],
        [1, 2, "PP, cohort 3"],
        [3, 3, "TG, cohort 3"],
        [4, 4, "TG, draining"],
    ]


def test_the_newest_column_stands_at_the_right_edge_in_both_widths() -> None:
    rows = [iteration(n, run_ms=n) for n in range(1, 31)]
    edges = evaluate(
        "live/stripmodel.js",
        '["iteration", "duration"].map((mode) => module.columns(value, mode)).map((c) => [c[0].x, c.at(-1).x + c.at(-1).w])',
        rows,
    )
    assert [[round(x) for x in edge] for edge in edges] == [[1080 - 30 * 9, 1080], [0, 1080]]


def test_the_scale_is_n_batch_when_batches_are_full_and_smaller_when_they_are_not() -> None:
    full, small = [iteration(1, prompt=[[0, 2048]])], [iteration(1, prompt=[[0, 90]])]
    tops = evaluate(
        "live/stripmodel.js",
        "value.map((each) => module.scaleTop(...each))",
        [[full, 2048, "tokens"], [small, 2048, "tokens"], [small, 2048, "share"], [small, None, "tokens"]],
    )
    assert tops == [2048, 100, 2048, 100]


def test_marks_stand_at_the_first_iteration_they_are_in_force_for() -> None:
    rows = [iteration(n) for n in range(10, 15)]
    marks = [{"iteration": n, "text": f"change {n}", "by": "mira"} for n in (4, 12, 12, 20)]
    flags = evaluate("live/stripmodel.js", "module.flags(value[0], value[1])", [rows, marks])
    assert flags == [{"at": 2, "text": "change 12, mira; change 12, mira"}]


def test_a_sparkline_leaves_a_gap_where_nobody_watched() -> None:
    told = evaluate("live/figures.js", "module.spark(value, 150, 10, false).line", [[0, 5], [2, 5], [4, None], [6, 5], [8, 5]])
    assert told.count("M") == 2


def test_the_countdown_names_what_goes_back() -> None:
    policy = EXAMPLES["barrier"](1).policy()
    told = evaluate("live/strips.js", "module.reverting(value)", policy)
    assert told["what"] == "Phase goes back to continuous"
    here = first_view.reverting({"policy": policy}, policy["reverts_at"] - 65)
    assert here is not None
    assert (here["what"], here["left"], here["fields"]) == ("Phase goes back to continuous", "1:05", {"phase": "continuous"})
    assert evaluate("live/strips.js", "module.reverting(value)", policy | {"reverts_at": None}) is None


def test_a_draft_left_out_is_told_with_its_reason() -> None:
    infos = [{"draft": {"loaded": False, "text": "odd"}}, {"draft": {"loaded": True, "text": "fine"}}, {"draft": None}, {}, None]
    assert evaluate("live/strips.js", "value.map(module.leftOut)", infos) == ["odd", None, None, None, None]


def test_an_open_row_tells_prompt_wait_and_queue_apart() -> None:
    slot = {"id": 1, "submitted_at": 1.5, "first_visit_at": 4.0}
    rows = [
        iteration(1, prompt=[[0, 8]]),
        iteration(2, prompt=[[0, 8]]),
        iteration(3, prompt=[[0, 8]]),
        iteration(4, prompt=[[1, 8]]),
        iteration(5, prompt=[[0, 8]]),
    ]
    kinds = evaluate("live/detail.js", "module.timeline(value[0], value[1]).map((p) => [p.i, p.kind, p.tokens])", [slot, rows])
    assert kinds == [[2, "queue", 0], [3, "queue", 0], [4, "prompt", 8], [5, "wait", 0]]


def test_flags_that_would_meet_keep_their_mark_and_lose_their_words_the_newest_last() -> None:
    flags = [{"at": n, "text": "x" * 10} for n in range(4)]
    places = [{"x": 0, "flip": False}, {"x": 50, "flip": False}, {"x": 200, "flip": False}, {"x": 290, "flip": True}]
    told = evaluate("live/stripmodel.js", "module.worded(...value)", [flags, places, 300, 5])
    assert told == [False, True, False, True]


@pytest.mark.parametrize("state", list(present.HEALTH))
def test_each_state_of_health_reads_alike_on_both_sides(state: str) -> None:
    health = {"state": state, "text": "", "detail": "1 request runs, 5 wait.", "since": 1000.0, "seen_at": 1000.0}
    shown = evaluate(
        "live/words.js", "[module.HEALTH[value.state], module.ANSWERS.has(value.state), module.trouble(value, 1075)]", health
    )
    assert shown == [
        list(present.HEALTH[state][:3]),
        state in present.ANSWERS,
        first_view.trouble({"health": health}, 1075.0),
    ]


def test_no_client_and_one_without_a_name_are_other_rows() -> None:
    keys = evaluate(
        "live/fairness.js", "value.map((list) => module.rowsOf(list, 'client'))", [[], [{"client": ""}], [{"client": "a"}]]
    )
    assert len(set(keys)) == 3
