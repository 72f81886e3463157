from __future__ import annotations

import pytest

from engine.grammar import check_terminals

GOOD = [
    'root ::= "a"',
    r'root ::= [^"\\\x7F\x00-\x1F]+ # what JSON strings are made of, {3,2} is no repetition here',
    r"root ::= [a-z0-9-] [\]\\^-] [^\x00-\x7F] [\u4e00-\u9fff]",
    r'root ::= "{5,2}" "[" "\"<x>" ("a"){2} "b"{3,} "c"{0,2000} .',
]


@pytest.mark.parametrize("grammar", GOOD)
def test_what_tokens_can_spell_passes(grammar: str) -> None:
    check_terminals(grammar)


@pytest.mark.parametrize(
    ("grammar", "shown"),
    [
        (r'root ::= "a\x00"', r'"a\x00"'),
        (r"root ::= [\uD800-\uDFFF]", r"\uD800"),
        (r"root ::= [z-a]", "backwards"),
        (r"root ::= [^\x01-\u4e00\u4e02-\U0010FFFF]", "excludes every character"),
        ('root ::= "a"{3,2}', "{3,2}"),
        ('root ::= "a"{2001}', "2000"),
        ('root ::= "a"{,2}', "no repetition"),
        ("root ::= !<think>", "<think>"),
        ("root ::= " + "(" * 201 + '"a"' + ")" * 201, "200 deep"),
        ("root ::= " + '"a"? "?"* ' * 76, "150 parts"),
        ("root ::= " + " | ".join(['"|"'] * 4002), "4000 choices"),
        ('root ::= "' + "a" * (1 << 18) + '"', "longer"),
        ("root ::= " + '"a"{2000} ' * 26, "50000 together"),
    ],
)
def test_what_could_come_to_a_dead_end_is_shown(grammar: str, shown: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the sentence is what is tested
        check_terminals(grammar)
    assert shown in str(caught.value)
