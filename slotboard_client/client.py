"""The client. One connection pool; no proxies or other settings of the environment; redirects are not followed, since the token
belongs to the console alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx2

from slotboard_client.errors import ClientError, NotFound, Refused, Unreachable
from slotboard_client.shapes import (
    Alert,
    AuditRow,
    Drift,
    Guard,
    Json,
    Policy,
    PolicyChange,
    Preset,
    Run,
    Sample,
    Scenario,
    Server,
    Shape,
    Window,
)

TIMEOUT_S = 60.0  # the first look at a large result computes it
PAGE = 200
LOOK_S = 1.0


class Client:
    """`url` is the console's, with the path under which a proxy serves it. Every method raises Refused or Unreachable.

    Lists are read page by page as they are iterated; a read that is refused for its rate is tried again when the console says so,
    at most `patience` times.
    """

    def __init__(self, url: str, token: str, *, timeout_s: float = TIMEOUT_S, patience: int = 2) -> None:
        parts = urlsplit(url.rstrip("/"))
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ClientError(f"{url!r} is not an address of a console, such as https://ops.example.org/llm.")
        self._origin, self._base, self._patience = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", parts.path, patience
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json", "User-Agent": "slotboard-client"}
        self._http = httpx2.Client(headers=headers, timeout=timeout_s, trust_env=False, follow_redirects=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def __repr__(self) -> str:
        return f"Client({self._origin}{self._base!s})"

    # -- requests -----------------------------------------------------------------------------------------------------

    def call(self, method: str, path: str, body: Json | None = None, query: Mapping[str, Any] | None = None) -> Any:
        """The answer of an address below /api/, None for one without content."""
        answer = self._send(method, f"{self._base}/api/{path}", body, query)
        return _json(answer) if answer.content else None

    def items(self, path: str, **filters: Any) -> Iterator[Json]:
        """All items of a list, page by page. Filters that are None or "" are left out; `from_` is `from`."""
        query: dict[str, Any] | None = {name.rstrip("_"): value for name, value in filters.items() if value not in (None, "")}
        address: str | None = f"{self._base}/api/{path}"
        while address is not None:
            page = _json(self._send("GET", address, None, {"limit": PAGE, **query} if query is not None else None))
            yield from page["items"]
            address, query = page["next"], None

    def _send(self, method: str, path: str, body: Json | None, query: Mapping[str, Any] | None) -> httpx2.Response:
        """`path` from the root of the console's origin. The token goes nowhere else, whatever a `next` says."""
        if not path.startswith("/") or path.startswith("//"):
            raise Unreachable(f"{self._origin} names an address that is not its own.")
        tries = self._patience if method == "GET" else 0
        while True:
            try:
                answer = self._http.request(method, self._origin + path, json=body, params=_words(query))
            except httpx2.TimeoutException:
                raise Unreachable(f"{self._origin} did not answer in time.") from None
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                raise Unreachable(f"{self._origin} cannot be reached: {error or type(error).__name__}.") from None
            if answer.status_code < 300:
                return answer
            refusal = self._refusal(answer)
            if refusal.status != 429 or not tries or refusal.retry_after_s is None:
                raise refusal
            tries -= 1
            time.sleep(refusal.retry_after_s)

    def _refusal(self, answer: httpx2.Response) -> Refused:
        """Raises Unreachable for an answer that no console gives."""
        status = answer.status_code
        if status < 400:
            where = answer.headers.get("location", "somewhere else")
            raise Unreachable(f"{self._origin}{self._base} sends on to {where}; give the address that it has there.")
        try:
            problem = answer.json()
        except ValueError:
            problem = None
        if not isinstance(problem, dict) or "status" not in problem:
            raise Unreachable(f"{self._origin}{self._base} answers {status}, and not as a console does; is the address right?")
        return (NotFound if status == 404 else Refused)(status, problem)

    # -- servers and policies -----------------------------------------------------------------------------------------

    def servers(self, name: str = "") -> Iterator[Server]:
        return _shaped(Server, self.items("servers", name=name))

    def server(self, wanted: str | int) -> Server:
        """By name or id, with its live state. Raises NotFound."""
        if isinstance(wanted, int):
            return _shape(Server, self.call("GET", f"servers/{wanted}"))
        for found in self.servers(name=wanted):
            return self.server(found.id)
        if wanted.isdecimal():
            return self.server(int(wanted))
        raise NotFound(404, {"detail": f"There is no server {wanted!r} that this token may see.", "status": 404})

    def policy(self, server: int) -> Policy:
        return _shape(Policy, self.call("GET", f"servers/{server}/policy"))

    def review(self, server: int, changes: Json, *, ttl_s: float | None = None, expected_version: int | None = None) -> Json:
        """What the policy would be, and what to know first; nothing is changed."""
        body = {"set": changes, "ttl_s": ttl_s, "expected_version": expected_version}
        return dict(self.call("POST", f"servers/{server}/policy/review", body))

    def switch(
        self,
        server: int,
        changes: Json,
        *,
        reason: str,
        ttl_s: float | None = None,
        expected_version: int | None = None,
        guards: list[Json] | None = None,
        understood: bool = False,
    ) -> PolicyChange:
        """Without `ttl_s` the change stays until the next one. `guards`: [{"metric", "over", "for_s", "samples"}]."""
        body: Json = {"set": changes, "reason": reason, "ttl_s": ttl_s, "expected_version": expected_version}
        body |= {"guards": guards or [], "understood": understood}
        return _shape(PolicyChange, self.call("PATCH", f"servers/{server}/policy", body))

    def revert(self, server: int, change: int | None = None) -> PolicyChange:
        """Takes a change back, the one in force without `change`."""
        return _shape(PolicyChange, self.call("POST", f"servers/{server}/policy/revert", {"change": change}))

    def policy_changes(self, server: int) -> Iterator[PolicyChange]:
        return _shaped(PolicyChange, self.items(f"servers/{server}/policy-changes"))

    def drifts(self, server: int, state: str = "") -> Iterator[Drift]:
        return _shaped(Drift, self.items(f"servers/{server}/policy/drifts", state=state))

    def reapply(self, server: int, drift: int) -> PolicyChange:
        """Sets what was there before the drift again, unless the policy was changed since (Refused, 409)."""
        return _shape(PolicyChange, self.call("POST", f"servers/{server}/policy/drifts/{drift}/reapply"))

    def leave(self, server: int, drift: int) -> Drift:
        """Settles a drift; the policy stays as it was found."""
        return _shape(Drift, self.call("POST", f"servers/{server}/policy/drifts/{drift}/leave"))

    def guards(self, server: int, state: str = "") -> Iterator[Guard]:
        return _shaped(Guard, self.items(f"servers/{server}/policy/guards", state=state))

    def remove_guard(self, server: int, guard: int) -> None:
        """Takes a guard rail off; the policy stays."""
        self.call("DELETE", f"servers/{server}/policy/guards/{guard}")

    def windows(self, server: int) -> Iterator[Window]:
        return _shaped(Window, self.items(f"servers/{server}/policy/windows"))

    def add_window(self, server: int, name: str, inside: Json | str, outside: Json | str | None = None, **when: Any) -> Window:
        """A policy is an object of fields or a preset's key. `when`: zone, and days, begins, ends or starts_at, ends_at."""
        given = {key: each for key, each in when.items() if each is not None}
        body = {"name": name, "inside": inside, "outside": outside, **given}
        return _shape(Window, self.call("POST", f"servers/{server}/policy/windows", body))

    def enable_window(self, server: int, window: int, enabled: bool) -> Window:
        """Off: a policy that the window has set goes back at its deadline all the same."""
        return _shape(Window, self.call("PATCH", f"servers/{server}/policy/windows/{window}", {"enabled": enabled}))

    def remove_window(self, server: int, window: int) -> None:
        self.call("DELETE", f"servers/{server}/policy/windows/{window}")

    def presets(self) -> Iterator[Preset]:
        return _shaped(Preset, self.items("presets"))

    # -- scenarios and runs -------------------------------------------------------------------------------------------

    def scenarios(self, tag: str = "") -> Iterator[Scenario]:
        return _shaped(Scenario, self.items("scenarios", tag=tag))

    def scenario(self, name: str) -> Scenario:
        return _shape(Scenario, self.call("GET", f"scenarios/{name}"))

    def check_scenario(self, text: str) -> list[Json]:
        """What is wrong with a YAML text, [{"field", "text", "line"}]; empty when nothing is."""
        return list(self.call("POST", "scenarios/check", {"text": text})["errors"])

    def save_scenario(self, text: str, own: str = "") -> Scenario:
        """A new one, or another text for one's own."""
        answer = self.call("PUT", f"scenarios/{own}", {"text": text}) if own else self.call("POST", "scenarios", {"text": text})
        return _shape(Scenario, answer)

    def runs(
        self, *, scenario: str = "", server: int | None = None, by: str = "", state: str = "", verdicts: bool = False
    ) -> Iterator[Run]:
        """`verdicts` takes seconds for each large run that nobody looked at yet."""
        filters = {"scenario": scenario, "server": server, "by": by, "state": state, "verdicts": verdicts or None}
        return _shaped(Run, self.items("runs", **filters))

    def run(self, run: int) -> Run:
        return _shape(Run, self.call("GET", f"runs/{run}"))

    def start_run(self, server: int, scenario: str = "", **options: Any) -> Run:
        """`options`: text, arms, a, b, pairs, scale, share, seed, shards, order, floor, wait, not_before (docs/api.md)."""
        given = {name: value for name, value in options.items() if value is not None}
        return _shape(Run, self.call("POST", "runs", {"server": server, "scenario": scenario, **given}))

    def stop_run(self, run: int) -> Run:
        return _shape(Run, self.call("POST", f"runs/{run}/stop"))

    def result(self, run: int) -> Json:
        return dict(self.call("GET", f"runs/{run}/result"))

    def wait(
        self, run: int, *, limit_s: float | None = None, look_s: float = LOOK_S, told: Callable[[Run], None] | None = None
    ) -> Run:
        """Looks at a run until it is over; `told` hears of each look. Raises TimeoutError after `limit_s`; the run goes on."""
        deadline = None if limit_s is None else time.monotonic() + limit_s
        while True:
            found = self.run(run)
            if told is not None:
                told(found)
            if not found.active:
                return found
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"Run {run} is not over after {limit_s:g} s.")
            time.sleep(look_s)

    def export(self, run: int) -> Json:
        """The run as a file, which another console imports."""
        return dict(self.call("GET", f"runs/{run}/export.json"))

    def samples(self, run: int, *, stream: str = "", arm: str = "", outcome: str = "") -> Iterator[Sample]:
        return _shaped(Sample, self.items(f"runs/{run}/samples", stream=stream, arm=arm, outcome=outcome))

    def samples_csv(self, run: int) -> str:
        return self._send("GET", f"{self._base}/api/runs/{run}/samples.csv", None, None).text

    # -- audit and alerts ---------------------------------------------------------------------------------------------

    def audit(self, **filters: Any) -> Iterator[AuditRow]:
        """The newest first. `filters`: who, what, server, q, outcome, from_, to, after, before."""
        return _shaped(AuditRow, self.items("audit", **filters))

    def alerts(self, *, state: str = "open", server: int | None = None) -> Iterator[Alert]:
        return _shaped(Alert, self.items("alerts", state=state, server=server))

    def acknowledge(self, alert: int) -> Alert:
        return _shape(Alert, self.call("POST", f"alerts/{alert}/acknowledge"))

    def silence(self, minutes: float, reason: str, *, server: int | None = None, rule: int | None = None) -> Json:
        """Without `server` on every one, without `rule` for every rule."""
        return dict(self.call("POST", "alerts/silences", {"minutes": minutes, "reason": reason, "server": server, "rule": rule}))


def _shape[S: Shape](kind: type[S], answer: Mapping[str, Any]) -> S:
    try:
        return kind.of(answer)
    except TypeError as error:
        raise Unreachable(f"The console's answer is not as this client knows it: {error}.") from None


def _shaped[S: Shape](kind: type[S], answers: Iterator[Json]) -> Iterator[S]:
    return (_shape(kind, each) for each in answers)


def _json(answer: httpx2.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        raise Unreachable(f"{answer.url.host} answers with something else than JSON; is the address right?") from None


def _words(query: Mapping[str, Any] | None) -> dict[str, str] | None:
    """None keeps the query that stands in the address already."""
    return (
        None
        if query is None
        else {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in query.items()}
    )
