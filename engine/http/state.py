"""What the routes share: the options, and the runner with its model once that is loaded."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from engine.clock import Clock
from engine.http.chat import ChatTemplate
from engine.http.errors import ApiError
from engine.options import Options
from engine.runner import Runner


@dataclass(slots=True)
class ServerState:
    options: Options
    clock: Clock
    started_at: float
    runner: Runner | None = None
    template: ChatTemplate | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    task_ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def ready(self, runner: Runner) -> None:
        """The model is loaded: from now on requests are served."""
        self.template = ChatTemplate(runner.backend.info)
        self.runner = runner

    @property
    def live(self) -> Runner:
        if self.runner is None:
            raise loading_error()
        return self.runner


def loading_error() -> ApiError:
    return ApiError(503, "Loading model")
