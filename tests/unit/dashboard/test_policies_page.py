"""Switching from the page: reviewed, applied with a reason, and every refusal shown where the operator looks."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from django.test import Client
from django.urls import reverse

from dashboard.policy_page import change_words, needs
from dashboard.policy_words import SENTENCES, TITLES
from engine.scheduler.policy import Policy, table
from scheduler_api import policies
from scheduler_api.exceptions import ServerUnreachable, SwitchRefused
from scheduler_api.models import Server
from tests.support.fake_policies import FakePolicies
from tests.support.sample_states import Json

Show = Callable[[str], Server]
HTMX = {"HX-Request": "true"}


@pytest.fixture
def server(shown: Show) -> Server:
    return shown("busy")


def form(fake: FakePolicies, **changes: str) -> dict[str, str]:
    asked = {name: str(value) for name, value in fake.policy["requested"].items()} | changes
    seen = json.dumps(fake.policy["requested"])
    return {f"set.{name}": value for name, value in asked.items()} | {"version": str(fake.policy["version"]), "seen": seen}


def test_a_switch_is_asked_with_the_version_that_was_seen_and_read_back(
    operator_client: Client, server: Server, fake: FakePolicies
) -> None:
    sent = form(fake, phase="barrier") | {"reason": "streams stutter", "ttl": "300"}
    response = operator_client.post(reverse("policy-switch", args=[server.pk]), sent, follow=True)
    assert fake.asked == [
        {
            "changes": {"phase": "barrier"},
            "actor_name": "mira",
            "reason": "streams stutter",
            "expected_version": 41,
            "ttl_s": 300.0,
        }
    ]
    assert "Read back: phase barrier, version 42, from iteration 4711 on." in response.text
    assert "phase: continuous to barrier" in response.text  # in the list of changes
    assert "barrier, in force" in response.text


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("prefill_order", ""),
        ("barrier_join", "counts under phase barrier alone"),
        ("speculative_n_max", "counts with speculative decoding on alone"),
    ],
)
def test_what_a_field_needs_in_order_to_count_is_named(name: str, told: str) -> None:
    assert needs({"phase": "continuous", "speculative": "off"}, name) == told


def test_until_changed_carries_no_deadline(operator_client: Client, server: Server, fake: FakePolicies) -> None:
    operator_client.post(reverse("policy-switch", args=[server.pk]), form(fake, phase="barrier") | {"reason": "why", "ttl": ""})
    assert fake.asked[0]["ttl_s"] is None


def test_the_review_shows_the_diff_and_the_request_and_changes_nothing(
    operator_client: Client, server: Server, fake: FakePolicies
) -> None:
    response = operator_client.post(reverse("policy-review", args=[server.pk]), form(fake, phase="barrier"), headers=HTMX)
    assert response.text.lstrip().startswith("<aside")
    assert "<del>continuous</del>" in response.text
    assert "<ins>barrier</ins>" in response.text
    assert "Dry run passed against version 41" in response.text
    assert "&quot;expected_version&quot;: 41" in response.text
    assert fake.asked == []


def test_without_scripts_the_review_is_a_whole_page(operator_client: Client, server: Server, fake: FakePolicies) -> None:
    response = operator_client.post(reverse("policy-review", args=[server.pk]), form(fake, phase="barrier"))
    assert "<!doctype html>" in response.text
    assert "Dry run passed" in response.text


@pytest.mark.parametrize(
    ("changes", "reason", "words"),
    [({"phase": "barrier"}, " ", "Say why"), ({}, "why", "Nothing differs")],
)
def test_what_cannot_be_sent_is_not_sent(
    operator_client: Client, server: Server, fake: FakePolicies, changes: dict[str, str], reason: str, words: str
) -> None:
    response = operator_client.post(reverse("policy-switch", args=[server.pk]), form(fake, **changes) | {"reason": reason})
    assert response.status_code == 422
    assert words in response.text
    assert fake.asked == []


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (SwitchRefused("busy refuses this policy: phase must be one of ...", 422, None, "phase"), 422),
        (SwitchRefused("It was changed meanwhile.", 409), 409),
        (SwitchRefused("It does not accept the key.", 401), 502),
    ],
)
def test_a_refusal_stands_in_the_review(
    operator_client: Client, server: Server, fake: FakePolicies, error: SwitchRefused, status: int
) -> None:
    fake.error = error
    response = operator_client.post(reverse("policy-switch", args=[server.pk]), form(fake, phase="barrier") | {"reason": "why"})
    assert response.status_code == status
    review = response.text[response.text.index('<aside class="review"') :]
    assert error.text in review
    assert 'value="why"' in review  # what was typed is kept


def test_a_stale_form_puts_back_nobody_elses_change(operator_client: Client, server: Server, fake: FakePolicies) -> None:
    stale = form(fake, phase="barrier") | {"reason": "why"}
    newer = fake.policy | {"version": 55, "requested": fake.policy["requested"] | {"prefill_order": "physical"}}
    fake.error = SwitchRefused("The policy was changed by someone else meanwhile; nothing was switched.", 409, newer)
    response = operator_client.post(reverse("policy-switch", args=[server.pk]), stale)
    assert response.status_code == 409
    assert 'name="version" value="55"' in response.text
    assert "<ins>barrier</ins>" in response.text
    assert "<ins>rotating</ins>" not in response.text


def test_a_server_that_does_not_answer_shows_what_was_seen_last(
    operator_client: Client, server: Server, fake: FakePolicies
) -> None:
    fake.error = ServerUnreachable("http://127.0.0.1:1 cannot be used: connection refused.")
    response = operator_client.get(reverse("policies", args=[server.pk]))
    assert "connection refused" in response.text
    assert "rotating, in force" in response.text
    assert "disabled" in response.text
    assert operator_client.post(reverse("policy-switch", args=[server.pk]), {"reason": "why"}).status_code == 502


@pytest.mark.parametrize(("act", "changes"), [("keep", {"phase": "barrier"}), ("revert", {"phase": "continuous"})])
def test_a_policy_for_a_time_is_kept_or_ended(
    operator_client: Client, server: Server, fake: FakePolicies, act: str, changes: Json
) -> None:
    now = fake.policy["requested"]
    fake.policy = fake.policy | {
        "requested": now | {"phase": "barrier"},
        "reverts_at": 2e9,
        "reverts_to": now | {"phase": "continuous"},
    }
    operator_client.post(reverse("policy-switch", args=[server.pk]), {"act": act, "version": "41", "reason": "as decided"})
    assert [(each["changes"], each["ttl_s"]) for each in fake.asked] == [(changes, None)]


def test_keeping_what_has_gone_back_already_says_so(operator_client: Client, server: Server, fake: FakePolicies) -> None:
    response = operator_client.post(reverse("policy-switch", args=[server.pk]), {"act": "keep", "reason": "as decided"})
    assert response.status_code == 422
    assert "has gone back already" in response.text


def test_a_number_is_sent_as_one_and_a_word_is_not(
    operator_client: Client, server: Server, fake: FakePolicies, states: dict[int, Json]
) -> None:
    states[server.pk]["switching"]["fields"]["prefill_chunk"] = {
        "type": "integer",
        "minimum": 1,
        "maximum": 2048,
        "default": None,
    }
    for part in ("requested", "effective"):
        fake.policy[part]["prefill_chunk"] = None
    sent = {"reason": "why", "ttl": ""}
    operator_client.post(reverse("policy-switch", args=[server.pk]), form(fake, prefill_chunk="512") | sent)
    assert fake.asked[0]["changes"] == {"prefill_chunk": 512}
    response = operator_client.post(reverse("policy-review", args=[server.pk]), form(fake, prefill_chunk="many"), headers=HTMX)
    assert "is not a whole number" in response.text


@pytest.fixture
def whole_engine(server: Server, fake: FakePolicies, states: dict[int, Json]) -> Json:
    """The server offers every field of the engine, as it stands at the start."""
    fields: Json = {name: spec.as_dict() for name, spec in table(2048).items()}
    states[server.pk]["switching"]["fields"] = fields
    for part in ("requested", "effective"):
        fake.policy[part] = Policy().as_dict()
    return fields


def test_every_field_of_the_engine_has_its_card_with_words_of_the_house(
    operator_client: Client, server: Server, whole_engine: Json
) -> None:
    text = operator_client.get(reverse("policies", args=[server.pk])).text
    for name in whole_engine:
        assert f'<h2 id="p-{name}">{TITLES[name]}</h2>' in text
        assert name in SENTENCES
    assert "0.01 to 0.99, empty for off. Drawn: 0.5" in text
    assert "1 or more, empty for off. Drawn: 2 at a stretch" in text
    assert 'name="set.barrier_join_window_ms" value="1000" size="6">' in text
    assert "counts under barrier join window alone" in text


def test_a_share_is_sent_as_a_fraction(operator_client: Client, server: Server, fake: FakePolicies, whole_engine: Json) -> None:
    sent = {"reason": "why", "ttl": ""}
    form_of = {name: "" if value is None else str(value) for name, value in fake.policy["requested"].items()}
    url = reverse("policy-switch", args=[server.pk])
    operator_client.post(url, form(fake, **form_of | {"decode_share": "0.5"}) | sent)
    assert [each["changes"] for each in fake.asked] == [{"decode_share": 0.5}]


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("decode_share", "0,5", "is not a number with a point, such as 0.5."),
        ("decode_share", "nan", "is not a number with a point, such as 0.5."),
        ("barrier_join_window_ms", "", "Window to join: it needs a whole number."),
        ("barrier_max_generation_tokens", "2.5", "is not a whole number."),
    ],
)
def test_what_is_no_number_is_said_before_the_server_is_asked(
    operator_client: Client, server: Server, fake: FakePolicies, whole_engine: Json, name: str, text: str, sentence: str
) -> None:
    form_of = {each: "" if value is None else str(value) for each, value in fake.policy["requested"].items()}
    url = reverse("policy-review", args=[server.pk])
    response = operator_client.post(url, form(fake, **form_of | {name: text}), headers=HTMX)
    assert sentence in response.text
    assert fake.asked == []


def test_a_viewer_reads_the_cards_and_cannot_change_them(viewer_client: Client, server: Server, fake: FakePolicies) -> None:
    text = viewer_client.get(reverse("policies", args=[server.pk])).text
    assert "You are a viewer" in text
    assert '<fieldset class="opts" disabled>' in text
    assert "data-apply" not in text


def test_what_is_not_in_force_says_why(
    operator_client: Client, shown: Show, states: dict[int, Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = shown("unified")
    monkeypatch.setattr(policies, "read_policy", lambda server: states[server.pk]["policy"])
    text = operator_client.get(reverse("policies", args=[server.pk])).text
    assert "rotating asked, physical in force" in text
    assert "unified KV keeps physical order" in text


def test_a_stock_server_says_that_it_cannot_switch(operator_client: Client, shown: Show) -> None:
    text = operator_client.get(reverse("policies", args=[shown("stock").pk])).text
    assert "This server cannot switch policies" in text
    assert 'name="set.phase"' not in text


def test_a_value_set_again_is_not_shown_as_a_change() -> None:
    change = SimpleNamespace(
        old={"phase": "barrier", "prefill_order": "fair"}, changes={"phase": "barrier", "prefill_order": "rotating"}
    )
    assert change_words(change) == ["phase: barrier again", "prefill order: fair to rotating"]
