"""How commands speak: data on stdout, words for people on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


def print_record(record: Mapping[str, Any], as_json: bool) -> None:
    """One JSON object, or one line per figure that there is."""
    if as_json:
        print(json.dumps(record, allow_nan=False))
        return
    shown = {key.replace("_", " "): value for key, value in record.items() if value is not None}
    width = max(map(len, shown), default=0)
    for key, value in shown.items():
        print(f"{key:<{width}}  {format(value, '.6g') if isinstance(value, float) else value}")


def say(sentence: str) -> None:
    """A word to people."""
    print(sentence, file=sys.stderr)
