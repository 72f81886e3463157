"""Static files: hashed names, so that a browser may keep them for ever, and the one file taken out of the plotly wheel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import brotli
import plotly
from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage
from servestatic.compress import Compressor
from servestatic.storage import CompressedManifestStaticFilesStorage

PLOTLY = "vendor/plotly.min.js"


BROTLI_QUALITY = 9  # of Plotly's 4.7 MB, 11 leaves a tenth less and takes ten seconds instead of half a one


class QuickCompressor(Compressor):  # type: ignore[misc]  # servestatic has no types
    @staticmethod
    def compress_brotli(data: bytes) -> bytes:
        return bytes(brotli.compress(data, quality=BROTLI_QUALITY))


class ModuleManifestStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]  # servestatic has no types
    support_js_module_import_aggregation = True  # ES modules import each other by relative path: rewrite those too
    manifest_strict = True

    def create_compressor(self, **kwargs: Any) -> Compressor:
        return QuickCompressor(**kwargs)


class PlotlyFinder(BaseFinder):
    """Offers plotly.min.js of the installed plotly package as `vendor/plotly.min.js`, so page and figures are of one version."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.folder = Path(plotly.__file__).parent / "package_data"
        self.storage = FileSystemStorage(location=self.folder)
        self.storage.prefix = "vendor"  # type: ignore[attr-defined]  # how collectstatic learns the target folder

    def check(self, **kwargs: Any) -> list[Any]:
        return []

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        found = [str(self.folder / "plotly.min.js")] if path == PLOTLY else []
        return found if find_all else (found[0] if found else [])

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterator[tuple[str, FileSystemStorage]]:
        yield "plotly.min.js", self.storage
