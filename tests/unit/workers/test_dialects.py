"""How a request is said to each kind of server, and what is said of a kind that cannot do it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from workers.load.dialects import Abilities, Native, lacks
from workers.load.openai import COMPLETIONS, IDS, Manner, OpenAi, says_ids
from workers.load.plan import make_plan
from workers.load.planned import AnswerOf, File, Piece, Planned, Scaling
from workers.load.reading import Answer
from workers.scenarios.streams import LoadScenario

POOL = tuple(range(300, 340))
ENGINE = Abilities("The engine", token_ids=True, pins=True, labels=True, switches=True, adapters=1, n_slots=4, n_ctx=4096)
STOCK = Abilities("llama-server", token_ids=True, pins=True, labels=False, switches=False, adapters=0, n_slots=2, n_ctx=256)
OPENAI = Abilities("An OpenAI-compatible server", token_ids=False, pins=False, labels=False, switches=False, cache=False)
UNTRIED = Abilities("An OpenAI-compatible server", token_ids=None, pins=False, labels=False, switches=False, cache=False)


def request(**fields: Any) -> Planned:
    plain: dict[str, Any] = {"number": 0, "stream": "one", "at_s": 0.0, "pieces": (Piece("x", 5),), "n_predict": 7, "place": 0}
    return Planned(**{**plain, **fields})


def native(asked: Planned, answers: dict[int, Answer] | None = None, texts: Any = ()) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Native(1, POOL, texts).body(asked, answers or {}))
    return found


def chat(asked: Planned, answers: dict[int, Answer] | None = None, texts: Any = (), **manner: Any) -> dict[str, Any]:
    dialect = OpenAi(1, "m", texts, Manner(**manner))
    found: dict[str, Any] = json.loads(dialect.body(asked, answers or {}))
    return found


def test_native_sends_exact_tokens_and_all_that_is_asked() -> None:
    body = native(request(slot=2, lora=((0, 0.5),), streamed=False))
    assert len(body.pop("prompt")) == 5
    assert body == {
        "n_predict": 7,
        "stream": False,
        "cache_prompt": True,
        "temperature": 0.0,
        "ignore_eos": True,
        "id_slot": 2,
        "lora": [{"id": 0, "scale": 0.5}],
    }
    assert native(request())["id_slot"] == -1
    assert Native(1, POOL).headers(request(client="chat")) == {"X-Client-Label": "chat"}


def test_equal_labels_are_equal_text_as_far_as_both_go() -> None:
    long = native(request(pieces=(Piece("x", 50), Piece("y", 3))))["prompt"]
    assert native(request())["prompt"] == long[:5]
    assert native(request(pieces=(Piece("z", 5),)))["prompt"] != long[:5]
    assert Native(2, POOL).body(request(), {}) != Native(1, POOL).body(request(), {})


def test_a_turn_holds_the_servers_own_answer_and_files_their_tokens() -> None:
    turn = request(pieces=(Piece("x", 2), AnswerOf(4, 3), File(0)))
    said = {4: Answer(0.0, tokens=(9, 8), text="nine eight")}
    assert native(turn, said, [[5, 6]])["prompt"][2:] == [9, 8, 5, 6]
    assert len(native(turn, {}, [[5, 6]])["prompt"]) == 2 + 3 + 2  # a stand-in of the planned length
    messages = chat(turn, said, ["a text"])["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert [messages[1]["content"], messages[2]["content"]] == ["nine eight", "a text"]


def test_chat_asks_for_usage_and_sends_as_many_words_as_the_tokens_need() -> None:
    body = chat(request(client="chat"))
    assert (body["model"], body["max_tokens"], body["stream_options"], body["user"]) == ("m", 7, {"include_usage": True}, "chat")
    assert len(body["messages"][0]["content"].split()) == 5
    assert "stream_options" not in chat(request(streamed=False))
    assert len(chat(request(pieces=(Piece("x", 100),)), tokens_a_word=2.5)["messages"][0]["content"].split()) == 40


def test_completions_take_exact_token_ids_or_plain_words() -> None:
    ids = chat(request(pieces=(Piece("x", 40),)), path=COMPLETIONS, prompt="ids")
    assert len(ids["prompt"]) == 40
    assert set(ids["prompt"]) <= set(IDS)
    assert "messages" not in ids
    assert chat(request(), path=COMPLETIONS, prompt="ids")["prompt"] == ids["prompt"][:5]  # equal labels are equal text
    words = chat(
        request(pieces=(Piece("x", 40), AnswerOf(4, 3), Piece("y", 2))), {4: Answer(0.0, text="so it is")}, path=COMPLETIONS
    )
    assert "so it is" in words["prompt"].splitlines()
    assert len(words["prompt"].split()) == 45
    with pytest.raises(ValueError, match="no token ids are known"):
        chat(request(pieces=(AnswerOf(4, 3),)), path=COMPLETIONS, prompt="ids")


def test_what_a_server_refuses_is_left_out_and_a_limit_has_two_names() -> None:
    whole = chat(request(client="a"))
    assert whole["ignore_eos"] is True
    spare = chat(request(client="a"), refused=("ignore_eos", "stream_options", "temperature", "user", "max_tokens"))
    assert set(spare) == {"model", "messages", "stream", "max_completion_tokens"}
    assert Manner.of_json(json.loads(json.dumps(Manner(refused=("user",)).as_json()))) == Manner(refused=("user",))


def scenario(**fields: Any) -> LoadScenario:
    stream = {"name": "one", "arrivals": {"kind": "at", "times": [0.0]}, "prompt": {"tokens": 300}, "output": 8, **fields}
    whole = {"name": "x", "version": 1, "title": "t", "summary": "s", "written_for": 1.0, "streams": [stream]}
    return LoadScenario.model_validate(whole)


@pytest.mark.parametrize(
    ("asked", "can", "fatal", "sentence"),
    [
        ({}, STOCK, True, "llama-server cannot switch policies while it runs"),
        ({"slot": 3}, STOCK, True, "The server has 2 slots, and the scenario needs 4."),
        ({"slot": 3}, OPENAI, False, "takes no slot numbers, so the requests meant for slots 3 go where it likes"),
        ({"lora": [{"id": 1}]}, ENGINE, True, "The server has 1 LoRA adapters loaded, and the scenario needs 2."),
        ({"lora": [{"id": 0}]}, OPENAI, True, "takes no LoRA lists"),
        ({}, OPENAI, False, "takes text, so prompts are only about as long as planned"),
        ({}, UNTRIED, False, "Whether an OpenAI-compatible server takes token ids is tried when the run begins"),
        ({"turns": 2}, UNTRIED, False, "takes text, so prompts are only about as long as planned"),
        ({"prompt": {"tokens": 9, "prefix": {"tokens": 8}}}, UNTRIED, False, "cannot be told what to keep in its cache"),
        ({}, STOCK, True, "A slot holds 256 tokens, and the largest request needs 309 at this scale."),
        ({"client": "a"}, STOCK, False, "llama-server does not show client labels"),
    ],
)
def test_what_a_target_cannot_do_is_a_sentence(asked: dict[str, Any], can: Abilities, fatal: bool, sentence: str) -> None:
    wanted = scenario(**asked)
    found = lacks(wanted, make_plan(wanted, 1, Scaling()), can, arms_differ=True)
    assert [lack.fatal for lack in found if sentence in lack.text] == [fatal]


def test_conversations_and_files_cannot_be_said_in_ids() -> None:
    assert says_ids(scenario())
    assert not says_ids(scenario(turns=2))
    assert not says_ids(scenario(prompt={"files": ["a.txt"]}))


def test_an_engine_that_can_do_all_lacks_nothing() -> None:
    wanted = scenario(slot=3, lora=[{"id": 0}], client="a")
    assert lacks(wanted, make_plan(wanted, 1, Scaling()), ENGINE, arms_differ=True) == []
