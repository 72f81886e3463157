"""What a chosen target cannot do, beside the form and at a start."""

from __future__ import annotations

import html

import pytest
from django.test import Client
from django.urls import reverse

from scheduler_api.models import Server
from tests.support import sample_rows
from tests.support.launching import SENT, check, form, observed, reached, stock
from tests.support.stub_openai import FakeOpenAi
from tests.support.stub_servers import running
from workers.models import Run

__all__ = ["observed", "reached", "stock"]

pytestmark = pytest.mark.django_db


@pytest.fixture
def server() -> Server:
    return sample_rows.make_server()


def test_a_viewer_cannot_ask_what_a_server_can_do(viewer_client: Client) -> None:
    assert viewer_client.get(reverse("experiment-check")).status_code == 403


def test_what_a_target_can_do_is_said_as_such(operator_client: Client, server: Server, reached: list[int]) -> None:
    assert "studio-1 can do all of this" in check(operator_client, server=server.pk)


def test_pins_and_labels_that_a_target_does_not_take_are_warnings(
    operator_client: Client, stock: Server, reached: list[int]
) -> None:
    text = check(operator_client, server=stock.pk, scenario="victim-and-attacker", scale="0.1")
    assert "takes no slot numbers, so the requests meant for slots 0, 1 go where it likes." in text
    assert "does not show client labels" in text
    assert "data-fatal" not in text


def test_what_would_be_refused_is_marked_and_refused(operator_client: Client, server: Server, reached: list[int]) -> None:
    told = "The server has 0 LoRA adapters loaded, and the scenario needs 1."
    assert told in check(operator_client, server=server.pk, scenario="lora-group")
    large = check(operator_client, server=server.pk, scenario="victim-and-attacker", scale="1")
    assert "A slot holds 8,192 tokens, and the largest request needs 12,005 at this scale." in large
    assert "data-fatal" in large
    response = operator_client.post(reverse("experiment-new"), {**SENT, "server": server.pk, "scenario": "lora-group"})
    assert told in response.text
    assert response.status_code == 409


def test_a_target_without_policies_has_equal_arms(operator_client: Client, stock: Server, reached: list[int]) -> None:
    text = form(operator_client, **SENT, server=stock.pk)
    assert "both arms are what it does now" in text
    assert 'name="a-prefill_order"' not in text
    operator_client.post(reverse("experiment-new"), {**SENT, "server": stock.pk, "b-phase": "barrier"})
    run = Run.objects.get()
    assert (run.policy_a, run.policy_b, run.server) == ({}, {}, stock)


def test_what_an_openai_compatible_server_cannot_do_is_said_before_the_start(operator_client: Client, server: Server) -> None:
    """Policies, slots, cache and exact lengths as warnings, LoRA lists as what would be refused; only its list is asked for."""
    with running(FakeOpenAi(models=[{"id": "small", "max_model_len": 2048}])) as other:
        gateway = Server.objects.create(name="gateway", kind="openai", base_url=other.url, model="large")
        text = html.unescape(check(operator_client, server=gateway.pk, scenario="agents", scale="0.01"))
        assert "cannot switch policies, so both arms are alike" in text
        assert "cannot be told what to keep in its cache" in text
        assert "takes text, so prompts are only about as long as planned" in text  # conversations
        assert "does not list the model large" in text
        assert "data-fatal" not in text
        pinned = html.unescape(check(operator_client, server=gateway.pk, scenario="victim-and-attacker", scale="0.01"))
        assert "takes no slot numbers, so the requests meant for slots 0, 1 go where it likes" in pinned
        assert "takes token ids is tried when the run begins" in pinned
        assert "takes no LoRA lists" in check(operator_client, server=gateway.pk, scenario="lora-group", scale="0.01")
        gateway.model = "small"
        gateway.save()
        large = check(operator_client, server=gateway.pk, scenario="victim-and-attacker", scale="1")
        assert "A request there may have 2,048 tokens, and the largest request needs 12,005 at this scale." in large
    assert set(other.seen) == {"/v1/models"}
    assert other.asked == []


def test_a_server_that_does_not_answer_is_said(operator_client: Client, server: Server) -> None:
    text = check(operator_client, server=server.pk)
    assert "data-fatal" in text
