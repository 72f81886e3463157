"""The completion routes: from a body to tasks, from their events to an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from starlette.types import Receive, Scope, Send

from engine.backends.base import ModelInfo
from engine.delivery import Done, Event, Handle, Mailbox, Raw, ReaderGone
from engine.http.adapters import lora_json
from engine.http.body import read_aside, read_body, watch_client
from engine.http.direct import DirectSink, open_sink, write_raw
from engine.http.errors import ApiError, json_response
from engine.http.fields import Fields, parse_object
from engine.http.formats import Format, NativeFormat, OaiChatFormat, OaiCompletionFormat, sse
from engine.http.infill import InfillSizes, infill_prompt
from engine.http.jobs import Job, collect, task_error
from engine.http.logprobs import Logprobs
from engine.http.prompts import read_prompts
from engine.http.requests import CompletionRequest, read_request
from engine.http.sampling import sampling_json
from engine.http.state import ServerState
from engine.runner import Runner
from engine.scheduler.task import Group, Task, TaskType
from engine.text import TextStream

Kind = Literal["native", "oai", "chat", "infill"]

_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_PING = b": still here\n\n"


class CompletionRoute:
    """An ASGI endpoint; streams are sent without a layer between."""

    def __init__(self, state: ServerState, kind: Kind) -> None:
        self._state = state
        self._kind = kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            raw = await read_body(scope, receive)
            body, runner = parse_object(raw), self._state.live
            job = await read_aside(len(raw), self._prepare, body, label_of(scope), runner)
            if job.request.stream:
                await _stream(job, runner, scope, receive, send)
            else:
                answer = await collect(job, runner, receive)
                await json_response(answer)(scope, receive, send)
        except ReaderGone:
            return

    def _prepare(self, body: dict[str, Any], label: str, runner: Runner) -> Job:
        """For a long body in a thread of its own."""
        options, info = self._state.options, runner.backend.info
        if not info.generates:
            raise ApiError(501, "This model makes embeddings, not text: use /v1/embeddings")
        request = read_request(
            body,
            n_slots=options.n_slots,
            n_predict=options.n_predict,
            cache_prompt=options.cache_prompt,
            client=label,
            sampling=self._state.sampling,
            ping_s=options.server.ping_s,
            queue_timeout_ms=options.queue_timeout_ms,
            lora_scales=self._state.lora,
            n_keep=options.tasks.n_keep,
            backend=runner.backend,
        )
        given: Any = body.get("prompt")
        if self._kind == "chat":
            assert self._state.template is not None
            given = self._state.template.render(body)
        elif self._kind == "infill":
            given = infill_prompt(body, runner.backend, self._infill_sizes(info))
        prompts = read_prompts(given, runner.backend)
        for prompt in prompts:
            check_fits(prompt, info.n_ctx_slot)
        mailbox = Mailbox()
        tasks = tuple(self._task(request, prompt, runner) for prompt in prompts)
        ids = [(task, task_id) for task in tasks for task_id in (task.id, *task.children)]
        handles = tuple(_handle(task, task_id, index, mailbox, request) for index, (task, task_id) in enumerate(ids))
        model = Fields(body).text("model") or options.alias
        return Job(request, tasks, handles, mailbox, self._format(request, model, given, handles, runner))

    def _infill_sizes(self, info: ModelInfo) -> InfillSizes:
        options = self._state.options
        return InfillSizes(info.n_batch, info.n_ctx_slot, options.n_predict, options.tasks.spm_infill)

    def _task(self, request: CompletionRequest, prompt: list[int], runner: Runner) -> Task:
        ids = self._state.task_ids
        return Task(
            id=next(ids),
            prompt=prompt,
            n_predict=request.n_predict,
            id_slot=request.id_slot,
            cache_prompt=request.cache_prompt,
            group=Group(TaskType.INFILL if self._kind == "infill" else TaskType.COMPLETION, request.lora),
            sampling=request.sampling,
            eog=frozenset() if request.sampling.ignore_eos else runner.backend.info.eog,
            client=request.client,
            submitted_at=self._state.clock.now(),
            n_keep=(len(prompt) if request.n_keep < 0 else request.n_keep) + runner.backend.info.add_bos,
            n_discard=request.n_discard,
            draft_max=request.draft_max,
            draft_min=request.draft_min,
            children=tuple(next(ids) for _ in range(request.n_cmpl - 1)),
        )

    def _format(self, request: CompletionRequest, model: str, given: Any, handles: Sequence[Handle], runner: Runner) -> Format:
        info = runner.backend.info
        logprobs = Logprobs(runner.backend, post=request.sampling.post_sampling_probs)
        if self._kind == "chat":
            return OaiChatFormat(request, model, info.build, logprobs)
        if self._kind == "oai":
            return OaiCompletionFormat(request, model, info.build, logprobs)
        prompts: list[str] = []
        if not request.response_fields or "prompt" in request.response_fields:
            texts: dict[int, str] = {}
            for handle in handles:
                if handle.task.id not in texts:
                    texts[handle.task.id] = given if type(given) is str else runner.backend.detokenize(handle.task.prompt)
                prompts.append(texts[handle.task.id])
        settings = settings_json(request, info.eog)
        return NativeFormat(request, self._state.options.alias, settings, prompts, logprobs)


def check_fits(prompt: Sequence[int], n_ctx_slot: int) -> None:
    if len(prompt) >= n_ctx_slot:
        raise ApiError(
            400,
            f"request ({len(prompt)} tokens) exceeds the available context size ({n_ctx_slot} tokens), try increasing it",
            type_="exceed_context_size_error",
            n_prompt_tokens=len(prompt),
            n_ctx=n_ctx_slot,
        )


def settings_json(request: CompletionRequest, eog: Iterable[int]) -> dict[str, Any]:
    """What llama-server calls generation_settings, for what this server offers."""
    return {
        **sampling_json(request.sampling, eog),
        "n_predict": request.n_predict,
        "max_tokens": request.n_predict,
        "stop": request.stops,
        "stream": request.stream,
        "n_cmpl": request.n_cmpl,
        "cache_prompt": request.cache_prompt,
        "timings_per_token": request.timings_per_token,
        "lora": lora_json(request.lora),
        "n_keep": request.n_keep,
        "n_discard": request.n_discard,
        "speculative.n_max": request.draft_max,
        "speculative.n_min": request.draft_min,
    }


def _handle(task: Task, task_id: int, index: int, mailbox: Mailbox, request: CompletionRequest) -> Handle:
    return Handle(
        task,
        task_id,
        index,
        mailbox,
        TextStream(request.stops),
        request.stream,
        progress=request.return_progress,
        keep_tokens=request.return_tokens,
        max_generation_s=request.max_generation_s,
    )


async def _stream(job: Job, runner: Runner, scope: Scope, receive: Receive, send: Send) -> None:
    """Sends what comes as it comes. Headers go out at once, unless the door is shut: waits are told apart by timings."""
    job.reserve(runner)
    try:
        await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
        sink = await open_sink(scope, job.encode)
    except BaseException:
        job.cancel(runner)
        raise
    for handle in job.handles:
        handle.sink = sink
    watch = asyncio.create_task(watch_client(receive, job.mailbox.close))
    reader = _StreamReader(job, sink, scope)
    pulse = Pulse(job.request.ping_s, lambda: reader.writes, job.mailbox.nudge)
    timer = job.submit(runner)
    try:
        while not reader.ended:
            body = reader.read(await job.mailbox.take())
            if body or reader.ended:
                await send({"type": "http.response.body", "body": body, "more_body": not reader.ended})
    finally:
        pulse.stop()
        watch.cancel()
        if timer is not None:
            timer.cancel()
        if sink is not None:
            sink.close()
        if not reader.complete:
            job.cancel(runner)


class _StreamReader:
    """Turns events into the bytes of a stream, and knows when it is over."""

    def __init__(self, job: Job, sink: DirectSink | None, scope: Scope) -> None:
        self._job, self._sink, self._scope = job, sink, scope
        self._dones: list[Done] = []
        self._writes = 0
        self.ended = False

    @property
    def complete(self) -> bool:
        """Every task came to its end."""
        return len(self._dones) == len(self._job.handles)

    @property
    def writes(self) -> int:
        return self._writes + (self._sink.writes if self._sink is not None else 0)

    def read(self, events: Sequence[Event]) -> bytes:
        parts: list[bytes] = []
        for event in events:
            if isinstance(event, Raw):  # a sink's last word, so nothing of this answer is between it and the connection
                write_raw(self._scope, event.data)
            elif isinstance(event, Done):
                parts.append(self._end(event))
                if self.ended:
                    break
            else:
                parts.append(self._job.encode(event))
        if not events:
            parts.append(self._ping())
        self._writes += 1
        return b"".join(parts)

    def _end(self, done: Done) -> bytes:
        if done.stop in ("error", "cancelled"):
            self.ended = True
            return sse(task_error(done).body())
        self._dones.append(done)
        body = self._job.format.final(done)
        if self.complete:
            self.ended = True
            body += self._job.format.closing(sorted(self._dones, key=lambda done: done.handle.index))
        return body

    def _ping(self) -> bytes:
        left = self._sink.ping(_PING) if self._sink is not None else None
        if left is None:
            return _PING
        write_raw(self._scope, left)
        return b""


class Pulse:
    """Nudges a reader when nothing was written for `interval` seconds (0: never). Costs a token nothing but a counter."""

    def __init__(self, interval: float, writes: Callable[[], int], nudge: Callable[[], None]) -> None:
        self._interval, self._writes, self._nudge = interval, writes, nudge
        self._loop = asyncio.get_running_loop()
        self._seen = 0
        self._timer = self._loop.call_later(interval, self._tick) if interval > 0 else None

    def _tick(self) -> None:
        writes = self._writes()
        if writes == self._seen:
            self._nudge()
        self._seen = writes
        self._timer = self._loop.call_later(self._interval, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def label_of(scope: Scope) -> str:
    """What a client calls itself in a header; a field of the body is the other way."""
    return next((bytes(value).decode("utf-8", "replace") for name, value in scope["headers"] if name == b"x-client-label"), "")
