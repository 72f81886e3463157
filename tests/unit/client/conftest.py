from __future__ import annotations

import pytest

from slotboard_client import client
from tests.unit.client.fake_console import TOKEN, FakeConsole


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeConsole:
    made = FakeConsole()
    monkeypatch.setenv("SLOTBOARD_URL", "https://ops.example.org/llm")
    monkeypatch.setenv("SLOTBOARD_TOKEN", TOKEN)
    monkeypatch.setattr(client.Client, "call", lambda _, *args, **given: made.call(*args, **given))
    monkeypatch.setattr(client.Client, "items", lambda _, *args, **given: made.items(*args, **given))
    return made
