"""Changes to what an idle slot holds (erase, save, restore), run by the loop thread between two batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.scheduler.slots import Cells

SlotEdit = Callable[[Cells], Any]  # gets the slot's tokens, and changes the list to what the slot holds after it


class SlotBusy(Exception):
    """A slot was not idle for as long as its caller would wait."""


@dataclass(frozen=True, slots=True)
class Edit:
    slot: int
    edit: SlotEdit
    deadline: float
    result: asyncio.Future[Any]

    def run(self, cells: Cells) -> Any:
        """What the edit gave, or the exception that it raised."""
        try:
            return self.edit(cells)
        except Exception as error:
            return error

    def settle(self, answer: Any) -> None:
        if self.result.done():
            return
        if isinstance(answer, Exception):
            self.result.set_exception(answer)
        else:
            self.result.set_result(answer)
