"""Forms of people, groups, tokens and share links."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from allauth.account.forms import ReauthenticateForm
from django import forms
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import User
from django.contrib.auth.validators import UnicodeUsernameValidator

from dashboard.people.models import ROLES, Membership, Scope, ServerGroup
from dashboard.people.tokens import ROLE_OF
from dashboard.roles import RANK, access_of
from scheduler_api.models import Server

PASSWORD_RULES = "At least ten characters, not only digits, none of the common ones."
NO_ROLE = ("", "none")
TOKEN_DAYS = ((30, "30 days"), (90, "90 days"), (365, "a year"), (0, "until revoked"))
LINK_HOURS = ((1, "1 hour"), (8, "8 hours"), (24, "a day"), (168, "7 days"), (720, "30 days"))


class SignInForm(AuthenticationForm):
    error_messages = {  # noqa: RUF012  # as Django has it
        **AuthenticationForm.error_messages,
        "invalid_login": "Name or password is wrong. Capital and small letters count.",
    }


class ConfirmForm(ReauthenticateForm):  # type: ignore[misc]  # allauth carries no types
    """Its label says what the placeholder would."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["password"].widget.attrs.pop("placeholder", None)


class PersonForm(forms.Form):
    """Name and e-mail, and a role for each group, as fields `group-<pk>`."""

    username = forms.CharField(
        label="Name", max_length=150, validators=[UnicodeUsernameValidator()], help_text="What to log in with."
    )
    email = forms.EmailField(label="E-mail", required=False, help_text="Optional. Shown to admins alone.")

    def __init__(self, person: User | None, data: Any = None) -> None:
        initial: dict[str, Any] = {"username": person.username, "email": person.email} if person else {}
        held = {row.group_id: row.role for row in Membership.objects.filter(user=person)} if person else {}
        super().__init__(data, initial=initial)
        self.person = person
        if person is not None:
            self.fields["username"].disabled = True
        self.groups = list(ServerGroup.objects.all()) or [ServerGroup.of_all()]
        for group in self.groups:
            self.fields[f"group-{group.pk}"] = forms.ChoiceField(
                label=group.name, required=False, choices=[NO_ROLE, *ROLES], initial=held.get(group.pk, "")
            )

    def clean_username(self) -> str:
        name: str = self.cleaned_data["username"]
        if self.person is None and User.objects.filter(username__iexact=name).exists():
            raise forms.ValidationError("Somebody is called that already.")
        return name

    def group_fields(self) -> list[Any]:
        return [self[f"group-{group.pk}"] for group in self.groups]

    def roles(self) -> dict[int, str]:
        """The chosen role by group; "" for none."""
        return {group.pk: self.cleaned_data[f"group-{group.pk}"] for group in self.groups}


class GroupForm(forms.Form):
    name = forms.CharField(max_length=80, help_text="How pages call it.")
    servers = forms.ModelMultipleChoiceField(
        Server.objects.all(), required=False, widget=forms.CheckboxSelectMultiple, help_text="A server may be in several groups."
    )

    def __init__(self, group: ServerGroup | None, data: Any = None) -> None:
        super().__init__(data, initial={"name": group.name, "servers": group.servers.all()} if group else None)
        self.group = group

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"].strip()
        others = ServerGroup.objects.filter(name__iexact=name)
        if self.group is not None:
            others = others.exclude(pk=self.group.pk)
        if others.exists():
            raise forms.ValidationError("Another group is called that already.")
        return name


class TokenForm(forms.Form):
    name = forms.CharField(max_length=80, help_text="What uses it: “nightly report”.")
    scope = forms.ChoiceField(label="May", help_text="At most. It never may more than you.")
    group = forms.ModelChoiceField(ServerGroup.objects.none(), required=False, empty_label="all that I may see", label="Servers")
    days = forms.TypedChoiceField(label="Works for", choices=TOKEN_DAYS, coerce=int, initial=90)

    def __init__(self, user: User, data: Any = None) -> None:
        super().__init__(data)
        best = access_of(user).best()
        scopes = [scope for scope in Scope if best is not None and RANK[ROLE_OF[scope]] <= RANK[best]]
        scope, group = self.fields["scope"], self.fields["group"]
        assert isinstance(scope, forms.ChoiceField)
        assert isinstance(group, forms.ModelChoiceField)
        scope.choices = [(each.value, each.label) for each in scopes]
        everywhere = access_of(user).everywhere is not None
        rows = ServerGroup.objects.filter(everything=False)
        group.queryset = rows if everywhere else rows.filter(memberships__user=user)

    def lasts(self) -> timedelta | None:
        days: int = self.cleaned_data["days"]
        return timedelta(days=days) if days else None


class LinkForm(forms.Form):
    """What the link shows comes from the page it is made on."""

    hours = forms.TypedChoiceField(label="Ends after", choices=LINK_HOURS, coerce=int, initial=8)
    note = forms.CharField(label="For whom", max_length=120, required=False, help_text="Only you and the admins read it.")
