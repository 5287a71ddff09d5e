"""The files that a command is told to read and to write: whatever is wrong with one is a sentence that names it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from lrdp import files
from lrdp.errors import InvalidInput
from lrdp.integrity import MOST_CARD_CHARACTERS

Folder = Annotated[Path, typer.Option(help="Where policy.toml, ledger.db and keys/ are.")]


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Around whatever reads ``path``."""
    try:
        yield
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be read: {problem.strerror}.") from None


def read_text(path: Path, most: int = MOST_CARD_CHARACTERS) -> str:
    """A file of ASCII; other bytes are marked, for whoever decodes it to refuse."""
    with reading(path):
        return files.read(path, most).decode("ascii", errors="replace")


def write_new(path: Path, data: bytes) -> None:
    """A new file, whole or not at all."""
    try:
        with _writing(path):
            files.write_new(path, data, files.PUBLIC)
    except FileExistsError:
        raise InvalidInput(f"there is a file at {path} already: it is not overwritten.") from None


def replace(path: Path, data: bytes) -> None:
    """A file in the place of what was there: the new one whole, or the old one."""
    with _writing(path):
        files.replace(path, data, files.PUBLIC)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be written: {problem.strerror}; it is as it was.") from None
