"""Content security policies besides the one in the settings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import cast

from django.conf import settings
from django.utils.csp import CSP

#: For pages with a Plotly chart: it writes styles into its own elements and saves images through blobs; nothing else does.
CHARTS: Mapping[str, Collection[str] | str] = {
    **cast("Mapping[str, Collection[str]]", settings.SECURE_CSP),
    "style-src": [CSP.SELF, CSP.UNSAFE_INLINE],
    "img-src": [CSP.SELF, "data:", "blob:"],
}
