"""The scenarios that the product brings along, and the files that scenarios name."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from workers.scenarios import schema
from workers.scenarios.parts import Trace
from workers.scenarios.reading import read
from workers.scenarios.schema import Scenario, ScenarioError
from workers.scenarios.streams import LoadScenario

FOLDER = schema.FOLDER / "library"
FILES = schema.FOLDER / "files"
MOST_BYTES = 256 << 20


def names() -> list[str]:
    return sorted([*schema.names(), *(file.stem for file in FOLDER.glob("*.yaml"))])


def text_of(name: str) -> str:
    """The YAML of a scenario of the library. Raises ScenarioError."""
    for folder in (schema.FOLDER, FOLDER):
        if name in {file.stem for file in folder.glob("*.yaml")}:
            return (folder / f"{name}.yaml").read_text(encoding="utf-8")
    raise ScenarioError(f"There is no scenario {name!r}; known are {', '.join(names())}.")


@cache
def find(name: str) -> Scenario | LoadScenario:
    """Raises ScenarioError."""
    if name in schema.names():
        return schema.load(name)
    scenario = read(text_of(name), f"{name}.yaml")
    if scenario.name != name:
        raise ScenarioError(f"Scenario file {name} names itself {scenario.name!r}.")
    return scenario


def files_of(scenario: LoadScenario, folders: tuple[Path, ...] = (FILES,)) -> dict[str, str]:
    """The texts of the files that a scenario names: plain file names, looked for in `folders` alone. Raises ScenarioError."""
    wanted = {name for stream in scenario.streams for name in (stream.prompt.files or [] if stream.prompt else [])}
    wanted |= {stream.arrivals.file for stream in scenario.streams if isinstance(stream.arrivals, Trace)}
    return {name: _text(name, folders) for name in sorted(wanted)}


def _text(name: str, folders: tuple[Path, ...]) -> str:
    if name != Path(name).name or name.startswith("."):
        raise ScenarioError(f"The file {name!r} must be a plain name, without a folder.")
    for folder in folders:
        file = folder / name
        if file.is_file():
            if file.stat().st_size > MOST_BYTES:
                raise ScenarioError(f"The file {name} is larger than {MOST_BYTES >> 20} MB.")
            try:
                return file.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                raise ScenarioError(f"The file {name} is not UTF-8 text.") from None
    raise ScenarioError(f"The file {name} is in none of the folders {', '.join(map(str, folders))}.")
