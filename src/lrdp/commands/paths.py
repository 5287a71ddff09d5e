"""The files that a command is told to read and to write: whatever is wrong with one is a sentence that names it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from lrdp import files
from lrdp.errors import InvalidInput, NotVerified
from lrdp.integrity import (
    MOST_CARD_CHARACTERS,
    Member,
    Registry,
    Verdict,
    read_card,
    read_registry,
    read_title,
    rejection,
)

_KIND: Final = 4
"""By how many bytes a page, a picture or a table is known: enough to tell them from a ledger and from a key."""

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


def registry_in(path: Path) -> Registry:
    """A registry's file, signed or not."""
    with _as(path, "registry"):
        return read_registry(read_text(path))


def card_in(path: Path) -> Member:
    """A file with what `lrdp keys show --json` printed; its keys are the member's own."""
    with _as(path, "card"):
        member = read_card(read_text(path))
    if not member.holds():
        raise NotVerified(f"{path}: the keys of {member.name} are not signed by their owner.", Verdict.REGISTRY_REFUSED)
    return member


def require_signed(path: Path, registry: Registry) -> None:
    """Refused as any other that nobody would follow, but with what was forgotten."""
    if not read_title(registry.encode()).signed():
        raise rejection(
            Verdict.REGISTRY_REFUSED, f"{path} is not signed, or was changed since: `lrdp registry sign` it"
        )


def write_new(path: Path, data: bytes) -> None:
    """A new file, whole or not at all."""
    try:
        with _writing(path):
            files.write_new(path, data, files.PUBLIC)
    except FileExistsError:
        raise InvalidInput(f"there is a file at {path} already: it is not overwritten.") from None


def replace(path: Path, data: bytes) -> None:
    """A file in the place of an earlier one of its kind: the new one whole, or the old one."""
    with _writing(path):
        require_kind(path, data)
        files.replace(path, data, files.PUBLIC)


def rewrite(path: Path, data: bytes) -> None:
    """The same for a file that was read as one of its kind before, in whatever way it was laid out."""
    with _writing(path):
        files.replace(path, data, files.PUBLIC)


def require_kind(path: Path, data: bytes) -> None:
    """What is at ``path``, if anything, begins as ``data`` does: a slip of the hand replaces no ledger and no key."""
    try:
        with files.opened(path) as file:
            found = file.read(_KIND)
    except FileNotFoundError:
        return
    if found and found != data[:_KIND]:
        raise OSError(errno.EINVAL, "the file there is of another kind, and is not overwritten")


@contextmanager
def _as(path: Path, kind: str) -> Iterator[None]:
    try:
        yield
    except NotVerified as problem:
        raise NotVerified(f"{path} is no {kind}: {problem}", problem.verdict) from None


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be written: {problem.strerror}; it is as it was.") from None
