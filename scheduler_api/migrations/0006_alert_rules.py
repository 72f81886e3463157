from django.db import migrations

#: What each console begins with. As it was when the tables were made: later defaults do not change the rules of old consoles.
RULES = (
    ("down", 300.0, 10.0, 10.0, "critical"),
    ("not_serving", 0.0, 5.0, 10.0, "critical"),
    ("stuck_slot", 120.0, 5.0, 10.0, "critical"),
    ("starving", 30.0, 0.0, 10.0, "warning"),
    ("queue_age", 60.0, 5.0, 15.0, "warning"),
    ("cohort_hold", 60.0, 2.0, 10.0, "warning"),
    ("observer_lost", 20.0, 0.0, 10.0, "critical"),
)


def make_rules(apps, schema_editor):
    Rule = apps.get_model("scheduler_api", "Rule")
    for kind, threshold_s, for_s, clear_s, severity in RULES:
        Rule.objects.create(kind=kind, threshold_s=threshold_s, for_s=for_s, clear_s=clear_s, severity=severity)


class Migration(migrations.Migration):

    dependencies = [
        ('scheduler_api', '0005_alerts'),
    ]

    operations = [
        migrations.RunPython(make_rules, migrations.RunPython.noop),
    ]
