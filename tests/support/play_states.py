"""Puts the example states into Valkey and keeps them moving, for looking at pages: python -m tests.support.play_states [seconds].

It plays the observer: registers a server for each example, writes its state and sends its deltas. Wants SLOTBOARD_VAR_DIR and
REDIS_URL of a trial, never those of a console in use.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

STEP_S = 0.25


def main(seconds: float, names: list[str]) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    import django

    django.setup()
    import redis
    from asgiref.sync import async_to_sync
    from channels.layers import get_channel_layer
    from django.conf import settings

    from scheduler_api import frames, live
    from scheduler_api.models import Server
    from tests.support.sample_states import EXAMPLES, Json, examples

    def write(store: redis.Redis, layer: Any, old: Json | None, new: Json) -> None:
        pk = new["server"]["id"]
        store.set(live.state_key(pk), live.encode(new), ex=live.STATE_TTL_S)
        if old is not None:
            frame = frames.diff(old, new)
            async_to_sync(layer.group_send)(live.group_name(pk), {"type": "server.frame", "frame": frame})

    store, layer = redis.Redis.from_url(settings.REDIS_URL), get_channel_layer()
    still = {name: state for name, state in examples(time.time()).items() if not names or name in names}
    for name, state in still.items():
        kind = state["server"]["kind"]
        Server.objects.update_or_create(
            pk=state["server"]["id"], defaults={"name": name, "kind": kind, "base_url": "http://127.0.0.1:9", "enabled": False}
        )
        write(store, layer, None, state)
    playing = {name: EXAMPLES[name](still[name]["server"]["id"]).shift(time.time()) for name in EXAMPLES if name in still}
    states = {name: server.state() for name, server in playing.items()}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(STEP_S)
        for name, server in playing.items():
            while server.t < time.time():
                server.step()
            new = server.state()
            write(store, layer, states[name], new)
            states[name] = new
        for state in still.values():
            if state["server"]["name"] not in playing:
                store.set(live.state_key(state["server"]["id"]), live.encode(state), ex=live.STATE_TTL_S)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0, sys.argv[2:])
