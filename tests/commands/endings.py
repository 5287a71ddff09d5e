"""How a command ended, and what it left behind."""

from __future__ import annotations

import resource
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class Ended(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Ended]


def everything(folder: Path) -> dict[str, bytes | int]:
    """All that is there, to the byte; a folder as its kind. Files that SQLite makes to read are not looked at."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else stat.S_IFMT(path.lstat().st_mode)
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts and not path.name.endswith(("-wal", "-shm"))
    }


def in_one_sentence(ended: Ended, code: int) -> str | None:
    """What is wrong with how a command ended, if anything is."""
    *_, last = ended.err.splitlines() or [""]
    if ended.code != code:
        return f"exit code {ended.code} instead of {code}: {ended.err}"
    if ended.out or not last.startswith("Error: ") or ended.err.count("Error: ") != 1:
        return f"not one sentence at the end: {ended}"
    return None


@contextmanager
def no_file_beyond(room: int) -> Iterator[None]:
    """A full disk: the system lets no file grow beyond so many bytes, and all that writes meets it, SQLite too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
