"""Changes to what an idle slot holds (erase, save, restore), run by the loop thread between two batches."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.scheduler.core import Scheduler
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


Call = Callable[[Callable[[Any], None], Any], None]


class Edits:
    """Edits that wait for their slot. `call(function, argument)` runs the function on the event loop of their callers."""

    def __init__(self, scheduler: Scheduler, lock: threading.Lock, call: Call) -> None:
        self._scheduler = scheduler
        self._lock = lock
        self._call = call
        self.waiting: deque[Edit] = deque()

    def add(self, edit: Edit) -> None:
        self.waiting.append(edit)

    def run(self, now: float) -> bool:
        """Those whose slot is idle; true when one ran. Outside the lock: a file of a long prompt takes a while, and nobody else
        gives a slot a task."""
        ran = False
        for _ in range(len(self.waiting)):
            edit = self.waiting.popleft()
            with self._lock:
                cells = self._scheduler.cells_of(edit.slot)
            if edit.result.cancelled():
                continue
            if cells is None:
                if now < edit.deadline:
                    self.waiting.append(edit)
                else:
                    self._call(edit.settle, SlotBusy(f"Slot {edit.slot} stays busy."))
                continue
            answer = edit.run(cells)
            with self._lock:
                self._scheduler.set_cells(edit.slot, cells)
            ran = True
            self._call(edit.settle, answer)
        return ran

    def refuse(self, message: str) -> None:
        while self.waiting:
            self._call(self.waiting.popleft().settle, SlotBusy(message))
