"""What a policy may hold, against the fields that a server offers (`switching.fields` of docs/protocol.md section 2). Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

type Json = dict[str, Any]

#: What an exported policy begins with; another number is another form.
FORM = "slotboard_policy"
FORM_VERSION = 1
LONGEST_NAME, LONGEST_MEANING = 80, 300
MOST_BYTES = 64 * 1024
MOST_FIELDS = 64


class PolicyFileRefused(Exception):
    """A file or text that is no policy; `text` is one sentence that names what is wrong."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


@dataclass(frozen=True, slots=True)
class Named:
    """A policy under a name. `values` may leave fields out: those stay as they are."""

    name: str
    meaning: str
    values: Json


@dataclass(frozen=True, slots=True)
class Fitted:
    """What of a policy a server can take: `unknown` are fields that it does not offer, `problems` sentences about values."""

    values: Json
    unknown: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def fit(values: Mapping[str, Any], fields: Mapping[str, Json]) -> Fitted:
    unknown = tuple(name for name in values if name not in fields)
    known = {name: value for name, value in values.items() if name in fields}
    problems = tuple(filter(None, (problem(name, value, fields[name]) for name, value in known.items())))
    return Fitted(known, unknown, problems)


def problem(name: str, value: Any, spec: Mapping[str, Any]) -> str:
    """Why a field cannot have this value, in a sentence; "" when it can."""
    if spec.get("values"):
        return "" if value in spec["values"] else f"{name} is one of {', '.join(map(str, spec['values']))}, not {_told(value)}."
    if value is None:
        return "" if spec.get("nullable", True) else f"{name} cannot be off."
    fraction = spec.get("type") == "number"
    if isinstance(value, bool) or not isinstance(value, int | float) or (not fraction and not isinstance(value, int)):
        return f"{name} is a {'number' if fraction else 'whole number'}, not {_told(value)}."
    low, high = spec.get("minimum", -math.inf), spec.get("maximum", math.inf)
    return "" if low <= value <= high else f"{name} is {_told(value)}; this server takes {low} to {high}."


def _told(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:60]


def differing(wanted: Mapping[str, Any], requested: Mapping[str, Any]) -> Json:
    """What has to be set for `requested` to become `wanted`; fields that the server does not have are left out."""
    return {name: value for name, value in wanted.items() if name in requested and requested[name] != value}


def exported(policy: Named) -> str:
    """The file of a policy: JSON that `imported` takes."""
    told = {FORM: FORM_VERSION, "name": policy.name, "meaning": policy.meaning, "values": policy.values}
    return json.dumps(told, indent=2, ensure_ascii=False) + "\n"


def imported(data: bytes) -> Named:
    """Reads what `exported` wrote. Values are checked for their form alone: what a server takes, `fit` tells.

    Raises PolicyFileRefused.
    """
    if len(data) > MOST_BYTES:
        raise PolicyFileRefused("A policy has at most 64 KiB.")
    try:
        told = json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise PolicyFileRefused(f"This is no JSON: {str(error)[:200]}.") from None
    if not isinstance(told, dict) or told.get(FORM) != FORM_VERSION:
        raise PolicyFileRefused(f'This is no exported policy: it has no "{FORM}": {FORM_VERSION}.')
    if extra := sorted(told.keys() - {FORM, "name", "meaning", "values"}):
        raise PolicyFileRefused(f"There is no such field as {', '.join(map(str, extra))[:100]}.")
    return named(told.get("name"), told.get("meaning", ""), told.get("values"))


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not allowed")


def named(name: Any, meaning: Any, values: Any) -> Named:
    """Raises PolicyFileRefused."""
    if not isinstance(name, str) or not 1 <= len(name.strip()) <= LONGEST_NAME:
        raise PolicyFileRefused(f"A policy has a name of at most {LONGEST_NAME} characters.")
    if not isinstance(meaning, str) or len(meaning) > LONGEST_MEANING:
        raise PolicyFileRefused(f"What it is for has at most {LONGEST_MEANING} characters.")
    if not isinstance(values, dict) or not 1 <= len(values) <= MOST_FIELDS:
        raise PolicyFileRefused('"values" holds at least one policy field.')
    for field, value in values.items():
        if not field.isidentifier() or len(field) > 60:
            raise PolicyFileRefused(f"{_told(field)} is no name of a policy field.")
        finite = not isinstance(value, int | float) or math.isfinite(value)
        if not isinstance(value, str | int | float | None) or not finite or (isinstance(value, str) and len(value) > 100):
            raise PolicyFileRefused(f"{field} is a word, a number or null.")
    return Named(name.strip(), meaning.strip(), values)
