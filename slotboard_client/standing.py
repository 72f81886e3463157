"""The words about what stands beside a policy: drift to be settled, guard rails, windows by the clock."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from slotboard_client.base import OK, UsageError, listed, out
from slotboard_client.client import Client
from slotboard_client.policies import pair_of, told_change, value_of
from slotboard_client.printing import arm, as_json, moment, plain, word
from slotboard_client.shapes import Drift, Guard, Window

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def drift(client: Client, args: Namespace) -> int:
    head = ("ID", "FOUND AT", "CAUSE", "STATE", "BY", "WHAT")

    def row(each: Drift) -> tuple[Any, ...]:
        return each.id, moment(each.found_at), each.cause, each.state, each.settled_by, _drifted(each)

    return listed(args, client.drifts(client.server(args.server).id, args.state), head, row, "No drift.")


def _drifted(drift: Drift) -> str:
    differs = [name for name, value in drift.expected.items() if name in drift.found and drift.found[name] != value]
    return ", ".join(f"{name}: {word(drift.expected[name])} was set, {word(drift.found[name])} is there" for name in differs)


def drift_reapply(client: Client, args: Namespace) -> int:
    return told_change(client.reapply(client.server(args.server).id, args.drift), args)


def drift_leave(client: Client, args: Namespace) -> int:
    found = client.leave(client.server(args.server).id, args.drift)
    out(as_json(found.raw) if args.json else f"The policy stays as it was found: {_drifted(found)}.")
    return OK


def guards(client: Client, args: Namespace) -> int:
    head = ("ID", "CHANGE", "STATE", "UNTIL", "CONDITIONS", "WHAT CAME OF IT")

    def row(each: Guard) -> tuple[Any, ...]:
        conditions = "; ".join(_condition(one) for one in each.conditions)
        return each.id, each.change, each.state, moment(each.until), conditions, each.text

    return listed(args, client.guards(client.server(args.server).id, args.state), head, row, "No guard rails.")


def _condition(told: dict[str, Any]) -> str:
    reads = "" if told.get("value") is None else f", reads {told['value']:g}"
    return f"{told['metric']} over {told['over']:g} for {told['for_s']:g} s{reads}"


def guards_off(client: Client, args: Namespace) -> int:
    client.remove_guard(client.server(args.server).id, args.guard)
    out(as_json({"guard": args.guard}) if args.json else f"Guard rail {args.guard} is off; the policy stays.")
    return OK


def windows(client: Client, args: Namespace) -> int:
    head = ("ID", "NAME", "STATE", "WHEN", "INSIDE", "OUTSIDE", "NEXT", "LAST")

    def row(each: Window) -> tuple[Any, ...]:
        following = f"{each.next['what']} {moment(each.next['due'])}" if each.next else None
        last = f"{each.last[0]['edge']}: {each.last[0]['outcome']} {each.last[0]['text']}".rstrip() if each.last else None
        outside = "as before" if each.outside is None else arm(each.outside)
        return each.id, each.name, _on(each), each.when, arm(each.inside), outside, following, last

    return listed(args, client.windows(client.server(args.server).id), head, row, "No windows.")


def _on(window: Window) -> str:
    return "on" if window.enabled else "off"


def windows_add(client: Client, args: Namespace) -> int:
    weekly, once = (args.days or args.begins or args.ends), (args.starts_at or args.ends_at)
    if bool(weekly) is bool(once):
        raise UsageError("Say when: --days, --begins and --ends for every week, or --starts-at and --ends-at for once.")
    at = client.server(args.server).id
    inside, outside = (_policy(client, at, text) for text in (args.inside, args.outside))
    when = {"zone": args.zone, "begins": args.begins, "ends": args.ends, "starts_at": args.starts_at, "ends_at": args.ends_at}
    if args.days:
        when["days"] = [_day(text) for text in args.days.split(",")]
    made = client.add_window(at, args.name, inside or {}, outside, **when)
    return _told(made, args)


def _policy(client: Client, server: int, text: str | None) -> dict[str, Any] | str | None:
    """ "phase=barrier+prefill_chunk=512", else the key of a preset."""
    if text is None or "=" not in text:
        return text
    now = client.policy(server)
    return {name: value_of(name, value, now) for name, value in map(pair_of, text.split("+"))}


def _day(text: str) -> int:
    try:
        return DAYS.index(text.strip().lower()[:3])
    except ValueError:
        raise UsageError(f"{text!r} is no day: write {','.join(DAYS)}, or some of them.") from None


def windows_switch(client: Client, args: Namespace) -> int:
    return _told(client.enable_window(client.server(args.server).id, args.window, args.enabled), args)


def windows_remove(client: Client, args: Namespace) -> int:
    client.remove_window(client.server(args.server).id, args.window)
    out(as_json({"window": args.window}) if args.json else f"Window {args.window} is removed.")
    return OK


def _told(window: Window, args: Namespace) -> int:
    following = f"; {window.next['what']}s next at {moment(window.next['due'])}" if window.next else ""
    said = f"Window {window.id} {plain(window.name)} is {_on(window)}: {plain(window.when)}{following}."
    out(as_json(window.raw) if args.json else said)
    return OK
