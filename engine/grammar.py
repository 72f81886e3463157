"""What a grammar (GBNF) must not hold, looked at before llama.cpp sees it.

llama.cpp ends the whole process when a grammar comes to a point where no token fits, and takes all memory for a repetition that
counts backwards. So a terminal must match at least one character that tokens can spell, and a repetition must be a range. Syntax
is left to llama.cpp itself.
"""

from __future__ import annotations

import re

MAX_GRAMMAR = 1 << 18  # characters
MAX_REPEAT = 2000
MAX_REPEATED = 50_000  # all repetitions together: llama.cpp writes them out, about a microsecond for each
MAX_DEPTH = 200  # of parentheses: llama.cpp reads them by recursion
MAX_OPTIONAL = 150  # its work on parts that may be left out grows with the cube of their number,
MAX_CHOICES = 4000  # and on choices with the square

_TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*)|(?P<text>"(?:\\.|[^"\\])*")|(?P<set>\[(?:\\.|[^\]\\])*\])|(?P<repeat>\{[^}]*\})|(?P<token>!?<[^>]*>)""",
    re.DOTALL | re.VERBOSE,
)
_CHARACTER = re.compile(r"\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}|\\.|[^\\]", re.DOTALL)
_REPEAT = re.compile(r"\{\s*(\d{1,9})\s*(?:(,)\s*(\d{1,9})?\s*)?\}")
_NAMED = {"n": "\n", "t": "\t", "r": "\r"}
_HIGHEST = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)
# A set of excluded characters must leave one of these whole: a first byte that tokens can spell whatever follows.
_SPELLABLE = [(code, code) for code in range(1, 0x80)] + [(k << 12, (k << 12) + 0xFFF) for k in range(1, 16) if k != 0xD]


def check_terminals(grammar: str) -> None:
    """ValueError with a sentence that shows the part that cannot be used."""
    if len(grammar) > MAX_GRAMMAR:
        raise ValueError(f"it is longer than {MAX_GRAMMAR} characters")
    repeated = 0
    for found in _TOKEN.finditer(grammar):
        part = found.group()
        if found.lastgroup == "text":
            _check_characters(_codes(part[1:-1]), part)
        elif found.lastgroup == "set":
            _check_set(part)
        elif found.lastgroup == "repeat":
            repeated += _check_repeat(part)
            if repeated > MAX_REPEATED:
                raise ValueError(f"its repetitions count to more than {MAX_REPEATED} together")
        elif found.lastgroup == "token":
            raise ValueError(f"{part} names a token, which is not offered: write its text in quotes")
    _check_structure(_TOKEN.sub(" ", grammar))


def _check_structure(bare: str) -> None:
    """`bare` is the grammar without texts, sets and comments."""
    if bare.count("?") + bare.count("*") > MAX_OPTIONAL:
        raise ValueError(f"it has more than {MAX_OPTIONAL} parts with ? or *")
    if bare.count("|") > MAX_CHOICES:
        raise ValueError(f"it has more than {MAX_CHOICES} choices with |")
    depth = 0
    for mark in re.findall("[()]", bare):
        depth += 1 if mark == "(" else -1
        if depth > MAX_DEPTH:
            raise ValueError(f"its parentheses are more than {MAX_DEPTH} deep")


def _codes(text: str) -> list[int]:
    codes = []
    for part in _CHARACTER.findall(text):
        if len(part) > 2 and part[0] == "\\":
            codes.append(int(part[2:], 16))
        else:
            codes.append(ord(_NAMED.get(part[-1], part[-1]) if len(part) == 2 else part))
    return codes


def _check_characters(codes: list[int], part: str) -> None:
    if any(not 1 <= code <= _HIGHEST or code in _SURROGATES for code in codes):
        raise ValueError(f"{_short(part)} holds a character that no text can have")


def _check_set(part: str) -> None:
    inner = part[1:-1]
    negated = inner.startswith("^")
    ranges = _ranges(inner[1:] if negated else inner)
    if not negated:
        if not ranges:
            raise ValueError("an empty set [] matches no character")
        _check_characters([code for pair in ranges for code in pair], part)
        if any(low > high for low, high in ranges):
            raise ValueError(f"{_short(part)} has a range that runs backwards")
    elif not any(all(high < first or low > last for low, high in ranges) for first, last in _SPELLABLE):
        raise ValueError(f"{_short(part)} excludes every character")


def _ranges(text: str) -> list[tuple[int, int]]:
    parts = _CHARACTER.findall(text)
    ranges, at = [], 0
    while at < len(parts):
        low = high = _codes(parts[at])[0]
        if at + 2 < len(parts) and parts[at + 1] == "-":
            high = _codes(parts[at + 2])[0]
            at += 2
        ranges.append((low, high))
        at += 1
    return ranges


def _check_repeat(part: str) -> int:
    """How often the part before it is written out."""
    found = _REPEAT.fullmatch(part)
    if found is None:
        raise ValueError(f"{_short(part)} is no repetition: write {{n}}, {{n,}} or {{n,m}}")
    low = int(found[1])
    high = int(found[3]) if found[3] else low
    if low > high or high > MAX_REPEAT:
        raise ValueError(f"{part} must count upwards, to at most {MAX_REPEAT}")
    return high


def _short(part: str) -> str:
    return part if len(part) <= 60 else part[:57] + "..."
