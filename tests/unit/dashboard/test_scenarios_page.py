"""The library and the operators' own scenarios: who may do what, copies, edits by form and as text, uploads."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from dashboard import scenario_form
from scheduler_api.audit.models import AuditEntry
from tests.support import sample_rows
from workers import stored
from workers.models import StoredScenario
from workers.scenarios import library
from workers.scenarios.editing import change
from workers.scenarios.reading import read
from workers.scenarios.schema import Fault

pytestmark = pytest.mark.django_db

TEXT = library.text_of("cancel-storm").replace("name: cancel-storm", "name: storm")


@pytest.fixture
def own(operator: User) -> StoredScenario:
    return stored.save(TEXT, operator, copied_from="cancel-storm")


def url(name: str, *args: Any) -> str:
    return reverse(name, args=args)


def page(client: Client, name: str, *args: Any, **query: Any) -> str:
    response = client.get(url(name, *args), query)
    assert response.status_code == 200
    return response.text


# -- who may what


def test_a_viewer_looks_and_changes_nothing(viewer_client: Client, own: StoredScenario) -> None:
    assert "Cancel storm" in page(viewer_client, "scenarios")
    text = page(viewer_client, "scenario", "storm")
    assert "Edit" not in re.sub(r"<title>.*?</title>", "", text)
    assert viewer_client.get(url("scenario-download", "storm")).status_code == 200
    for name, args in (("scenario-edit", ["storm"]), ("scenario-add", [])):
        assert viewer_client.get(url(name, *args)).status_code == 403
        assert viewer_client.post(url(name, *args), {"save": "1", "text": TEXT}).status_code == 403
    for name in ("scenario-copy", "scenario-delete"):
        assert viewer_client.post(url(name, "storm")).status_code == 403
    assert viewer_client.post(url("scenario-check"), {"text": TEXT}).status_code == 403
    assert StoredScenario.objects.get().text == TEXT


@pytest.mark.parametrize("name", ["scenarios", "scenario-add", "scenario-check"])
def test_a_stranger_is_sent_to_the_login(client: Client, name: str) -> None:
    response = client.get(url(name))
    assert response.status_code in (302, 405)
    assert response.status_code == 405 or response.headers["Location"].startswith(reverse("login"))


def test_the_library_is_not_edited(operator_client: Client) -> None:
    assert operator_client.get(url("scenario-edit", "agents")).status_code == 404
    assert operator_client.post(url("scenario-delete", "agents")).status_code == 404
    assert operator_client.get(url("scenario", "nothing-here")).status_code == 404


# -- pages


def test_the_list_has_every_scenario_with_its_streams_tags_and_last_result(operator_client: Client) -> None:
    run = sample_rows.make_run(sample_rows.make_server(), pairs=8)
    text = page(operator_client, "scenarios")
    for name in library.names():
        assert f'href="{url("scenario", name)}"' in text
    assert "impatient, satisfied, patient" in text
    assert f'href="{url("run", run.pk)}"' in text
    assert re.search(r"Short \d\.\d times sooner", text)
    assert "not run yet" in text
    assert "None yet." in text


def test_a_tag_shows_its_scenarios_alone(viewer_client: Client) -> None:
    text = page(viewer_client, "scenarios", tag="trace")
    assert url("scenario", "trace-azure") in text
    assert url("scenario", "agents") not in text


@pytest.mark.parametrize("name", library.names())
def test_a_scenario_shows_its_load_and_its_text(viewer_client: Client, name: str) -> None:
    text = page(viewer_client, "scenario", name)
    assert "summary: " in text
    assert ("planbox" in text) == (name != "warm-behind-cold")


def test_an_own_one_that_is_none_any_more_says_so(operator_client: Client, own: StoredScenario) -> None:
    StoredScenario.objects.update(text=TEXT.replace("rate: 5", "speed: 5"))
    assert "It cannot be read any more" in page(operator_client, "scenarios")
    assert "It cannot be run" in page(operator_client, "scenario", "storm")
    assert "<code>streams[0].arrivals.speed</code>" in page(operator_client, "scenario-edit", "storm")


# -- copies and edits


def test_a_copy_is_the_operators_own_with_its_comments(operator_client: Client, operator: User) -> None:
    response = operator_client.post(url("scenario-copy", "victim-and-attacker"))
    assert response.headers["Location"] == url("scenario-edit", "victim-and-attacker-2")
    made = StoredScenario.objects.get()
    assert (made.created_by, made.copied_from) == (operator, "victim-and-attacker")
    assert made.text.startswith("# One client that chats")
    assert operator_client.post(url("scenario-copy", "victim-and-attacker-2")).headers["Location"].endswith("-3/edit/")


def test_warm_behind_cold_is_not_copied_and_says_why(operator_client: Client) -> None:
    response = operator_client.post(url("scenario-copy", "warm-behind-cold"), follow=True)
    assert "has a form of its own" in response.text
    assert not StoredScenario.objects.exists()


def test_the_form_changes_the_text_where_the_value_stands(operator_client: Client, own: StoredScenario) -> None:
    text = page(operator_client, "scenario-edit", "storm")
    assert 'name="f.streams[0].arrivals.rate"' in text
    sent = {"save": "1", "mode": "form", "text": TEXT, "f.streams[0].arrivals.rate": "7", "f.streams[2].slo.ttft_s": "1.5"}
    response = operator_client.post(url("scenario-edit", "storm"), sent)
    assert response.headers["Location"] == url("scenario", "storm")
    saved = read(StoredScenario.objects.get().text)
    assert saved.streams[0].arrivals.model_dump()["rate"] == 7
    assert saved.streams[2].slo is not None
    assert saved.streams[2].slo.ttft_s == 1.5


def test_a_wrong_value_is_told_at_its_field_and_nothing_is_saved(operator_client: Client, own: StoredScenario) -> None:
    sent = {"save": "1", "mode": "form", "text": TEXT, "f.streams[0].arrivals.rate": "often"}
    response = operator_client.post(url("scenario-edit", "storm"), sent)
    assert response.status_code == 422
    assert 'value="often"' in response.text
    assert 'aria-invalid="true"' in response.text
    assert "must be a valid number, not" in response.text
    assert StoredScenario.objects.get().text == TEXT


def test_the_text_is_told_line_field_and_what_is_allowed(operator_client: Client, own: StoredScenario) -> None:
    broken = TEXT.replace("kind: constant, rate: 5, for_s: 2}", "kind: often, rate: 5, for_s: 2}", 1)
    line = broken[: broken.index("often")].count("\n") + 1
    response = operator_client.post(url("scenario-edit", "storm"), {"save": "1", "mode": "yaml", "text": broken})
    assert response.status_code == 422
    assert f'data-line="{line}"' in response.text
    assert "<code>streams[0].arrivals</code>" in response.text
    assert "allowed are &#x27;at&#x27;, &#x27;closed&#x27;" in response.text
    assert "kind: often" in response.text  # what was typed is still there


def test_going_on_in_the_other_view_keeps_what_was_changed(operator_client: Client, own: StoredScenario) -> None:
    sent = {"as": "yaml", "mode": "form", "text": TEXT, "f.title": "Another storm"}
    text = operator_client.post(url("scenario-edit", "storm"), sent).text
    assert "title: Another storm" in text
    assert 'id="id_text"' in text
    assert StoredScenario.objects.get().text == TEXT
    assert 'id="id_text"' not in operator_client.post(url("scenario-edit", "storm"), {"as": "form", "text": TEXT}).text


def test_a_text_that_is_no_yaml_has_no_form(operator_client: Client, own: StoredScenario) -> None:
    text = operator_client.post(url("scenario-edit", "storm"), {"as": "form", "text": "a: [1"}).text
    assert 'id="id_text"' in text
    assert "not YAML" in text


def test_typing_is_checked_without_saving(operator_client: Client, own: StoredScenario) -> None:
    good = operator_client.post(url("scenario-check"), {"text": TEXT, "own": "storm"}).text
    assert good.lstrip().startswith('<div class="echeck"')
    assert "planbox" in good
    assert "is taken" in operator_client.post(url("scenario-check"), {"text": TEXT}).text
    assert "To mend" in operator_client.post(url("scenario-check"), {"text": "name: x", "own": "storm"}).text


@pytest.mark.parametrize("name", ["agents", "storm", "add", "check"])
def test_a_name_that_is_taken_is_refused(operator_client: Client, own: StoredScenario, name: str) -> None:
    text = TEXT.replace("name: storm", f"name: {name}")
    response = operator_client.post(url("scenario-add"), {"save": "1", "text": text})
    assert response.status_code == 422
    assert "is taken" in response.text
    assert StoredScenario.objects.count() == 1


def test_a_missing_trace_file_is_told(operator_client: Client) -> None:
    text = library.text_of("trace-azure").replace("name: trace-azure", "name: mine").replace("azure.csv", "mine.csv")
    assert "mine.csv is in none of the folders" in operator_client.post(url("scenario-check"), {"text": text}).text


def test_a_million_requests_are_saved_and_not_drawn(operator_client: Client) -> None:
    text = TEXT.replace("rate: 5, for_s: 2}", "rate: 5000, for_s: 200}", 1)
    assert "too many to draw" in operator_client.post(url("scenario-check"), {"text": text}).text


# -- files


def test_an_uploaded_file_becomes_an_own_scenario_and_comes_back_as_it_was(operator_client: Client) -> None:
    file = SimpleUploadedFile("storm.yaml", TEXT.encode())
    response = operator_client.post(url("scenario-add"), {"file": file})
    assert response.headers["Location"] == url("scenario", "storm")
    back = operator_client.get(url("scenario-download", "storm"))
    assert back.content.decode() == TEXT
    assert back.headers["Content-Disposition"] == 'attachment; filename="storm.yaml"'


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"name: mine", "is missing"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"x" * (stored.MOST_BYTES + 1), "larger than 64 KB"),
        (b"[" * 4000, "nested too deeply"),
        (b"a: &a [1]\nb: *a", "references"),
    ],
)
def test_a_file_that_is_no_scenario_is_told_why(operator_client: Client, content: bytes, told: str) -> None:
    response = operator_client.post(url("scenario-add"), {"file": SimpleUploadedFile("a.yaml", content)})
    assert told in response.text
    assert not StoredScenario.objects.exists()


def test_a_text_that_is_too_large_is_refused(operator_client: Client, own: StoredScenario) -> None:
    large = TEXT + "#" * stored.MOST_BYTES
    assert "larger than 64 KB" in operator_client.post(url("scenario-edit", "storm"), {"save": "1", "text": large}).text
    assert StoredScenario.objects.get().text == TEXT


def test_every_write_stands_in_the_audit(operator_client: Client, operator: User, own: StoredScenario) -> None:
    operator_client.post(url("scenario-edit", "storm"), {"save": "1", "text": TEXT.replace("Cancel storm", "Storm")})
    operator_client.post(url("scenario-delete", "storm"))
    told = list(AuditEntry.objects.filter(subject="storm").order_by("pk").values_list("action", "actor_name"))
    assert told == [("scenario.added", "mira"), ("scenario.changed", "mira"), ("scenario.deleted", "mira")]


def test_deleting_one_leaves_its_runs(operator_client: Client, own: StoredScenario) -> None:
    run = sample_rows.make_run(sample_rows.make_server(), pairs=0, scenario="storm", scenario_text=TEXT)
    assert operator_client.post(url("scenario-delete", "storm")).status_code == 302
    assert not StoredScenario.objects.exists()
    assert operator_client.get(url("run-scenario", run.pk)).content.decode() == TEXT


# -- the form's fields


@pytest.mark.parametrize("name", [name for name in library.names() if name != "warm-behind-cold"])
def test_sending_the_form_back_changes_nothing(name: str) -> None:
    text = library.text_of(name)
    head, streams = scenario_form.fields(text)
    sent = {field.name: field.value for field in [*head, *(each for stream in streams for each in stream.fields)]}
    assert change(text, scenario_form.changes(sent)) == text


def test_a_field_carries_its_unit_and_its_fault() -> None:
    faults = [Fault(3, "streams[0].slo.ttft_s", "streams[0].slo.ttft_s must be greater than 0, not 0")]
    _, streams = scenario_form.fields(library.text_of("victim-and-attacker"), faults)
    found = {field.label: field for field in streams[0].fields}
    assert (found["TTFT limit"].unit, found["prompt"].unit, found["slot"].unit) == ("s", "tokens", "")
    assert "must be greater than 0" in found["TTFT limit"].fault
    assert found["arrivals"].fixed
