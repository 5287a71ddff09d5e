"""The Flower app of a pilot that was founded, so that its first round is one command away, and its task to fill in."""

from __future__ import annotations

import json
from importlib.resources import files as resources
from pathlib import Path
from typing import Final

from lrdp.ledger import Scheme

TASK: Final = "pilot_task"
PACKAGE: Final = "pilot_app"
_SERVED: Final = {Scheme.SKETCH: "SketchRounds", Scheme.EXACT: "ExactRounds"}


def task_file() -> dict[str, str]:
    """What every hospital's guard trains, by its name."""
    return {f"{TASK}.py": _template(TASK)}


def app_files(folder: Path, scheme: Scheme, rounds: int) -> dict[str, str]:
    """The text of each file, by its path in the app; ``folder`` is where the pilot will lie."""
    places = {
        "SERVER": folder / "server",
        "REGISTRY": folder / "registry.json",
        "CODE": folder / "code",
        "CLIENTS": folder / "clients",
    }
    project = _template("pyproject").replace("= ROUNDS", f"= {rounds}")
    for name, place in places.items():
        project = project.replace(f"= {name}\n", f"= {json.dumps(str(place.absolute()), ensure_ascii=False)}\n")
    return {
        "pyproject.toml": project,
        f"{PACKAGE}/__init__.py": '"""A pilot of private, verified federated learning."""\n',
        f"{PACKAGE}/client_app.py": _template("client_app"),
        f"{PACKAGE}/server_app.py": _template("server_app").replace("SCHEME", _SERVED[scheme]),
    }


def _template(name: str) -> str:
    return resources("lrdp.commands").joinpath("pilot", f"{name}.txt").read_text(encoding="utf-8")
