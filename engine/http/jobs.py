"""A request on its way through the runner: its tasks, their readers, and the end of those that fail."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive

from engine.delivery import Chunk, Done, Event, Handle, Mailbox, PromptProgress
from engine.door import NeverFits, Refused
from engine.http.body import watch_client
from engine.http.errors import ApiError
from engine.http.formats import Format
from engine.http.requests import CompletionRequest
from engine.runner import Runner
from engine.scheduler.task import Task


@dataclass(frozen=True, slots=True)
class Job:
    """A request ready to run: its tasks, a handle for each answer in order of index, and the shape of the answers."""

    request: CompletionRequest
    tasks: tuple[Task, ...]
    handles: tuple[Handle, ...]
    mailbox: Mailbox
    format: Format

    def reserve(self, runner: Runner) -> None:
        """Before any byte of an answer; ApiError when there is no room for all of the tasks."""
        try:
            runner.door.reserve(self.tasks)
        except Refused as exc:
            raise ApiError(503, exc.message, retry_after=exc.retry_after) from None
        except NeverFits as exc:
            raise ApiError(400, str(exc), field="prompt") from None

    def submit(self, runner: Runner) -> asyncio.TimerHandle | None:
        """The timer that ends tasks which wait for too long, if there is a limit; to be cancelled at the end."""
        for task in self.tasks:
            runner.submit(task, [handle for handle in self.handles if handle.task is task])
        limit = self.request.queue_timeout_ms
        if not limit:
            return None
        message = f"No work on the prompt began within {limit} ms (queue_timeout_ms): the server is busy."
        return asyncio.get_running_loop().call_later(limit / 1e3, runner.expire, [task.id for task in self.tasks], message)

    def encode(self, event: Event) -> bytes:
        """Called for events before the end of a task, by the loop thread or the reader, never by both at a time."""
        if isinstance(event, Chunk):
            return self.format.chunk(event)
        return self.format.progress(event) if isinstance(event, PromptProgress) else b""

    def cancel(self, runner: Runner) -> None:
        runner.cancel([handle.task_id for handle in self.handles])


def task_error(done: Done) -> ApiError:
    """A task that ended by a fault: of its request (found late), or of the server."""
    finished = done.finished
    if done.stop == "cancelled":
        return ApiError(503, "The task was cancelled.")
    kind = finished.error_type.value if finished.error_type is not None else "server_error"
    if kind == "unavailable_error":
        return ApiError(503, finished.error)
    if kind == "server_error":
        return ApiError(500, finished.error)
    details = {"n_prompt_tokens": finished.n_prompt} if kind == "exceed_context_size_error" else {}
    return ApiError(400, finished.error, type_=kind, **details)


async def collect(job: Job, runner: Runner, receive: Receive) -> Any:
    """Runs the tasks to their end; ApiError when one fails, ReaderGone when nobody waits any more."""
    dones: dict[int, Done] = {}
    job.reserve(runner)
    watch = asyncio.create_task(watch_client(receive, job.mailbox.close))
    timer = job.submit(runner)
    try:
        while len(dones) < len(job.handles):
            for event in await job.mailbox.take():
                if isinstance(event, Done):
                    if event.stop in ("error", "cancelled"):
                        raise task_error(event)
                    dones[event.handle.index] = event
    finally:
        watch.cancel()
        if timer is not None:
            timer.cancel()
        if len(dones) < len(job.handles):
            job.cancel(runner)
    return job.format.whole([dones[index] for index in sorted(dones)])
