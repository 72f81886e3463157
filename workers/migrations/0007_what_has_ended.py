from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("workers", "0006_what_a_search_found"),
    ]

    operations = [
        migrations.CreateModel(
            name="Ended",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("stage", models.IntegerField()),
                ("request", models.IntegerField()),
                (
                    "block",
                    models.ForeignKey(on_delete=models.deletion.CASCADE, related_name="ended", to="workers.block"),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("block", "stage", "request"), name="one_end_per_request")],
            },
        ),
    ]
