"""The requests of one block, and what they were supposed to find."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import httpx2

from workers.load.client import Answer, Ask, complete, make_ask
from workers.load.clock import ClientClock
from workers.load.prompts import random_prompt
from workers.load.timing import Durations, durations
from workers.scenarios import Scenario, Sizes

# A fresh random prompt can share a first token or two with what the slot held before.
CHANCE_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Prompts:
    """Builds a run's requests: the warm part is the same for all of it, everything else is fresh for each label."""

    scenario: Scenario
    sizes: Sizes
    pool: tuple[int, ...]
    seed: int

    def _tokens(self, label: str, length: int) -> list[int]:
        return random_prompt(self.pool, length, f"{self.seed}:{label}")

    def warm(self) -> Ask:
        return make_ask("warm", self.scenario.short.slot, self._tokens("warm", self.sizes.depth), 1, progress=True)

    def short(self, label: str) -> Ask:
        prompt = self._tokens("warm", self.sizes.depth) + self._tokens(f"{label}:short", self.sizes.short)
        return make_ask("short", self.scenario.short.slot, prompt, self.sizes.n_predict)

    def cold(self, label: str) -> Ask:
        return make_ask("cold", self.scenario.cold.slot, self._tokens(f"{label}:cold", self.sizes.cold), self.sizes.n_predict)

    def expected_cached(self, role: str) -> range:
        """How many tokens of a prompt the slot's cache should have held."""
        depth = self.sizes.depth
        if role == "short":
            return range(depth - 1, depth + CHANCE_TOKENS + 1)
        return range(CHANCE_TOKENS + 1) if role == "cold" else range(depth - 1, depth + 1)


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it went. `fault`: why its times must not count, empty when they may."""

    ask: Ask
    answer: Answer
    times: Durations
    fault: str = ""


def judge(prompts: Prompts, ask: Ask, answer: Answer) -> Request:
    """With the server's times worked out and the cache checked."""
    times = durations(answer)
    fault = answer.error
    if not fault and times.n_cached is not None and times.n_cached not in prompts.expected_cached(ask.role):
        if ask.role == "cold":
            fault = f"{times.n_cached} tokens of the cold prompt came from the cache."
        elif ask.role == "short":
            fault = f"Slot {ask.slot} held {times.n_cached} of the {prompts.sizes.depth} warm tokens when the short request came."
    return Request(ask, answer, times, fault)


async def send_one(client: httpx2.AsyncClient, clock: ClientClock, ask: Ask) -> Answer:
    return await complete(client, ask, clock)


async def send_both(
    client: httpx2.AsyncClient, clock: ClientClock, cold: Ask, short: Ask, offset_s: float
) -> tuple[Answer, Answer]:
    """The cold request now, the short one `offset_s` later. Cancelling closes both connections."""
    async with asyncio.TaskGroup() as group:
        first = group.create_task(complete(client, cold, clock))
        await asyncio.sleep(offset_s)
        second = group.create_task(complete(client, short, clock))
    return first.result(), second.result()
