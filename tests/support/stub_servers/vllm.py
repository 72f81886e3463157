"""A vLLM by its answers: its metrics, with two engines behind one address."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.support.stub_servers.base import FakeServer

VLLM_METRICS = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="qwen"} 3.0
vllm:num_requests_running{engine="1",model_name="qwen"} 0.0
vllm:num_requests_waiting{engine="0",model_name="qwen"} 2.0
vllm:num_requests_waiting{engine="1",model_name="qwen"} 0.0
vllm:engine_sleep_state{engine="0",model_name="qwen",sleep_state="awake"} 1.0
vllm:engine_sleep_state{engine="1",model_name="qwen",sleep_state="awake"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="qwen"} 0.42
vllm:kv_cache_usage_perc{engine="1",model_name="qwen"} 0.0
vllm:prefix_cache_queries_total{engine="0",model_name="qwen"} 1000.0
vllm:prefix_cache_hits_total{engine="0",model_name="qwen"} 600.0
vllm:prompt_tokens_total{engine="0",model_name="qwen"} 5000.0
vllm:prompt_tokens_total{engine="1",model_name="qwen"} 100.0
vllm:generation_tokens_total{engine="0",model_name="qwen"} 900.0
vllm:generation_tokens_total{engine="1",model_name="qwen"} 40.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="qwen"} 4.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.5",model_name="qwen"} 8.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="1.0",model_name="qwen"} 9.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="qwen"} 10.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="qwen"} 10.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="qwen"} 9.5
vllm:inter_token_latency_seconds_bucket{engine="0",le="0.01",model_name="qwen"} 50.0
vllm:inter_token_latency_seconds_bucket{engine="0",le="0.05",model_name="qwen"} 90.0
vllm:inter_token_latency_seconds_bucket{engine="0",le="+Inf",model_name="qwen"} 90.0
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="1000"} 1.0
process_start_time_seconds 1000.5
"""


@dataclass
class FakeVllm(FakeServer):
    """A vLLM by its answers. Its key guards /v1 alone, as the real one's does; `metrics` None: no such path."""

    metrics: str | None = VLLM_METRICS
    health_status: int = 200
    model: str = "qwen"

    def routes(self) -> list[Route]:
        paths = {"/health": self._health, "/metrics": self._metrics, "/version": self._version, "/v1/models": self._models}
        return [Route(path, handler) for path, handler in paths.items()]

    async def _health(self, request: Request) -> Response:
        return await self.enter(request, public=True) or Response(status_code=self.health_status)

    async def _version(self, request: Request) -> Response:
        return await self.enter(request, public=True) or JSONResponse({"version": "0.32.0"})

    async def _models(self, request: Request) -> Response:
        data = [{"id": self.model, "object": "model", "owned_by": "vllm", "max_model_len": 32768}]
        return await self.enter(request) or JSONResponse({"object": "list", "data": data})

    async def _metrics(self, request: Request) -> Response:
        if (refusal := await self.enter(request, public=True)) is not None:
            return refusal
        return Response(status_code=404) if self.metrics is None else Response(self.metrics, media_type="text/plain")
