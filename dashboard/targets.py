"""The servers that a new experiment can have as its target: which can take it, what they are, and why others cannot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dashboard.charts import words
from scheduler_api import selectors as registry
from scheduler_api.models import Server
from workers import selectors as runs
from workers.models import Run
from workers.scenarios import Scenario
from workers.scenarios.streams import LoadScenario


@dataclass(frozen=True, slots=True)
class Target:
    """A registered server; `why_not` says why it cannot be a target, `facts` what it is, `busy` the run that has it now."""

    server: Server
    state: Mapping[str, Any] | None
    why_not: str
    facts: str
    busy: Run | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """The policy fields that an arm can set there."""
        return dict(((self.state or {}).get("switching") or {}).get("fields") or {})

    @property
    def switches(self) -> bool:
        return bool(((self.state or {}).get("switching") or {}).get("can"))

    @property
    def n_ctx(self) -> int | None:
        return ((self.state or {}).get("info") or {}).get("n_ctx_slot")


def targets(servers: Iterable[Server], scenario: Scenario | LoadScenario | None) -> list[Target]:
    """Those that can be measured first."""
    listed = list(servers)
    states = registry.live_states([server.pk for server in listed])
    found = [_target(server, states.get(server.pk), isinstance(scenario, LoadScenario)) for server in listed]
    return sorted(found, key=lambda target: (bool(target.why_not), target.server.name))


def _target(server: Server, state: Mapping[str, Any] | None, streams: bool) -> Target:
    """A load of streams runs on any server that serves; warm-behind-cold needs policies to switch and two slots."""
    if state is None:
        return Target(server, None, "No observer reports on it, so it is not known what it can do.", "")
    info, switching = state.get("info") or {}, state.get("switching") or {}
    busy = runs.active_run(server)
    if state["health"]["state"] not in ("up", "silent", "sleeping"):
        why_not = f"It does not serve now: {state['health'].get('detail') or state['health']['text']}"
    elif streams:
        why_not = ""
    elif not switching.get("can"):
        why_not = switching.get("why_not") or "Its policies cannot be switched."
    elif (info.get("n_slots") or 0) < 2:
        why_not = "It has one slot; the scenario needs two."
    else:
        why_not = ""
    return Target(server, state, why_not, _facts(info), busy)


def _facts(info: Mapping[str, Any]) -> str:
    kind = "OpenAI-compatible server" if info.get("backend") == "openai" else ""
    parts = [info.get("model") or "", info.get("build") or kind]
    if info.get("n_slots") and info.get("n_ctx_slot"):
        parts.append(f"{info['n_slots']} × {words.whole(info['n_ctx_slot'])} tokens")
    return ", ".join(part for part in parts if part)


def choose(listed: list[Target], asked: int | None) -> Target | None:
    """The target asked for, else the first that is free, else the first that can be measured, else the first."""
    wanted = next((target for target in listed if target.server.pk == asked), None)
    usable = [target for target in listed if not target.why_not]
    free = next((target for target in usable if target.busy is None), None)
    return wanted or free or next(iter(usable), None) or next(iter(listed), None)
