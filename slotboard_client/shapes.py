"""What the API answers, as values. Each keeps the whole answer in `raw`; keys that a newer console adds are found there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

type Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    raw: Json = field(repr=False, compare=False, default_factory=dict)

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Self:
        """Raises TypeError for an answer that lacks a field."""
        known = {each.name: answer[each.name] for each in fields(cls) if each.name in answer and each.name != "raw"}
        return cls(**known, raw=dict(answer))


@dataclass(frozen=True, slots=True, kw_only=True)
class Server(Shape):
    """`health` and `state` as docs/protocol.md section 2 has them, None without an observer."""

    id: int
    name: str
    kind: str
    base_url: str
    enabled: bool
    model: str = ""
    health: Json | None = None
    state: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyField(Shape):
    name: str
    meaning: str = ""
    takes_effect: str = ""
    requested: Any = None
    effective: Any = None
    why: str = ""
    values: list[Any] | None = None
    minimum: float | None = None
    maximum: float | None = None
    nullable: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(Shape):
    server: int
    can: bool
    why_not: str
    version: int | None
    requested: Json
    effective: Json
    reverts_at: float | None
    reverts_to: Json | None
    reason: str

    @property
    def fields(self) -> list[PolicyField]:
        return [PolicyField.of(each) for each in self.raw["fields"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChange(Shape):
    id: int
    at: str
    actor_name: str
    reason: str
    old: Json
    changes: Json
    new: Json
    version: int | None
    effective_from_iteration: int | None
    ttl_s: float | None
    outcome: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift(Shape):
    """The policy is not what it was known to be. `cause`: restart or elsewhere; `state`: open, reapplied, left, superseded."""

    id: int
    found_at: str
    cause: str
    expected: Json
    found: Json
    version: int
    state: str
    settled_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard(Shape):
    """A guard rail of a change. `state`: watching, reverted, failed, ended; `conditions` with what each reads now."""

    id: int
    change: int
    version: int
    state: str
    until: str | None
    text: str
    conditions: list[Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(Shape):
    """A policy by the clock. `next` is the edge to come, {"what", "due"}, None while it is off; `last` its last attempts."""

    id: int
    name: str
    when: str
    enabled: bool
    inside: Json
    outside: Json | None
    by: str
    next: Json | None
    last: list[Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset(Shape):
    key: str
    name: str
    meaning: str
    values: Json
    built_in: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario(Shape):
    """`text` is None in a list."""

    name: str
    own: bool
    title: str
    summary: str
    tags: list[str]
    streams: list[str]
    fault: str
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Shape):
    """`progress` has done and total (blocks) and text; `verdict` is None where it was not asked for."""

    id: int
    scenario: str
    server: int | None
    server_name: str
    state: str
    arms: dict[str, Json]
    pairs: int
    progress: Json
    by: str
    created_at: str
    finished_at: str | None
    verdict: str | None
    error: str

    @property
    def active(self) -> bool:
        return self.state in ("waiting", "queued", "running", "stopping")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(Shape):
    """Durations in seconds, None where the stage was not reached."""

    pair: int
    arm: str
    stream: str
    client: str
    outcome: str
    ok: bool
    counted: bool
    sent_at: float
    wait_s: float | None
    ttft_s: float | None
    wall_s: float | None
    n_prompt: int | None
    n_cached: int | None
    n_generated: int | None
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow(Shape):
    seq: int
    at: str
    actor_name: str
    through: str
    action: str
    subject: str
    server_name: str
    before: Any
    after: Any
    why: str
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert(Shape):
    id: int
    kind: str
    severity: str
    server: int | None
    server_name: str
    text: str
    opened_at: str
    closed_at: str | None
    acknowledged_by: str
    silenced_until: str | None
