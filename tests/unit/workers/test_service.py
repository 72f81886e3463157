"""How evenly a large load was served: what is kept of it says what the requests themselves say, however they are parted."""

from __future__ import annotations

import json
from itertools import pairwise
from random import Random

import pytest

from workers.analysis.fair import longest_wait, served, service_gap
from workers.analysis.requests import Times
from workers.load import service
from workers.load.service import RESOLUTION_S, Service


def row(sent: float, *tokens: float, done: float | None = None, ok: bool = True, **fields: object) -> Times:
    """`tokens` and `done` on the same clock as `sent`."""
    gaps = tuple(after - before for before, after in pairwise(tokens))
    first = tokens[0] - sent if tokens else None
    e2e = None if done is None else done - sent
    return Times("s", "ok" if ok else "timeout", sent, done, first, e2e, gaps, **fields)  # type: ignore[arg-type]


def of(rows: list[Times]) -> Service:
    found = Service()
    for each in rows:
        found.add(each)
    return found


def drawn(seed: int, count: int = 60) -> list[Times]:
    """Clusters of requests with pauses between them, some without tokens, some without an end."""
    draws, rows = Random(seed), []
    for number in range(count):
        sent = number * 0.2 + draws.choice((0.0, 0.0, 3.0)) * draws.random()
        tokens = [sent + 0.05]
        for _ in range(draws.randrange(6)):
            tokens.append(tokens[-1] + draws.choice((0.004, 0.03, 0.7)) * draws.random())
        ok = draws.random() > 0.1
        shown = tokens if draws.random() > 0.2 else []
        wait = {"wait_s": draws.random()} if draws.random() > 0.3 else {}
        rows.append(
            row(sent, *shown, done=tokens[-1] + 0.01 if ok or draws.random() > 0.5 else None, ok=ok, n_generated=3, **wait)
        )
    return rows


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("shards", [1, 3])
def test_it_says_what_the_requests_say(seed: int, shards: int) -> None:
    rows = drawn(seed)
    whole = Service()
    for shard in range(shards):
        whole.merge(Service.of_json(json.loads(json.dumps(of(rows[shard::shards]).as_json(), allow_nan=False))))
    assert whole.gap_s == pytest.approx(max(RESOLUTION_S, service_gap(rows) or 0.0))
    assert whole.wait_s == longest_wait(rows)
    assert whole.served == served(rows)


def test_the_gap_of_two_shards_is_neither_ones_own() -> None:
    """One got a token at 1 s, the other at 2 s of three: alone each waited for 2 s, together nobody waited for more than 1 s."""
    one, other = of([row(10.0, 11.0, done=13.0)]), of([row(10.0, 12.0, done=13.0)])
    assert (one.gap_s, other.gap_s) == (2.0, 2.0)
    one.merge(other)
    assert one.gap_s == 1.0
    ahead, behind = of([row(0.0, 0.5, done=3.0)]), of([row(2.5, 6.0, done=6.0)])
    ahead.merge(behind)
    assert ahead.gap_s == 5.5  # from a token of the one to a token of the other


def test_a_gap_below_the_resolution_is_told_as_the_resolution() -> None:
    rows = [row(0.0, *(0.004 * number for number in range(1, 100)), done=0.4)]
    assert service_gap(rows) == pytest.approx(0.004)
    assert of(rows).gap_s == RESOLUTION_S


def test_nothing_says_nothing() -> None:
    assert (Service().gap_s, Service().wait_s, Service().served) == (None, None, None)
    lost = of([row(0.0, done=None, ok=False)])
    assert (lost.gap_s, lost.wait_s) == (None, None)


def test_more_moments_than_are_kept_coarsen_the_resolution_and_keep_the_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MOST", 16)
    tokens = [0.05 * number for number in range(1, 200)] + [12.0]
    rows = [row(0.0, *tokens, done=12.0)]
    found = of(rows)
    assert found.resolution_s == 16 * RESOLUTION_S * 8  # 240 moments of 0.05 s in at most 16 bins
    assert found.gap_s == pytest.approx(service_gap(rows))
    assert Service.of_json(found.as_json()).resolution_s == found.resolution_s


def test_too_many_spans_are_unknown_not_guessed_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MOST", 16)
    rows = [row(float(number), number + 0.1, done=number + 0.2) for number in range(20)]
    found = of(rows)
    assert (found.spans, found.gap_s) == (None, None)
    whole = of(rows[:1])
    whole.merge(Service.of_json(found.as_json()))
    assert whole.gap_s is None
    assert whole.wait_s == pytest.approx(0.1)
