"""All settings of the console, in one place. docs/deploy.md describes each environment variable."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import dj_database_url
from django.utils.csp import CSP

from dashboard import env

BASE_DIR = Path(__file__).resolve().parent.parent
VAR_DIR = Path(env.text("SLOTBOARD_VAR_DIR", str(BASE_DIR / "var")))
VERSION = "0.1.0"

DEBUG = env.flag("SLOTBOARD_DEBUG", False)
SECRET_KEY = env.kept_secret("SLOTBOARD_SECRET_KEY", VAR_DIR / "secret_key")
# Encrypt the keys of servers and webhooks in the database; the first encrypts, all decrypt. SECRET_KEY may change without them.
CREDENTIAL_KEYS = env.words("SLOTBOARD_CREDENTIAL_KEYS") or env.kept_secret("", VAR_DIR / "credential_key").split(",")
ALLOWED_HOSTS = env.words("SLOTBOARD_ALLOWED_HOSTS", "127.0.0.1,localhost,[::1]")
CSRF_TRUSTED_ORIGINS = env.words("SLOTBOARD_TRUSTED_ORIGINS")
# "/ops/llm" behind a proxy that serves the console under a path
FORCE_SCRIPT_NAME = env.text("SLOTBOARD_URL_PREFIX").rstrip("/") or None
_PREFIX = FORCE_SCRIPT_NAME or ""

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.usersessions",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "axes",
    "channels",
    "django_htmx",
    "scheduler_api",
    "workers",
    "dashboard.people",
    "dashboard",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.csp.ContentSecurityPolicyMiddleware",
    "dashboard.headers.headers",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "dashboard.alive.alive",
    "servestatic.middleware.ServeStaticMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "scheduler_api.audit.origin.OriginMiddleware",
    "dashboard.people.visits.VisitMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "dashboard.people.middleware.AccessMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "axes.middleware.AxesMiddleware",
]

ROOT_URLCONF = "dashboard.urls"
ASGI_APPLICATION = "dashboard.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.csp",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "dashboard.context.frame",
            ]
        },
    }
]

DATABASES = {
    "default": dj_database_url.parse(env.text("DATABASE_URL", f"sqlite:///{VAR_DIR / 'slotboard.sqlite3'}"), conn_max_age=0)
}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL = env.text("REDIS_URL", "redis://127.0.0.1:6399/0")
CHANNEL_LAYERS = {
    "default": {
        # The pub/sub layer: the core one drops idle consumers after 5 s under redis-py 8.
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL], "prefix": "slotboard"},
    }
}

CELERY_BROKER_URL = REDIS_URL
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {"socket_timeout": None, "visibility_timeout": 6 * 3600}
CELERY_TASK_ALWAYS_EAGER = False

SLOTBOARD_ACCESS = "dashboard.people.access"
# Requests to the JSON API a minute, of each token or person; 0 for no limit.
API_READS = env.number("SLOTBOARD_API_READS", 1200)
API_WRITES = env.number("SLOTBOARD_API_WRITES", 120)
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "overview"
LOGOUT_REDIRECT_URL = "login"
PASSWORD_RESET_TIMEOUT = 3 * 24 * 3600  # of the link that an admin hands to somebody new
# django-allauth: second factors, the list of sessions, OpenID Connect. Accounts are made by admins alone.
ACCOUNT_ADAPTER = "dashboard.people.adapters.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*"]
ACCOUNT_FORMS = {"reauthenticate": "dashboard.people.forms.ConfirmForm"}
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_REAUTHENTICATION_REQUIRED = True
ACCOUNT_REAUTHENTICATION_TIMEOUT = 900
ACCOUNT_LOGOUT_ON_PASSWORD_CHANGE = False
MFA_ADAPTER = "dashboard.people.adapters.MfaAdapter"
MFA_SUPPORTED_TYPES = ["totp", "recovery_codes"]
MFA_TOTP_ISSUER = "Slotboard"
MFA_TOTP_TOLERANCE = 1
SOCIALACCOUNT_ADAPTER = "dashboard.people.adapters.SocialAdapter"
SOCIALACCOUNT_LOGIN_ON_GET = True  # a link: form-action would forbid a form that ends at the provider
SOCIALACCOUNT_FORMS = {"reauthenticate": "dashboard.people.forms.ConfirmForm"}
SOCIALACCOUNT_EMAIL_VERIFICATION = "none"
SOCIALACCOUNT_STORE_TOKENS = False
OIDC_ID = "oidc"
OIDC_ISSUER = env.text("SLOTBOARD_OIDC_ISSUER")
OIDC_NAME = env.text("SLOTBOARD_OIDC_NAME", "single sign-on") if OIDC_ISSUER else ""
OIDC_MAKE_ACCOUNTS = env.flag("SLOTBOARD_OIDC_MAKE_ACCOUNTS", False)
OIDC_ROLE = env.one_of("SLOTBOARD_OIDC_ROLE", ("", "viewer", "operator", "admin"))
SOCIALACCOUNT_PROVIDERS = {
    "openid_connect": {
        "OAUTH_PKCE_ENABLED": True,
        "APPS": [
            {
                "provider_id": OIDC_ID,
                "name": OIDC_NAME,
                "client_id": env.text("SLOTBOARD_OIDC_CLIENT_ID"),
                "secret": env.text("SLOTBOARD_OIDC_CLIENT_SECRET"),
                "settings": {"server_url": OIDC_ISSUER},
            }
        ]
        if OIDC_ISSUER
        else [],
    }
}
AXES_FAILURE_LIMIT = 8
AXES_COOLOFF_TIME = 0.25  # hours
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_LOCKOUT_TEMPLATE = "locked.html"
AXES_VERBOSE = False

SECURE_HTTPS = env.flag("SLOTBOARD_HTTPS", False)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_HTTPS
# Over HTTPS everything is, but the health check, which load balancers ask by address.
SECURE_SSL_REDIRECT = env.flag("SLOTBOARD_HTTPS_REDIRECT", SECURE_HTTPS)
SECURE_REDIRECT_EXEMPT = [r"^health/$"]
SECURE_HSTS_SECONDS = env.number("SLOTBOARD_HSTS_SECONDS", 30 * 24 * 3600 if SECURE_HTTPS else 0)
SECURE_HSTS_INCLUDE_SUBDOMAINS = env.flag("SLOTBOARD_HSTS_SUBDOMAINS", False)
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_NAME = "slotboard_session"
CSRF_COOKIE_NAME = "slotboard_csrf"
SESSION_COOKIE_PATH = CSRF_COOKIE_PATH = f"{_PREFIX}/"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_AGE = 14 * 24 * 3600
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if env.flag("SLOTBOARD_BEHIND_PROXY", False) else None
# Longer bodies end in dashboard/body_limit.py.
DATA_UPLOAD_MAX_MEMORY_SIZE = FILE_UPLOAD_MAX_MEMORY_SIZE = 2 << 20
DATA_UPLOAD_MAX_NUMBER_FIELDS = 1000
DATA_UPLOAD_MAX_NUMBER_FILES = 4
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
SECURE_CSP = {
    "default-src": [CSP.NONE],
    "script-src": [CSP.SELF, CSP.NONCE],
    "style-src": [CSP.SELF],
    "img-src": [CSP.SELF, "data:"],
    "font-src": [CSP.SELF],
    "connect-src": [CSP.SELF],
    "form-action": [CSP.SELF],
    "base-uri": [CSP.NONE],
    "frame-ancestors": [CSP.NONE],
}

LANGUAGE_CODE = "en"
USE_I18N = False
USE_TZ = True
TIME_ZONE = env.text("TZ", "UTC")

STATIC_URL = f"{_PREFIX}/static/"
STATIC_ROOT = VAR_DIR / "static"
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "dashboard.staticfiles.PlotlyFinder",
]
SERVESTATIC_KEEP_ONLY_HASHED_FILES = True  # pages name no others, and compressing Plotly takes seconds
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "dashboard.staticfiles.ModuleManifestStorage"},
}

# How the console reaches the engine that `make run` starts, registered at the first start.
LOCAL_ENGINE_URL = env.text("SLOTBOARD_ENGINE_URL", "http://127.0.0.1:8080")
LOCAL_ENGINE_KEY = env.text("LLAMA_API_KEY")

# Where servers and webhooks may lie: host names, "*.example.org", networks; empty for anywhere that is not refused as such.
TARGET_ALLOW = env.words("SLOTBOARD_TARGET_ALLOW")
if TARGET_ALLOW:
    TARGET_ALLOW.append(urlsplit(LOCAL_ENGINE_URL).hostname or "")
WEBHOOK_ALLOW = env.words("SLOTBOARD_WEBHOOK_ALLOW")

# Where people reach the console: the links in alert messages. Without it they carry the path alone.
PUBLIC_URL = env.text("SLOTBOARD_PUBLIC_URL").rstrip("/") or _PREFIX
DEFAULT_FROM_EMAIL = env.text("SLOTBOARD_EMAIL_FROM", "slotboard@localhost")
EMAIL_SECURITY = env.text("SLOTBOARD_EMAIL_SECURITY", "starttls")  # "starttls", "tls" or "none"
MAILERS = (
    {
        "default": {
            "OPTIONS": {
                "host": env.text("SLOTBOARD_EMAIL_HOST"),
                "port": env.number("SLOTBOARD_EMAIL_PORT", 465 if EMAIL_SECURITY == "tls" else 587),
                "username": env.text("SLOTBOARD_EMAIL_USER"),
                "password": env.text("SLOTBOARD_EMAIL_PASSWORD"),
                "use_tls": EMAIL_SECURITY == "starttls",
                "use_ssl": EMAIL_SECURITY == "tls",
                "timeout": 15,
            }
        }
    }
    if env.text("SLOTBOARD_EMAIL_HOST")
    else {}
)
SILENCED_SYSTEM_CHECKS = [
    "mail.W001",  # without a mail server nothing is mailed, and recipients say so
    "security.W005",  # other hosts below this one are not ours to bind to HTTPS: SLOTBOARD_HSTS_SUBDOMAINS
    "security.W021",  # nor to enter in the browsers' list
]

# Days until workers/retention.py drops what is over; 0 keeps it for good.
KEEP_RUNS_DAYS = env.number("SLOTBOARD_KEEP_RUNS_DAYS", 0)
KEEP_ALERTS_DAYS = env.number("SLOTBOARD_KEEP_ALERTS_DAYS", 90)
KEEP_LOGINS_DAYS = env.number("SLOTBOARD_KEEP_LOGINS_DAYS", 90)

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": env.text("SLOTBOARD_LOG_LEVEL", "INFO")},
    "loggers": {"httpx2": {"level": "WARNING"}, "axes": {"level": "WARNING"}, "django.request": {"level": "ERROR"}},
}
