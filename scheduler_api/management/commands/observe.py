from __future__ import annotations

import asyncio
import signal
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from scheduler_api import audit, processes
from scheduler_api.observer.service import observe


class Command(BaseCommand):
    help = "Watches every enabled server and publishes its live state, until SIGTERM or SIGINT."

    def handle(self, *args: Any, **options: Any) -> None:
        audit.this_process("observer")
        processes.hold("observer")
        asyncio.run(_until_signalled())


async def _until_signalled() -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await observe(settings.REDIS_URL, stop)
