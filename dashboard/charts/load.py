"""The load of warm-behind-cold before anything is sent: two lanes, and the blocks in their order."""

from __future__ import annotations

from dataclasses import dataclass

LEFT = 22.0  # per cent of the width kept for what happens before the cold request is sent
UNITS = 100.0 - LEFT
MOST_BATCHES = 64  # more of them would be a hatching: then the cold prompt is one bar


@dataclass(frozen=True, slots=True)
class Bar:
    x: float  # per cent of the width
    width: float


@dataclass(frozen=True, slots=True)
class LoadDrawing:
    """Lane 0 is the cold prompt in batches, lane 1 the warmed depth, the wait of unknown length and the short prompt alone.

    `order` is the arm of each block; `shown` of them are drawn, `more` are not.
    """

    left: float  # where the cold request is sent
    cold: tuple[Bar, ...]
    warm: Bar
    short_at: float
    short: Bar
    batches: int
    order: tuple[str, ...]
    more: int


def block_order(pairs: int) -> tuple[str, ...]:
    """A B, B A, A B, ...: each pair turned, so that a drift of the machine hits both arms alike."""
    return tuple(arm for pair in range(pairs) for arm in ("AB" if pair % 2 == 0 else "BA"))


def planned_load(cold: int, short: int, n_batch: int, share: float, pairs: int, most_blocks: int = 32) -> LoadDrawing:
    """`cold` and `short` in tokens; `share` of the cold one's time alone after which the short one is sent.

    Widths are in tokens: nobody knows yet how fast they go, and a deeper token costs more than a shallow one.
    """
    cold, short, n_batch = max(cold, 1), max(short, 1), max(n_batch, 1)
    total = cold * 1.15 + short
    unit = UNITS / total
    starts = range(0, cold, n_batch)
    drawn = starts if len(starts) <= MOST_BATCHES else range(0, cold, cold)
    size = n_batch if len(starts) <= MOST_BATCHES else cold
    bars = tuple(Bar(round(LEFT + start * unit, 3), round(min(size, cold - start) * unit, 3)) for start in drawn)
    at = round(LEFT + min(max(share, 0.0), 1.0) * cold * unit, 3)
    order = block_order(pairs)
    return LoadDrawing(
        left=LEFT,
        cold=bars,
        warm=Bar(0.0, LEFT - 3.0),
        short_at=at,
        short=Bar(round(LEFT + cold * 1.03 * unit, 3), round(short * unit, 3)),
        batches=len(starts),
        order=order[:most_blocks],
        more=max(0, len(order) - most_blocks),
    )
