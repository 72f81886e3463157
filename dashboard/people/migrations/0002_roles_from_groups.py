"""Roles used to be membership in the groups viewer, operator and admin, for all servers; everybody else was a viewer."""

from __future__ import annotations

from typing import Any

from django.db import migrations

ORDER = ("admin", "operator", "viewer")


def take_over(apps: Any, schema_editor: Any) -> None:
    user_model = apps.get_model("auth", "User")
    group = apps.get_model("people", "ServerGroup").objects.create(name="All servers", everything=True)
    membership = apps.get_model("people", "Membership")
    for user in user_model.objects.filter(is_superuser=False):
        held = set(user.groups.values_list("name", flat=True))
        role = next((name for name in ORDER if name in held), "viewer")
        membership.objects.create(user=user, group=group, role=role)
    apps.get_model("auth", "Group").objects.filter(name__in=ORDER).delete()


def give_back(apps: Any, schema_editor: Any) -> None:
    groups = {name: apps.get_model("auth", "Group").objects.get_or_create(name=name)[0] for name in ORDER}
    for row in apps.get_model("people", "Membership").objects.filter(group__everything=True):
        row.user.groups.add(groups[row.role])


class Migration(migrations.Migration):
    dependencies = [("people", "0001_initial"), ("auth", "0012_alter_user_first_name_max_length")]
    operations = [migrations.RunPython(take_over, give_back)]
