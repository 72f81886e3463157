"""The vocabulary of the tiny model: specials, bytes, single characters and English-looking pieces, in sentencepiece form.

A piece longer than one character is reachable by llama.cpp's merges only if each of its beginnings is a piece too, so every
word brings its beginnings along. Any text survives tokenize and detokenize: what no piece covers falls back to bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import product

SPACE = "\u2581"  # sentencepiece writes a space as this mark
SPECIALS = ("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>")
UNK, BOS, EOS, IM_START, IM_END = range(len(SPECIALS))
FIRST_BYTE = len(SPECIALS)
FIRST_ORDINARY = FIRST_BYTE + 256

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

COMMON = """
the of and to in is it that for was on are as with his they at be this have from or one had by word but not what all were we
when your can said there use an each which she do how their if will up other about out many then them these so some her would
make like him into time has look two more write go see number no way could people my than first water been call who oil its
now find long down day did get come made may part over new sound take only little work know place year live me back give most
very after thing our just name good sentence man think say great where help through much before line right too mean old any
same tell boy follow came want show also around form three small set put end does another well large must big even such
because turn here why ask went men read need land different home us move try kind hand picture again change off play spell air
away animal house point page letter mother answer found study still learn should world slot batch queue server token prompt
cache request model memory engine policy order phase cohort barrier short warm cold fair rotate
"""
WORDS = tuple(COMMON.split())

ONSETS = [*"bcdfghjklmnprstvw", "br", "cl", "cr", "dr", "fl", "gr", "pl", "pr", "sh", "sl", "sp", "st", "th", "tr", "ch"]
VOWELS = [*"aeiou", "ai", "ea", "oo"]
CODAS = ["", *"nrstlm", "nd", "st", "ck", "ng"]


class PieceType(IntEnum):
    """GGUF's token types, as far as they occur here."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    BYTE = 6


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Three lists of equal length; a higher score merges earlier."""

    pieces: tuple[str, ...]
    scores: tuple[float, ...]
    types: tuple[PieceType, ...]


def _beginnings(word: str) -> Iterator[str]:
    return (word[:end] for end in range(1, len(word) + 1))


def _ordinary() -> Iterator[str]:
    """Ordinary pieces without end to speak of, the most useful first; duplicates included."""
    yield SPACE
    yield from map(chr, range(33, 127))
    for word in WORDS:
        yield from _beginnings(SPACE + word)
        yield from _beginnings(word)
    syllables = ["".join(parts) for parts in product(ONSETS, VOWELS, CODAS)]
    for syllable in syllables:
        yield from _beginnings(SPACE + syllable)
        yield from _beginnings(syllable)
    for tail, head in product(syllables[::37], syllables[::3]):
        yield from _beginnings(SPACE + head + tail)


def build_vocabulary(size: int) -> Vocabulary:
    """Exactly `size` pieces: specials, 256 bytes, then ordinary ones from FIRST_ORDINARY on."""
    ordinary: dict[str, None] = {}
    for piece in _ordinary():
        if len(ordinary) == size - FIRST_ORDINARY:
            break
        ordinary.setdefault(piece)
    pieces = (*SPECIALS, *(f"<0x{value:02X}>" for value in range(256)), *ordinary)
    if len(pieces) != size:
        raise ValueError(f"only {len(pieces)} pieces can be made, {size} were asked for")
    scores = (*(0.0 for _ in range(FIRST_ORDINARY)), *(-float(rank) for rank in range(len(ordinary))))
    types = (
        PieceType.UNKNOWN,
        *(PieceType.CONTROL for _ in SPECIALS[1:]),
        *(PieceType.BYTE for _ in range(256)),
        *(PieceType.NORMAL for _ in ordinary),
    )
    return Vocabulary(pieces, scores, types)
