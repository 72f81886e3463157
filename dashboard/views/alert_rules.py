"""Which alerts there can be, and who is told: everybody sees the rules, an admin edits them."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from dashboard import roles
from dashboard.alert_forms import RecipientForm, RuleForm, new_rule
from dashboard.roles import Role, at_least
from scheduler_api.alerts import addresses, outbox, past, selectors, services
from scheduler_api.alerts.kinds import DEFINITIONS, Kind, Spec
from scheduler_api.alerts.models import KINDS, Channel, Delivery, Recipient, Rule
from scheduler_api.exceptions import RegistrationRefused
from scheduler_api.models import Server


@require_safe
def rules(request: HttpRequest) -> HttpResponse:
    may_edit = roles.may(request.user, Role.ADMIN)
    context = {
        "rules": [(rule, DEFINITIONS[Kind(rule.kind)]) for rule in selectors.rules(roles.visible(request.user))],
        "recipients": [(each, shown_address(each) if may_edit else "") for each in selectors.recipients()],
        "may_edit": may_edit,
    }
    return render(request, "alerts_rules.html", context)


def shown_address(recipient: Recipient) -> str:
    return addresses.origin(recipient.address) if recipient.channel == Channel.WEBHOOK else recipient.address


@require_http_methods(["GET", "HEAD", "POST"])
@at_least(Role.ADMIN)
def rule_edit(request: HttpRequest, pk: int | None = None) -> HttpResponse:
    rule = get_object_or_404(Rule, pk=pk) if pk is not None else new_rule(request.POST.get("kind") or request.GET.get("kind", ""))
    form = RuleForm(rule, request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        try:
            services.keep_rule(form.filled(), form.cleaned_data["recipients"])
        except RegistrationRefused as refusal:
            form.add_error(refusal.field if refusal.field in form.fields else None, refusal.text)
        else:
            messages.success(request, f"The rule {form.definition.label.lower()} is in force within seconds.")
            return redirect("alert-rules")
    context = {"form": form, "rule": rule, "kinds": KINDS, "new": pk is None}
    return render(request, "alerts_rule.html", context, status=422 if form.is_bound else 200)


@require_safe
@at_least(Role.ADMIN)
def rule_test(request: HttpRequest) -> HttpResponse:
    """What the rule as it stands in the form would have opened in the recorded past."""
    form = RuleForm(new_rule(request.GET.get("kind", "")), request.GET)
    form.full_clean()
    wrong = [name for name in ("threshold_s", "for_s", "clear_s", "server") if name in form.errors]
    if wrong:
        return render(request, "alerts_test.html", {"wrong": form.errors[wrong[0]][0]})
    given, kind = form.cleaned_data, Kind(form.rule.kind)
    server: Server | None = given.get("server")
    servers = [server] if server is not None else selectors.servers_of_all(kind)
    spec = Spec(0, kind, server.pk if server else None, given.get("threshold_s", 0.0), given["for_s"], given["clear_s"])
    return render(request, "alerts_test.html", {"past": past.test(spec, servers)})


@require_POST
@at_least(Role.ADMIN)
def rule_delete(request: HttpRequest, pk: int) -> HttpResponse:
    services.remove_rule(get_object_or_404(Rule, pk=pk))
    messages.success(request, "The rule is deleted. What it had opened is closed.")
    return redirect("alert-rules")


@require_http_methods(["GET", "HEAD", "POST"])
@at_least(Role.ADMIN)
def recipient_edit(request: HttpRequest, pk: int | None = None) -> HttpResponse:
    recipient = get_object_or_404(Recipient, pk=pk) if pk is not None else Recipient(channel=Channel.WEBHOOK)
    form = RecipientForm(recipient, request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid() and _keep(recipient, form):
        messages.success(request, f"{recipient.name} is kept. Send it a test message to see that it arrives.")
        return redirect("alert-recipient", pk=recipient.pk)
    context = {
        "form": form,
        "recipient": recipient,
        "address": shown_address(recipient) if pk is not None else "",
        "tests": list(Delivery.objects.filter(recipient=recipient)[:10]) if pk is not None else [],
    }
    return render(request, "alerts_recipient.html", context, status=422 if form.is_bound else 200)


def _keep(recipient: Recipient, form: RecipientForm) -> bool:
    given = form.cleaned_data
    recipient.name, recipient.channel, recipient.enabled = given["name"], given["channel"], given["enabled"]
    try:
        services.keep_recipient(recipient, given["address"], form.secret_given())
    except RegistrationRefused as refusal:
        form.add_error(refusal.field if refusal.field in form.fields else None, refusal.text)
        return False
    return True


@require_POST
@at_least(Role.ADMIN)
def recipient_test(request: HttpRequest, pk: int) -> HttpResponse:
    recipient = get_object_or_404(Recipient, pk=pk)
    outbox.test(recipient)
    messages.success(request, "A test message is on its way; what became of it stands below.")
    return redirect("alert-recipient", pk=pk)


@require_POST
@at_least(Role.ADMIN)
def recipient_delete(request: HttpRequest, pk: int) -> HttpResponse:
    recipient = get_object_or_404(Recipient, pk=pk)
    services.remove_recipient(recipient)
    messages.success(request, f"{recipient.name} is deleted; no rule tells it any more.")
    return redirect("alert-rules")
