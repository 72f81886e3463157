"""What the made-up servers say of themselves: clients, policy fields, and what a stock server does not tell."""

from __future__ import annotations

from typing import Any

CLIENTS = ("long-doc", "chat-warm", "eval-set", "agent")
FIELDS: dict[str, Any] = {
    "prefill_order": {
        "values": ["physical", "rotating"],
        "default": "physical",
        "meaning": "Whose prompt enters the next batch first",
        "takes_effect": "next iteration",
    },
    "rotation_start": {
        "values": ["after_last", "after_first"],
        "default": "after_first",
        "meaning": "Where a rotating pass starts: after the last or the first contributor of the pass before",
        "takes_effect": "next iteration",
    },
    "phase": {
        "values": ["continuous", "barrier"],
        "default": "continuous",
        "meaning": "Whether prompts and generation may share a batch",
        "takes_effect": "next iteration; what generates is drained first",
    },
}
STOCK_WHY = "This server cannot switch policies: it is a stock llama-server, whose order and phases are compiled in."
STOCK_MISSING = {
    "iterations": "This server does not report its batches.",
    "policy": "A stock llama-server has no policies to report.",
    "phase": "A stock llama-server does not report phases.",
    "worst_stall_s": "A stock llama-server does not tell when a slot was served last.",
}
Json = dict[str, Any]
