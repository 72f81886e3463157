"""Logging in through an identity provider: off until it is configured, and never more than the provider and an admin say."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from pytest_django.fixtures import Settings

from dashboard.people.models import Membership
from tests.support.identity import CLIENT_ID, CLIENT_SECRET, Provider, running_provider

pytestmark = pytest.mark.django_db


@pytest.fixture
def provider(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running_provider() as provider:
        app = {
            "provider_id": "oidc",
            "name": "Example ID",
            "client_id": CLIENT_ID,
            "secret": CLIENT_SECRET,
            "settings": {"server_url": provider.url},
        }
        settings.OIDC_NAME, settings.OIDC_MAKE_ACCOUNTS = "Example ID", True
        settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"OAUTH_PKCE_ENABLED": True, "APPS": [app]}}
        yield provider


def log_in(client: Client, provider: Provider, next_page: str = "") -> tuple[int, str]:
    """Goes to the provider and comes back: the status, and where that leads."""
    start = client.get(reverse("openid_connect_login", args=["oidc"]), {"next": next_page} if next_page else {})
    asked = urlsplit(start.headers["Location"])
    assert f"{asked.scheme}://{asked.netloc}" == provider.url
    query = {key: values[0] for key, values in parse_qs(asked.query).items()}
    assert query["code_challenge_method"] == "S256"
    back = urlsplit(provider.authorize(query))
    answer = client.get(f"{back.path}?{back.query}")
    return answer.status_code, answer.headers.get("Location", "")


def test_it_is_off_until_it_is_configured(client: Client) -> None:
    assert "openid" not in client.get(reverse("login")).text
    assert client.get(reverse("openid_connect_login", args=["oidc"])).status_code == 404


def test_a_first_login_makes_an_account_without_a_role(client: Client, provider: Provider) -> None:
    assert "Log in with Example ID" in client.get(reverse("login")).text
    assert log_in(client, provider, "/alerts/") == (302, "/alerts/")
    nora = User.objects.get(username="nora")
    assert not nora.has_usable_password()
    assert not Membership.objects.filter(user=nora).exists()
    assert "no role yet" in client.get(reverse("settings")).text
    assert client.get(reverse("account_change_password")).status_code == 403


def test_the_role_of_new_accounts_can_be_set(client: Client, provider: Provider, settings: Settings) -> None:
    settings.OIDC_ROLE = "viewer"
    log_in(client, provider)
    assert Membership.objects.get(user__username="nora").role == "viewer"


def test_the_same_person_comes_back_to_the_same_account(provider: Provider) -> None:
    log_in(Client(), provider)
    provider.person |= {"preferred_username": "nora.b", "email": "b@example.org"}
    log_in(Client(), provider)
    assert SocialAccount.objects.count() == User.objects.count() == 1


def test_the_name_of_an_account_does_not_open_it(operator: User, provider: Provider) -> None:
    User.objects.filter(pk=operator.pk).update(email="mira@example.org")
    provider.person |= {"preferred_username": "mira", "email": "mira@example.org"}
    client = Client()
    log_in(client, provider)
    assert SocialAccount.objects.get().user != operator
    assert "no role yet" in client.get(reverse("settings")).text


def test_without_leave_to_make_accounts_nobody_new_gets_in(client: Client, provider: Provider, settings: Settings) -> None:
    settings.OIDC_MAKE_ACCOUNTS = False
    assert log_in(client, provider) == (200, "")
    assert not User.objects.exists()


def test_a_deactivated_account_stays_out(provider: Provider) -> None:
    log_in(Client(), provider)
    User.objects.update(is_active=False)
    client = Client()
    assert log_in(client, provider) == (302, reverse("login"))
    assert client.get(reverse("settings")).status_code == 302


def test_a_token_for_somebody_else_is_refused(client: Client, provider: Provider) -> None:
    provider.audience = "another-client"
    status, _ = log_in(client, provider)
    assert status in (200, 401)
    assert not User.objects.exists()


def test_an_answer_that_nobody_asked_for_is_refused(client: Client, provider: Provider) -> None:
    answer = client.get(reverse("openid_connect_callback", args=["oidc"]), {"code": "x", "state": "made-up"})
    assert "Not logged in" in answer.text
    assert not User.objects.exists()
