"""Addresses of logging in and of the settings. Those of django-allauth are named one by one: what is not here does not exist."""

from __future__ import annotations

from allauth.account import views as account_views
from allauth.mfa.base import views as mfa
from allauth.mfa.recovery_codes import views as codes
from allauth.mfa.totp import views as totp
from allauth.socialaccount import views as social
from allauth.socialaccount.providers.openid_connect import views as oidc
from django.contrib.auth.views import LogoutView
from django.urls import path

from dashboard.views import account, auth, people, shares

_sign_in = auth.SignIn.as_view()

urlpatterns = [
    path("login/", _sign_in, name="login"),
    path("login/", _sign_in, name="account_login"),
    path("login/code/", mfa.authenticate, name="mfa_authenticate"),
    path("login/oidc/<slug:provider_id>/", oidc.login, name="openid_connect_login"),
    path("login/oidc/<slug:provider_id>/callback/", oidc.callback, name="openid_connect_callback"),
    path("login/cancelled/", social.login_cancelled, name="socialaccount_login_cancelled"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("welcome/<uidb64>/<token>/", auth.Welcome.as_view(), name="welcome"),
    path("settings/", account.account, name="settings"),
    path("settings/", account.account, name="mfa_index"),
    path("settings/password/", auth.PasswordChange.as_view(), name="account_change_password"),
    path("settings/confirm/", account_views.reauthenticate, name="account_reauthenticate"),
    path("settings/confirm/code/", mfa.reauthenticate, name="mfa_reauthenticate"),
    path("settings/second-factor/", totp.activate_totp, name="mfa_activate_totp"),
    path("settings/second-factor/off/", totp.deactivate_totp, name="mfa_deactivate_totp"),
    path("settings/recovery-codes/", codes.view_recovery_codes, name="mfa_view_recovery_codes"),
    path("settings/recovery-codes/new/", codes.generate_recovery_codes, name="mfa_generate_recovery_codes"),
    path("settings/sessions/", account.session_list, name="settings-sessions"),
    path("settings/sessions/others/end/", account.session_end_others, name="session-end-others"),
    path("settings/sessions/<int:pk>/end/", account.session_end, name="session-end"),
    path("settings/tokens/", account.token_list, name="settings-tokens"),
    path("settings/tokens/<int:pk>/revoke/", account.token_revoke, name="token-revoke"),
    path("settings/people/", people.people, name="people"),
    path("settings/people/add/", people.person_add, name="person-add"),
    path("settings/people/<int:pk>/", people.person, name="person"),
    path("settings/people/<int:pk>/link/", people.person_link, name="person-link"),
    path("settings/people/<int:pk>/active/", people.person_active, name="person-active"),
    path("settings/people/<int:pk>/sign-out/", people.person_sign_out, name="person-sign-out"),
    path("settings/people/<int:pk>/reset/", people.person_reset, name="person-reset"),
    path("settings/groups/add/", people.group_edit, name="group-add"),
    path("settings/groups/<int:pk>/", people.group_edit, name="group"),
    path("settings/groups/<int:pk>/delete/", people.group_delete, name="group-delete"),
    path("settings/shares/", shares.share_list, name="settings-shares"),
    path("settings/shares/<int:pk>/revoke/", shares.share_revoke, name="share-revoke"),
    path("servers/<int:pk>/share/", shares.share_server, name="server-share"),
    path("experiments/<int:pk>/share/", shares.share_run, name="run-share"),
    path("shared/<int:pk>/", shares.shared, name="shared"),
    path("shared/<int:pk>/open/", shares.shared_open, name="shared-open"),
    path("shared/<int:pk>/<slug:part>", shares.shared_part, name="shared-part"),
]
