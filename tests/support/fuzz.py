"""Values that no field should choke on, and a way to learn from the code itself which fields it reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import engine.http.completions
import engine.http.control
import engine.http.info
import engine.http.slots
import engine.http.vectors
from engine.http.fields import parse_object

_READERS = (engine.http.completions, engine.http.control, engine.http.info, engine.http.slots, engine.http.vectors)

# As JSON text, since some of it no JSON writer would write.
HOSTILE: tuple[str, ...] = (
    "true",
    "false",
    "0",
    "-1",
    "1.5",
    "-0.0",
    "1e308",
    "-1e308",
    "1e999",
    "5e-324",
    str(2**31),
    str(-(2**31) - 1),
    str(2**63),
    str(-(2**63)),
    str(2**64),
    "9" * 400,
    '""',
    '"x"',
    '"-1"',
    '"\\u0000"',
    '"\\u202e\\ud83e\\udd17"',
    '"' + "y" * 5000 + '"',
    "[]",
    "[[]]",
    "[null]",
    "[true, 1.5, {}]",
    "[" * 40 + "]" * 40,
    "{}",
    '{"": null}',
    '{"type": 5, "schema": 5, "id": {}}',
    '[{"type": "x", "role": 5, "id": -5, "scale": 1e300}]',
)
NOT_JSON: tuple[bytes, ...] = (
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"nan",
    b"01",
    b"+1",
    b".5",
    b"0x10",
    b"'x'",
    b'"\xff"',
    b'"\xc3\x28"',
    b'"\xed\xa0\x80"',
    b'"\\ud800"',
    b'"\\udc00\\ud800"',
    b'"\\x41"',
    b'"\n"',
    b'"open',
    b"[1,]",
    b'{"a":1,}',
    b"undefined",
    b"[" * 100_000,
    b'{"a":' * 100_000,
)


class RecordingBody(dict[str, Any]):
    """Notes the name of every field that is looked up, those of objects inside as `outer.inner`."""

    def __init__(self, content: dict[str, Any], seen: set[str], prefix: str = "") -> None:
        inner = {
            name: RecordingBody(value, seen, f"{prefix}{name}.") if type(value) is dict else value
            for name, value in content.items()
        }
        super().__init__(inner)
        self._seen, self._prefix = seen, prefix

    def __getitem__(self, name: str) -> Any:
        self._seen.add(self._prefix + name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._seen.add(self._prefix + name)
        return super().get(name, default)


@contextmanager
def recorded_fields() -> Iterator[set[str]]:
    """Within the block: the fields that the routes look up in the bodies they get."""
    seen: set[str] = set()

    def parse(raw: bytes) -> dict[str, Any]:
        return RecordingBody(parse_object(raw), seen)

    patches = [mock.patch.object(reader, "parse_object", parse) for reader in _READERS]
    for patch in patches:
        patch.start()
    try:
        yield seen
    finally:
        for patch in patches:
            patch.stop()
