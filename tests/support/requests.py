"""Work for an engine, sent from the test's own threads."""

from __future__ import annotations

import json
import threading
import urllib.request
from typing import Any

PATIENCE_S = 150.0  # a long prompt on a busy machine
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def post(url: str, body: dict[str, Any], headers: dict[str, str] | None = None, timeout: float = PATIENCE_S) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json", **(headers or {})})
    with DIRECT.open(request, timeout=timeout) as response:
        answer: dict[str, Any] = json.loads(response.read())
    return answer


class Background:
    """One completion under way; `answer` waits for it and raises what it raised."""

    def __init__(self, engine: str, body: dict[str, Any], client: str = "") -> None:
        self._result: dict[str, Any] | None = None
        self._error: Exception | None = None
        self._args = (f"{engine}/completion", body, {"X-Client-Label": client} if client else {})
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = post(*self._args)
        except Exception as error:
            self._error = error

    def answer(self, timeout: float = PATIENCE_S) -> dict[str, Any]:
        self._thread.join(timeout)
        if self._error is not None:
            raise self._error
        assert self._result is not None, f"no answer within {timeout} s"
        return self._result
