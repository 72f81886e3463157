"""What to know before a policy is switched, from docs/scheduler.md and what the server does at the moment. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

type Json = Mapping[str, Any]

#: Generations without a limit, or with one that no reader waits for.
ENDLESS_TOKENS = 16_384
MOST_NAMED = 3
MUCH_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Caution:
    """`severe`: it can stop requests from being served, so it is to be confirmed by itself."""

    text: str
    severe: bool = False


def cautions(changes: Json, policy: Json, state: Json | None, ttl_s: float | None) -> list[Caution]:
    """`policy`: the one that `changes` would be set in. Severe ones first."""
    after = {**policy["requested"], **changes}
    found = [
        *_barrier(changes, after, state or {}),
        *_order(changes, after, state or {}),
        *_share(changes, after, state or {}),
        *_trial(policy, ttl_s),
    ]
    return sorted(found, key=lambda each: not each.severe)


def _touches(changes: Json, *names: str) -> bool:
    return any(name in changes for name in names)


def _barrier(changes: Json, after: Json, state: Json) -> Iterable[Caution]:
    if after.get("phase") != "barrier" or not _touches(
        changes, "phase", "barrier_max_generation_tokens", "barrier_max_hold_ms", "barrier_join", "barrier_join_window_ms"
    ):
        return
    endless = [slot for slot in state.get("slots") or [] if _endless(slot)]
    if after.get("barrier_max_generation_tokens") is None:
        if endless:
            yield Caution(
                f"{_named(endless)} without an end, and no barrier_max_generation_tokens bounds it: prompts wait for the next "
                "cohort, which does not begin before those generations end. Set a cap, or they may wait for ever.",
                severe=True,
            )
        else:
            yield Caution(
                "Without barrier_max_generation_tokens an arrival waits for the longest answer of the cohort before it."
            )
    if after.get("barrier_max_hold_ms") is None:
        yield Caution(
            "Without barrier_max_hold_ms a finished prompt is held for as long as the longest prompt of its cohort takes."
        )
    if after.get("barrier_join") == "window" and (after.get("barrier_join_window_ms") or 0) > 10_000:
        yield Caution(
            "A cohort that takes arrivals in for more than 10 s keeps its finished prompts waiting for the last of them."
        )


def _endless(slot: Json) -> bool:
    if slot.get("state") not in ("generating", "prompt", "waiting", "held", "queued"):
        return False
    limit = slot.get("n_predict")
    return limit is None or limit < 0 or limit >= ENDLESS_TOKENS


def _named(slots: list[Json]) -> str:
    told = [f"{slot['id']}{' (' + slot['client'] + ')' if slot.get('client') else ''}" for slot in slots[:MOST_NAMED]]
    more = f" and {len(slots) - MOST_NAMED} more" if len(slots) > MOST_NAMED else ""
    return f"Slot{'s' if len(slots) > 1 else ''} {', '.join(told)}{more} generate{'' if len(slots) > 1 else 's'}"


def _order(changes: Json, after: Json, state: Json) -> Iterable[Caution]:
    order, info = after.get("prefill_order"), state.get("info") or {}
    if not _touches(changes, "prefill_order", "rotation_start"):
        return
    if info.get("kv_mode") == "unified" and order != "physical":
        yield Caution(
            f"The KV cache is unified: the server keeps physical order, so {_word(order)} has no effect. Start it with split KV."
        )
    if order == "rotating" and after.get("rotation_start") == "after_last":
        yield Caution(
            "Starting after the last slot can squeeze or starve one that keeps coming last, and prompts that cannot be split."
        )
    if order == "shortest_first":
        n = info.get("n_slots")
        bound = f"{max(8, 2 * n) + n - 1} batches" if isinstance(n, int) else "a bounded number of batches"
        yield Caution(f"Short prompts pass long ones over: a long one waits for up to {bound} for its turn.")


def _share(changes: Json, after: Json, state: Json) -> Iterable[Caution]:
    share, chunk, info = after.get("decode_share"), after.get("prefill_chunk"), state.get("info") or {}
    if "decode_share" in changes and share is not None:
        if after.get("phase") == "barrier":
            yield Caution("decode_share counts under continuous alone: under a barrier it has no effect.")
        elif share >= MUCH_SHARE:
            yield Caution(
                f"With {share:g} of the time for generation, prompts take {1 / (1 - share):.0f} times as long while it lasts."
            )
    n_ubatch = info.get("n_ubatch")
    if "prefill_chunk" in changes and chunk is not None and isinstance(n_ubatch, int) and chunk < n_ubatch:
        yield Caution(f"A chunk below n_ubatch ({n_ubatch}) costs throughput: the model computes that many tokens at a time.")


def _trial(policy: Json, ttl_s: float | None) -> Iterable[Caution]:
    if policy.get("reverts_at") is not None and ttl_s is None:
        yield Caution("A policy is set for a time at the moment. A change that stays makes it stay as well: its countdown ends.")


def _word(value: Any) -> str:
    return str(value).replace("_", " ")
