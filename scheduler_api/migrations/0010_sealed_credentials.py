"""Keys of servers, addresses and secrets of recipients are encrypted; rows that hold them in the clear are brought over."""

from __future__ import annotations

from django.db import migrations, models

import scheduler_api.sealing
from scheduler_api.sealing import seal, unseal
from scheduler_api.targets import origin_of


def _origin(url):
    try:
        return origin_of(url)
    except ValueError:
        return ""


def encrypt(apps, schema_editor):
    for row in apps.get_model("scheduler_api", "Server").objects.exclude(api_key=""):
        row.api_key = str(seal(row.api_key, _origin(row.base_url)))
        row.save(update_fields=["api_key"])
    for row in apps.get_model("scheduler_api", "Recipient").objects.all():
        row.address, row.secret = str(seal(row.address)), str(seal(row.secret))
        row.save(update_fields=["address", "secret"])


def decrypt(apps, schema_editor):
    for row in apps.get_model("scheduler_api", "Server").objects.exclude(api_key=""):
        row.api_key = str(unseal(row.api_key))
        row.save(update_fields=["api_key"])
    for row in apps.get_model("scheduler_api", "Recipient").objects.all():
        row.address, row.secret = str(unseal(row.address)), str(unseal(row.secret))
        row.save(update_fields=["address", "secret"])


class Migration(migrations.Migration):
    dependencies = [("scheduler_api", "0009_guard_rail_alerts")]

    operations = [
        migrations.AlterField("server", "api_key", models.TextField(blank=True, default="")),
        migrations.AlterField("recipient", "address", models.TextField()),
        migrations.AlterField("recipient", "secret", models.TextField(blank=True, default="")),
        migrations.RunPython(encrypt, decrypt),
        migrations.AlterField(
            "server", "api_key", scheduler_api.sealing.SealedField(blank=True, bound_to="base_url", default="")
        ),
        migrations.AlterField("recipient", "address", scheduler_api.sealing.SealedField()),
        migrations.AlterField("recipient", "secret", scheduler_api.sealing.SealedField(blank=True, default="")),
    ]
