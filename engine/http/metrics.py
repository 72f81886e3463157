"""Prometheus text under llama-server's names, and the engine's own gauges beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from engine.http.errors import ApiError
from engine.http.metrics_text import own_metrics
from engine.http.state import ServerState
from engine.runner import Runner


@dataclass(frozen=True, slots=True)
class _Sample:
    name: str
    kind: str
    help: str
    value: float


class MetricsRoute:
    """GET /metrics. As in llama-server the two rates are averages since the last scrape, so a scrape resets them."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._last: dict[str, float] = {}

    async def metrics(self, request: Request) -> Response:
        if not self._state.options.metrics_endpoint:
            raise ApiError(501, "This server does not support metrics endpoint. Start it with `--metrics`")
        runner = self._state.live
        view = runner.view()
        samples = self._samples(view, runner)
        self._last = dict(view["totals"])
        text = "".join(f"# HELP {s.name} {s.help}\n# TYPE {s.name} {s.kind}\n{s.name} {s.value:.10g}\n" for s in samples)
        text += _by_place(runner.meters.accepted_at) + own_metrics(view, runner.meters)
        headers = {"process-start-time-unix": str(int(self._state.started_at))}
        return Response(text, media_type="text/plain; version=0.0.4", headers=headers)

    def _samples(self, view: dict[str, Any], runner: Runner) -> list[_Sample]:
        totals, slots = view["totals"], view["slots"]
        iterations = totals["iterations"]
        busy = sum(slot["task"] is not None for slot in slots)

        def counter(name: str, help_: str, value: float) -> _Sample:
            return _Sample(f"llamacpp:{name}", "counter", help_, value)

        def gauge(name: str, help_: str, value: float) -> _Sample:
            return _Sample(name, "gauge", help_, value)

        return [
            counter("prompt_tokens_total", "Prompt tokens processed, without cached ones.", totals["prompt_tokens"]),
            counter("prompt_tokens_cached_total", "Prompt tokens that were taken from a slot's cells.", totals["cached_tokens"]),
            counter(
                "prompt_seconds_total",
                "Time from the first visit to the end of the prompt, summed over tasks.",
                totals["prompt_s"],
            ),
            counter("tokens_predicted_total", "Tokens generated.", totals["generated_tokens"]),
            counter(
                "tokens_predicted_seconds_total",
                "Time from the first token to the end, summed over tasks.",
                totals["generation_s"],
            ),
            counter("n_decode_total", "Batches run.", iterations),
            counter("spec_decode_num_drafts_total", "Runs of drafted tokens that were checked.", totals["drafts"]),
            counter("spec_decode_num_draft_tokens_total", "Drafted tokens that were checked.", totals["drafted_tokens"]),
            counter("spec_decode_num_accepted_tokens_total", "Drafted tokens that were right.", totals["accepted_tokens"]),
            counter("n_tokens_max", "Most tokens that a slot held at the end of a task.", runner.books.n_tokens_max),
            gauge(
                "llamacpp:prompt_tokens_seconds", "Prompt tokens a second since the last scrape.", self._rate(totals, "prompt")
            ),
            gauge(
                "llamacpp:predicted_tokens_seconds",
                "Generated tokens a second since the last scrape.",
                self._rate(totals, "generation"),
            ),
            gauge("llamacpp:requests_processing", "Tasks in slots.", busy),
            gauge("llamacpp:requests_deferred", "Tasks that wait for a slot.", view["queue"]["depth"]),
            gauge(
                "llamacpp:n_busy_slots_per_decode",
                "Busy slots in an average batch.",
                runner.meters.n_busy_sum / iterations if iterations else 0,
            ),
        ]

    def _rate(self, totals: dict[str, float], kind: str) -> float:
        tokens_name = "prompt_tokens" if kind == "prompt" else "generated_tokens"
        tokens = totals[tokens_name] - self._last.get(tokens_name, 0)
        seconds = totals[f"{kind}_s"] - self._last.get(f"{kind}_s", 0.0)
        return tokens / seconds if seconds > 0 else 0.0


def _by_place(accepted: Sequence[int]) -> str:
    """As llama-server does, nothing before there were drafts."""
    if not accepted:
        return ""
    name = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
    head = f"# HELP {name} Drafted tokens that were right, by their place in the draft.\n# TYPE {name} counter\n"
    return head + "".join(f'{name}{{position="{place}"}} {n}\n' for place, n in enumerate(accepted))
