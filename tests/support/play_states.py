"""Puts the example states into Valkey and keeps them moving, for looking at pages: python -m tests.support.play_states [seconds].

It plays the observer: registers a server for each example, writes its state, sends its deltas, and keeps its detail. The engines
among them have been at work for ten minutes when it begins, and have a made-up past of days. Wants SLOTBOARD_VAR_DIR and
REDIS_URL of a trial, never those of a console in use. It says "playing" when the past is made up.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

STEP_S = 0.25
CHUNK_S = 5.0
PAST_S = 600.0
DAYS = 3


def main(seconds: float, names: list[str]) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    import django

    django.setup()
    import redis
    from asgiref.sync import async_to_sync
    from channels.layers import get_channel_layer
    from django.conf import settings

    from scheduler_api import frames, live
    from scheduler_api.history import chunks, detail
    from scheduler_api.models import Server
    from tests.support.sample_states import EXAMPLES, FakeServer, Json, examples
    from tests.support.valkey import at_once

    def write(store: redis.Redis, layer: Any, old: Json | None, new: Json) -> None:
        pk = new["server"]["id"]
        store.set(live.state_key(pk), live.encode(new), ex=live.STATE_TTL_S)
        if old is not None:
            frame = frames.diff(old, new)
            async_to_sync(layer.group_send)(live.group_name(pk), {"type": "server.frame", "frame": frame})

    def keep(server: FakeServer, start: float) -> float:
        """Writes what was since `start` as a chunk; the end of it."""
        open_ = [chunks.open_task(slot) for slot in server.slots if slot["state"] != "idle"]
        chunk = chunks.Chunk(
            start,
            server.t,
            iterations=[each for each in server.passed if each["t"] >= start],
            tasks=[each for each in server.ended if each["finished_at"] >= start],
            open=open_,
            marks=[each for each in server.marks if each["t"] >= start],
            policy=server.policy()["effective"],
        )

        async def write() -> None:
            client = live.async_client(settings.REDIS_URL)
            try:
                await detail.Writer(server.pk).write(client, chunk, at_once(client))
            finally:
                await client.aclose()

        async_to_sync(write)()
        return server.t

    store, layer = redis.Redis.from_url(settings.REDIS_URL), get_channel_layer()
    still = {name: state for name, state in examples(time.time()).items() if not names or name in names}
    for name, state in still.items():
        kind = state["server"]["kind"]
        Server.objects.update_or_create(
            pk=state["server"]["id"], defaults={"name": name, "kind": kind, "base_url": "http://127.0.0.1:9", "enabled": False}
        )
        write(store, layer, None, state)
    began = time.time()
    playing = {name: EXAMPLES[name](still[name]["server"]["id"]).shift(began - PAST_S) for name in EXAMPLES if name in still}
    kept = {name: server.t for name, server in playing.items()}
    for name, server in playing.items():
        past_days(server.pk, began)
        while server.t < began:
            server.step()
            if server.t - kept[name] >= CHUNK_S and server.kind == "engine":
                kept[name] = keep(server, kept[name])
    states = {name: server.state() for name, server in playing.items()}
    print("playing", flush=True)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(STEP_S)
        for name, server in playing.items():
            while server.t < time.time():
                server.step()
            if server.t - kept[name] >= CHUNK_S and server.kind == "engine":
                kept[name] = keep(server, kept[name])
            new = server.state()
            write(store, layer, states[name], new)
            states[name] = new
        for state in still.values():
            if state["server"]["name"] not in playing:
                store.set(live.state_key(state["server"]["id"]), live.encode(state | {"t": time.time()}), ex=live.STATE_TTL_S)


def past_days(pk: int, now: float) -> None:
    """Rollups of days that a busy server could have had, with a night's gap and a restart."""
    import math
    import random

    from scheduler_api.history import histogram
    from scheduler_api.history.rollups import COARSE_S, FINE_FOR_S, MINUTE_S
    from scheduler_api.models import Rollup

    dice = random.Random(pk)
    rows = []
    t = int(now - DAYS * 86_400) // COARSE_S * COARSE_S
    while t < now:
        step = COARSE_S if t < now - FINE_FOR_S else MINUTE_S
        day = 0.5 + 0.5 * math.sin(t / 86_400 * 2 * math.pi)
        work = day * dice.uniform(0.6, 1.0)
        if not now - 86_400 * 1.5 < t < now - 86_400 * 1.4:  # nobody watched
            ttft: dict[int, int] = {}
            itl: dict[int, int] = {}
            for _ in range(12):
                histogram.count(ttft, dice.uniform(0.2, 1 + 8 * work))
                histogram.count(itl, dice.uniform(0.02, 0.03 + 0.1 * work))
            tokens = int(700 * work * step)
            rows.append(
                Rollup(
                    server_id=pk, step_s=step, t=t, observed_s=step, iterations=3 * step, bounds=histogram.VERSION,
                    prompt_tokens=4 * tokens, generated_tokens=tokens // 14, cached_tokens=2 * tokens, asked_tokens=6 * tokens,
                    busy_s=step * 3.4 * work, queue_max=int(6 * work * dice.random()), queue_mean=2 * work * dice.random(),
                    worst_stall_s=0.3 + 9 * work * dice.random() ** 2, stalls=int(4 * work), kv_used_max=int(180_000 * work),
                    tasks={"limit": int(6 * work)}, ttft=histogram.dump(ttft), itl=histogram.dump(itl),
                    slots={str(slot): [tokens, tokens // 50] for slot in range(4)},
                    clients={"long-doc": 3 * tokens, "chat-warm": tokens},
                )
            )  # fmt: skip
        t += step
    Rollup.objects.filter(server_id=pk).delete()
    Rollup.objects.bulk_create(rows)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0, sys.argv[2:])
