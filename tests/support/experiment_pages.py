"""Pages of experiments as a client reads them."""

from __future__ import annotations

import json
import re
from typing import Any

from django.test import Client
from django.urls import reverse


def page(client: Client, name: str, *args: Any, **query: Any) -> str:
    response = client.get(reverse(name, args=args), query)
    assert response.status_code == 200
    return response.content.decode()


def figure(text: str, name: str) -> dict[str, Any]:
    found = re.search(rf'<script id="{name}" type="application/json">(.*?)</script>', text, re.DOTALL)
    assert found is not None, name
    loaded: dict[str, Any] = json.loads(found[1])
    return loaded
