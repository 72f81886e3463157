"""The policies page of one server as data: a card for each field that can be switched, and the review of what a form asks for."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dashboard.drawings import Drawing, drawing
from dashboard.first_view import counts, words
from dashboard.policy_effects import Effect
from dashboard.policy_words import DEPENDS_ON, DEPENDS_ON_ANY, DRAWN, OPTION_SENTENCES, SENTENCES, TITLES, unit
from dashboard.present import grouped

type Json = dict[str, Any]

REASONS = (
    "chat waits behind long prompts",
    "streams stutter while prompts come in",
    "comparing policies",
    "back to normal",
)
# seconds, words; None is until changed
DURATIONS: tuple[tuple[int | None, str], ...] = ((300, "5 min"), (1800, "30 min"), (7200, "2 h"), (None, "until changed"))
PREFIX = "set."
UNBOUNDED = 1 << 31


@dataclass(frozen=True, slots=True)
class Option:
    value: str
    label: str
    sentence: str
    drawing: Drawing | None
    partial: str
    tag: str  # "now", "new" or ""
    chosen: bool


@dataclass(frozen=True, slots=True)
class Card:
    """One policy field. `options` for an enum, else a number; what it may be stands in `limits`."""

    name: str
    title: str
    sentence: str
    asked: str
    effective: str
    why: str  # filled when what is in force differs from what was asked
    since: str
    since_at: datetime | None
    options: list[Option] = field(default_factory=list)
    number: str = ""
    unit: str = ""
    limits: str = ""
    decimal: bool = False
    nullable: bool = True
    drawing: Drawing | None = None
    changed: bool = False
    needs: str = ""
    takes_effect: str = ""
    did: tuple[Effect, ...] = ()


def cards(
    fields: Mapping[str, Json],
    policy: Json,
    chosen: Mapping[str, Any],
    changes: Iterable[Any],
    did: Mapping[str, list[Effect]] | None = None,
) -> list[Card]:
    """`chosen` holds the values that the form has now; without an entry the requested value stands. Known fields come first."""
    made = [change for change in changes if change.outcome in ("applied", "seen")]
    known = [name for name in TITLES if name in fields]
    return [
        _card(name, fields[name], policy, chosen, made, (did or {}).get(name, []))
        for name in known + [name for name in fields if name not in TITLES]
    ]


def _card(name: str, spec: Json, policy: Json, chosen: Mapping[str, Any], applied: list[Any], did: list[Effect]) -> Card:
    asked, effective = policy["requested"].get(name), policy["effective"].get(name)
    wanted = chosen.get(name, asked)
    last = next((change for change in applied if name in change.changes), None)
    own = last is not None and last.changes[name] == asked  # what was set here last is what stands
    return Card(
        name=name,
        title=TITLES.get(name, words(name).capitalize()),
        sentence=SENTENCES.get(name) or str(spec.get("meaning", "")),
        asked=words(asked),
        effective=words(effective),
        why=str((policy.get("reasons") or {}).get(name) or "the server does not say why") if asked != effective else "",
        since=_since(last, own),
        since_at=last.at if last and own else None,
        options=[_option(name, each, asked, wanted) for each in spec.get("values") or []],
        number="" if wanted is None else str(wanted),
        unit=unit(name),
        limits=" ".join(filter(None, (limits(spec), DRAWN.get(name, "")))),
        decimal=spec.get("type") == "number",
        nullable=bool(spec.get("nullable", True)),
        drawing=drawing(name),
        changed=wanted != asked,
        needs=needs(policy["effective"], name),
        takes_effect=str(spec.get("takes_effect", "")),
        did=tuple(did),
    )


def needs(effective: Json, name: str) -> str:
    """Under what else alone a field counts, while that is not so; "" when it counts."""
    if counts(effective, name):
        return ""
    if name in DEPENDS_ON_ANY:
        other = DEPENDS_ON_ANY[name]
        return f"counts with {TITLES.get(other, words(other)).lower()} on alone"
    other, value = DEPENDS_ON[name]
    return f"counts under {words(other)} {words(value)} alone"


def limits(spec: Mapping[str, Any]) -> str:
    """ "1 to 2048, empty for off."; a bound that no one reaches is not told."""
    low, high = spec.get("minimum"), spec.get("maximum")
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return ""
    places = 0 if isinstance(low, int) and isinstance(high, int) else 2
    told = f"{low} or more" if high >= UNBOUNDED else f"{grouped(low, places)} to {grouped(high, places)}"
    return f"{told}, empty for off." if spec.get("nullable", True) else f"{told}."


def _since(last: Any, own: bool) -> str:
    if last is None:
        return "as the server started"
    if not own:
        return "set elsewhere, or back at its deadline"
    return "by somebody elsewhere" if last.actor_name == "unknown" else f"by {last.actor_name}"


def _option(name: str, value: Any, asked: Any, wanted: Any) -> Option:
    key = f"{name}={value}"
    return Option(
        value=str(value),
        label=words(value),
        sentence=OPTION_SENTENCES.get(key, ""),
        drawing=drawing(key),
        partial=f"policies/phase_{value}.html" if key in ("phase=continuous", "phase=barrier") else "",
        tag="now" if value == asked else "new" if value == wanted else "",
        chosen=value == wanted,
    )


class NotANumber(ValueError):
    """A field's text that is no number, or no whole one where that is asked; the message is one sentence."""

    def __init__(self, name: str, text: str, kind: str) -> None:
        super().__init__(f"{TITLES.get(name, name)}: {f'{text!r} is not {kind}' if text else f'it needs {kind}'}.")
        self.field = name


def chosen_in(form: Mapping[str, str], fields: Mapping[str, Json]) -> Json:
    """The values of the form's `set.` fields, as the server wants them. Raises NotANumber."""
    chosen: Json = {}
    for name, spec in fields.items():
        text = form.get(PREFIX + name)
        if text is not None:
            chosen[name] = text if spec.get("values") else number_in(name, text.strip(), spec)
    return chosen


def number_in(name: str, text: str, spec: Json) -> float | None:
    """Empty is null where the field allows it; 1,024 is a whole number, and a fraction has a point."""
    if not text and spec.get("nullable", True):
        return None
    fraction = spec.get("type") == "number"
    try:
        value = float(text) if fraction else int(text.replace(",", ""))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise NotANumber(name, text, "a number with a point, such as 0.5" if fraction else "a whole number")
    return value


def changed_in(chosen: Json, policy: Json, seen: Json) -> Json:
    """What the operator changed against the policy that the form showed (`seen`), and that is not so already.

    A field that somebody else changed meanwhile is not put back by a form that still shows its old value.
    """
    asked = policy["requested"]
    return {
        name: value for name, value in chosen.items() if value != seen.get(name, asked.get(name)) and value != asked.get(name)
    }


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    now: str
    after: str
    takes_effect: str


def diff_lines(changes: Json, policy: Json, fields: Mapping[str, Json]) -> list[Line]:
    return [
        Line(
            name, words(policy["requested"].get(name)), words(value), str(fields[name].get("takes_effect", "")).partition(";")[0]
        )
        for name, value in changes.items()
    ]


def notes(changes: Json, policy: Json, would_be: Json | None, fields: Mapping[str, Json]) -> list[tuple[str, str]]:
    """What to know before it is applied: (mark, sentence), from the dry run's answer and what depends on what."""
    said: list[tuple[str, str]] = []
    if would_be is not None:
        reasons = would_be.get("reasons") or {}
        for name, asked in (would_be.get("requested") or {}).items():
            effective = (would_be.get("effective") or {}).get(name)
            if effective != asked:
                said.append(
                    ("warn", f"{words(asked)} would not be in force; {words(effective)} stays. {reasons.get(name, '')}".strip())
                )
    after = policy["requested"] | changes
    for name, (other, value) in DEPENDS_ON.items():
        if name in after and after.get(other) != value and (name in changes or other in changes):
            said.append(("info", f"{name} stays as it is and does nothing under {words(after.get(other))}."))
    for name in changes:
        effect = str(fields[name].get("takes_effect", ""))
        if ";" in effect:
            said.append(("info", f"{TITLES.get(name, name)}: {effect.partition(';')[2].strip()}."))
    return said


def request_text(changes: Json, version: int, ttl_s: int | None, reason: str) -> str:
    """The exact request, as the console sends it."""
    body: Json = {"expected_version": version, "set": changes}
    if ttl_s is not None:
        body["ttl_s"] = ttl_s
    body["reason"] = reason
    return "PATCH /scheduler/policy\n" + json.dumps(body, indent=1, ensure_ascii=False)


def change_words(change: Any) -> list[str]:
    """An audit row's fields: "phase: continuous to barrier", or "phase: barrier again" where the value was in force already."""
    said = []
    for name, value in change.changes.items():
        before, now = change.old.get(name), words(value)
        said.append(f"{words(name)}: {now} again" if before == value else f"{words(name)}: {words(before)} to {now}")
    return said


def drift_words(expected: Json, found: Json) -> list[str]:
    """ "phase: barrier was set, continuous is there"."""
    return [
        f"{words(name)}: {words(value)} was set, {words(found[name])} is there"
        for name, value in expected.items()
        if name in found and found[name] != value
    ]
