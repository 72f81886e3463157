"""What holds for all of the API: problems, pages, limits, and a description whose examples are right."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from ninja.operation import Operation

from dashboard.api import api
from dashboard.body_limit import LIMIT, BodyLimit
from dashboard.people.models import Scope
from scheduler_api import api_limits, selectors
from scheduler_api.api_limits import CallerLimit
from scheduler_api.api_problems import TITLES, URN
from scheduler_api.api_schema import contents, documented, example_of, operations
from scheduler_api.models import PolicyChange, Server
from tests.unit.api.conftest import Asking


class TestProblems:
    def test_who_is_not_known_is_told_what_it_needs(self, db: None) -> None:
        answer = Client().get("/api/servers")
        assert (answer.status_code, answer.headers["Content-Type"]) == (401, "application/problem+json")
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert answer.json() == {
            "type": "about:blank",
            "title": "Unauthorized",
            "status": 401,
            "detail": "This needs a session or an API token: Authorization: Bearer …",
        }

    @pytest.mark.parametrize(
        ("method", "path", "status", "detail"),
        [
            ("GET", "", 404, "There is no such address"),
            ("GET", "nothing/here", 404, "There is no such address"),
            ("GET", "servers/", 404, "There is no such address"),
            ("GET", "servers/77", 404, "No such server."),
            ("GET", f"servers/{10**40}", 404, "No such server."),
            ("DELETE", "servers", 405, "DELETE is not taken here; GET is."),
            ("GET", "servers?name=%00", 400, "The query holds a NUL character."),
            ("GET", f"alerts?server={10**30}", 422, "server: Input should be less than or equal to"),
            ("GET", f"audit?before={10**30}", 422, "before: Input should be less than or equal to"),
            ("GET", "servers?limit=0", 422, "limit: Input should be greater than or equal to 1."),
        ],
    )
    def test_of_addresses(self, ask: Asking, method: str, path: str, status: int, detail: str) -> None:
        assert ask(method, path, status=status)["detail"].startswith(detail)

    @pytest.mark.parametrize("body", ["{", '{"ttl_s": NaN}', '{"reason": "\\u0000"}', "[1]", "[" * 100_000, "\0"])
    def test_a_body_that_is_no_json(self, operator_client: Client, server: Server, body: str) -> None:
        answer = operator_client.patch(f"/api/servers/{server.pk}/policy", body, content_type="application/json")
        assert (answer.status_code, answer.json()["type"]) == (400, f"{URN}invalid")

    def test_each_field_that_is_wrong_is_named_and_nothing_given_is_repeated(self, ask: Asking, server: Server) -> None:
        body = {"set": "slotboard_secret", "ttl_s": -1, "guards": [{"metric": "x", "over": 1, "for_s": 1}]}
        problem = ask("PATCH", f"servers/{server.pk}/policy", body, 422)
        assert [each["field"] for each in problem["errors"]] == ["set", "ttl_s", "reason", "guards.0.metric"]
        assert (problem["type"], problem["title"], problem["field"]) == (f"{URN}invalid", TITLES["invalid"], "set")
        assert problem["detail"].endswith("And 1 more.")
        assert "slotboard_secret" not in str(problem)

    def test_a_write_of_a_session_says_that_it_needs_a_csrf_token(self, operator: User, server: Server) -> None:
        client = Client(enforce_csrf_checks=True)
        client.force_login(operator, backend="django.contrib.auth.backends.ModelBackend")
        answer = client.post(f"/api/servers/{server.pk}/policy/revert", "{}", content_type="application/json")
        assert (answer.status_code, "X-CSRFToken" in answer.json()["detail"]) == (403, True)

    def test_a_fault_of_the_console_is_a_problem_and_stands_in_its_log(
        self, ask: Asking, server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def broken(pk: int) -> None:
            raise RuntimeError("inner words")

        monkeypatch.setattr(selectors, "live_state", broken)
        assert "inner words" not in str(ask("GET", f"servers/{server.pk}", status=500))
        assert "inner words" in caplog.text

    def test_a_body_that_is_too_long(self) -> None:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def nothing(*_: Any) -> Any:
            raise AssertionError("it reached the application")

        length = [(b"content-length", str(LIMIT + 1).encode())]
        asyncio.run(BodyLimit(nothing)({"type": "http", "path": "/llm/api/runs", "headers": length}, nothing, send))
        assert (sent[0]["status"], dict(sent[0]["headers"])[b"content-type"]) == (413, b"application/problem+json")
        assert json.loads(sent[1]["body"])["status"] == 413


class TestPages:
    @pytest.fixture
    def changes(self, server: Server) -> list[int]:
        return [PolicyChange.objects.create(server=server, actor_name=name, outcome="applied").pk for name in "abcde"]

    def test_next_leads_through_all_of_it_and_keeps_the_filters(self, ask: Asking, server: Server, changes: list[int]) -> None:
        PolicyChange.objects.create(server=server, actor_name="f", outcome="refused")
        seen, path = [], f"servers/{server.pk}/policy-changes?limit=2&outcome=applied"
        while path:
            page = ask.get(path)
            assert page["total"] == 5
            seen += [each["id"] for each in page["items"]]
            path = (page["next"] or "").removeprefix("/api/")
        assert seen == list(reversed(changes))

    def test_behind_the_end_there_is_nothing(self, ask: Asking, server: Server, changes: list[int]) -> None:
        page = ask.get(f"servers/{server.pk}/policy-changes", offset=100)
        assert page == {"items": [], "total": 5, "next": None}

    def test_every_list_has_the_same_form(self) -> None:
        listed = [op for op in operations(api.get_openapi_schema(path_prefix="/api/")) if op["operationId"].startswith("list_")]
        assert len(listed) >= 10
        for operation in listed:
            assert {"limit", "offset"} <= {each["name"] for each in operation["parameters"]}, operation["operationId"]
            assert set(operation["responses"][200]["content"]["application/json"]["example"]) == {"items", "total", "next"}


class TestLimits:
    @pytest.fixture(autouse=True)
    def counts(self, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Counter[str]:
        """In place of Valkey's; tests/integration/scheduler_api/test_api.py has the real ones."""
        counted: Counter[str] = Counter()

        def count(key: str) -> int:
            counted[key] += 1
            return counted[key]

        monkeypatch.setattr(api_limits, "_counted", count)
        monkeypatch.setattr(api_limits, "WINDOW_S", 10**10)  # no test meets the end of it
        monkeypatch.setattr(CallerLimit, "rests_until", 0.0)
        settings.API_READS, settings.API_WRITES = 3, 1
        return counted

    def test_one_too_many_is_told_when_to_go_on(self, ask: Asking, operator_client: Client, server: Server) -> None:
        for _ in range(3):
            ask.get("servers")
        problem = ask("GET", "servers", status=429)
        assert problem["type"] == f"{URN}rate-limit"
        answer = operator_client.get("/api/servers")  # another session of the same person
        assert (answer.status_code, int(answer.headers["Retry-After"])) == (429, answer.json()["retry_after_s"])

    def test_reads_and_writes_people_and_tokens_are_counted_apart(
        self, ask: Asking, ask_viewer: Asking, ask_with: Callable[[Scope], Asking]
    ) -> None:
        for _ in range(3):
            ask.get("servers")
        ask("POST", "scenarios/check", {"text": "x"})
        ask("POST", "scenarios/check", {"text": "x"}, 429)
        ask_viewer.get("servers")
        ask_with(Scope.READ).get("servers")

    def test_zero_is_no_limit(self, ask: Asking, settings: Any, counts: Counter[str]) -> None:
        settings.API_READS = 0
        for _ in range(5):
            ask.get("servers")
        assert not counts


def test_without_valkey_everything_passes_and_it_is_left_alone_for_a_while(
    ask: Asking, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """The settings of tests name a Valkey that refuses connections."""
    settings.API_READS = 1
    monkeypatch.setattr(CallerLimit, "rests_until", 0.0)
    ask.get("servers")
    assert CallerLimit.rests_until > 0
    ask.get("servers")


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return api.get_openapi_schema(path_prefix="/api/")


class TestDescription:
    def test_every_body_has_an_example_with_the_keys_of_its_schema(self, schema: dict[str, Any]) -> None:
        for operation in operations(schema):
            name, responses = operation["operationId"], operation["responses"]
            assert all(each.get("example") for each in operation["parameters"] if each["required"]), name
            assert responses["default"]["content"]["application/problem+json"]["example"]["status"] == 404, name
            assert any(responses[status].get("content") or status == 204 for status in responses if status != "default"), name
            for content in contents(operation):
                assert content["example"] is not None, name
                if (ref := content["schema"].get("$ref")) is not None:
                    known = schema["components"]["schemas"][ref.rpartition("/")[2]]
                    if not known.get("additionalProperties"):
                        assert set(content["example"]) <= set(known["properties"]), name
                elif "required" in content["schema"]:
                    assert set(content["schema"]["required"]) <= set(content["example"]), name

    def test_every_example_is_one_that_the_api_takes_or_gives(self, schema: dict[str, Any]) -> None:
        described = {operation["operationId"]: operation for operation in operations(schema)}
        checked = 0
        for operation in bound():
            shown = described[operation.view_func.__name__]
            for status, model in operation.response_models.items():
                if hasattr(model, "model_validate"):
                    told = shown["responses"][status]["content"]["application/json"]["example"]
                    model.model_validate({"response": told})
                    checked += 1
            for body in operation.models:
                if body.__ninja_param_source__ == "body":
                    body.model_validate({"body": shown["requestBody"]["content"]["application/json"]["example"]})
                    checked += 1
        assert checked > 40

    def test_every_operation_says_what_it_is(self, schema: dict[str, Any]) -> None:
        for operation in operations(schema):
            assert " " in operation["summary"], operation["operationId"]
            assert operation["tags"], operation["operationId"]
            assert operation["security"], operation["operationId"]
        ids = [operation["operationId"] for operation in operations(schema)]
        assert len(ids) == len(set(ids))

    def test_every_reference_leads_somewhere(self, schema: dict[str, Any]) -> None:
        def walk(node: Any) -> None:
            if isinstance(node, dict):
                if isinstance(node.get("$ref"), str):
                    assert node["$ref"].removeprefix("#/components/schemas/") in schema["components"]["schemas"], node["$ref"]
                for each in node.values():
                    walk(each)
            elif isinstance(node, list):
                for each in node:
                    walk(each)

        walk(schema)

    def test_an_example_is_put_together_from_its_parts(self) -> None:
        parts = {"Leaf": {"examples": [{"n": 7}], "type": "object"}}
        whole = {
            "type": "object",
            "properties": {
                "leaves": {"type": "array", "items": {"$ref": "#/components/schemas/Leaf"}},
                "word": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "kind": {"enum": ["a", "b"]},
                "n": {"type": "integer", "default": 3},
            },
        }
        assert example_of(whole, parts) == {"leaves": [{"n": 7}], "word": "", "kind": "a", "n": 3}

    def test_what_has_an_example_keeps_it(self) -> None:
        content = {"text/csv": {"schema": {"type": "string"}, "example": "a,b"}}
        schema: dict[str, Any] = {
            "paths": {"/x": {"get": {"responses": {200: {"content": content}}}}},
            "components": {"schemas": {}},
        }
        documented(schema)
        assert content["text/csv"]["example"] == "a,b"


def bound() -> list[Operation]:
    routers = api._get_bound_routers()
    return [operation for router in routers for view in router.path_operations.values() for operation in view.operations]
