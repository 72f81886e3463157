"""What the log says of faults, cohorts and policies, as text and as JSON; and what it never says."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from engine.backends.base import BackendError, KvFull
from engine.log import PLAIN, JsonLines
from engine.options import parse_options
from engine.scheduler.plan import Outcome, Plan
from tests.unit.engine.harness import FLAGS, FakeBackend, served

SECRET = "horse battery staple"


class Lines(logging.Handler):
    """Keeps what a formatter made of each record."""

    def __init__(self) -> None:
        super().__init__()
        self.formatters = (JsonLines(), logging.Formatter(PLAIN))
        self.json: list[dict[str, object]] = []
        self.plain: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        as_json, plain = (formatter.format(record) for formatter in self.formatters)
        self.json.append(json.loads(as_json))
        self.plain.append(plain)

    def of(self, logger: str) -> list[dict[str, object]]:
        return [line for line in self.json if line["logger"] == logger]


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines()
    loggers = logging.getLogger("engine"), logging.getLogger("asyncio")
    for logger in loggers:
        logger.addHandler(handler)
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
    yield handler
    for logger, level in zip(loggers, levels, strict=True):
        logger.removeHandler(handler)
        logger.setLevel(level)


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend(parse_options(FLAGS, {}).backend_options)


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [(KvFull("full"), "Context size has been exceeded."), (BackendError("Compute error"), "Compute error.")],
)
async def test_a_failed_iteration_is_one_warning_with_slots_and_tasks(
    lines: Lines, backend: FakeBackend, fault: Exception, sentence: str
) -> None:
    async with served(backend=backend) as engine:
        backend.fault = fault
        await engine.post("/completion", {"prompt": SECRET, "n_predict": 2})
    (line,) = lines.of("engine.scheduler")
    assert line["level"] == "warning"
    assert line["message"] == f"Iteration 1 failed: {sentence} Its tasks end: 1 in slots 1"
    assert (line["iteration"], line["slots"], line["tasks"], line["policy_version"]) == (1, [1], [1], 1)
    assert str(line["time"]).endswith("Z")


async def test_an_unknown_fault_has_its_traceback_in_one_line(lines: Lines, backend: FakeBackend) -> None:
    async with served(backend=backend) as engine:
        backend.fault = ZeroDivisionError("of a kind")
        await engine.post("/completion", {"prompt": SECRET, "n_predict": 2})
    (line,) = lines.of("engine.runner")
    assert "ZeroDivisionError: of a kind" in str(line["exception"])


class FakeBackendOfOneSlot(FakeBackend):
    """Fails slot 1 alone."""

    def run(self, plan: Plan) -> Outcome:
        outcome = super().run(plan)
        tokens = {slot: token for slot, token in outcome.tokens.items() if slot != 1}
        return Outcome(tokens, {1: "no token could be drawn"} if any(entry.slot == 1 for entry in plan.entries) else {})


async def test_a_task_that_fails_alone_is_one_warning(lines: Lines) -> None:
    async with served(backend=FakeBackendOfOneSlot(parse_options(FLAGS, {}).backend_options)) as engine:
        answer = await engine.post("/completion", {"prompt": SECRET, "id_slot": 1, "n_predict": 2})
        assert answer.status_code == 500
        assert (await engine.post("/completion", {"prompt": SECRET, "id_slot": 0, "n_predict": 2})).status_code == 200
    (line,) = lines.of("engine.scheduler")
    assert line["message"] == "Task 1 in slot 1 failed: no token could be drawn."
    assert (line["task"], line["slot"]) == (1, 1)


async def test_cohorts_and_policies_are_lines_with_fields(lines: Lines) -> None:
    async with served() as engine:
        body = {"expected_version": 1, "set": {"phase": "barrier"}, "reason": "a trial"}
        await engine.client.patch("/scheduler/policy", json=body)
        await engine.post("/completion", {"prompt": SECRET, "n_predict": 2})
    policy, cohort = lines.of("engine.scheduler")
    assert (policy["policy_version"], policy["iteration"]) == (2, 1)
    assert "phase=barrier" in str(policy["message"])
    assert (cohort["cohort"], cohort["iteration"], cohort["slots"], cohort["policy_version"]) == (1, 1, [1], 2)


async def test_no_line_holds_text_of_a_prompt(lines: Lines, backend: FakeBackend) -> None:
    async with served("--queue-limit", "0", backend=backend) as engine:
        for path, body in (
            ("/completion", {"prompt": SECRET, "n_predict": 1}),
            ("/completion", {"prompt": [SECRET] * 9}),
            ("/completion", {"prompt": SECRET, "n_predict": "x"}),
            ("/completion", {"prompt": SECRET * 99}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 1}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": {"odd": SECRET}}]}),
        ):
            backend.fault = BackendError("Compute error.")
            await engine.post(path, body)
    text = "".join(lines.plain) + json.dumps(lines.json)
    assert "Compute error" in text
    assert not any(word in text for word in SECRET.split())


def test_a_handle_in_a_traceback_or_a_callback_shows_no_prompt() -> None:
    """asyncio writes the arguments of a callback that failed."""
    from engine.delivery import Chunk, Handle, Mailbox
    from engine.scheduler.task import Task
    from engine.text import TextStream

    task = Task(1, [77777, 88888])
    handle = Handle(task, 1, 0, Mailbox(), TextStream(()), stream=False, parts=[SECRET], tokens=[77777])
    shown = repr(handle) + repr(task) + repr(Chunk(handle, SECRET, [77777], 1, 0.0))
    assert not any(word in shown for word in (*SECRET.split(), "77777", "88888"))
