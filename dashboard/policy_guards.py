"""The guard rails of the review form: read, checked, shown again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scheduler_api.policies.guards import DEFINITIONS, Condition, Metric, as_json, from_json

PREFIX = "guard."


class GuardRefused(ValueError):
    """A guard rail that cannot be; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Field:
    """One guard rail as the form shows it. `over` is in the unit that is typed."""

    name: str
    label: str
    meaning: str
    unit: str
    on: bool
    over: str
    for_s: str
    samples: str
    counts: bool  # whether it needs a number of requests


def fields(form: Mapping[str, str]) -> list[Field]:
    return [_field(metric, form) for metric in Metric]


def _field(metric: Metric, form: Mapping[str, str]) -> Field:
    told, key = DEFINITIONS[metric], f"{PREFIX}{metric.value}"
    return Field(
        name=key,
        label=told.label,
        meaning=told.meaning,
        unit=told.unit,
        on=form.get(f"{key}.on") == "on",
        over=form.get(f"{key}.over", f"{told.over / told.scale:g}"),
        for_s=form.get(f"{key}.for", f"{told.for_s:g}"),
        samples=form.get(f"{key}.samples", str(told.samples)),
        counts=metric is not Metric.OLDEST_WAIT,
    )


def chosen(form: Mapping[str, str]) -> list[Condition]:
    """The guard rails that are switched on. Raises GuardRefused."""
    return [_condition(metric, each) for metric, each in zip(Metric, fields(form), strict=True) if each.on]


def _condition(metric: Metric, given: Field) -> Condition:
    try:
        over, for_s, samples = float(given.over), float(given.for_s), int(given.samples)
    except ValueError:
        raise GuardRefused(f"Guard rail {given.label}: it needs numbers.") from None
    try:
        return from_json(as_json(Condition(metric, over * DEFINITIONS[metric].scale, for_s, samples)))
    except ValueError as error:
        raise GuardRefused(f"Guard rail {error}") from None
