from __future__ import annotations

from slotboard_client.cli import command

command()
