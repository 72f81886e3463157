from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('scheduler_api', '0010_sealed_credentials'),
    ]

    operations = [
        migrations.AddField(
            model_name='server',
            name='model',
            field=models.CharField(blank=True, default='', max_length=200),
        ),
        migrations.AlterField(
            model_name='server',
            name='kind',
            field=models.CharField(
                choices=[
                    ('engine', 'Slotboard engine'),
                    ('llama_server', 'llama-server'),
                    ('vllm', 'vLLM'),
                    ('openai', 'OpenAI-compatible server'),
                ],
                max_length=20,
            ),
        ),
    ]
