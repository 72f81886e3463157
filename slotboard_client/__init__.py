"""A small client of the console's JSON API, and the command `slotboard` built on it. Of the console it knows the API alone.

    from slotboard_client import Client

    with Client("https://ops.example.org/llm", token) as console:
        local = console.server("local")
        console.switch(local.id, {"prefill_order": "rotating"}, reason="chat waits", ttl_s=600)
        for run in console.runs(server=local.id):
            print(run.id, run.state, run.verdict)

docs/api.md describes the API.
"""

from __future__ import annotations

from slotboard_client.client import Client
from slotboard_client.errors import ClientError, NotFound, Refused, Unreachable
from slotboard_client.shapes import (
    Alert,
    AuditRow,
    Drift,
    Guard,
    Policy,
    PolicyChange,
    PolicyField,
    Preset,
    Run,
    Sample,
    Scenario,
    Server,
    Window,
)

__all__ = [
    "Alert",
    "AuditRow",
    "Client",
    "ClientError",
    "Drift",
    "Guard",
    "NotFound",
    "Policy",
    "PolicyChange",
    "PolicyField",
    "Preset",
    "Refused",
    "Run",
    "Sample",
    "Scenario",
    "Server",
    "Unreachable",
    "Window",
]
