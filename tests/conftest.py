"""What tests of every part share: people, a real Valkey, a database in a file, static files without a manifest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.db.backends.base.operations import BaseDatabaseOperations
from django.test import Client
from pytest_django.fixtures import Settings

from dashboard.people.models import Membership, ServerGroup
from scheduler_api.audit import guards
from tests.support.valkey import ValkeyProcess, running_valkey

# No example is too slow: how fast a machine is says nothing of what is tested.
hypothesis.settings.register_profile("slotboard", deadline=None)
hypothesis.settings.load_profile("slotboard")

PLAIN_STATIC = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}


#: Refuses connections: a test without the valkey fixture meets no server of the surroundings.
NO_VALKEY = "redis://127.0.0.1:1/0"


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """SQLite in a file: threads of consumers, observers and workers see one database, with the locking that the product has."""
    database = connections["default"].settings_dict
    if database["ENGINE"] == "django.db.backends.sqlite3":
        folder: Path = tmp_path_factory.mktemp("database")
        database["TEST"]["NAME"] = str(folder / "test.sqlite3")


@pytest.fixture(scope="session", autouse=True)
def _flush_lifts_the_audit_guard() -> Iterator[None]:
    """Tests with real transactions throw all rows away behind them, which the audit trail's triggers refuse; the migrate signal
    that follows each flush puts them back."""
    whole = BaseDatabaseOperations.execute_sql_flush

    def flush(operations: BaseDatabaseOperations, statements: list[str]) -> None:
        guards.lift(operations.connection)
        whole(operations, statements)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseDatabaseOperations, "execute_sql_flush", flush)
        yield


@pytest.fixture(autouse=True)
def _plain_settings(settings: Settings) -> None:
    """Pages render without collectstatic, passwords are hashed fast, and no Valkey is reached unless a test asks for one."""
    settings.STORAGES = {**settings.STORAGES, "staticfiles": PLAIN_STATIC}
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    point_at(settings, NO_VALKEY)


def _person(name: str, role: str) -> User:
    user = User.objects.create_user(name, password=f"{name}-password")
    Membership.objects.create(user=user, group=ServerGroup.of_all(), role=role)
    return user


@pytest.fixture
def viewer(db: None) -> User:
    return _person("vera", "viewer")


@pytest.fixture
def operator(db: None) -> User:
    return _person("mira", "operator")


@pytest.fixture
def admin(db: None) -> User:
    return _person("ada", "admin")


def client_of(user: User, **options: Any) -> Client:
    client = Client(**options)
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client


@pytest.fixture
def viewer_client(viewer: User) -> Client:
    return client_of(viewer)


@pytest.fixture
def operator_client(operator: User) -> Client:
    return client_of(operator)


@pytest.fixture
def admin_client(admin: User) -> Client:
    return client_of(admin)


@pytest.fixture(scope="session")
def valkey_process() -> Iterator[ValkeyProcess]:
    """One Valkey for the session. A test that ends it must use one of its own."""
    with running_valkey() as valkey:
        yield valkey


@pytest.fixture
def valkey(valkey_process: ValkeyProcess, settings: Settings) -> ValkeyProcess:
    """An empty Valkey that the settings point at, for states, channels and Celery."""
    valkey_process.flush()
    point_at(settings, valkey_process.url)
    return valkey_process


def point_at(settings: Settings, url: str) -> None:
    """Lets states, the channel layer and Celery's settings use the Valkey at `url`."""
    settings.REDIS_URL = settings.CELERY_BROKER_URL = url
    layer = settings.CHANNEL_LAYERS["default"]
    settings.CHANNEL_LAYERS = {"default": {**layer, "CONFIG": {**layer["CONFIG"], "hosts": [url]}}}
