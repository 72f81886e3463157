"""Who is let in where: every address of the console by role. A new page has its line here.

Columns: anonymous, an admin of another group, then viewer, operator and admin of the server's own group, and an admin of all
servers. `in` lets in; `login` sends to the login, `401` asks for one in JSON; `no` is 403; `none` is 404: for these people the
thing does not exist.
"""

from __future__ import annotations

PEOPLE = ("anonymous", "other", "viewer", "operator", "group_admin", "admin")

SEEN = "login none in  in  in  in"  # a page of one server
LISTS = "login in   in  in  in  in"  # a page whose content is what one may see
OPERATES = "login none no  in  in  in"
ANYWHERE = "login in   no  in  in  in"  # an operator of any server; what is chosen is checked
ADMINS = "login no   no  no  no  in"
PUBLIC = "in    in   in  in  in  in"
API_SEEN = "401   none in  in  in  in"
API_LISTS = "401   in   in  in  in  in"
API_OPERATES = "401   none no  in  in  in"
API_ANYWHERE = "401   in   no  in  in  in"  # an operator of any server
API_CHOSEN = "401   in   no  in  in  in"  # the server stands in the body; one that is not seen is a wrong value
HIDDEN = "none  none none none none none"

# name of the address, method, who is let in
TABLE = f"""
overview GET {LISTS}
overview-cards GET {LISTS}
rail GET {LISTS}
definitions GET {LISTS}
health GET {PUBLIC}
metrics GET {API_LISTS}

server-add GET {ADMINS}
server-add POST {ADMINS}
server GET {SEEN}
server-history GET {SEEN}
server-runs GET {SEEN}
policies GET {SEEN}
policy-switch POST {OPERATES}
policy-review POST {OPERATES}
policy-revert POST {OPERATES}
policy-drift POST login none no none none none
policy-guard POST login none no none none none
policy-export GET {SEEN}
policy-import POST {OPERATES}
preset-add POST {OPERATES}
preset-remove POST login none no none none none
preset-export GET {LISTS}
policy-windows GET {SEEN}
policy-windows POST {OPERATES}
policy-window POST {OPERATES}
server-drafts GET {OPERATES}
server-share GET {OPERATES}
server-share POST {OPERATES}

alerts GET {LISTS}
alert-rows GET {LISTS}
alert-count GET {LISTS}
alert-strip GET {SEEN}
alert GET {SEEN}
alert-acknowledge POST {OPERATES}
alert-silence POST {ANYWHERE}
alert-silence-end POST {OPERATES}
alert-rules GET {LISTS}
alert-rule-add GET {ADMINS}
alert-rule-add POST {ADMINS}
alert-rule-test GET {ADMINS}
alert-rule GET {ADMINS}
alert-rule POST {ADMINS}
alert-rule-delete POST {ADMINS}
alert-recipient-add GET {ADMINS}
alert-recipient-add POST {ADMINS}
alert-recipient GET {ADMINS}
alert-recipient POST {ADMINS}
alert-recipient-test POST {ADMINS}
alert-recipient-delete POST {ADMINS}

audit GET {LISTS}
audit-csv GET {LISTS}
audit-json GET {LISTS}

scenarios GET {LISTS}
scenario-add GET {ANYWHERE}
scenario-add POST {ANYWHERE}
scenario-check POST {ANYWHERE}
scenario GET {LISTS}
scenario-edit GET {ANYWHERE}
scenario-edit POST {ANYWHERE}
scenario-copy POST {ANYWHERE}
scenario-delete POST {ANYWHERE}
scenario-download GET {LISTS}
scenario-trend GET {LISTS}

experiments GET {LISTS}
experiment-new GET {ANYWHERE}
experiment-new POST {ANYWHERE}
run-import GET {ANYWHERE}
run-import POST {ANYWHERE}
experiment-check GET {ANYWHERE}
run GET {SEEN}
run-stop POST {OPERATES}
run-again POST {OPERATES}
run-scenario GET {SEEN}
run-samples GET {SEEN}
run-csv GET {SEEN}
run-compare GET {SEEN}
run-trend GET {SEEN}
run-badge GET none none in  in  in  in
run-export-json GET {SEEN}
run-export-csv GET {SEEN}
run-export-html GET {SEEN}
run-share GET {OPERATES}
run-share POST {OPERATES}

login GET {PUBLIC}
login POST {PUBLIC}
logout POST login login login login login login
mfa_authenticate GET login in in in in in
mfa_authenticate POST login in in in in in
openid_connect_login GET {HIDDEN}
openid_connect_login POST {HIDDEN}
openid_connect_callback GET {HIDDEN}
openid_connect_callback POST {HIDDEN}
socialaccount_login_cancelled GET {PUBLIC}
welcome GET {PUBLIC}
welcome POST {PUBLIC}

settings GET {LISTS}
account_change_password GET {LISTS}
account_change_password POST {LISTS}
account_reauthenticate GET {LISTS}
account_reauthenticate POST {LISTS}
mfa_reauthenticate GET {LISTS}
mfa_reauthenticate POST {LISTS}
mfa_activate_totp GET {LISTS}
mfa_activate_totp POST {LISTS}
mfa_deactivate_totp GET {HIDDEN.replace("none", "login", 1)}
mfa_deactivate_totp POST {HIDDEN.replace("none", "login", 1)}
mfa_view_recovery_codes GET {HIDDEN.replace("none", "login", 1)}
mfa_generate_recovery_codes GET {LISTS}
mfa_generate_recovery_codes POST {LISTS}
settings-sessions GET {LISTS}
session-end-others POST {LISTS}
session-end POST login none none none none none
settings-tokens GET {LISTS}
settings-tokens POST {LISTS}
token-revoke POST login none none none none in
people GET {ADMINS}
person-add GET {ADMINS}
person-add POST {ADMINS}
person GET {ADMINS}
person POST {ADMINS}
person-link POST {ADMINS}
person-active POST {ADMINS}
person-sign-out POST {ADMINS}
person-reset POST {ADMINS}
group-add GET {ADMINS}
group-add POST {ADMINS}
group GET {ADMINS}
group POST {ADMINS}
group-delete POST {ADMINS}
settings-shares GET {LISTS}
share-revoke POST login none none none none in
shared GET {PUBLIC}
shared-open POST no no no no no no
shared-part GET {HIDDEN}

api:openapi-json GET {PUBLIC}
api:api-root GET {HIDDEN}
api:list_servers GET {API_LISTS}
api:server_detail GET {API_SEEN}
api:switch_policy PATCH {API_OPERATES}
api:policy_changes GET {API_SEEN}
api:detail GET {API_SEEN}
api:fairness GET {API_SEEN}
api:history GET {API_SEEN}
api:stall GET 401 none none none none none
api:server_state GET {API_SEEN}
api:policy GET {API_SEEN}
api:review_policy POST {API_OPERATES}
api:revert_policy POST {API_OPERATES}
api:list_drifts GET {API_SEEN}
api:reapply_drift POST 401 none no none none none
api:leave_drift POST 401 none no none none none
api:list_guards GET {API_SEEN}
api:remove_guard DELETE 401 none no none none none
api:list_windows GET {API_SEEN}
api:add_window POST {API_OPERATES}
api:change_window PATCH {API_OPERATES}
api:remove_window DELETE {API_OPERATES}
api:list_presets GET {API_LISTS}
api:preset_detail GET {API_LISTS}
api:add_preset POST {API_ANYWHERE}
api:remove_preset DELETE {API_ANYWHERE}
api:list_alerts GET {API_LISTS}
api:alert_detail GET {API_SEEN}
api:acknowledge_alert POST {API_OPERATES}
api:list_silences GET {API_LISTS}
api:add_silence POST {API_CHOSEN}
api:end_silence DELETE {API_OPERATES}
api:list_audit GET {API_LISTS}
api:list_scenarios GET {API_LISTS}
api:scenario_detail GET {API_LISTS}
api:check_scenario POST {API_ANYWHERE}
api:add_scenario POST {API_ANYWHERE}
api:change_scenario PUT {API_ANYWHERE}
api:copy_scenario POST {API_ANYWHERE}
api:delete_scenario DELETE {API_ANYWHERE}
api:list_runs GET {API_LISTS}
api:start_run POST {API_CHOSEN}
api:run_detail GET {API_SEEN}
api:run_result GET {API_SEEN}
api:export_run GET {API_SEEN}
api:stop_run POST {API_OPERATES}
api:list_samples GET {API_SEEN}
api:samples_csv GET {API_SEEN}
api:unknown GET {HIDDEN}
"""
#: The same pages under the names that django-allauth looks for.
