"""The page of a result of warm-behind-cold: what it shows by how the run ended, and its samples."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from scheduler_api.models import Server
from tests.support import sample_rows
from tests.support.experiment_pages import figure, page
from workers.load.openai import Manner
from workers.models import Sample

pytestmark = pytest.mark.django_db


@pytest.fixture
def server() -> Server:
    return sample_rows.make_server()


# -- a result


def test_every_ratio_of_a_result_has_its_interval_and_number_of_pairs(
    operator_client: Client, operator: User, server: Server
) -> None:
    text = page(operator_client, "run", sample_rows.make_run(server, operator, pairs=8).pk)
    rows = re.findall(r'data-l="e">([^<]+)</td><td [^>]*data-l="i"[^>]*>([^<]+)<span class="phone">, (\d+) pairs', text)
    assert len(rows) == 6
    assert all(" to " in interval and pairs == "8" for _, interval, pairs in rows)
    assert re.search(r'<p class="verdict">Under rotating the short request finished <b>\d\.\d times sooner</b> \(', text)
    assert "95 % interval" in text
    assert {trace["y"][0] for trace in figure(text, "fig-timeline-a")["data"]} == {0, 1}
    assert len(figure(text, "fig-cold-dist")["readouts"]) > 8


def test_one_pair_is_too_few_and_says_so(operator_client: Client, server: Server) -> None:
    text = page(operator_client, "run", sample_rows.make_run(server, pairs=1).pk)
    assert "Too few pairs to show a difference: 1 of at least" in text
    assert text.count("not enough runs") == 6
    assert "95 % interval" not in text
    assert len(re.findall(r'data-l="i"[^>]*>none yet', text)) == 6


def test_without_a_run_of_equal_arms_the_noise_is_said_to_be_unknown(operator_client: Client, server: Server) -> None:
    assert "Nothing is known of the noise on this server" in page(
        operator_client, "run", sample_rows.make_run(server, pairs=1).pk
    )


def test_another_pair_can_be_chosen(operator_client: Client, server: Server) -> None:
    run = sample_rows.make_run(server, pairs=8)
    text = page(operator_client, "run", run.pk, pair="5")
    assert "pair 5; seconds since" in text
    assert re.findall(r'<a href="\?pair=(\d)', text) == ["4", "5", "6"]
    assert "the one closest to the median" in page(operator_client, "run", run.pk, pair="99")


def test_two_equal_arms_are_the_noise_floor_of_the_next_run(operator_client: Client, server: Server) -> None:
    first = page(operator_client, "run", sample_rows.make_run(server, pairs=6, policy_b=sample_rows.PHYSICAL).pk)
    assert "Its arms are equal, so what differs between them is the noise of this server." in first
    assert "beside it the change" in first
    second = page(operator_client, "run", sample_rows.make_run(server, pairs=6, seed=5).pk)
    assert "Two equal arms differed by at most" in second
    assert 'class="floor"' in second


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {"state": "stopped", "stop_reason": "stopped by mira"},
            "2 of 8 pairs are complete. Stopped by mira. The policy found before the run was put back.",
        ),
        ({"state": "failed", "error": "The server went away"}, "Failed; 2 of 8 pairs are complete. The server went away."),
        ({"state": "lost"}, "The worker stopped reporting; 2 of 8 pairs are complete."),
        ({"state": "failed", "policy_restored": False}, "was not put back. Look at the server&#x27;s policies"),
        (
            {"state": "finished", "policy_restored": False, "warnings": ["Somebody else changed the policy."]},
            "Somebody else changed the policy. Look",
        ),
    ],
)
def test_a_run_that_ended_early_says_why_and_what_became_of_the_policy(
    operator_client: Client, server: Server, fields: dict[str, Any], told: str
) -> None:
    text = page(operator_client, "run", sample_rows.make_run(server, pairs=2, planned=8, **fields).pk)
    assert told in text
    assert 'class="verdict"' in text


def test_a_run_without_any_pair_has_no_empty_charts(operator_client: Client, server: Server) -> None:
    run = sample_rows.make_run(
        server,
        pairs=0,
        planned=8,
        state="failed",
        error="No answer.",
        policy_before=None,
        policy_version=None,
        policy_restored=None,
        conditions={},
    )
    text = page(operator_client, "run", run.pk)
    assert "no pair is complete, so there is no result. No answer. The run did not change the policy." in text
    assert "data-chart" not in text
    assert "plotly" not in text
    assert "none: no request was sent" in text


def test_a_failed_request_is_counted_and_its_pair_left_out(operator_client: Client, server: Server) -> None:
    run = sample_rows.make_run(server, pairs=6)
    Sample.objects.filter(run=run, pair=2, arm="B", role="short").update(
        ok=False, wall_s=None, done_at=None, error="connection lost"
    )
    text = page(operator_client, "run", run.pk)
    assert "1 of 24 requests failed; their pairs count nowhere." in text
    assert "medians of 5 pairs" in text


def test_what_a_stop_cut_off_did_not_fail(operator_client: Client, server: Server) -> None:
    run = sample_rows.make_run(server, pairs=2, state="stopped", stop_reason="stopped by mira")
    Sample.objects.filter(run=run, pair=2).update(ok=False, outcome="stopped")
    assert "None of 8 requests failed." in page(operator_client, "run", run.pk)
    Sample.objects.filter(run=run, pair=2).update(outcome="timeout")
    assert "4 of 8 requests failed" in page(operator_client, "run", run.pk)


def test_runs_that_spoke_in_other_ways_are_not_compared(operator_client: Client, server: Server) -> None:
    first, second = (sample_rows.make_run(server, pairs=2, seed=seed) for seed in (1, 2))
    for run, path in ((first, "/v1/completions"), (second, "/v1/chat/completions")):
        run.conditions["speaks"] = Manner(path, "ids" if run is first else "text").as_json()
        run.save()
    text = operator_client.get(reverse("run-compare", args=[first.pk]), {"with": str(second.pk)}).text
    assert "Not comparable because how requests were said differs: /v1/completions, token ids in run" in text
    assert "POST /v1/completions, prompts as token ids" in page(operator_client, "run", first.pk)


def test_only_pages_with_charts_allow_inline_styles(operator_client: Client, server: Server) -> None:
    run = operator_client.get(reverse("run", args=[sample_rows.make_run(server, pairs=1).pk]))
    policy = run.headers["Content-Security-Policy"]
    assert "style-src 'self' 'unsafe-inline'" in policy
    assert "blob:" in policy
    assert "unsafe-eval" not in policy
    listed = operator_client.get(reverse("experiments")).headers["Content-Security-Policy"]
    assert "unsafe-inline" not in listed


def test_what_servers_and_errors_are_called_cannot_become_markup(operator_client: Client) -> None:
    run = sample_rows.make_run(
        sample_rows.make_server("<b>x</b>"), pairs=1, planned=2, state="failed", error="</script><script>alert(1)</script>"
    )
    text = page(operator_client, "run", run.pk)
    assert "<script>alert(1)" not in text
    assert "<b>x</b>" not in text


# -- samples


def test_the_csv_holds_every_sample_and_reads_back(operator_client: Client, server: Server) -> None:
    run = sample_rows.make_run(server, pairs=3)
    Sample.objects.filter(run=run, pair=1, arm="A", role="cold").update(error='=cmd|"x", and a\nline', ok=False)
    response = operator_client.get(reverse("run-csv", args=[run.pk]))
    assert response.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert response.headers["Content-Disposition"] == f'attachment; filename="slotboard-run-{run.pk}.csv"'
    rows = list(csv.DictReader(io.StringIO(response.content.decode(), newline="")))
    kept = list(Sample.objects.filter(run=run).order_by("block", "sent_at"))
    assert len(rows) == len(kept) == 12
    for row, sample in zip(rows, kept, strict=True):
        assert (row["arm"], row["role"], int(row["pair"])) == (sample.arm, sample.role, sample.pair)
        assert sample.wall_s is not None
        assert float(row["wall_s"]) == sample.wall_s
        assert float(row["sent_at"]) == sample.sent_at
    assert rows[0]["error"] == '\'=cmd|"x", and a\nline'


def test_the_exact_command_can_be_run_again(operator_client: Client, server: Server) -> None:
    text = page(operator_client, "run", sample_rows.make_run(server, pairs=2, scale=0.5).pk)
    assert "python manage.py experiment warm-behind-cold --server" in text
    assert "{&quot;prefill_order&quot;: &quot;rotating&quot;}" in text
    assert "--pairs 2 --scale 0.5 --share 0.1" in text
