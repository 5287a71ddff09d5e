"""Where the results of cells are kept: a file each, which is there whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lrdp import files
from lrdp.errors import InvalidInput
from lrdp.experiments.study.cells import Cell, Record

FORMAT: Final = 1
_MOST_BYTES: Final = 64 << 20


class CellStore:
    """A folder of finished cells. Whoever runs the study again goes on where it stopped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "cells"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise InvalidInput(f"{folder} cannot hold results ({problem.strerror}): nothing was run.") from None

    def load(self, cell: Cell) -> Record | None:
        """What came out of it, or None where it has not been run.

        Raises:
            InvalidInput: where its file is not a whole result: half of one is never taken for one.
        """
        path = self._path(cell)
        if not path.exists():
            return None
        try:
            found = json.loads(files.read(path, _MOST_BYTES))
            same = found["format"] == FORMAT and found["study"] == cell.study and found["cell"] == _plain(cell.values)
            result = found["result"]
        except (OSError, ValueError, KeyError, TypeError):
            same, result = False, None
        if not same or not isinstance(result, dict):
            raise InvalidInput(f"{path} is damaged or of another version: remove it, and its cell is run again.")
        return result

    def save(self, cell: Cell, result: Record, seconds: float) -> None:
        """Durably.

        Raises:
            InvalidInput: where the disk is full or may not be written; what was kept before is still there.
        """
        found = {"format": FORMAT, "study": cell.study, "cell": cell.values, "result": result, "seconds": seconds}
        write_json(self._path(cell), found)

    def _path(self, cell: Cell) -> Path:
        return self._folder / f"{cell.key}.json"


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """One object, in place of what was there."""
    write(path, (json.dumps(record, indent=1, allow_nan=False) + "\n").encode())


def write(path: Path, data: bytes) -> None:
    """Write a file in place of what was there; if it cannot be written, a sentence says so."""
    try:
        files.replace(path, data, files.PUBLIC)
    except OSError as problem:
        raise InvalidInput(
            f"{path} cannot be written ({problem.strerror}): what was finished before is kept; run again."
        ) from None


def _plain(values: Record) -> Any:
    """As JSON gives it back: tuples are lists there."""
    return json.loads(json.dumps(values))
