"""The words about servers and their policies."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any

from slotboard_client.base import OK, UsageError, listed, out
from slotboard_client.client import Client
from slotboard_client.printing import arm, as_json, facts, moment, plain, table, unix_moment, word
from slotboard_client.shapes import Policy, PolicyChange, Server


def servers(client: Client, args: Namespace) -> int:
    head = ("ID", "NAME", "KIND", "STATE", "ADDRESS")
    return listed(
        args, client.servers(), head, lambda each: (each.id, each.name, each.kind, _health(each), each.base_url), "No servers."
    )


def _health(server: Server) -> str:
    if not server.enabled:
        return "switched off"
    health = server.health
    return "not observed" if health is None else f"{health['text']}{': ' + health['detail'] if health.get('detail') else ''}"


def server(client: Client, args: Namespace) -> int:
    found = client.server(args.server)
    if args.json:
        out(as_json(found.raw))
        return OK
    state = found.state or {}
    info, policy, queue = (state.get(name) or {} for name in ("info", "policy", "queue"))
    told: list[tuple[str, Any]] = [("server", f"{found.name} ({found.kind}, {found.base_url})"), ("state", _health(found))]
    told += [(name, info.get(name)) for name in ("model", "build", "n_slots", "n_ctx_slot", "n_batch", "kv_mode")]
    told += [("waiting", queue.get("depth")), ("policy", arm(policy.get("requested") or {}) if policy else None)]
    out(facts(told))
    slots = [_slot(each) for each in state.get("slots") or []]
    if slots:
        out("\n" + table(("SLOT", "STATE", "CLIENT", "TASK", "PROMPT", "CACHED", "GENERATED"), slots))
    return OK


def _slot(slot: dict[str, Any]) -> list[Any]:
    return [slot.get(name) for name in ("id", "state", "client", "task", "n_prompt", "n_cached", "n_generated")]


def policy(client: Client, args: Namespace) -> int:
    found = client.policy(client.server(args.server).id)
    if args.json:
        out(as_json(found.raw))
        return OK
    if not found.can:
        out(plain(found.why_not))
    told = [("version", found.version), ("reason", found.reason)]
    told += [("goes back", unix_moment(found.reverts_at))]
    out(facts(told))
    rows = [(each.name, word(each.requested), word(each.effective), each.why or "") for each in found.fields]
    out("\n" + table(("FIELD", "ASKED FOR", "IN FORCE", "WHY NOT"), rows))
    return OK


def policy_set(client: Client, args: Namespace) -> int:
    if not args.dry_run and not args.reason:
        raise UsageError("Say why with --reason: it goes into the audit.")
    guards = [_guard(text) for text in args.guard]
    pairs = [pair_of(text) for text in args.fields]
    at = client.server(args.server).id
    before = client.policy(at)
    changes = {name: value_of(name, text, before) for name, text in pairs}
    version = args.expected_version if args.expected_version is not None else before.version
    if args.dry_run:
        return _told_review(client.review(at, changes, ttl_s=args.ttl, expected_version=version), changes, args)
    change = client.switch(
        at, changes, reason=args.reason, ttl_s=args.ttl, expected_version=version, guards=guards, understood=args.understood
    )
    return told_change(change, args)


def policy_revert(client: Client, args: Namespace) -> int:
    return told_change(client.revert(client.server(args.server).id, args.change), args)


def policy_changes(client: Client, args: Namespace) -> int:
    head = ("ID", "AT", "BY", "OUTCOME", "VERSION", "CHANGES", "REASON")

    def row(each: PolicyChange) -> tuple[Any, ...]:
        return each.id, moment(each.at), each.actor_name, each.outcome, each.version, _changed(each), each.error or each.reason

    return listed(args, client.policy_changes(client.server(args.server).id), head, row, "Nothing was switched yet.")


def _changed(change: PolicyChange) -> str:
    return ", ".join(f"{name}: {word(change.old.get(name))} to {word(value)}" for name, value in change.changes.items())


def told_change(change: PolicyChange, args: Namespace) -> int:
    if args.json:
        out(as_json(change.raw))
        return OK
    since = f"version {change.version}, from iteration {change.effective_from_iteration} on"
    out(f"{_changed(change) or 'the same policy again'}; {since}.")
    for name, value in change.changes.items():
        if change.new.get(name) != value:
            out(f"{name} {word(value)} was asked for; {word(change.new.get(name))} is in force.")
    return OK


def _told_review(review: dict[str, Any], changes: dict[str, Any], args: Namespace) -> int:
    if args.json:
        out(as_json(review))
        return OK
    asked, in_force = review["requested"], review["effective"]
    names = [name for name in asked if name in changes or asked[name] != in_force.get(name)]
    rows = [(name, word(asked[name]), word(in_force.get(name)), review["reasons"].get(name)) for name in names]
    out(table(("FIELD", "ASKED FOR", "IN FORCE", "WHY NOT"), rows))
    for each in review["cautions"]:
        out(f"{'Severe: ' if each['severe'] else 'Note: '}{plain(each['text'])}")
    return OK


def pair_of(text: str) -> tuple[str, str]:
    name, given, value = text.partition("=")
    if not given or not name:
        raise UsageError(f"{text!r} is no field=value.")
    return name, value


def value_of(name: str, text: str, policy: Policy) -> Any:
    """A word of the field's, else JSON; "off" is none where it is no word of the field's."""
    values = next((each.values for each in policy.fields if each.name == name), None)
    if values and text in values:
        return text
    if text == "off":
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def _guard(text: str) -> dict[str, Any]:
    parts = text.split(":")
    try:
        if len(parts) not in (3, 4):
            raise ValueError
        return {
            "metric": parts[0],
            "over": float(parts[1]),
            "for_s": float(parts[2]),
            "samples": int(parts[3]) if parts[3:] else 1,
        }
    except ValueError:
        raise UsageError(f"{text!r} is no guard rail: write metric:over:seconds or metric:over:seconds:requests.") from None


def presets(client: Client, args: Namespace) -> int:
    head = ("KEY", "NAME", "MEANING", "POLICY")
    return listed(args, client.presets(), head, lambda each: (each.key, each.name, each.meaning, arm(each.values)), "No presets.")
