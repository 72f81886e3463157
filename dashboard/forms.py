"""Forms of the pages about servers and their policies."""

from __future__ import annotations

from django import forms


class ServerForm(forms.Form):
    name = forms.CharField(max_length=80, help_text="How pages call it.")
    base_url = forms.CharField(
        label="Address",
        max_length=300,
        help_text="The root of its HTTP interface, with or without the /v1 of OpenAI-compatible ones.",
        widget=forms.TextInput(attrs={"placeholder": "http://127.0.0.1:8080", "inputmode": "url", "spellcheck": "false"}),
    )
    kind = forms.ChoiceField(
        choices=[
            ("auto", "find out by asking it"),
            ("engine", "Slotboard engine"),
            ("llama_server", "llama-server"),
            ("vllm", "vLLM"),
            ("openai", "OpenAI-compatible server"),
        ],
        help_text="A kind named here is taken on trust, so a server that is down can be registered too.",
    )
    model = forms.CharField(
        required=False,
        max_length=200,
        help_text="What requests of experiments name, for vLLM and OpenAI-compatible servers. Empty: the first that it lists.",
        widget=forms.TextInput(attrs={"spellcheck": "false", "autocomplete": "off"}),
    )
    api_key = forms.CharField(
        label="Key",
        required=False,
        max_length=300,
        strip=True,
        help_text="Sent to this address alone, and never shown again. Empty if it asks for none.",
        widget=forms.PasswordInput(render_value=False, attrs={"autocomplete": "off"}),
    )
    quiet = forms.BooleanField(
        required=False,
        label="Quiet",
        help_text="Leaves an idle server alone for longer and longer, so that watching does not keep its model awake; "
        "it is then seen late that it became busy.",
    )
