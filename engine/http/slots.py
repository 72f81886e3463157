"""What can be done to an idle slot: forget what it holds, write it to a file, read it from one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from engine.backends.base import BackendError
from engine.edits import SlotBusy
from engine.http.body import read_body
from engine.http.errors import ApiError, field_error, json_response
from engine.http.fields import Fields, parse_object
from engine.http.state import ServerState
from engine.scheduler.slots import Cells
from engine.scheduler.task import Lora

PATIENCE_S = 60.0  # for a busy slot
_FILE_NAME = re.compile(r'[^/\\:*?"<>|\x00-\x1f\x7f]{1,200}')


class SlotRoutes:
    """POST /slots/{id}?action=erase|save|restore. A busy slot is waited for, as in llama-server."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def act(self, request: Request) -> Response:
        runner, slot = self._state.live, self._slot(request.path_params["id"])
        action = request.query_params.get("action", "")
        act = {"erase": self._erase, "save": self._save, "restore": self._restore}.get(action)
        if act is None:
            raise ApiError(400, "Invalid action", field="action", allowed=["erase", "save", "restore"])
        path = None if action == "erase" else self._path(parse_object(await read_body(request.scope, request.receive)))
        try:
            answer = await runner.edit_slot(slot, lambda cells: act(slot, path, cells), PATIENCE_S)
        except SlotBusy as error:
            raise ApiError(503, str(error)) from None
        except BackendError as error:
            raise ApiError(400, f"Unable to {action} the slot: {error}") from None
        return json_response(answer)

    def _slot(self, text: str) -> int:
        if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) >= self._state.options.n_slots:
            raise ApiError(400, "Invalid slot ID", field="id")
        return int(text)

    def _path(self, body: dict[str, Any]) -> Path:
        folder = self._state.options.slot_save_path
        if folder is None:
            raise ApiError(501, "This server does not support slots action. Start it with `--slot-save-path`")
        name = Fields(body).text("filename")
        if not _FILE_NAME.fullmatch(name) or ".." in name or name[0] in " ." or name[-1] in " .":
            raise field_error("filename", "the name of a file without a path")
        return folder / name

    # On the loop thread, with the slot's tokens

    def _erase(self, slot: int, path: Path | None, cells: Cells) -> dict[str, Any]:
        n_erased = len(cells)
        cells.clear()
        self._state.live.backend.clear(slot)
        return {"id_slot": slot, "n_erased": n_erased}

    def _save(self, slot: int, path: Path | None, cells: Cells) -> dict[str, Any]:
        assert path is not None
        began = self._state.clock.now()
        self._state.live.backend.save(slot, cells, path)
        self._write_lora(path, cells.lora)
        answer = {"id_slot": slot, "filename": path.name, "n_saved": len(cells), "n_written": path.stat().st_size}
        return {**answer, "timings": {"save_ms": self._ms_since(began)}}

    def _restore(self, slot: int, path: Path | None, cells: Cells) -> dict[str, Any]:
        assert path is not None
        began = self._state.clock.now()
        cells.clear()
        cells.lora = self._read_lora(path)
        cells += self._state.live.backend.restore(slot, path)
        answer = {"id_slot": slot, "filename": path.name, "n_restored": len(cells), "n_read": path.stat().st_size}
        return {**answer, "timings": {"restore_ms": self._ms_since(began)}}

    def _write_lora(self, path: Path, lora: Lora) -> None:
        """Beside the file, whose form is llama.cpp's, and only where the cells were computed under adapters."""
        adapters = self._state.live.backend.info.lora
        beside = _beside(path)
        try:
            if lora:
                beside.write_bytes(orjson.dumps([{"path": adapters[adapter].path, "scale": scale} for adapter, scale in lora]))
            else:
                beside.unlink(missing_ok=True)
        except OSError as error:
            path.unlink(missing_ok=True)  # without its list the file would be taken for one without adapters
            raise BackendError(f"the LoRA list of the slot could not be saved: {error}") from error

    def _read_lora(self, path: Path) -> Lora:
        """BackendError when an adapter is not loaded now: cells computed under it are of no use then."""
        places = {adapter.path: place for place, adapter in enumerate(self._state.live.backend.info.lora)}
        try:
            listed = orjson.loads(_beside(path).read_bytes())
            return tuple(sorted((places[item["path"]], float(item["scale"])) for item in listed))
        except FileNotFoundError:
            return ()
        except KeyError as error:
            raise BackendError(f"the slot was saved under a LoRA adapter that is not loaded: {error}") from error
        except (OSError, ValueError, TypeError) as error:
            raise BackendError(f"the LoRA list of the slot cannot be read: {error}") from error

    def _ms_since(self, began: float) -> float:
        return round((self._state.clock.now() - began) * 1e3, 3)


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".lora.json")
