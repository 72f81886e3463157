"""The live page's first view, made on the server from a state: facts, policy chips, figures, slot rows.

The modules under js/live/ keep it true and write the same words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dashboard import present
from dashboard.policy_words import DEPENDS_ON, DEPENDS_ON_ANY
from dashboard.present import State

HUES = 8
KINDS = {"engine": "engine", "llama_server": "llama-server", "vllm": "vLLM", "openai": "OpenAI-compatible"}
CANNOT = "This server cannot switch policies"
ORDER_OF_STATES = ("generating", "prompt", "held", "waiting", "queued", "idle")
SHORT_NAMES = {
    "prefill_order": "prefill",
    "rotation_start": "rotation",
    "decode_share": "share of generation",
    "barrier_join": "cohort closes at",
    "barrier_join_window_ms": "window, ms",
    "barrier_max_hold_ms": "longest hold, ms",
    "barrier_max_generation_tokens": "tokens at a stretch",
    "speculative": "drafts",
    "speculative_n_max": "draft at most",
    "speculative_n_min": "draft at least",
    "speculative_ngram_size": "lookup of",
}


@dataclass(frozen=True, slots=True)
class SlotRow:
    """One slot in words. Percentages are of the prompt and of the slot's context; "" where the server does not say."""

    id: int
    hue: int
    hatched: bool
    state: str
    mark: str
    since: str
    client: str
    task: str
    cached: float
    done: float
    percent: str
    prompt_words: str
    left: str
    generated: str
    predict: str
    drafts: str
    drafts_words: str
    context: str
    context_words: str
    rate: str
    ttft: str
    waits: str


def slot_row(slot: State, now: float, pooled: bool = False) -> SlotRow:
    """`pooled`: the slots share one pool of cells, so the context is told in tokens, not as a part of a limit of its own."""
    busy = slot["state"] != "idle"
    prompt, cached, done = slot.get("n_prompt") or 0, slot.get("n_cached") or 0, slot.get("n_processed") or 0
    share = min((cached + done) / prompt * 100, 100.0) if prompt else 0.0
    tokens, limit = slot.get("n_tokens"), slot.get("n_ctx")
    return SlotRow(
        id=slot["id"],
        hue=slot["id"] % HUES,
        hatched=slot["id"] >= HUES,
        state=slot["state"],
        mark=present.STATE_MARKS.get(slot["state"], "unknown"),
        since=present.duration(now - slot["since"]) if slot.get("since") else "",
        client=slot.get("client") or slot.get("model") or "",
        task=str(slot["task"]) if slot.get("task") is not None else "",
        cached=round(cached / prompt * 100, 2) if prompt else 0.0,
        done=round(done / prompt * 100, 2) if prompt else 0.0,
        percent=f"{share:.0f} %" if busy and prompt else "",
        prompt_words=f"cached {cached}, done {done}, of {prompt}",
        left=present.grouped(max(prompt - cached - done, 0)) if busy and prompt else "",
        generated=present.grouped(slot.get("n_generated")) if busy else "",
        predict=present.grouped(slot["n_predict"]) if busy and (slot.get("n_predict") or -1) >= 0 else "",
        drafts=drafts_short(slot) if busy else "",
        drafts_words=drafts_right(slot.get("n_drafted"), slot.get("n_accepted")) if busy else "",
        context=_context(tokens, limit, pooled),
        context_words=f"{present.grouped(tokens)} of {present.grouped(limit)} tokens" if tokens is not None and limit else "",
        rate=present.grouped(slot["rate"]) if slot.get("rate") is not None else "",
        ttft=_ttft(slot, now),
        waits=slot.get("waiting_for") or "",
    )


def drafts_short(slot: State) -> str:
    """Short enough for the column of generated tokens."""
    drafted, accepted = slot.get("n_drafted"), slot.get("n_accepted") or 0
    return f"drafts {accepted / drafted * 100:.0f} %" if drafted else ""


def drafts_right(drafted: int | None, accepted: int | None) -> str:
    """How many drafted tokens were right, in words; "" where none were checked."""
    return f"{(accepted or 0) / drafted * 100:.0f} % of drafts right" if drafted else ""


def _context(tokens: int | None, limit: int | None, pooled: bool) -> str:
    if tokens is None or not limit:
        return ""
    return present.grouped(tokens) if pooled else f"{tokens / limit * 100:.0f}"


def pool(state: State) -> str:
    """How full the one pool of cells is, under unified KV; "" where each slot has cells of its own."""
    info = state.get("info") or {}
    used, size = info.get("kv_used") or 0, info.get("kv_size")
    if info.get("kv_mode") != "unified" or not size:
        return ""
    return f"{present.grouped(used)} of {present.grouped(size)} tokens, {used / size * 100:.0f} %"


def _ttft(slot: State, now: float) -> str:
    if slot["state"] == "idle" or not slot.get("submitted_at"):
        return ""
    return f"{max((slot.get('first_token_at') or now) - slot['submitted_at'], 0.0):.1f}"


def summary(slots: list[State]) -> str:
    """4, all busy: 1 prompt, 1 held, 2 generating."""
    counts = Counter(slot["state"] for slot in slots)
    busy = len(slots) - counts["idle"]
    if not busy:
        return f"{len(slots)}, all idle"
    parts = ", ".join(f"{counts[name]} {name}" for name in ORDER_OF_STATES if counts[name])
    return f"{len(slots)}, all busy: {parts}" if busy == len(slots) else f"{len(slots)}: {parts}"


def words(value: Any) -> str:
    """A policy value as pages write it: null is off, shortest_first is shortest first."""
    if value is None:
        return "off"
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value).replace("_", " ")


def field_name(name: str) -> str:
    return SHORT_NAMES.get(name, name.replace("_", " "))


def counts(effective: Mapping[str, Any], name: str) -> bool:
    """Whether a field matters now: the field that it depends on has the value for it, and matters itself."""
    if name in DEPENDS_ON_ANY:
        return effective.get(DEPENDS_ON_ANY[name]) not in (None, "off")
    if name not in DEPENDS_ON:
        return True
    other, wanted = DEPENDS_ON[name]
    return bool(effective.get(other) == wanted) and counts(effective, other)


def chips(state: State) -> list[dict[str, Any]]:
    """A chip for each policy field that counts now; `why` is filled, and the chip amber, when another value is in force."""
    policy = state.get("policy")
    if not policy:
        return []
    asked, effective, reasons = policy["requested"], policy["effective"], policy.get("reasons") or {}
    shown = []
    for name, value in effective.items():
        if not counts(effective, name):
            continue
        why = reasons.get(name, "") if asked.get(name) != value else ""
        text = words(value) + (_cohort_words(state) if name == "phase" else "")
        shown.append({"name": name, "label": field_name(name), "value": text, "asked": words(asked.get(name)), "why": why})
    return shown


def _cohort_words(state: State) -> str:
    cohort = (state.get("phase") or {}).get("cohort")
    return f", cohort {cohort['id']} ({len(cohort['completed'])} of {len(cohort['members'])} done)" if cohort else ""


def facts(state: State) -> list[dict[str, str]]:
    """Name, value and a quiet addition; `wide` facts are left out on a phone."""
    info, kind = state.get("info") or {}, state["server"]["kind"]
    build = info.get("build") or ""
    rows = [
        ("Kind and build", KINDS.get(kind, kind), build, "wide"),
        ("Model", info.get("model") or "unknown", "", ""),
        ("Slots", _slots_fact(info), "", ""),
        ("KV", info.get("kv_mode") or "not exported", f"(from {info['kv_from']})" if info.get("kv_from") else "", ""),
        ("n_batch, n_ubatch", _pair(info.get("n_batch"), info.get("n_ubatch")), "", ""),
        ("Threads", str(info["n_threads"]) if info.get("n_threads") else "not exported", "", "wide"),
    ]
    return [{"name": name, "value": value, "more": more, "only": only} for name, value, more, only in rows]


def _slots_fact(info: State) -> str:
    if not info.get("n_slots"):
        return "unknown"
    each = info.get("n_ctx_slot")
    return f"{info['n_slots']} × {present.grouped(each)} tokens" if each else str(info["n_slots"])


def _pair(first: int | None, second: int | None) -> str:
    return "not exported" if first is None else f"{first}, {second if second is not None else 'not exported'}"


def figures(state: State) -> list[dict[str, str]]:
    """The four figures: key, title, value, unit, and why it is missing."""
    told, queue, missing = state.get("figures") or {}, state.get("queue") or {}, state.get("missing") or {}
    oldest = f"tasks, oldest {present.duration(queue['oldest_s'])}" if queue.get("depth") and queue.get("oldest_s") else "tasks"
    rows = [
        ("prompt", "Prompt tokens", present.grouped(told.get("prompt_tps")), "tokens/s", "figures.prompt_tps"),
        ("gen", "Generated tokens", present.grouped(told.get("gen_tps")), "tokens/s", "figures.gen_tps"),
        ("queue", "Queue", present.grouped(queue.get("depth")), oldest, "queue"),
        ("stall", "Worst stall, last minute", _tenth(told.get("worst_stall_s")), "s", "figures.worst_stall_s"),
    ]
    unseen = "" if state["health"]["state"] in present.ANSWERS else "not known while it does not answer"
    return [
        {
            "key": key,
            "title": title,
            "value": value,
            "unit": unit if value else "",
            "why": "" if value else _why(missing, name) or unseen,
        }
        for key, title, value, unit, name in rows
    ]


def _why(missing: State, name: str) -> str:
    """`missing` names a part by its path or by its last name."""
    return str(missing.get(name) or missing.get(name.rpartition(".")[2]) or "")


def _tenth(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def cannot_switch(state: State) -> str:
    """Why policies cannot be switched here; "" when they can."""
    told = state.get("switching") or {}
    why = told.get("why_not") or "it does not offer its scheduler"
    return "" if told.get("can") else why if why.startswith(CANNOT) else f"{CANNOT}: {why}"


def reverting(state: State, now: float) -> dict[str, Any] | None:
    """The countdown of a policy that goes back by itself; None when it stays. `fields` are those that change back."""
    policy = state.get("policy")
    if not policy or not policy.get("reverts_at"):
        return None
    asked, back = policy["requested"], policy.get("reverts_to") or {}
    fields = {name: back[name] for name, value in asked.items() if name in back and back[name] != value}
    text = ", ".join(f"{field_name(name)} goes back to {words(value)}" for name, value in fields.items())
    left = max(policy["reverts_at"] - now, 0.0)
    why = f"Set for: {policy['reason']}. " if policy.get("reason") else ""
    return {
        "what": (text or "The policy goes back")[:1].upper() + (text or "The policy goes back")[1:],
        "why": f"{why}The server goes back by itself.",
        "fields": fields,
        "left": f"{int(left) // 60}:{int(left) % 60:02}",
        "seconds": round(left),
        "span": max(round(policy["reverts_at"] - (policy.get("changed_at") or now)), 1),
    }


def trouble(state: State, now: float) -> str:
    """One sentence for a server that does not answer or does not serve; "" otherwise."""
    health = state["health"]
    if health["state"] not in ("down", "not_serving", "silent", "unauthorised"):
        return ""
    timed = health["state"] in present.TIMED or not health.get("since")
    since = "" if timed else f" for {present.duration(now - health['since'])}"
    told = f": {health['detail'].rstrip('.')}" if health.get("detail") else ""
    below = "" if health["state"] in present.ANSWERS else " What stands below is what was seen last."
    return f"{present.health_of(state).word}{since}{told}.{below}"
