"""Forms of rules, recipients and silences."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db.models import QuerySet

from scheduler_api.alerts.kinds import DEFINITIONS, SEVERITIES, Kind
from scheduler_api.alerts.models import KINDS, Channel, Recipient, Rule
from scheduler_api.models import Server

LONGEST_S = 86_400.0
LASTS = ((15, "15 min"), (60, "1 h"), (240, "4 h"), (1440, "1 day"), (10_080, "7 days"), (43_200, "30 days"))


def _seconds(label: str, help_text: str = "", *, least: float = 0.0) -> forms.FloatField:
    box = forms.NumberInput(attrs={"step": "any", "inputmode": "decimal"})
    return forms.FloatField(label=label, min_value=least, max_value=LONGEST_S, help_text=help_text, widget=box)


class RuleForm(forms.Form):
    kind = forms.ChoiceField(choices=KINDS)
    server = forms.ModelChoiceField(
        Server.objects.all(),
        required=False,
        empty_label="all servers",
        help_text="A rule for one server takes the place of the one for all.",
    )
    threshold_s = _seconds("Threshold, s")
    for_s = _seconds("Opens after, s", "How long it must be over the threshold without a break.")
    clear_s = _seconds("Closes after, s", "How long it must be gone, below four fifths of the threshold.", least=1.0)
    severity = forms.ChoiceField(choices=SEVERITIES)
    enabled = forms.BooleanField(required=False, label="In force")
    recipients = forms.ModelMultipleChoiceField(
        Recipient.objects.all(),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="Told when an alert opens, and when it closes.",
    )

    def __init__(self, rule: Rule, data: Any = None) -> None:
        super().__init__(data, initial=_initial(rule))
        self.rule = rule
        if rule.pk:
            self.fields["kind"].disabled = True
        self.definition = DEFINITIONS[Kind(rule.kind)]
        if rule.kind == Kind.OBSERVER_LOST:
            del self.fields["server"]
        if self.definition.threshold:
            self.fields["threshold_s"].label = f"{self.definition.threshold}, s"
        else:
            del self.fields["threshold_s"]

    def filled(self) -> Rule:
        """The rule with what was entered, not saved."""
        given, rule = self.cleaned_data, self.rule
        rule.server = given.get("server")
        rule.threshold_s = given.get("threshold_s", 0.0)
        rule.for_s, rule.clear_s = given["for_s"], given["clear_s"]
        rule.severity, rule.enabled = given["severity"], given["enabled"]
        return rule


def _initial(rule: Rule) -> dict[str, Any]:
    names = ("kind", "server", "threshold_s", "for_s", "clear_s", "severity", "enabled")
    values = {name: getattr(rule, name) for name in names}
    plain = {name: f"{value:g}" for name, value in values.items() if isinstance(value, float)}
    return values | plain | {"recipients": rule.recipients.all() if rule.pk else []}


def new_rule(kind: str) -> Rule:
    """With the values that a rule of this kind begins with."""
    chosen = Kind(kind) if kind in set(Kind) else Kind.STARVING
    made = DEFINITIONS[chosen]
    return Rule(
        kind=chosen.value,
        threshold_s=made.threshold_s,
        for_s=made.for_s,
        clear_s=made.clear_s,
        severity=made.severity,
        enabled=True,
    )


_SECRET = forms.PasswordInput(render_value=False, attrs={"autocomplete": "off"})


class RecipientForm(forms.Form):
    name = forms.CharField(max_length=80, help_text="How rules call it.")
    channel = forms.ChoiceField(choices=Channel.choices)
    address = forms.CharField(
        max_length=500,
        required=False,
        widget=forms.TextInput(
            attrs={"autocomplete": "off", "spellcheck": "false", "placeholder": "https://… or name@example.org"}
        ),
    )
    secret = forms.CharField(
        max_length=200,
        required=False,
        strip=True,
        widget=_SECRET,
        help_text="Signs a webhook's body (HMAC-SHA256). Never shown again.",
    )
    no_secret = forms.BooleanField(required=False, label="Remove the secret", help_text="Messages are not signed then.")
    enabled = forms.BooleanField(required=False, label="In use")

    def __init__(self, recipient: Recipient, data: Any = None) -> None:
        initial = {name: getattr(recipient, name) for name in ("name", "channel", "enabled")}
        super().__init__(data, initial=initial)
        if recipient.pk:
            self.fields["channel"].disabled = True
            self.fields["address"].help_text = "Empty keeps the present one. A webhook's new origin needs its secret again."
        if not recipient.secret:
            del self.fields["no_secret"]

    def secret_given(self) -> str | None:
        """None keeps what there is."""
        if self.cleaned_data.get("no_secret"):
            return ""
        return self.cleaned_data["secret"] or None


class SilenceForm(forms.Form):
    rule = forms.ModelChoiceField(Rule.objects.all(), required=False, empty_label="every rule")
    server = forms.ModelChoiceField(Server.objects.all(), required=False, empty_label="every server")
    minutes = forms.TypedChoiceField(label="For", choices=LASTS, coerce=int, initial=60)
    reason = forms.CharField(max_length=300)

    def __init__(self, *args: Any, within: QuerySet[Server], **kwargs: Any) -> None:
        """`within`: the servers that the person may silence."""
        super().__init__(*args, **kwargs)
        field = self.fields["server"]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = within
