"""What docs/scheduler.md says of the policies is what the code offers."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from engine.scheduler.policy import FIELDS
from tests.unit.scheduler.test_rows import AFTER_FIRST, AFTER_LAST, bench, rows

DOCUMENT = (Path(__file__).parents[3] / "docs" / "scheduler.md").read_text()


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_and_value_is_explained(name: str) -> None:
    line = next(line for line in DOCUMENT.splitlines() if line.startswith(f"| `{name}` |"))
    assert all(f"`{value}`" in line for value in FIELDS[name].values or ())


@pytest.mark.parametrize(
    ("policy", "sizes"),
    [
        ({"prefill_order": "physical"}, [20, 3, 3, 3]),
        (AFTER_LAST, [20, 3, 3, 3]),
        (AFTER_FIRST, [20, 3, 3, 3]),
        ({"prefill_order": "physical"}, [20, 20, 3]),
        (AFTER_FIRST, [20, 20, 3]),
        ({"prefill_order": "fair"}, [20, 20, 3]),
        ({"prefill_order": "shortest_first"}, [20, 11, 3]),
        ({"prefill_chunk": 2}, [5, 3]),
        ({"phase": "barrier"}, [20, 3]),
    ],
)
def test_its_rows_are_what_happens(policy: dict[str, str], sizes: list[int]) -> None:
    made, _ = bench(policy, sizes)
    assert rows(made.run()) in DOCUMENT


TESTED = [line.split("|")[1:4] for line in DOCUMENT.splitlines() if line.startswith("| `") and "::test_" in line]


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_and_value_has_an_example_from_a_test(name: str) -> None:
    values = {value.strip(" `") for field, value, _ in TESTED if field.strip(" `") == name}
    assert values
    assert values.issuperset(FIELDS[name].values or ())


@pytest.mark.parametrize("place", [place.strip(" `") for _, _, place in TESTED])
def test_every_test_that_it_names_is_there(place: str) -> None:
    file, owner, name = place.split("::")
    module = importlib.import_module(f"tests.unit.scheduler.{file.removesuffix('.py')}")
    assert callable(getattr(getattr(module, owner), name))
