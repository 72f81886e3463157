"""What `make audit` makes of pip-audit's answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tools.audit import OFFLINE, told

FINE = {"name": "a", "version": "1", "vulns": []}
SKIPPED = {"name": "b", "skip_reason": "not found"}
BAD = {"name": "c", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["2.1"]}]}


@pytest.mark.parametrize(
    ("packages", "code", "words"),
    [
        ([FINE], 0, "no known vulnerabilities in 1 packages"),
        ([FINE, SKIPPED], 2, "could not be looked up: b"),
        ([SKIPPED], 2, "nothing was audited"),
        ([FINE, SKIPPED, BAD], 1, "c 2: CVE-1, mended in 2.1"),
    ],
)
def test_a_package_that_was_not_looked_up_is_not_called_safe(packages: list[Any], code: int, words: str) -> None:
    found, text = told(json.dumps({"dependencies": packages, "fixes": []}))
    assert found == code
    assert words in text


def test_offline_it_says_so_in_one_sentence_and_other_failures_in_their_own_words() -> None:
    assert told("", "requests.exceptions.ProxyError: ...") == (2, OFFLINE)
    assert told("", "ERROR: invalid requirements input") == (2, "pip-audit failed: ERROR: invalid requirements input")
