"""Locust's FastHttpUser for `benchmarks.generator`: USERS users read the stub's streams for SECONDS, without a pause between.

Locust patches the standard library when it is imported, so it has a process of its own. Prints "ready", begins at a line of its
input, and ends with one line of JSON.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

import gevent
from locust import FastHttpUser, constant, task
from locust.env import Environment

BODY = {"prompt": list(range(300, 316)), "n_predict": 64, "stream": True}


class Count:
    events = 0


class Reader(FastHttpUser):
    wait_time = constant(0)

    @task
    def read(self) -> None:
        for line in self.client.iter_lines("/completion", "POST", json=BODY):
            if line.startswith("data:"):
                Count.events += 1


def main(url: str, users: str, seconds: str) -> None:
    logging.disable(logging.INFO)
    environment: Any = Environment(user_classes=[Reader], host=url)
    runner = environment.create_local_runner()
    print("ready", flush=True)
    sys.stdin.readline()
    runner.start(int(users), spawn_rate=int(users))
    while runner.user_count < int(users):
        gevent.sleep(0.01)
    begun, before = time.perf_counter(), Count.events
    gevent.sleep(float(seconds))
    rate = (Count.events - before) / (time.perf_counter() - begun)
    if environment.stats.total.num_failures:
        raise SystemExit(f"{environment.stats.total.num_failures} requests failed")
    runner.quit()
    print(json.dumps({"rate": rate}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
