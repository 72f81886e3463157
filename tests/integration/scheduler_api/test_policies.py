from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User

from scheduler_api import policies, selectors
from scheduler_api.exceptions import ServerUnreachable, SwitchRefused
from scheduler_api.models import PolicyChange, Server
from tests.support.stub_servers import FakeEngine, running, unused_port

ROTATING = {"prefill_order": "rotating"}


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    with running(FakeEngine()) as server:
        yield server


@pytest.fixture
def server(db: None, engine: FakeEngine) -> Server:
    return Server.objects.create(name="local", kind="engine", base_url=engine.url)


def switch(server: Server, by: User, changes: dict[str, Any] = ROTATING, **options: Any) -> PolicyChange:
    return policies.switch(server, changes, actor=by, actor_name=by.username, reason="chat waits", **options)


def test_a_switch_is_read_back_and_written_down(server: Server, engine: FakeEngine, operator: User) -> None:
    row = switch(server, operator, ttl_s=60)
    assert engine.requested == ROTATING
    assert (row.outcome, row.error, row.version, row.ttl_s) == ("applied", "", 2, 60)
    assert row.old == {"prefill_order": "physical"}
    assert row.new == ROTATING
    assert row.effective_from_iteration == 0
    assert (row.actor, row.actor_name, row.reason) == (operator, "mira", "chat waits")
    assert selectors.policy_changes(server) == [row]


def test_a_version_conflict_refuses_and_carries_the_policy_in_force(server: Server, engine: FakeEngine, operator: User) -> None:
    with pytest.raises(SwitchRefused, match="changed by someone else") as refusal:
        switch(server, operator, expected_version=7)
    assert refusal.value.status == 409
    assert refusal.value.current is not None
    assert refusal.value.current["version"] == 1
    assert engine.requested == {"prefill_order": "physical"}
    row = PolicyChange.objects.get()
    assert (row.outcome, row.version, row.new) == ("refused", None, {})
    assert "changed by someone else" in row.error


def test_an_unknown_value_refuses_with_the_servers_words_and_field(server: Server, engine: FakeEngine, operator: User) -> None:
    error = {"code": 422, "message": "prefill_order is physical or rotating", "field": "prefill_order", "allowed": ["physical"]}
    engine.patch_answer = 422, {"error": error}
    with pytest.raises(SwitchRefused, match="physical or rotating") as refusal:
        switch(server, operator, {"prefill_order": "sideways"})
    assert (refusal.value.status, refusal.value.field) == (422, "prefill_order")
    assert PolicyChange.objects.get().outcome == "refused"


def test_a_change_that_the_server_forgot_is_not_called_applied(server: Server, engine: FakeEngine, operator: User) -> None:
    engine.ignore_patches = True
    with pytest.raises(SwitchRefused, match="changed again at once"):
        switch(server, operator)
    assert PolicyChange.objects.get().outcome == "failed"


@pytest.mark.parametrize("answer", [(500, {"error": {"message": "broken"}}), (200, ["no policy"]), (302, {})])
def test_an_odd_answer_fails_and_is_written_down(server: Server, engine: FakeEngine, operator: User, answer: Any) -> None:
    engine.patch_answer = answer
    with pytest.raises(ServerUnreachable, match=str(answer[0])):
        switch(server, operator)
    assert PolicyChange.objects.get().outcome == "failed"


def test_an_unreachable_server_fails_and_is_written_down(db: None, operator: User) -> None:
    server = Server.objects.create(name="gone", kind="engine", base_url=f"http://127.0.0.1:{unused_port()}")
    with pytest.raises(ServerUnreachable, match="connection refused"):
        switch(server, operator)
    row = PolicyChange.objects.get()
    assert (row.outcome, row.old, row.new) == ("failed", {}, {})


@pytest.mark.parametrize(("kind", "why"), [("llama_server", "compiled in"), ("vllm", "set when it starts")])
def test_a_server_of_another_kind_says_why_it_cannot_switch(db: None, operator: User, kind: str, why: str) -> None:
    server = Server.objects.create(name="stock", kind=kind, base_url="http://127.0.0.1:1")
    with pytest.raises(SwitchRefused, match=why) as refusal:
        switch(server, operator)
    assert refusal.value.status == 501
    assert PolicyChange.objects.get().outcome == "refused"


def test_a_dry_run_changes_nothing_and_leaves_no_row(server: Server, engine: FakeEngine) -> None:
    assert policies.dry_run(server, ROTATING)["requested"] == ROTATING
    assert engine.version == 1
    assert not PolicyChange.objects.exists()


def test_a_key_is_sent_and_a_wrong_one_explained(db: None, engine: FakeEngine, operator: User) -> None:
    engine.api_key = "right"
    server = Server.objects.create(name="local", kind="engine", base_url=engine.url, api_key="right")
    assert switch(server, operator).outcome == "applied"
    server.api_key = "wrong"
    with pytest.raises(ServerUnreachable, match="does not accept the registered key"):
        switch(server, operator)
