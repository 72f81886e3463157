"""A vLLM's metrics over its versions, its histograms, and rates over restarts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_api.kinds.exposition import samples_of
from scheduler_api.kinds.histogram import WINDOW_S, Buckets, Window, buckets_of, quantile, since
from scheduler_api.kinds.meter import Meter
from scheduler_api.kinds.vllm_metrics import looks_like, parse
from scheduler_api.kinds.vllm_state import OTHERS, VllmReader
from scheduler_api.wire import Answer
from tests.support.stub_servers import VLLM_METRICS

INF = float("inf")


def test_engines_are_told_apart_by_their_label() -> None:
    told = parse(VLLM_METRICS)
    assert list(told.engines) == ["0", "1"]
    first, second = told.engines["0"], told.engines["1"]
    assert (first.values["running"], first.values["waiting"], first.values["kv_use"], first.kv_size) == (3, 2, 0.42, 16000)
    assert (second.values["prompt"], "hits" in second.values, second.histograms) == (100, False, {})
    assert (first.model, told.started_at) == ("qwen", 1000.5)
    assert first.histograms["ttft"] == ((0.1, 4.0), (0.5, 8.0), (1.0, 9.0), (INF, 10.0))


@pytest.mark.parametrize(
    ("exported", "ours", "value"),
    [
        ("vllm:gpu_cache_usage_perc", "kv_use", 0.5),
        ("vllm:kv_cache_usage_perc", "kv_use", 0.5),
        ("vllm:gpu_prefix_cache_hits_total", "hits", 0.5),
        ("vllm:prefix_cache_hits", "hits", 0.5),
        ("vllm:generation_tokens_total", "generated", 0.5),
    ],
)
def test_case_12_renamed_metrics_are_read_under_each_of_their_names(exported: str, ours: str, value: float) -> None:
    told = parse(f'vllm:num_requests_running{{model_name="m"}} 0\n{exported}{{model_name="m"}} {value}')
    assert told.engines["0"].values[ours] == value


@pytest.mark.parametrize(
    ("exported", "ours"),
    [
        ("vllm:inter_token_latency_seconds", "itl"),
        ("vllm:time_per_output_token_seconds", "itl"),
        ("vllm:request_time_per_output_token_seconds", "tpot"),
    ],
)
def test_case_12_a_gap_between_tokens_and_a_mean_of_a_request_are_not_mixed(exported: str, ours: str) -> None:
    told = parse(f'vllm:num_requests_running 0\n{exported}_bucket{{le="1"}} 3\n{exported}_bucket{{le="+Inf"}} 4')
    assert told.engines["0"].histograms == {ours: ((1.0, 3.0), (INF, 4.0))}


def test_case_12_the_newest_name_wins_where_a_version_exports_both() -> None:
    told = parse("vllm:num_requests_running 1\nvllm:gpu_cache_usage_perc 0.1\nvllm:kv_cache_usage_perc 0.2")
    assert told.engines["0"].values["kv_use"] == 0.2


def test_case_12_not_exported_differs_from_zero() -> None:
    reader = VllmReader(key_given=False)
    reader.metrics(Answer(200, b"vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n"), 1.0)
    [unit] = reader.reading(1.0).parts["units"]
    assert (unit["running"], unit["kv_use"], unit["gen_tps"]) == (0, None, None)
    assert unit["missing"]["kv_use"] == unit["missing"]["gen_tps"] == "This version of vLLM does not export it."
    assert "running" not in unit["missing"]


@pytest.mark.parametrize(
    ("text", "whose"),
    [
        ("sglang:num_running_reqs 1", "SGLang"),
        ("# HELP sglang_num_running_reqs x\n# TYPE sglang_num_running_reqs gauge\nsglang_num_running_reqs 1", "SGLang"),
        ("llamacpp:requests_processing 1", "llama-server"),
        (VLLM_METRICS, "vLLM"),
        ("go_goroutines 4", ""),
    ],
)
def test_case_12_foreign_metrics_are_named(text: str, whose: str) -> None:
    assert looks_like(text) == whose
    reader = VllmReader(key_given=False)
    reader.metrics(Answer(200, text.encode()), 1.0)
    why = reader.reading(1.0).parts["missing"].get("units")
    assert why == (None if whose == "vLLM" else OTHERS.format(whose=whose) if whose else "/metrics holds none of vLLM's names.")


@pytest.mark.parametrize("value", ["NaN", "-nan", "+Inf", "x"])
def test_case_14_what_is_no_number_is_null_and_says_so(value: str) -> None:
    reader = VllmReader(key_given=False)
    for t in (1.0, 2.0):
        body = f"vllm:num_requests_running {value}\nvllm:kv_cache_usage_perc {value}\nvllm:generation_tokens_total {value}\n"
        reader.metrics(Answer(200, body.encode()), t)
    reading = reader.reading(2.0)
    [unit] = reading.parts["units"]
    assert (unit["running"], unit["kv_use"], unit["gen_tps"]) == (None, None, None)
    assert unit["missing"]["kv_use"] == "What it exports is no number."
    json.dumps(reading.parts, allow_nan=False)


def test_labels_may_hold_anything() -> None:
    text = 'a{x="1, y=\\"}{2\\"",z="3"} 4\na{broken 5\nb 6\n# a{z="1"} 7\n'
    [sample] = samples_of(text, {"a"})
    assert (sample.value, sample.labels["z"]) == (4, "3")


def test_percentiles_are_linear_within_a_bucket() -> None:
    buckets: Buckets = ((1.0, 0.0), (2.0, 10.0), (4.0, 20.0), (INF, 20.0))
    assert [quantile(buckets, q) for q in (0.25, 0.5, 0.75, 1.0)] == [1.5, 2.0, 3.0, 4.0]
    assert quantile(((1.0, 0.0), (INF, 5.0)), 0.5) == 1.0  # at least that
    assert quantile(((1.0, 0.0), (INF, 0.0)), 0.5) is None
    assert quantile((), 0.5) is None


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12), st.floats(0.01, 1.0))
def test_a_percentile_lies_in_the_bucket_of_its_rank(counts: list[int], q: float) -> None:
    upto = [float(sum(counts[: i + 1])) for i in range(len(counts))]
    buckets: Buckets = (*((float(i + 1), count) for i, count in enumerate(upto)), (INF, upto[-1]))
    value = quantile(buckets, q)
    if not upto[-1]:
        assert value is None
        return
    assert value is not None
    rank = q * upto[-1]
    index = next(i for i, count in enumerate(upto) if count >= rank and count > (upto[i - 1] if i else 0.0))
    assert index <= value <= index + 1


def test_percentiles_are_of_the_last_minute() -> None:
    window = Window()
    for second in range(0, 200):
        slow = max(0.0, second - 100.0)
        window.add(
            float(second), ((1.0, float(min(second, 100))), (10.0, min(second, 100) + slow), (INF, min(second, 100) + slow))
        )
    told = window.told()
    assert told is not None
    assert told["n"] == pytest.approx(WINDOW_S, abs=3)
    assert told["p50"] > 1.0  # the fast ones are older
    assert len(window.snapshots) < 40


def test_case_16_a_histogram_that_begins_anew_gives_no_percentile_across_the_restart() -> None:
    window = Window()
    window.add(1.0, ((1.0, 5.0), (INF, 9.0)))
    window.add(4.0, ((1.0, 6.0), (INF, 10.0)))
    assert window.told() is not None
    window.add(7.0, ((1.0, 0.0), (INF, 1.0)))
    assert window.told() is None
    assert since(((1.0, 5.0), (INF, 9.0)), ((2.0, 5.0), (INF, 9.0))) is None


def test_buckets_without_their_unbounded_one_are_none() -> None:
    assert buckets_of([("1", 3.0)]) == ()
    assert buckets_of([("+Inf", 3.0), ("0.5", 1.0), ("x", 9.0), ("nan", 2.0), ("2", None)]) == ((0.5, 1.0), (INF, 3.0))


def test_case_16_a_counter_that_goes_back_is_a_gap_not_a_negative_rate() -> None:
    meter = Meter(window_s=2.0)
    for t, total in ((1.0, 8000.0), (2.0, 8500.0), (3.0, 9000.0)):
        meter.add(t, total)
    assert meter.rate() == 500
    meter.add(4.0, 12.0)
    assert meter.rate() is None
    meter.add(5.0, 112.0)
    assert meter.rate() == 100
    meter.add(6.0, None)
    assert meter.rate() is None


def test_case_16_a_restart_shows_in_the_start_time_alone() -> None:
    reader = VllmReader(key_given=False)
    reader.metrics(Answer(200, VLLM_METRICS.encode()), 1.0)
    reader.metrics(Answer(200, VLLM_METRICS.replace("900.0", "950.0").encode()), 2.0)
    reading = reader.reading(2.0)
    assert ([service.generated for service in reading.services], reading.restarted) == ([50], False)
    later = VLLM_METRICS.replace("900.0", "99999.0").replace("1000.5", "2000.5")
    reader.metrics(Answer(200, later.encode()), 3.0)
    reading = reader.reading(3.0)
    assert (reading.services, reading.restarted, reading.parts["units"][0]["gen_tps"]) == ([], True, None)
