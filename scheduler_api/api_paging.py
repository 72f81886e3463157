"""Lists of the API, a page at a time: `limit` and `offset` in, `items`, `total` and `next` out. The same for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django.db.models import Model, QuerySet
from django.http import HttpRequest
from ninja import Field, Schema
from ninja.pagination import PaginationBase

USUAL, MOST = 100, 1000
FARTHEST = 100_000_000
#: What a database holds as a number of a row.
LARGEST = 2**63 - 1


class Pages(PaginationBase):
    """`next` is the address of the page behind this one, with all filters, null on the last one.

    Newest first, rows that come in meanwhile push the others back: who reads on may meet some twice, and misses none.
    """

    class Input(Schema):
        limit: int = Field(USUAL, ge=1, le=MOST, description="how many items at most")
        offset: int = Field(0, ge=0, le=FARTHEST, description="how many items to pass over")

    class Output(Schema):
        items: list[Any]
        total: int = Field(..., description="how many items the filters find in all", examples=[1])
        next: str | None = Field(None, description="path and query of the next page", examples=[None])

    items_attribute = "items"

    def paginate_queryset(self, queryset: Any, pagination: Any, request: HttpRequest, **params: Any) -> dict[str, Any]:
        """`queryset`: one, or any sequence."""
        total, end = self._items_count(queryset), pagination.offset + pagination.limit
        following = None
        if end < total:
            query = request.GET.copy()
            query["offset"], query["limit"] = str(end), str(pagination.limit)
            following = f"{request.path}?{query.urlencode()}"
        return {"items": queryset[pagination.offset : end], "total": total, "next": following}


class Shown[Row: Model]:
    """Rows of the database as items: those of the page alone are read and made."""

    def __init__(self, rows: QuerySet[Row], made: Callable[[list[Row]], Iterable[Any]]) -> None:
        self._rows, self._made = rows, made

    def __len__(self) -> int:
        return self._rows.count()

    def __getitem__(self, part: slice) -> list[Any]:
        return list(self._made(list(self._rows[part])))
