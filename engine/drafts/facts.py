"""What a header says about a model's rotary positions: the few values that the rule needs, of the first layer."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.drafts.errors import HeaderError
from engine.drafts.metadata import Header, Skipped, Value

DEFAULT_FREQ_BASE = 10000.0  # llama.cpp's, where a file says nothing


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary dimension and key size of one kind of layer, with the key that each number was read from."""

    n_rot: int
    head: int
    n_rot_key: str
    head_key: str


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Of one model. `sections` has four numbers, zeros where the file has none; `full` and `sliding` are the two kinds of layers.

    `first_slides` says whether layer 0 attends within a sliding window; None: there is a window and no pattern over the layers.
    """

    architecture: str
    n_layers: int
    sections: tuple[int, ...]
    full: Rope
    sliding: Rope
    first_slides: bool | None = False
    hyper_connections: int = 0
    freq_base: float = DEFAULT_FREQ_BASE
    freq_base_given: bool = True
    name: str = ""

    @property
    def has_sections(self) -> bool:
        return any(self.sections)

    @property
    def first(self) -> Rope:
        """Of layer 0."""
        return self.sliding if self.first_slides else self.full


def facts_of(header: Header) -> ModelFacts:
    """Raises HeaderError where a key has a value of the wrong type or beyond its range, with key and value."""
    keys = _Keys(header)
    architecture = keys.text("general.architecture")
    arch = keys.under(architecture)
    full = _rope(arch)
    sliding = Rope(
        arch.whole("rope.dimension_count_swa", full.n_rot),
        arch.whole("attention.key_length_swa", full.head),
        arch.name_of("rope.dimension_count_swa", full.n_rot_key),
        arch.name_of("attention.key_length_swa", full.head_key),
    )
    return ModelFacts(
        architecture=architecture,
        n_layers=arch.whole("block_count", 0),
        sections=_sections(arch),
        full=full,
        sliding=sliding,
        first_slides=_first_slides(arch),
        hyper_connections=arch.whole("hyper_connection.count", 0),
        freq_base=arch.real("rope.freq_base", DEFAULT_FREQ_BASE),
        freq_base_given=arch.get("rope.freq_base") is not None,
        name=keys.text("general.name", ""),
    )


class _Keys:
    """Typed reading of one header's values, under a prefix."""

    def __init__(self, header: Header, prefix: str = "") -> None:
        self._header, self._prefix = header, prefix

    def under(self, architecture: str) -> _Keys:
        return _Keys(self._header, f"{architecture}.")

    def name_of(self, key: str, otherwise: str | None = None) -> str:
        """The key's whole name, or another one's where the key is not there."""
        return self._prefix + key if otherwise is None or self.get(key) is not None else otherwise

    def get(self, key: str) -> Value | None:
        return self._header.values.get(self._prefix + key)

    def text(self, key: str, default: str | None = None) -> str:
        value = self.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or (not value and default is None):
            raise self._error(key, value, "a text")
        return value

    def whole(self, key: str, default: int) -> int:
        """A whole number from 0; of an array, which has one for each layer, the first."""
        value = self.get(key)
        if isinstance(value, tuple) and value:
            value = value[0]
        if value is None:
            return default
        if type(value) is not int or not 0 <= value < 1 << 31:
            raise self._error(key, value, "a whole number from 0")
        return value

    def real(self, key: str, default: float) -> float:
        value = self.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self._error(key, value, "a number")
        return float(value)

    def array(self, key: str) -> tuple[int, ...] | None:
        """Whole numbers or truth values; None where the key is not there."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, tuple) or not all(isinstance(item, int) for item in value):
            raise self._error(key, value, "an array of whole numbers")
        return tuple(int(item) for item in value)

    def _error(self, key: str, value: Value | None, wanted: str) -> HeaderError:
        shown = f"{value.what} of {value.count}" if isinstance(value, Skipped) else f"{value!r}"
        said = "is missing" if value is None else f"is {shown}, not {wanted}"
        return HeaderError(f"The header of {self._header.path} cannot be used: key {self._prefix}{key} {said}.")


def _rope(arch: _Keys) -> Rope:
    """llama.cpp's defaults: a head is a share of the embedding, and all of it rotates."""
    n_heads = arch.whole("attention.head_count", 0)
    share = arch.whole("embedding_length", 0) // n_heads if n_heads else 0
    head = arch.whole("attention.key_length", share)
    head_key = arch.name_of("attention.key_length")
    return Rope(
        n_rot=arch.whole("rope.dimension_count", head),
        head=head,
        n_rot_key=arch.name_of("rope.dimension_count", head_key),
        head_key=head_key,
    )


def _sections(arch: _Keys) -> tuple[int, ...]:
    """Four numbers. A single number stands for all four, as in llama.cpp's loader; what is not there is zero."""
    if type(arch.get("rope.dimension_sections")) is int:
        return (arch.whole("rope.dimension_sections", 0),) * 4
    sections = arch.array("rope.dimension_sections") or ()
    return (*sections, 0, 0, 0, 0)[:4]


def _first_slides(arch: _Keys) -> bool | None:
    """A window of 0 is none. With a single number n as pattern each n-th layer is a full one, so layer 0 slides but for n = 1."""
    if arch.whole("attention.sliding_window", 0) == 0:
        return False
    if arch.whole("hyper_connection.count", 0):
        return True  # DeepSeek V4 stages slide, all of them
    pattern = arch.get("attention.sliding_window_pattern")
    if isinstance(pattern, tuple):
        flags = arch.array("attention.sliding_window_pattern") or (0,)
        return bool(flags[0])
    if pattern is None:
        return None
    return arch.whole("attention.sliding_window_pattern", 1) != 1
