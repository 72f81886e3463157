"""A console in memory that the command speaks to instead of one on a network."""

from __future__ import annotations

from typing import Any

from slotboard_client import cli

TOKEN = "slotboard_a-secret"
SERVER = {"id": 3, "name": "local", "kind": "engine", "base_url": "http://x", "enabled": True, "health": None, "state": None}
FIELDS = [
    {"name": "prefill_order", "requested": "physical", "effective": "physical", "values": ["physical", "rotating"], "why": ""},
    {"name": "speculative", "requested": "off", "effective": "off", "values": ["off", "ngram"], "why": ""},
    {"name": "prefill_chunk", "requested": None, "effective": None, "values": None, "why": ""},
]
POLICY = {
    "server": 3, "can": True, "why_not": "", "version": 41, "reverts_at": None, "reverts_to": None, "reason": "why",
    "requested": {"prefill_order": "physical"}, "effective": {"prefill_order": "physical"}, "fields": FIELDS,
}  # fmt: skip
CHANGE = {
    "id": 12, "at": "2026-05-01T09:00:00Z", "actor_name": "mira", "reason": "why", "old": {"prefill_order": "physical"},
    "changes": {"prefill_order": "rotating"}, "new": {"prefill_order": "physical"}, "version": 42,
    "effective_from_iteration": 7, "ttl_s": None, "outcome": "applied", "error": "",
}  # fmt: skip
RUN = {
    "id": 7, "scenario": "agents", "server": 3, "server_name": "local", "state": "finished", "pairs": 1, "by": "mira",
    "arms": {"A": {}, "B": {"phase": "barrier"}}, "progress": {"done": 3, "total": 3, "text": ""},
    "created_at": "2026-05-01T09:00:00Z",
    "finished_at": None, "verdict": "", "error": "",
}  # fmt: skip
RATIO = {"median": 0.5, "low": 0.4, "high": 0.6}
RESULT = {
    "verdict": "B was faster.", "warnings": ["Few pairs."],
    "measures": [{"label": "TTFT", "unit": "s", "a": {"median": 2.0}, "b": {"median": 1.0}, "ratio": RATIO, "word": "faster"}],
}  # fmt: skip


class FakeConsole:
    """Answers by method and path; notes what was sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, Any]] = []
        self.answers: dict[str, Any] = {
            "GET servers/3": SERVER, "GET servers/3/policy": POLICY, "PATCH servers/3/policy": CHANGE,
            "POST servers/3/policy/revert": CHANGE, "POST runs": RUN | {"state": "queued"}, "GET runs/7": RUN,
            "GET runs/7/result": RESULT,
            "POST runs/7/stop": RUN | {"state": "stopped"},
        }  # fmt: skip
        self.lists: dict[str, list[Any]] = {"servers": [SERVER]}

    def call(self, method: str, path: str, body: Any = None, query: Any = None) -> Any:
        self.sent.append((method, path, body))
        answer = self.answers[f"{method} {path}"]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def items(self, path: str, **filters: Any) -> Any:
        self.sent.append(("LIST", path, {name: value for name, value in filters.items() if value not in (None, "")}))
        return iter(self.lists[path])

    def bodies(self, method: str) -> list[Any]:
        return [body for verb, _, body in self.sent if verb == method]


def run(*words: str) -> int:
    return cli.main(words)
