"""The JSON API of policies under names: those that come with the console, and those that operators keep."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Field, Router, Schema
from ninja.errors import HttpError
from ninja.pagination import paginate
from ninja.responses import Status

from scheduler_api.access import Role
from scheduler_api.api_auth import require_anywhere
from scheduler_api.api_paging import Pages
from scheduler_api.api_problems import Refused
from scheduler_api.api_schema import example
from scheduler_api.policies import presets
from scheduler_api.policies.models import PolicyPreset
from scheduler_api.policies.values import LONGEST_MEANING, LONGEST_NAME, Named, named

type Json = dict[str, Any]

router = Router(tags=["policies"])

GIVEN: Json = {"name": "Nights", "meaning": "nobody chats", "values": {"prefill_order": "shortest_first", "decode_share": None}}


class PresetIn(Schema):
    """`values` may leave fields out: those stay as they are. A preset of that name is replaced."""

    name: str = Field(..., min_length=1, max_length=LONGEST_NAME)
    meaning: str = Field("", max_length=LONGEST_MEANING)
    values: dict[str, Any]

    model_config = example(**GIVEN)


class PresetOut(PresetIn):
    """`built_in`: it comes with the console, and stays as it is."""

    key: str
    built_in: bool
    by: str

    model_config = example(**GIVEN, key="3", built_in=False, by="mira")


def _out(key: str, policy: Named, row: PolicyPreset | None) -> Json:
    told = {"key": key, "name": policy.name, "meaning": policy.meaning, "values": policy.values}
    return told | {"built_in": row is None, "by": row.by_name if row is not None else ""}


@router.get("", response=list[PresetOut], summary="Presets, built-in ones first")
@paginate(Pages)
def list_presets(request: HttpRequest) -> list[Json]:
    return [_out(*each) for each in presets.all_presets()]


@router.get("/{slug:key}", response=PresetOut, summary="A preset by its key")
def preset_detail(request: HttpRequest, key: str) -> Json:
    return _found(key)


@router.post("", response={201: PresetOut}, summary="Keep a policy under a name")
def add_preset(request: HttpRequest, body: PresetIn) -> Status[Json]:
    user = require_anywhere(request, Role.OPERATOR)
    policy = named(body.name, body.meaning, body.values)
    if policy.name in {each.name for each in presets.BUILT_IN.values()}:
        raise Refused(409, "conflict", f"{policy.name} comes with the console; choose another name.", field="name")
    row = presets.keep(policy, user)
    return Status(201, _out(str(row.pk), policy, row))


@router.delete("/{slug:key}", response={204: None}, summary="Remove a preset")
def remove_preset(request: HttpRequest, key: str) -> Status[None]:
    """No server changes. Those that come with the console stay."""
    user = require_anywhere(request, Role.OPERATOR)
    found = _found(key)
    if found["built_in"]:
        raise Refused(409, "conflict", f"{found['name']} comes with the console, and stays.")
    presets.remove(PolicyPreset.objects.get(pk=int(key)), user)
    return Status(204, None)


def _found(key: str) -> Json:
    found = next((each for each in presets.all_presets() if each[0] == key), None)
    if found is None:
        raise HttpError(404, "No such preset.")
    return _out(*found)
