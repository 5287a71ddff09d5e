"""SQLite's errors as ours: what cannot be written, and what cannot be trusted."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from lrdp.errors import LedgerDamaged, LedgerUnwritable

_HOT_JOURNAL: Final = sqlite3.SQLITE_READONLY_ROLLBACK
_UNWRITABLE: Final = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "the file is read-only",
    sqlite3.SQLITE_BUSY: "another process has held it for too long",
    sqlite3.SQLITE_LOCKED: "another process has held it for too long",
    sqlite3.SQLITE_IOERR: "the disk cannot be written",
    sqlite3.SQLITE_CANTOPEN: "the file or its folder cannot be opened",
    sqlite3.SQLITE_PERM: "the file may not be written",
    sqlite3.SQLITE_TOOBIG: "a reply of this size does not fit into one",
}


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Raise SQLite's errors about the ledger at ``path`` as LedgerUnwritable or LedgerDamaged."""
    try:
        yield
    except sqlite3.ProgrammingError:
        raise
    except (sqlite3.Error, UnicodeDecodeError, OverflowError, MemoryError) as problem:  # of made-up lengths too
        code = _code(problem) & 0xFF
        if is_hot_journal(problem):
            raise LedgerUnwritable(
                f"the ledger {path} cannot be read yet: a process was killed while it wrote, and what it left half-way "
                f"({path.name}-journal) cannot be rolled back by this user. Nothing is lost: run this as the ledger's "
                f"owner, or start the guard, which rolls it back."
            ) from problem
        if code in _UNWRITABLE:
            raise LedgerUnwritable(
                f"the ledger {path} cannot be used, {_UNWRITABLE[code]} ({problem}): nothing more was recorded, "
                f"and what cannot be recorded is not released."
            ) from problem
        raise LedgerDamaged(
            f"the ledger {path} is damaged ({problem}): nothing is released; restore the newest backup and adopt the "
            f"last head that a server or peer holds."
        ) from problem


def is_hot_journal(problem: BaseException | None) -> bool:
    """Whether a writer was killed half-way, and this reader may not roll back what it left."""
    return _code(problem) == _HOT_JOURNAL


def stored_bytes(value: object, path: Path) -> bytes:
    """Bytes as they were written; SQLite gives a number where damage made it one."""
    if not isinstance(value, bytes):
        raise LedgerDamaged(f"the ledger {path} holds {type(value).__name__} where bytes were written: it is damaged.")
    return value


def _code(problem: BaseException | None) -> int:
    return getattr(problem, "sqlite_errorcode", 0)
