"""The words of the live page and the drawings of the policies page."""

from __future__ import annotations

import pytest

from dashboard import first_view, policy_page, present, units
from dashboard.drawings import ROWS, batches
from tests.support.javascript import evaluate
from tests.support.sample_states import EXAMPLES, Json, example
from tests.unit.scheduler.harness import Bench


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, ""),
        (-1, "0.0 s"),
        (3.14, "3.1 s"),
        (59.6, "1 min"),
        (61, "1 min 1 s"),
        (300, "5 min"),
        (7200, "2 h"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations_in_words(seconds: float | None, words: str) -> None:
    assert present.duration(seconds) == words


def test_numbers_are_grouped_from_ten_thousand_up() -> None:
    assert [present.grouped(n) for n in (9999, 10_000, -5)] == ["9999", "10,000", "\u22125"]
    assert present.grouped(None) == ""


def slot(**more: object) -> Json:
    idle: Json = EXAMPLES["idle"](1).state()["slots"][0]
    at_work = {"state": "prompt", "task": 9, "n_prompt": 1000, "n_cached": 250, "n_processed": 500}
    return {**idle, **at_work, "submitted_at": 90.0, "since": 95.0, **more}


def test_a_slot_row_tells_cached_done_and_left_apart() -> None:
    row = first_view.slot_row(slot(), now=100.0)
    assert (row.cached, row.done, row.percent, row.left) == (25.0, 50.0, "75 %", "250")
    assert (row.since, row.ttft) == ("5.0 s", "10.0")


def test_time_to_the_first_token_stands_still_once_it_came() -> None:
    assert first_view.slot_row(slot(first_token_at=93.5), now=100.0).ttft == "3.5"


def test_what_a_server_does_not_tell_stays_empty() -> None:
    row = first_view.slot_row({"id": 11, "state": "generating"}, now=100.0)
    assert (row.left, row.context, row.predict, row.ttft) == ("", "", "", "")
    assert (row.hue, row.hatched) == (3, True)


def test_a_chip_is_amber_only_where_something_else_is_in_force() -> None:
    chips = first_view.chips(EXAMPLES["unified"](1).state())
    assert [(chip["name"], bool(chip["why"])) for chip in chips] == [("prefill_order", True), ("phase", False)]


def test_the_rotation_is_shown_under_rotating_alone() -> None:
    shown = [chip["name"] for chip in first_view.chips(EXAMPLES["busy"](1).state())]
    assert "rotation_start" in shown
    shown = [chip["name"] for chip in first_view.chips(EXAMPLES["simulated"](1).state())]
    assert "rotation_start" not in shown


def test_the_phase_chip_counts_the_cohort() -> None:
    state = EXAMPLES["barrier"](1).state()
    cohort = state["phase"]["cohort"]
    phase = next(chip for chip in first_view.chips(state) if chip["name"] == "phase")
    assert phase["value"] == f"barrier, cohort {cohort['id']} ({len(cohort['completed'])} of {len(cohort['members'])} done)"


def test_a_missing_figure_says_why() -> None:
    stall = next(one for one in first_view.figures(EXAMPLES["stock"](1).state()) if one["key"] == "stall")
    assert (stall["value"], stall["unit"]) == ("", "")
    assert "does not tell" in stall["why"]


@pytest.mark.parametrize("name", ["down", "silent", "unauthorised"])
def test_trouble_is_a_sentence(name: str) -> None:
    state = example(name, 1000.0)
    assert first_view.trouble(state, 1000.0).endswith("What stands below is what was seen last.")
    assert first_view.trouble(example("busy", 1000.0), 1000.0) == ""


@pytest.mark.parametrize(
    ("key", "policy"),
    [
        ("prefill_order=physical", {}),
        ("prefill_order=rotating", {"prefill_order": "rotating"}),
        ("prefill_order=fair", {"prefill_order": "fair"}),
        ("prefill_order=shortest_first", {"prefill_order": "shortest_first"}),
        ("rotation_start=after_last", {"prefill_order": "rotating", "rotation_start": "after_last"}),
        ("rotation_start=after_first", {"prefill_order": "rotating", "rotation_start": "after_first"}),
        ("prefill_chunk", {"prefill_chunk": 5}),
    ],
)
def test_the_drawings_show_what_the_engine_does(key: str, policy: dict[str, object]) -> None:
    bench = Bench.make(slots=3, policy=policy)
    for number, tokens in enumerate((20, 20, 3)):
        bench.submit(number, tokens)
    bench.run()
    assert drawn(key) == bench.rows


@pytest.mark.parametrize("join", ["first_completion", "window"])
def test_the_drawings_of_the_join_show_what_the_engine_does(join: str) -> None:
    bench = Bench.make(3, policy={"phase": "barrier", "barrier_join": join, "barrier_join_window_ms": 3000})
    bench.submit(0, 40)
    bench.submit(1, 3)
    bench.step()
    bench.submit(2, 3)
    assert drawn(f"barrier_join={join}") == counted(bench.run())


def test_the_drawing_of_tokens_at_a_stretch_shows_what_the_engine_does() -> None:
    bench = Bench.make(3, policy={"phase": "barrier", "barrier_max_generation_tokens": 2})
    bench.submit(0, 2, n_predict=6)
    bench.submit(1, 3, n_predict=3)
    bench.step()
    bench.submit(2, 12, n_predict=4)
    assert drawn("barrier_max_generation_tokens") == counted(bench.run())


def test_the_drawing_of_the_share_shows_what_the_engine_does() -> None:
    bench = Bench.make(3, policy={"decode_share": 0.5})
    bench.submit(0, 1, n_predict=100)
    bench.step()
    bench.submit(1, 40)
    for _ in range(9):
        plan = bench.scheduler.plan(bench.now)
        bench.now += 3.0 if any(entry.slot == 1 for entry in plan.entries) else 1.0
        bench.close(plan, bench.scheduler.settle(plan, bench.model.run(plan), bench.now))
    assert drawn("decode_share") == counted(bench)[1:]


def drawn(key: str) -> list[str]:
    return [" ".join(f"s{number}:{tokens}" for number, tokens in row) for row in ROWS[key]]


def counted(bench: Bench) -> list[str]:
    """A decode token is drawn as one token."""
    return [row.replace("*", ":1") for row in bench.rows]


def test_a_field_counts_when_all_that_it_hangs_on_does() -> None:
    rows = [("barrier", "window"), ("barrier", "first_completion"), ("continuous", "window")]
    effective = [{"phase": phase, "barrier_join": join} for phase, join in rows]
    names = ["barrier_join", "barrier_join_window_ms", "decode_share"]
    here = [[first_view.counts(each, name) for name in names] for each in effective]
    assert here == [[True, True, True], [True, False, True], [False, False, True]]
    there = evaluate(
        "live/words.js", "value[0].map((e) => value[1].map((n) => module.counts({effective: e}, n)))", [effective, names]
    )
    assert there == here


def test_a_batch_is_drawn_from_the_bottom_up() -> None:
    drawing = batches([[(1, 2), (0, 6)]])
    assert drawing.paths == [(0, "M0 0h14v18h-14z"), (1, "M0 18h14v6h-14z")]


def test_the_review_warns_when_the_server_would_keep_another_value() -> None:
    policy = EXAMPLES["unified"](1).policy()
    state = EXAMPLES["unified"](1).state()
    said = policy_page.notes({"prefill_order": "rotating"}, policy, policy, state["switching"]["fields"])
    assert said[0][0] == "warn"
    assert "physical stays" in said[0][1]


def test_engines_of_one_address_read_alike_on_both_sides() -> None:
    state = example("vllm", 1_764_500_000.0)
    rows = units.rows(state)
    shown = evaluate("live/units.js", "value.map((unit) => module.cells(unit).map(([, text]) => text ?? '–'))", state["units"])
    assert shown == [[cell.text for cell in row.cells] for row in rows]
    assert (rows[0].text, rows[1].mark, rows[1].detail) == ("Serving", "stuck", "1 request runs, 5 wait")
    assert rows[1].cells[7].why == "No request got its first token in the last minute."
    assert units.title(state) == "Engines"


def test_how_many_drafts_were_right_stands_under_the_generated_tokens() -> None:
    told = {"id": 0, "state": "generating", "since": 0.0, "n_generated": 30, "n_drafted": 24, "n_accepted": 18}
    row = first_view.slot_row(told, 1.0)
    assert (row.drafts, row.drafts_words) == ("drafts 75 %", "75 % of drafts right")
    assert first_view.slot_row({**told, "n_drafted": 0, "n_accepted": 0}, 1.0).drafts == ""
    assert first_view.slot_row({**told, "state": "idle"}, 1.0).drafts == ""


def test_lengths_of_drafts_count_while_there_are_drafts() -> None:
    effective = [{"speculative": kind} for kind in ("ngram", "draft", "off")]
    names = ["speculative_n_max", "speculative_n_min", "speculative_ngram_size"]
    here = [[first_view.counts(each, name) for name in names] for each in effective]
    assert here == [[True, True, True], [True, True, False], [False, False, False]]
    there = evaluate(
        "live/words.js", "value[0].map((e) => value[1].map((n) => module.counts({effective: e}, n)))", [effective, names]
    )
    assert there == here
    assert evaluate("live/words.js", "module.draftsRight(value[0], value[1])", [24, 18]) == first_view.drafts_right(24, 18)
