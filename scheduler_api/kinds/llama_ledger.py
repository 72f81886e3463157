"""Tokens that a llama-server's counters tell of and its slots did not show. Pure.

A task that came and went between two looks at the slots leaves nothing in them. The counters count a task's tokens only when its
prompt, or the task, is done, so while it runs the slots are ahead. What the counters have beyond the slots was missed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Ledger:
    """By how much the slots are ahead of the counters; below zero, what they did not show."""

    prompt: int = 0
    generated: int = 0

    def shown(self, prompt: int, generated: int) -> None:
        self.prompt += prompt
        self.generated += generated

    def counted(self, prompt: int, generated: int) -> None:
        self.prompt -= prompt
        self.generated -= generated

    def settle(self, *, idle: bool) -> tuple[int, int]:
        """(prompt, generated) tokens that were missed; they count as shown from now on.

        On an idle server nothing is ahead: cancelled prompts are never counted.
        """
        missed = max(0, -self.prompt), max(0, -self.generated)
        self.prompt, self.generated = (0, 0) if idle else (max(0, self.prompt), max(0, self.generated))
        return missed
