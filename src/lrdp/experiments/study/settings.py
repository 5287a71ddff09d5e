"""A study's settings: a small TOML that anybody can copy and change."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final

from lrdp import files
from lrdp.errors import InvalidInput
from lrdp.ledger import MOST_TOML_CHARACTERS, read_toml

QUICK: Final = "quick"
"""The table of what is different where a study only has to be seen to run."""


def shipped(name: str) -> Path:
    """The settings that come with the package; in a checkout they lie in its folder ``experiments``."""
    installed = Path(str(resources.files("lrdp.experiments"))) / "settings" / f"{name}.toml"
    return installed if installed.exists() else Path(__file__).parents[4] / "experiments" / f"{name}.toml"


def read_settings(path: Path, *, quick: bool) -> dict[str, Any]:
    """The tables of a file, with those under ``[quick]`` laid over them where asked for.

    Raises:
        InvalidInput: naming the file, where it cannot be read or is not TOML.
    """
    try:
        text = files.read(path, MOST_TOML_CHARACTERS).decode("utf-8")
    except OSError as problem:
        raise InvalidInput(f"the settings {path} cannot be read ({problem.strerror}): nothing was run.") from None
    except UnicodeDecodeError as problem:
        raise InvalidInput(f"the settings {path} cannot be read ({problem}): nothing was run.") from None
    tables = read_toml(text, str(path))
    over = tables.pop(QUICK, {})
    return laid_over(tables, over) if quick else tables


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are merged; everything else is replaced."""
    merged = dict(below)
    for name, value in above.items():
        under = merged.get(name)
        both = isinstance(under, Mapping) and isinstance(value, Mapping)
        merged[name] = laid_over(under, value) if both else value  # type: ignore[arg-type]
    return merged
