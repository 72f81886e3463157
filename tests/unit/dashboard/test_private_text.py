"""What people ask a model, and what it answers, never reaches the console: readers of servers take counts and times."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from scheduler_api.kinds import engine_state, engine_tasks, llama_slots

PRIVATE = "my diagnosis is"
TEXTS = {
    "prompt": PRIVATE,
    "prompt_text": PRIVATE,
    "generated": PRIVATE,
    "content": PRIVATE,
    "text": PRIVATE,
    "messages": [PRIVATE],
}


def told(value: Any) -> str:
    return json.dumps(value)


def test_slots_of_a_llama_server() -> None:
    raw = {"id": 0, "is_processing": True, "id_task": 3, "n_ctx": 4096, "params": {"n_predict": 9, **TEXTS}} | TEXTS
    raw["next_token"] = [{"n_decoded": 2, **TEXTS}]
    slot = llama_slots.parse_slot(raw)
    assert slot is not None
    assert PRIVATE not in told(asdict(slot))
    assert slot.n_generated == 2


def test_slots_tasks_and_iterations_of_the_engine() -> None:
    slot = engine_state.slot_of({"id": 0, "state": "prompt", "task": 3, "params": TEXTS, "n_prompt": 7, **TEXTS})
    task = engine_tasks.task_of({"id": 3, "slot": 0, "params": TEXTS, **TEXTS})
    iteration = engine_state.iteration_of({"iteration": 5, "tasks": [TEXTS], **TEXTS})
    assert slot["id"] == 0
    assert PRIVATE not in told([slot, task, iteration])
