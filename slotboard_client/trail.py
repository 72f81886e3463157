"""The words about the audit trail and alerts."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from slotboard_client.base import OK, listed, out
from slotboard_client.client import Client
from slotboard_client.printing import as_json, moment, plain


def audit(client: Client, args: Namespace) -> int:
    at = client.server(args.server).id if args.server else None
    filters = {"who": args.who, "what": args.what, "q": args.q, "outcome": args.outcome, "from_": args.since, "to": args.until}
    head = ("SEQ", "AT", "WHO", "THROUGH", "WHAT", "SUBJECT", "OUTCOME", "WHY")

    def row(each: Any) -> tuple[Any, ...]:
        return each.seq, moment(each.at), each.actor_name, each.through, each.action, each.subject, each.outcome, each.why

    return listed(args, client.audit(server=at, **filters), head, row, "Nothing is found.")


def alerts(client: Client, args: Namespace) -> int:
    at = client.server(args.server).id if args.server else None
    head = ("ID", "SEVERITY", "SERVER", "OPENED", "STATE", "WHAT")

    def row(each: Any) -> tuple[Any, ...]:
        state = "closed" if each.closed_at else f"seen by {each.acknowledged_by}" if each.acknowledged_by else "open"
        return each.id, each.severity, each.server_name, moment(each.opened_at), state, each.text

    return listed(args, client.alerts(state=args.state, server=at), head, row, "No alerts.")


def alerts_ack(client: Client, args: Namespace) -> int:
    found = client.acknowledge(args.alert)
    out(as_json(found.raw) if args.json else f"Alert {found.id} is acknowledged by {plain(found.acknowledged_by)}.")
    return OK


def alerts_silence(client: Client, args: Namespace) -> int:
    at = client.server(args.server).id if args.server else None
    made = client.silence(args.minutes, args.reason, server=at)
    out(as_json(made) if args.json else f"Silent until {moment(made['until'])}.")
    return OK
