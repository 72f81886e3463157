"""Model files that may be looked at, and what would become of a pair of them. Headers only, and of listed paths only."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from engine.drafts import MODES, DraftError, Mode, examine
from engine.drafts.listing import ModelFile, list_models, one_model
from engine.drafts.report import report, unreadable
from engine.http.errors import ApiError, json_response
from engine.http.state import ServerState


class FileRoutes:
    """The files of `--models-dir`, and the two that are in use: the model, and the draft that was asked for."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def files(self, request: Request) -> Response:
        self._state.live  # noqa: B018  # raises while the model loads
        return json_response(await asyncio.to_thread(self._list))

    async def check(self, request: Request) -> Response:
        self._state.live  # noqa: B018
        query = request.query_params
        mode = next((mode for mode in MODES if mode == query.get("draft_rope", "auto")), None)
        if mode is None:
            raise ApiError(400, f'Query parameter "draft_rope" must be one of {", ".join(MODES)}.', field="draft_rope")
        names = {role: query.get(role, "") for role in ("target", "draft")}
        return json_response(await asyncio.to_thread(self._check, names, mode))

    def _list(self) -> dict[str, Any]:
        listing = list_models(self._state.options.files.folders)
        in_use = self._in_use()
        listed = {str(file.path) for file in listing.files}
        others = [_alone(path, use) for path, use in in_use.items() if path not in listed]
        return {
            "folders": [str(folder) for folder in self._state.options.files.folders],
            "files": [*others, *(_file_json(file, in_use.get(str(file.path))) for file in listing.files)],
            "complete": listing.complete,
            "draft": draft_json(self._state),
        }

    def _in_use(self) -> dict[str, str]:
        info = self._state.live.backend.info
        used = {info.draft.path: "draft"} if info.draft is not None else {}
        return {**used, info.path: "model"} if info.path else used

    def _check(self, names: dict[str, str], mode: Mode) -> dict[str, Any]:
        listing = list_models(self._state.options.files.folders)
        allowed = {str(file.path) for file in listing.files} | self._in_use().keys()
        for role, name in names.items():
            if name not in allowed:
                raise ApiError(400, f'Query parameter "{role}" must be a path that GET /models/files lists.', field=role)
        try:
            return report(examine(Path(names["target"]), Path(names["draft"]), mode))
        except DraftError as error:
            return unreadable(error, mode)


def draft_json(state: ServerState) -> dict[str, Any] | None:
    """What became of the draft that the server was started with; None without one."""
    draft = state.live.backend.info.draft
    if draft is None:
        return None
    return {
        "path": draft.path,
        "loaded": draft.loaded,
        "outcome": draft.outcome,
        "text": draft.text,
        "sections": list(draft.sections) if draft.sections is not None else None,
        "warnings": list(draft.warnings),
    }


def _file_json(file: ModelFile, in_use: str | None) -> dict[str, Any]:
    return {
        "path": str(file.path),
        "name": file.name,
        "folder": str(file.folder),
        "size_bytes": file.size_bytes,
        "n_files": file.n_files,
        "in_use": in_use,
    }


def _alone(path: str, in_use: str) -> dict[str, Any]:
    """A file that the server was started with, outside of the folders."""
    place = Path(path)
    if (found := one_model(place)) is not None:
        return _file_json(found, in_use)
    unknown = {"size_bytes": None, "n_files": None}
    return {"path": path, "name": place.name, "folder": str(place.parent), **unknown, "in_use": in_use}
