"""Finding out how a server wants to be spoken to, by its answers alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from workers import speaking
from workers.errors import RunFailed
from workers.load.openai import CHAT, COMPLETIONS, Manner
from workers.load.reading import Answer, Outcome


def refused(text: str = "no", status: int = 400) -> Answer:
    return Answer(0.0, outcome=Outcome.REFUSED, error=f"The server answered {status}: {text}")


def counted(tokens: int | None) -> Answer:
    return Answer(0.0, done_at=1.0, n_prompt=tokens)


class FakeEnd:
    """The far end: `refuses` parameters, takes the forms of `takes`, counts as `counts` says."""

    def __init__(
        self,
        takes: set[tuple[str, str]],
        counts: Callable[[int], int | None] = lambda n: n,
        refuses: tuple[str, ...] = (),
        said: str = "unknown argument {}",
    ) -> None:
        self.takes, self.counts, self.refuses, self.said = takes, counts, refuses, said
        self.asked = 0

    def __call__(self, manner: Manner, tokens: int) -> Answer:
        self.asked += 1
        if (manner.path, manner.prompt) not in self.takes:
            return refused("no such route", 404)
        for name in self.refuses:
            if name not in manner.refused:
                return refused(self.said.format(name))
        return counted(self.counts(tokens))


IDS, TALK, TEXT = (COMPLETIONS, "ids"), (CHAT, "text"), (COMPLETIONS, "text")


def test_token_ids_come_first_where_the_server_counts_them_alike() -> None:
    end = FakeEnd({IDS, TALK, TEXT}, counts=lambda n: n + 1)  # one that begins each text counts for nothing
    assert speaking.find(end, ids=True) == Manner(COMPLETIONS, "ids")
    assert end.asked == 2
    assert speaking.find(end, ids=False).path == CHAT


def test_ids_that_the_server_counts_otherwise_are_not_trusted() -> None:
    """It took the list for something else, such as its digits."""
    found = speaking.find(FakeEnd({IDS, TALK}, counts=lambda n: 5 * n), ids=True)
    assert (found.path, found.prompt, found.tokens_a_word) == (CHAT, "text", 5.0)
    untold = speaking.find(FakeEnd({IDS, TALK}, counts=lambda n: None), ids=True)
    assert (untold.path, untold.counted, untold.tokens_a_word) == (CHAT, False, 1.0)


def test_without_chat_the_words_go_to_completions() -> None:
    assert speaking.find(FakeEnd({TEXT}), ids=True) == Manner(COMPLETIONS, "text")


def test_parameters_that_are_refused_by_name_are_left_out() -> None:
    end = FakeEnd({TALK}, refuses=("max_tokens", "ignore_eos"))
    found = speaking.find(end, ids=False)
    assert set(found.refused) == {"max_tokens", "ignore_eos"}
    assert speaking.losses(found) == [
        "The server does not take ignore_eos, so answers may end before the planned number of tokens."
    ]


def test_a_refusal_without_a_name_costs_what_is_no_part_of_the_interface() -> None:
    found = speaking.find(FakeEnd({TALK}, refuses=("ignore_eos",), said="bad request"), ids=False)
    assert found.refused == ("ignore_eos",)


@pytest.mark.parametrize("said", ["bad request", "unknown argument {}"])
def test_a_server_that_takes_nothing_is_told_in_its_own_words(said: str) -> None:
    end = FakeEnd({TALK}, refuses=("model",), said=said)
    with pytest.raises(
        RunFailed, match=r"neither at /v1/chat/completions nor at /v1/completions. The server answered 404: no such"
    ):
        speaking.find(end, ids=True)
    assert end.asked < 20


@pytest.mark.parametrize(
    "answer",
    [
        Answer(0.0, outcome=Outcome.CONNECTION, error="The connection failed: refused."),
        refused("slow down", 429),
        refused("another key", 401),
        refused("later", 503),
    ],
)
def test_a_server_that_takes_nothing_now_is_not_asked_in_another_way(answer: Answer) -> None:
    asked = []

    def gone(manner: Manner, tokens: int) -> Answer:
        asked.append(manner)
        return answer

    with pytest.raises(RunFailed, match=f"^The server does not take requests. {answer.error}"):
        speaking.find(gone, ids=True)
    assert len(asked) == 1
