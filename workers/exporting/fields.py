"""Which columns of a run, its blocks and its samples are in a file, and how each value is written and checked.

Columns come from the models themselves, so a new one is exported without being named here; what belongs to the console that
made the run (its keys, workers, people) is left out by name.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone

from workers.models import Block, Run, Sample

HERE = frozenset(
    {"id", "server", "created_by", "imported", "live", "stop_requested", "progress_text", "not_before", "enqueued_at"}
    | {"heartbeat_at", "celery_id", "worker", "lease"}
)
MOST_DEPTH = 24

type Column = models.Field[Any, Any]


class ValueFault(ValueError):
    """What is wrong with a value, without where it stands."""


def columns(model: type[models.Model]) -> dict[str, Column]:
    """Those that are exported, by name, in the model's order."""
    left_out = {Run: HERE, Block: frozenset({"id", "run"}), Sample: frozenset({"id", "run", "block"})}[model]
    return {field.name: field for field in model._meta.concrete_fields if field.name not in left_out}


def written(row: models.Model) -> dict[str, Any]:
    """Of a row, as JSON has it: moments in ISO form, and None for a number that is none."""
    return {name: _plain(getattr(row, name)) for name in columns(type(row))}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def read(column: Column, value: Any) -> Any:
    """The value as the model takes it. Raises ValueFault."""
    if value is None:
        if not column.null:
            raise ValueFault("must not be null")
        return None
    checked = _typed(column, value)
    try:
        column.run_validators(checked)
    except ValidationError as error:
        raise ValueFault(f"is refused: {' '.join(error.messages).rstrip('.').lower()}") from None
    if column.choices and value not in dict(column.flatchoices):
        raise ValueFault(f"must be one of {', '.join(map(str, dict(column.flatchoices)))}, not {value!r}")
    return checked


def _typed(column: Column, value: Any) -> Any:
    match column:
        case models.BooleanField():
            return _of(value, bool, "true or false")
        case models.FloatField():
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueFault(f"must be a number, not {_shown(value)}")
            return float(value)
        case models.IntegerField():
            if isinstance(value, bool) or not isinstance(value, int):
                raise ValueFault(f"must be a whole number, not {_shown(value)}")
            return value
        case models.DateTimeField():
            return _moment(value)
        case models.JSONField():
            return _json(column, value)
        case _:
            return _of(value, str, "text")


def _of(value: Any, kind: type, words: str) -> Any:
    if not isinstance(value, kind):
        raise ValueFault(f"must be {words}, not {_shown(value)}")
    return value


def _moment(value: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueFault(f"must be a moment in ISO form, not {_shown(value)}") from None
    if timezone.is_naive(moment):
        raise ValueFault("must be a moment with its time zone")
    return moment


def _json(column: Column, value: Any) -> Any:
    """A column that is made as a mapping or a list stays one."""
    kind = type(column.get_default()) if column.default in (dict, list) else dict
    if not isinstance(value, kind):
        raise ValueFault(f"must be {'an object' if kind is dict else 'a list'}, not {_shown(value)}")
    if _depth(value) > MOST_DEPTH:
        raise ValueFault(f"is nested deeper than {MOST_DEPTH} levels")
    return value


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
