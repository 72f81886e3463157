"""Credentials at rest: encrypted by keys that are kept apart from the database and from Django's secret key.

A stored value is "v1:" and a Fernet token (AES-128-CBC and HMAC-SHA256) of JSON: the secret, and the origin that it was given
for. The first of `settings.CREDENTIAL_KEYS` encrypts, all of them decrypt; `manage.py rotate_credentials` brings every row to the
first, after which the others can go (docs/deploy.md).
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Self

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.db import models

from scheduler_api.targets import origin_of

logger = logging.getLogger(__name__)

MARK = "v1:"
_PURPOSE = b"slotboard credentials at rest, v1"


class Credential(str):
    """A secret as it came out of the database. `origin` is where it may be sent, "" when that is not bound.

    `lost` is the stored text that no key opens; the secret is then empty, and saving it keeps the stored text. Its `repr` says
    nothing, so that no log does.
    """

    origin: str
    lost: str

    def __new__(cls, secret: str, origin: str = "", lost: str = "") -> Self:
        made = super().__new__(cls, secret)
        made.origin, made.lost = origin, lost
        return made

    def __repr__(self) -> str:
        return f"Credential({'set' if self else 'none'})"


class Sealed(str):
    """Text that is ready to be stored."""

    __slots__ = ()


@lru_cache(maxsize=4)
def _box(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(_derived(key)) for key in keys])


def _derived(key: str) -> bytes:
    """A Fernet key from a kept secret of any length: HKDF-SHA256 (RFC 5869)."""
    return base64.urlsafe_b64encode(HKDF(hashes.SHA256(), 32, None, _PURPOSE).derive(key.encode()))


def _keys(keys: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(settings.CREDENTIAL_KEYS if keys is None else keys)


def seal(secret: str, origin: str = "", keys: Sequence[str] | None = None) -> Sealed:
    """ "" stays "": that there is no secret is none."""
    if isinstance(secret, Credential) and secret.lost:
        return Sealed(secret.lost)
    if not secret:
        return Sealed("")
    token = _box(_keys(keys)).encrypt(json.dumps([str(secret), origin]).encode())
    return Sealed(MARK + token.decode())


def unseal(stored: str, keys: Sequence[str] | None = None) -> Credential:
    if not stored:
        return Credential("")
    try:
        if not stored.startswith(MARK):
            raise InvalidToken
        secret, origin = json.loads(_box(_keys(keys)).decrypt(stored.removeprefix(MARK).encode()))
    except (InvalidToken, ValueError):
        logger.error("A stored credential is opened by none of the credential keys; give the right key, or enter it anew.")
        return Credential("", lost=stored)
    return Credential(secret, origin)


class SealedField(models.TextField):  # type: ignore[type-arg]
    """Text that is encrypted in the database and plain on the model.

    `bound_to` names the field of the row with the URL whose origin the text is for.
    """

    def __init__(self, *args: Any, bound_to: str = "", **kwargs: Any) -> None:
        self.bound_to = bound_to
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> tuple[str, str, Sequence[Any], dict[str, Any]]:
        name, path, args, kwargs = super().deconstruct()
        return name, path, args, kwargs | ({"bound_to": self.bound_to} if self.bound_to else {})

    def pre_save(self, model_instance: models.Model, add: bool) -> Sealed:
        """A credential that was read keeps its origin, whatever the row says now; a new one gets the row's."""
        value = getattr(model_instance, self.attname) or ""
        if isinstance(value, Credential) and value.origin:
            return seal(value, value.origin)
        return seal(value, origin_of(getattr(model_instance, self.bound_to)) if self.bound_to and value else "")

    def get_prep_value(self, value: Any) -> Any:
        """Raises TypeError for an update that knows no row, where the secret is bound to one."""
        if value is None or isinstance(value, Sealed):
            return value
        if value and self.bound_to:
            raise TypeError(f"{self.name} is bound to an origin: set it on a row and save that.")
        return seal(str(value) if not isinstance(value, Credential) else value)

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> Credential | None:
        return None if value is None else unseal(value)
