"""The form of a window: a policy by the clock."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from django import forms
from django.conf import settings

from scheduler_api.models import Server
from scheduler_api.policies import presets
from scheduler_api.policies.models import PolicyWindow
from scheduler_api.policies.values import Json, fit
from scheduler_api.policies.windows import DAYS

NOW, BACK = "now", "back"


class WindowForm(forms.Form):
    name = forms.CharField(max_length=80, help_text="It stands in the audit and on the page.")
    repeats = forms.ChoiceField(
        label="When", choices=[("weekly", "on days of the week"), ("once", "once")], widget=forms.RadioSelect, initial="weekly"
    )
    days = forms.MultipleChoiceField(
        choices=[(str(number), day) for number, day in enumerate(DAYS)],
        widget=forms.CheckboxSelectMultiple,
        required=False,
        initial=["0", "1", "2", "3", "4"],
    )
    begins = forms.TimeField(
        required=False, label="From", widget=forms.TimeInput(attrs={"type": "time"}, format="%H:%M"), initial="08:00"
    )
    ends = forms.TimeField(
        required=False,
        label="to",
        widget=forms.TimeInput(attrs={"type": "time"}, format="%H:%M"),
        initial="18:00",
        help_text="At or before the beginning it is on the day after.",
    )
    starts_at = forms.DateTimeField(
        required=False,
        label="From",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}),
        input_formats=["%Y-%m-%dT%H:%M"],
    )
    ends_at = forms.DateTimeField(
        required=False, label="to", widget=forms.DateTimeInput(attrs={"type": "datetime-local"}), input_formats=["%Y-%m-%dT%H:%M"]
    )
    zone = forms.CharField(label="Time zone", max_length=60, help_text="For instance Europe/Berlin.")
    inside = forms.ChoiceField(label="Policy in it", help_text="Presets, and what the server is asked for now.")
    outside = forms.ChoiceField(
        label="Afterwards", help_text="Going back is done by the server itself, also when this console is gone."
    )

    def __init__(self, server: Server, requested: Json, fields: dict[str, Json], data: Any = None) -> None:
        super().__init__(data, initial={"zone": settings.TIME_ZONE})
        self.server, self.requested, self.offered = server, requested, fields
        named = [(key, policy.name) for key, policy, _ in presets.all_presets()]
        self.fields["inside"].choices = [*named, (NOW, "as it is asked for now")]  # type: ignore[attr-defined]
        self.fields["outside"].choices = [(BACK, "back to what was before"), *named, (NOW, "as it is asked for now")]  # type: ignore[attr-defined]

    def clean_zone(self) -> str:
        zone = str(self.cleaned_data["zone"]).strip()
        if zone not in available_timezones():
            raise forms.ValidationError(f"There is no time zone {zone}.")
        return zone

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        for name in ("inside", "outside"):
            if name in given and given[name] != BACK and (problems := fit(self._values(given[name]), self.offered).problems):
                self.add_error(name, " ".join(problems))
        return given

    def _values(self, key: str) -> Json:
        policy = presets.find(key)
        values = self.requested if key == NOW else policy.values if policy is not None else {}
        return {name: value for name, value in values.items() if name in self.offered}

    def filled(self) -> PolicyWindow:
        """The window with what was entered, not saved."""
        given = self.cleaned_data
        row = PolicyWindow(
            server=self.server, name=given["name"].strip(), zone=given["zone"], inside=self._values(given["inside"])
        )
        row.outside = None if given["outside"] == BACK else self._values(given["outside"])
        if given["repeats"] == "once":
            row.starts_at, row.ends_at = (_in_zone(given[name], given["zone"]) for name in ("starts_at", "ends_at"))
        else:
            row.days, row.begins, row.ends = [int(day) for day in given["days"]], given["begins"], given["ends"]
        return row


def _in_zone(moment: datetime | None, zone: str) -> datetime | None:
    """What was entered is local to the window's zone, whatever zone the console has."""
    return None if moment is None else moment.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
