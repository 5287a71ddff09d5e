"""``--set KEY=VALUE``: a node's own settings, as the data set of its task is given them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lrdp.errors import InvalidInput
from lrdp.ledger import read_toml

SettingsOption = Annotated[list[str] | None, typer.Option("--set", help="KEY=VALUE for the data set; may be repeated.")]


def read_settings(settings: list[str]) -> dict[str, Any]:
    """As Flower reads a node's settings: numbers, true and false, and text with or without quotes."""
    found: dict[str, Any] = {}
    for setting in settings:
        key, given, value = setting.partition("=")
        if not (key and given):
            raise InvalidInput(f"--set takes KEY=VALUE, got {setting!r}.")
        try:
            found[key] = read_toml(f"value = {value}", "--set")["value"]
        except InvalidInput:
            found[key] = value
    return found
