"""The units and the compose file start what the Procfile starts: read side by side, word for word."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.test import Client
from honcho.environ import parse_procfile
from pytest_django.fixtures import Settings

ROOT = Path(__file__).resolve().parents[3]
SYSTEMD = ROOT / "docs/examples/systemd"
CONTAINER = ROOT / "docs/examples/container"
INSTALLED = "/opt/slotboard/"
SETUP = ".venv/bin/python manage.py setup_console --static"
#: What an operator may have set; two words in one variable stay two.
VALUES = {
    "PORT": "8123",
    "ENGINE_PORT": "8124",
    "BACKEND": "llama",
    "MODEL_PATH": "/models/a model.gguf",
    "MODEL_ALIAS": "a name",
    "PARALLEL": "6",
    "CTX_SIZE": "4096",
    "KV_FLAG": "--kv-unified",
    "ENGINE_ARGS": "--threads 3",
}
HARDENED = {
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "RestrictNamespaces": "yes",
    "CapabilityBoundingSet": "",
    "SystemCallFilter": "@system-service",
    "UMask": "0077",
    "User": "slotboard",
    "StateDirectory": "slotboard",
}


def procfile() -> dict[str, list[str]]:
    """Each process's words, as a shell makes them of its line."""
    lines = parse_procfile((ROOT / "Procfile").read_text()).processes
    return {name: _shell_words(line) for name, line in lines.items()}


def _shell_words(line: str) -> list[str]:
    words = []
    for word in shlex.split(line.removeprefix("exec "), posix=False):
        quoted = word.startswith('"')
        value = re.sub(r"\$(\w+)", lambda found: VALUES[found[1]], word.strip('"'))
        words += [value] if quoted else value.split()
    return words


def unit(name: str) -> dict[str, str]:
    lines = (SYSTEMD / f"slotboard-{name}.service").read_text().splitlines()
    pairs = [line.split("=", 1) for line in lines if "=" in line and not line.startswith("#")]
    assert len({key for key, _ in pairs}) == len(pairs), "each setting stands once"
    return dict(pairs)


def _unit_words(line: str) -> list[str]:
    """As systemd makes them: %% is a percent sign, ${NAME} one word, $NAME as many as it has."""
    words = []
    for word in shlex.split(line.replace("%%", "%")):
        if found := re.fullmatch(r"\$\{(\w+)\}", word):
            words.append(VALUES[found[1]])
        elif found := re.fullmatch(r"\$(\w+)", word):
            words += VALUES[found[1]].split()
        else:
            words.append(word.removeprefix(INSTALLED))
    return words


def compose() -> dict[str, Any]:
    told: dict[str, Any] = yaml.safe_load((CONTAINER / "compose.yaml").read_text())
    return told


def _compose_words(line: str) -> list[str]:
    """As compose makes them: variables first, their defaults where they are not set, then words."""
    return shlex.split(re.sub(r"\$\{(\w+)(?::-([^}]*))?\}", lambda found: VALUES.get(found[1], found[2] or ""), line))


PROCESSES = sorted(procfile())


@pytest.mark.parametrize("name", PROCESSES)
def test_a_unit_starts_what_the_procfile_starts(name: str) -> None:
    assert _unit_words(unit(name)["ExecStart"]) == procfile()[name]


@pytest.mark.parametrize("name", [name for name in PROCESSES if name != "valkey"])
def test_a_container_starts_what_the_procfile_starts(name: str) -> None:
    """But on every address of its own, since others reach it from outside; ports within are its own."""
    words = _compose_words(compose()["services"][name]["command"])
    expected = ["0.0.0.0" if word == "127.0.0.1" else word for word in procfile()[name]]
    if "--port" in expected:
        expected[expected.index("--port") + 1] = {"web": "8000", "engine": "8080"}[name]
    assert words == expected


def test_there_is_a_unit_for_each_process_and_the_setup_before_them() -> None:
    assert sorted(path.name for path in SYSTEMD.glob("*.service")) == sorted(
        f"slotboard-{name}.service" for name in [*PROCESSES, "setup"]
    )
    assert _unit_words(unit("setup")["ExecStart"]) == shlex.split(SETUP)
    assert unit("setup")["Type"] == "oneshot"
    for name in ("web", "observer", "worker", "upkeep"):
        assert unit(name)["Requires"] == "slotboard-setup.service"
        assert "slotboard-setup.service" in unit(name)["After"]


@pytest.mark.parametrize("name", [*PROCESSES, "setup"])
def test_a_unit_is_hardened_and_belongs_to_the_target(name: str) -> None:
    told = unit(name)
    assert {key: told.get(key) for key in HARDENED} == HARDENED
    assert (told["PartOf"], told["WantedBy"]) == ("slotboard.target", "slotboard.target")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    for path in SYSTEMD.iterdir():
        (tmp_path / path.name).write_text(path.read_text().replace(INSTALLED.rstrip("/"), str(ROOT)))
    units = [str(path) for path in tmp_path.iterdir() if path.suffix != ".env"]
    environment = {**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"}
    done = subprocess.run(["systemd-analyze", "verify", *units], env=environment, capture_output=True, text=True, check=False)
    assert "slotboard" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr


def test_the_units_know_every_variable_that_they_use() -> None:
    used = {name for path in SYSTEMD.glob("*.service") for name in re.findall(r"\$\{?([A-Z_]+)", path.read_text())}
    lines = (SYSTEMD / "slotboard.env").read_text().splitlines()
    given = {line.split("=", 1)[0] for line in lines if "=" in line and not line.startswith("#")}
    assert used <= given
    assert {"SLOTBOARD_VAR_DIR", "REDIS_URL", "VALKEY_PORT"} <= given


def test_the_console_waits_for_its_tables_in_containers_too() -> None:
    services = compose()["services"]
    assert set(services) == {*PROCESSES, "postgres", "setup"}
    assert shlex.split(services["setup"]["command"]) == shlex.split(SETUP)
    for name in ("web", "observer", "worker", "upkeep"):
        assert services[name]["depends_on"]["setup"] == {"condition": "service_completed_successfully"}
        assert services[name]["image"] == services["setup"]["image"], "one image for all roles"
        assert services[name]["cap_drop"] == ["ALL"]
    assert services["engine"]["profiles"] == ["engine"]
    assert [services["web"]["ports"][0].split(":")[0], services["web"]["restart"]] == ["127.0.0.1", "unless-stopped"]


def test_the_image_holds_what_its_commands_need_and_no_secret() -> None:
    lines = (CONTAINER / "Containerfile").read_text().replace("\\\n", " ").splitlines()
    copied = {word for line in lines if line.startswith("COPY") and "--from" not in line for word in line.split()[1:-1]}
    sources = {path.name for path in ROOT.iterdir() if path.is_dir() and any(path.glob("*.py"))} - {"tests", "benchmarks"}
    assert {"manage.py", "requirements.lock", "pyproject.toml", "templates", *sources} <= copied
    assert all((ROOT / name).exists() for name in copied)
    assert [line.split()[1] for line in lines if line.startswith("USER")] == ["slotboard"]
    assert "--require-hashes" in next(line for line in lines if "uv pip install" in line)
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert set(allowed) == copied


def test_health_is_told_to_whoever_asks_by_address(client: Client, settings: Settings) -> None:
    """As the health check of the container does, whatever name the console has for people."""
    settings.ALLOWED_HOSTS = ["ops.example.org"]
    settings.SECURE_SSL_REDIRECT = True
    asked = compose()["services"]["web"]["healthcheck"]["test"][-1]
    path = re.search(r"http://127\.0\.0\.1:8000(/\S+)'", asked)
    assert path is not None
    response = client.get(path[1], headers={"host": "10.4.0.9:8000"})
    assert (response.status_code, response.content) == (200, b"ok")
    assert response.headers["Cache-Control"] == "private, no-cache"
    assert client.get("/login/", headers={"host": "10.4.0.9:8000"}, secure=True).status_code == 400
