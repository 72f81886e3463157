"""One area with one amount of data: python -m tests.gallery.trial OUT STATIC AREA AMOUNT [part of a page's name]."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, StorageState, sync_playwright

from tests.browser.conftest import FLAGS, sign_in
from tests.gallery.looks import Shot, take
from tests.support.parts import Parts, prepared
from tests.support.stack import ROOT, free_port, run_environment

PLAY_S = 3600


def settings_of(var: Path) -> dict[str, str]:
    ports = {"PORT": str(free_port()), "ENGINE_PORT": str(free_port()), "BACKEND": "simulated"}
    return run_environment(var, **ports, DJANGO_SETTINGS_MODULE="dashboard.settings")


def collect_static(var: Path) -> None:
    """Once for all trials: it takes longer than the rest of a start."""
    prepared(var, settings_of(var))


@contextmanager
def console(var: Path, made: Path, more: Mapping[str, str]) -> Iterator[Parts]:
    """Web process and Valkey alone, on a database of their own; its settings are this process's too."""
    shutil.copytree(made / "static", var / "static")
    shutil.copy(made / "static.stamp", var)
    found = prepared(var, {**settings_of(var), **more})
    os.environ |= found.env
    try:
        found.start("valkey", "web")
        found.wait_for(f"{found.web}/health/")
        yield found
    finally:
        found.end()


@contextmanager
def playing(env: dict[str, str], names: Sequence[str]) -> Iterator[None]:
    """The made-up servers of `names` at work, as an observer would tell of them; none of them: nothing."""
    if not names:
        yield
        return
    command = [sys.executable, "-m", "tests.support.play_states", str(PLAY_S), *names]
    player = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert player.stdout is not None
        assert player.stdout.readline() == "playing\n", "the made-up servers did not come to work"
        yield
    finally:
        player.send_signal(signal.SIGTERM)
        player.wait(15)


def signed_in(browser: Browser, web: str) -> StorageState:
    context = browser.new_context(base_url=web)
    page = context.new_page()
    sign_in(page)
    state = context.storage_state()
    context.close()
    return state


def main(out: Path, made: Path, area: str, amount: str, only: str = "") -> None:
    module = importlib.import_module(f"tests.gallery.{area}")
    with tempfile.TemporaryDirectory(prefix="slotboard-gallery-") as folder, contextlib.ExitStack() as stack:
        more = module.environment(Path(folder), amount) if hasattr(module, "environment") else {}
        parts = stack.enter_context(console(Path(folder), made, more))
        import django

        django.setup()
        names: Sequence[str] = module.fill(amount)
        if starts := getattr(module, "STARTS", {}).get(amount):
            parts.start(*starts)
            parts.wait_for(f"{parts.engine}/health")
        shots: list[Shot] = [shot for shot in module.PAGES if amount in shot.amounts and only in shot.name]
        with playing(parts.env, names), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM") or None, args=FLAGS)
            states = {"admin": signed_in(browser, parts.web), **getattr(module, "STATES", {})}
            said = take(browser, parts.web, states, shots, out / area / amount)
            browser.close()
    print(f"{area} {amount}: {len(shots)} pages in {out / area / amount}")
    if said:
        sys.exit("\n".join(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
