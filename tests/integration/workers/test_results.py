"""What selectors make of samples in the database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from scheduler_api.models import Server, ServerKind
from tests.support import sample_loads
from workers import selectors
from workers.models import Block, Run, RunState, Sample

START = 1_764_500_000.0


@pytest.fixture
def server(db: None) -> Server:
    return Server.objects.create(name="bench", kind=ServerKind.ENGINE, base_url="http://127.0.0.1:1")


def make_run(server: Server, shorts: list[tuple[float, float]], **fields: Any) -> Run:
    """A finished run whose short requests took `shorts` seconds under (A, B), and whose cold ones took 5."""
    arms = {"policy_a": {"prefill_order": "physical"}, "policy_b": {"prefill_order": "rotating"}, "seed": 1}
    defaults = {"scenario": "warm-behind-cold", "state": RunState.FINISHED, "repetitions": len(shorts)}
    run = Run.objects.create(server=server, **{**defaults, **arms, **fields})
    for pair, (a, b) in enumerate(shorts, start=1):
        for arm, short in (("A", a), ("B", b)):
            add_block(run, pair, arm, short)
    return run


def add_block(run: Run, pair: int, arm: str, short: float, cold: float = 5.0) -> Block:
    index = 2 * pair - (arm == "A")
    block = Block.objects.create(
        run=run,
        index=index,
        pair=pair,
        arm=arm,
        policy_version=3,
        started_at=datetime.now(UTC),
        timeline={"arm": arm, "pair": pair},
    )
    for role, slot, wall, sent in (("cold", 0, cold, START), ("short", 1, short, START + 0.5)):
        times = {"wall_s": wall, "wait_s": wall / 2, "prompt_s": wall / 2, "done_at": sent + wall}
        Sample.objects.create(run=run, block=block, pair=pair, arm=arm, role=role, slot=slot, sent_at=sent, **times)
    return block


def test_results_of_six_pairs(server: Server) -> None:
    found = selectors.results(make_run(server, [(3.0, 1.0)] * 5 + [(3.3, 1.0)]))
    short = found["measures"][0]
    assert (short["key"], short["verdict"], short["ratio"]["n"]) == ("short_wall", "shown", 6)
    assert short["times_sooner"] == pytest.approx(3.0)
    assert short["a"] == {"median": 3.0, "min": 3.0, "max": 3.3}
    assert found["verdict"].startswith("Under rotating the short request finished 3.0 times sooner (3.0 to 3.3, 6 pairs)")
    assert found["arms"] == {"A": "physical", "B": "rotating"}
    assert found["pairs"][0]["A"]["makespan_s"] == pytest.approx(5.0)
    assert found["timelines"] == {"A": {"arm": "A", "pair": 1}, "B": {"arm": "B", "pair": 1}}
    assert (found["noise"], found["warnings"]) == (None, [])


def test_warming_a_slot_again_does_not_count_into_the_time_until_both_are_done(server: Server) -> None:
    run = make_run(server, [(3.0, 1.0)])
    block = Block.objects.get(run=run, arm="A")
    times = {"wall_s": 9.0, "wait_s": 0.0, "prompt_s": 9.0, "done_at": START - 1.0}
    Sample.objects.create(run=run, block=block, pair=1, arm="A", role="warm", slot=1, sent_at=START - 10.0, **times)
    assert selectors.results(run)["pairs"][0]["A"]["makespan_s"] == pytest.approx(5.0)


def test_a_chosen_pairs_timelines_are_shown_and_an_unknown_one_is_ignored(server: Server) -> None:
    run = make_run(server, [(3.0, 1.0), (3.0, 1.1), (3.0, 1.2)])
    assert selectors.results(run, 3)["timelines"]["B"]["pair"] == 3
    assert selectors.results(run, 9)["pair"] == 2


def test_pairs_with_a_missing_block_or_a_bad_sample_are_left_out(server: Server) -> None:
    run = make_run(server, [(3.0, 1.0), (3.0, 1.0)], repetitions=4)
    add_block(run, 3, "A", 3.0)
    run.samples.filter(pair=2, arm="B", role="short").update(ok=False, error="Slot 1 held 0 of the 40000 warm tokens.")
    assert [pair["pair"] for pair in selectors.results(run)["pairs"]] == [1]


def test_a_run_without_pairs_has_no_figures(server: Server) -> None:
    found = selectors.results(make_run(server, []))
    assert (found["pairs"], found["pair"], found["timelines"]) == ([], None, {})
    assert {measure["verdict"] for measure in found["measures"]} == {"too few pairs"}
    assert found["measures"][0]["ratio"] == {"median": None, "low": None, "high": None, "level": None, "n": 0}


def test_a_touched_pair_counts_and_the_result_without_it_is_told(server: Server) -> None:
    run = make_run(server, [(3.0, 1.0)] * 6 + [(3.0, 2.9)])
    run.blocks.filter(pair=7, arm="B").update(warnings=["Pair 7, arm B: another request used 412 tokens in slot 2."])
    found = selectors.results(run)
    assert [pair["touched"] for pair in found["pairs"]] == [False] * 6 + [True]
    assert found["warnings"] == ["Without pair 7 the short request finished 3.0 times sooner (3.0 to 3.0, 6 pairs)."]


def test_noise_comes_from_the_last_run_with_equal_arms_of_about_the_same_scale(server: Server) -> None:
    equal = {"policy_b": {"prefill_order": "physical"}}
    make_run(server, [(3.0, 3.3)] * 5, scale=0.1, **equal)
    noisy = make_run(server, [(3.0, 3.06)] * 5, **equal)
    make_run(server, [(3.0, 4.0)] * 5, state=RunState.FAILED, **equal)
    noise = selectors.results(make_run(server, [(3.0, 1.0)] * 5))["noise"]
    assert noise["run"] == noisy.pk
    assert noise["difference"] == pytest.approx(0.02)
    assert noise["text"] == f"Two equal arms differed by at most 2.0 % on this server (A/A, run {noisy.pk})."


def test_sample_rows_have_a_header_and_no_formulas(server: Server) -> None:
    run = make_run(server, [(3.0, 1.0)])
    run.samples.filter(arm="A", role="short").update(error="=cmd()", ok=False)
    header, *rows = selectors.sample_rows(run)
    assert header[:5] == ["run", "block", "pair", "arm", "role"]
    assert len(rows) == 4
    broken = next(dict(zip(header, row, strict=True)) for row in rows if row[header.index("ok")] == 0)
    assert (broken["error"], broken["policy_version"], broken["wall_s"]) == ("'=cmd()", 3, 3.0)


def test_lists_are_newest_first_and_of_one_server(server: Server) -> None:
    other = Server.objects.create(name="other", kind=ServerKind.ENGINE, base_url="http://127.0.0.1:2")
    first, second, third = make_run(server, []), make_run(other, []), make_run(server, [], state=RunState.RUNNING)
    assert selectors.list_runs() == [third, second, first]
    assert selectors.list_runs(server) == [third, first]
    assert selectors.list_runs(limit=1) == [third]
    assert selectors.active_run(server) == third
    assert selectors.active_run(other) is None


CONDITIONS: dict[str, Any] = {
    "scenario": {"name": "warm-behind-cold", "version": 1},
    "server": {"name": "m", "backend": "x", "build": "b1"},
}


def test_any_two_runs_side_by_side(server: Server) -> None:
    first = make_run(server, [(3.0, 1.0)] * 6, conditions=CONDITIONS)
    second = make_run(server, [(3.0, 2.0)] * 6, conditions=CONDITIONS)
    found = selectors.compare(first, second)
    assert (found["comparable"], found["reasons"]) == (True, [])
    short = next(row for row in found["measures"] if row["key"] == "short_wall")
    assert (short["arms"]["A"]["word"], short["arms"]["B"]["word"]) == ("no difference shown", "slower")
    assert {row["key"] for row in found["configuration"] if row["differs"]} == set()
    newer = {**CONDITIONS, "server": {**CONDITIONS["server"], "build": "b2"}}
    other = selectors.compare(first, make_run(server, [(3.0, 2.0)] * 6, conditions=newer, scale=0.5))
    assert [text.split(":")[0] for text in other["reasons"]] == [
        "Not comparable because the scale differs",
        "Not comparable because the server's build differs",
    ]


def test_a_trend_is_of_one_scenario_one_server_and_the_same_arms(server: Server) -> None:
    elsewhere = Server.objects.create(name="other", kind=ServerKind.ENGINE, base_url="http://127.0.0.1:2")
    runs = [make_run(server, [(3.0, b)] * 6, conditions=CONDITIONS) for b in (1.5, 1.0)]
    make_run(elsewhere, [(3.0, 1.0)] * 6, conditions=CONDITIONS)
    make_run(server, [(3.0, 1.0)] * 6, conditions=CONDITIONS, policy_b={"phase": "barrier"})
    make_run(server, [(3.0, 1.0)] * 6, conditions={**CONDITIONS, "scenario": {"version": 2}})
    make_run(server, [(3.0, 1.0)] * 6, conditions=CONDITIONS, state=RunState.FAILED)
    found = selectors.trend(runs[0])
    assert [(each["run"], each["shown"]) for each in found["runs"]] == [(runs[0].pk, True), (runs[1].pk, False)]
    short = next(row for row in found["measures"] if row["key"] == "short_wall")
    assert [(point["ratio"]["median"], point["word"]) for point in short["points"]] == [
        (pytest.approx(0.5), "faster"),
        (pytest.approx(1 / 3), "faster"),
    ]


def test_the_floor_is_told_and_warned_of(server: Server) -> None:
    run = make_run(server, [(3.0, 2.9)] * 6, floor=1)
    for index, short in ((101, 3.0), (102, 2.0)):
        block = add_block(run, index, "A", short)
        Block.objects.filter(pk=block.pk).update(pair=0, floor=1, index=index)
        block.samples.update(pair=0)
    found = selectors.results(run)
    assert (found["complete_pairs"], found["floor_pairs"]) == (6, 1)
    short = found["measures"][0]
    assert (short["floor"], short["below_floor"], short["word"]) == (pytest.approx(0.5), True, "faster")
    assert found["noise"] == {
        "run": run.pk,
        "difference": pytest.approx(0.5),
        "text": "Two equal arms differed by at most 50.0 % (A/A, 1 pair of blocks at the start of this run).",
    }
    assert found["warnings"][0].startswith("Noise floor above the effect: two equal arms differed at least as much")
    assert "Short request, E2E" in found["warnings"][0]


def test_a_load_tells_fairness_and_of_which_streams_the_slowdown_is_unknown(server: Server) -> None:
    run = sample_loads.make_load_run(server, pairs=6)
    found = selectors.results(run)["fairness"]
    assert found["unknown"].startswith("How long a request of each stream takes alone was not measured")
    assert "victim.slowdown" not in {row["key"] for row in found["measures"]}
    run.conditions["alone"] = {"victim": 0.05}
    run.save()
    result = selectors.results(run)
    rows = {row["key"]: row for row in result["fairness"]["measures"]}
    assert result["fairness"]["unknown"] == "Alone, no request of attacker ended well, so the slowdown there is unknown."
    assert (rows["victim.slowdown"]["better"], rows["victim.slowdown"]["unit"]) == ("lower", "")
    assert rows["victim.gap"]["word"] == "faster"
    assert rows["client:victim.gap"]["points"] == rows["victim.gap"]["points"]
    assert rows["jain_streams"]["a"]["median"] == pytest.approx(rows["jain_clients"]["a"]["median"])
    clients = {row["key"] for row in result["clients"]}
    assert {"client:victim.ttft_mean", "client:victim.goodput", "client:attacker.throughput"} <= clients
    assert any("by chance alone" in text for text in result["notes"])
