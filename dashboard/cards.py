"""The overview's cards: one server in words, marks and cells. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dashboard import first_view, present
from dashboard.present import Health, State

CELLS = {"generating": "g", "prompt": "p", "held": "h", "waiting": "w", "queued": "w", "idle": ""}
CELL_ORDER = ("generating", "prompt", "held", "waiting", "queued", "idle")
UNKNOWN_CELL = "x"
MOST_CELLS = 64
LONG_STALL_S = 10.0
LONG_WAIT_S = 5.0
UNEVEN = 0.6  # Jain's index of the clients below which a card says so


@dataclass(frozen=True, slots=True)
class Alerts:
    """A server's open alerts as a mark and words: "critical: Stuck slot", "3 alerts, worst critical: Stuck slot"."""

    mark: str
    tone: str
    words: str
    rank: float


#: severity -> mark of the sprite, tone, rank (low = more trouble) between those of present.HEALTH: a server that serves badly
#: comes before those that nobody watches
SEVERITIES = {"critical": ("stuck", "is-bad", 1.5), "warning": ("warn", "is-warn", 3.5), "info": ("info", "q", 8.0)}
NO_ALERT = 9.0


@dataclass(frozen=True, slots=True)
class Beside:
    """What is known of a server beside its live state: `alerts` with count, severity and kind; `drift` with its cause."""

    alerts: Any = None
    drift: Any = None


@dataclass(frozen=True, slots=True)
class Card:
    pk: int
    name: str
    kind: str
    state: str  # of health
    health: Health
    frame: str  # "bad", "warn" or ""
    calm: bool  # nothing to do and nothing wrong
    lead: str
    words: str
    cells: list[str]
    load: str
    queue: str
    stall: str
    rates: str
    policy: str
    run: Any
    alerts: Alerts | None
    sort: tuple[float, ...]
    slots: int
    busy: int
    depth: int
    oldest: float


def alerts_of(found: Any) -> Alerts | None:
    if found is None:
        return None
    mark, tone, rank = SEVERITIES.get(found.severity, SEVERITIES["info"])
    head = f"{found.count} alerts, worst {found.severity}" if found.count > 1 else found.severity
    return Alerts(mark, tone, f"{head}: {found.kind}", rank)


def _drift_words(drift: Any) -> str:
    if drift is None:
        return ""
    return "It lost its policy at a restart." if drift.cause == "restart" else "Its policy was changed from elsewhere."


def card(server: Any, state: State | None, run: Any, now: float, beside: Beside | None = None) -> Card:
    known = beside or Beside()
    alerts, drifted = alerts_of(known.alerts), _drift_words(known.drift)
    health = present.health_of(state)
    name = state["health"]["state"] if state else "unknown"
    seen = name in present.ANSWERS
    slots = list((state or {}).get("slots") or [])
    info, queue, told = ((state or {}).get(part) or {} for part in ("info", "queue", "figures"))
    n_slots = len(slots) or info.get("n_slots") or 0
    busy = sum(slot["state"] != "idle" for slot in slots) if seen else 0
    lead, words = _words(health, name, state, now)
    alert_rank = alerts.rank if alerts is not None else NO_ALERT
    depth, oldest = (queue.get("depth") or 0, queue.get("oldest_s") or 0.0) if seen else (0, 0.0)
    return Card(
        pk=server.pk,
        name=server.name,
        kind=first_view.KINDS.get(server.kind, server.kind),
        state=name,
        health=health,
        frame={"is-bad": "bad", "is-warn": "warn"}.get(health.tone, "warn" if drifted else ""),
        calm=seen and name != "not_serving" and not busy and not depth and not drifted and alerts is None,
        lead=lead,
        words=f"{drifted} {words}".strip(),
        cells=_cells(slots, seen, n_slots),
        load=_load(slots, seen, n_slots, busy),
        queue=_queue(queue) if seen else "",
        stall=present.duration(told.get("worst_stall_s")) if seen else "",
        rates=_rates(told) if seen else "",
        policy=_policy(state, seen),
        run=run,
        alerts=alerts,
        sort=(
            min(health.rank, alert_rank),
            alert_rank,
            -float(bool(drifted)),
            -float(bool(_differs(state))),
            -(told.get("worst_stall_s") or 0.0 if seen else 0.0) // LONG_STALL_S,
            -float(busy > 0),
        ),
        slots=n_slots,
        busy=busy,
        depth=depth,
        oldest=oldest,
    )


def _differs(state: State | None) -> list[str]:
    policy = (state or {}).get("policy") or {}
    return [name for name, value in (policy.get("effective") or {}).items() if policy["requested"].get(name) != value]


def _words(health: Health, name: str, state: State | None, now: float) -> tuple[str, str]:
    if state is None:
        return "Not watched.", "No observer reports on it; start one with: manage.py observe"
    told = state["health"]
    timed = name in present.TIMED or not told.get("since")
    since = "" if timed else f" for {present.duration(now - told['since'])}"
    detail = (told.get("detail") or "").rstrip(".")
    if name != "up":
        return f"{health.word}{since}{':' if detail else '.'}", f"{detail}." if detail else ""
    parts = [
        f"{first_view.words(field).capitalize()} {first_view.words(state['policy']['requested'][field])} is not in force."
        for field in _differs(state)
    ]
    held = [slot for slot in state.get("slots") or [] if slot["state"] == "held"]
    if held:
        parts.append(
            f"Slot {held[0]['id']} is {held[0]['waiting_for'].partition(':')[0] or 'held'}."
            if len(held) == 1
            else f"{len(held)} slots are held."
        )
    parts += _unfair(state.get("fairness") or {})
    if (state.get("info") or {}).get("backend") == "simulated":
        parts.append("Simulated backend: no model is computed.")
    busy = any(slot["state"] != "idle" for slot in state.get("slots") or [])
    lead = health.word if busy or not state.get("slots") else "Idle"
    return f"{lead}.", " ".join(parts) or ((state.get("info") or {}).get("model") or "")


def _unfair(told: State) -> list[str]:
    """Who has waited long, and whether the clients of the last minute got very different amounts."""
    parts = []
    if (told.get("oldest_wait_s") or 0.0) >= LONG_WAIT_S:
        parts.append(f"Slot {told['oldest_wait_slot']} has waited for {present.duration(told['oldest_wait_s'])}.")
    jain = told.get("jain_clients")
    if jain is not None and jain < UNEVEN and len(told.get("clients") or []) > 1:
        parts.append(f"Clients get uneven shares, Jain {jain:.2f}.")
    return parts


def _cells(slots: list[Any], seen: bool, n_slots: int) -> list[str]:
    """Busy ones first, so that the bar fills from the left; more slots than fit share cells in proportion."""
    if not seen or not slots:
        return [UNKNOWN_CELL] * min(n_slots, MOST_CELLS)
    counts = Counter(slot["state"] for slot in slots)
    filled = [CELLS[name] for name in CELL_ORDER for _ in range(counts[name])]
    return filled if len(filled) <= MOST_CELLS else [filled[index * len(filled) // MOST_CELLS] for index in range(MOST_CELLS)]


def _load(slots: list[Any], seen: bool, n_slots: int, busy: int) -> str:
    if not n_slots:
        return "slots unknown"
    return f"{busy} of {n_slots} busy" if seen and slots else f"{n_slots} slots, unknown"


def _queue(queue: State) -> str:
    depth = queue.get("depth")
    if depth is None:
        return ""
    return f"{depth}, {present.duration(queue['oldest_s'])}" if depth and queue.get("oldest_s") else str(depth)


def _rates(told: State) -> str:
    prompt, generated = told.get("prompt_tps"), told.get("gen_tps")
    if prompt is None and generated is None:
        return ""
    return f"{present.grouped(prompt) or '–'}, {present.grouped(generated) or '–'}"


def _policy(state: State | None, seen: bool) -> str:
    policy = (state or {}).get("policy")
    if not policy:
        if state and (state.get("info") or {}).get("backend") == "openai":
            return "no policy told"
        return "policy fixed at start" if state and not (state.get("switching") or {}).get("can") else "policy unknown"
    effective = policy["effective"]
    shown = ", ".join(first_view.words(effective[name]) for name in ("prefill_order", "phase") if name in effective)
    return shown if seen else f"last: {shown}"


def total(cards: Iterable[Card]) -> str:
    """12, worst first. 73 slots: 35 busy, 24 idle, 14 unknown. 9 tasks queue, the oldest for 3 min 18 s."""
    listed = list(cards)
    if not listed:
        return ""
    slots, busy = sum(each.slots for each in listed), sum(each.busy for each in listed)
    unknown = sum(each.slots for each in listed if each.state not in present.ANSWERS or UNKNOWN_CELL in each.cells)
    text = f"{len(listed)}, worst first. {present.grouped(slots)} slots: {busy} busy, {slots - busy - unknown} idle"
    text += f", {unknown} unknown." if unknown else "."
    depth = sum(each.depth for each in listed)
    if depth:
        oldest = present.duration(max(each.oldest for each in listed))
        text += f" {depth} {'task queues' if depth == 1 else 'tasks queue'}, the oldest for {oldest}."
    return text


def filters(cards: Iterable[Card]) -> list[dict[str, Any]]:
    """One for each state of health that occurs, worst first."""
    counts = Counter(each.state for each in cards)
    return [
        {"state": state, "mark": mark, "tone": tone, "word": word.lower(), "count": counts[state]}
        for state, (mark, tone, word, _) in present.HEALTH.items()
        if counts[state]
    ]


def of(
    servers: Iterable[Any],
    states: Mapping[int, State],
    runs: Mapping[int, Any],
    now: float,
    beside: Mapping[int, Beside] | None = None,
) -> list[Card]:
    """Worst first, then by name."""
    known = beside or {}
    made = [card(server, states.get(server.pk), runs.get(server.pk), now, known.get(server.pk)) for server in servers]
    return sorted(made, key=lambda each: (each.sort, each.name))
