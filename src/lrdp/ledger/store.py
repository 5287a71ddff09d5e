"""The file: SQLite with durable settings, appended to and never changed.

``journal_mode=DELETE`` leaves one file at rest, which survives being copied; ``synchronous=EXTRA`` makes a commit last
through a power cut. Triggers forbid changing history by mistake; the chain shows it if someone does so on purpose.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Final

from lrdp import files
from lrdp.errors import InvalidInput, LedgerDamaged, LedgerRolledBack, LedgerUnwritable
from lrdp.ledger.events import FORMAT
from lrdp.ledger.sqlite_errors import explained, is_hot_journal, stored_bytes

APPLICATION_ID: Final = 0x4C524450  # "LRDP"
_FORMAT_OF_VERSION_0: Final = 1
"""SQLite's ``user_version`` counts from 0, and formats from 1: the file names the format that its first entry names."""
_SCHEMA: Final = (
    "CREATE TABLE entries (seq INTEGER PRIMARY KEY, line BLOB NOT NULL, digest BLOB NOT NULL)",
    "CREATE TABLE outbox (charge INTEGER PRIMARY KEY, head TEXT NOT NULL, reply BLOB NOT NULL)",
    "CREATE TABLE unlisted (refusal TEXT PRIMARY KEY, requests INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TRIGGER entries_in_order BEFORE INSERT ON entries "
    "WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM entries) "
    "BEGIN SELECT RAISE(ABORT, 'entries are appended in order'); END",
    "CREATE TRIGGER entries_unchanged BEFORE UPDATE ON entries "
    "BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END",
    "CREATE TRIGGER entries_kept BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'entries are never deleted'); END",
    "CREATE TRIGGER outbox_unchanged BEFORE UPDATE ON outbox "
    "BEGIN SELECT RAISE(ABORT, 'replies are never changed'); END",
)
_ROOM: Final = 0  # in the outbox, of no charge: entries count from 1
_SPARE_PAGES: Final = 8  # for the entries around a reply

Probe = Callable[[str], None]
"""Called at each write point with its name; tests kill the process there."""


def silent(_point: str) -> None:
    """The probe of every ledger but those under test."""


class Store:
    """One open file; ``entries`` are (line, digest) in order."""

    def __init__(self, path: Path, *, read_only: bool = False, probe: Probe = silent, patience: float = 30.0) -> None:
        self.path, self._probe = path, probe
        _size(path)
        try:
            self._sql = self._connected(read_only, patience)
        except LedgerUnwritable as problem:
            if not (read_only and is_hot_journal(problem.__cause__)):
                raise
            # A writer was killed half-way. What it left can be read once it is rolled back, and that is to write.
            # SQLite does so only where no process holds the writer's lock: a living one is never disturbed.
            try:
                self._connected(False, patience).close()
            except LedgerUnwritable:
                raise problem from problem.__cause__
            self._sql = self._connected(read_only, patience)
        self._inode = path.stat().st_ino

    @classmethod
    def create(cls, path: Path, *, probe: Probe = silent) -> Store:
        """A new file of mode 0600; an existing one is never touched."""
        refuse_existing(path)
        try:
            files.write_new(path, b"", files.OWNER_ONLY)
        except FileExistsError:
            raise _existing(path) from None
        except OSError as problem:
            raise LedgerUnwritable(f"the ledger {path} cannot be made: {problem.strerror}.") from None
        with explained(path):
            sql = sqlite3.connect(path, isolation_level=None)
            sql.execute("PRAGMA synchronous=EXTRA")
            sql.execute("BEGIN EXCLUSIVE")
            for statement in _SCHEMA:
                sql.execute(statement)
            sql.execute(f"PRAGMA application_id={APPLICATION_ID}")
            sql.execute(f"PRAGMA user_version={FORMAT - _FORMAT_OF_VERSION_0}")
            sql.execute("COMMIT")
            sql.close()
        files.sync_folder(path.parent)
        return cls(path, probe=probe)

    def _connected(self, read_only: bool, patience: float) -> sqlite3.Connection:
        uri = f"{self.path.absolute().as_uri()}?{'mode=ro' if read_only else 'mode=rw'}"
        with explained(self.path):
            sql = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=patience)
            try:
                self._prepare(sql, read_only)
            except BaseException:
                sql.close()
                raise
        return sql

    def _prepare(self, sql: sqlite3.Connection, read_only: bool) -> None:
        # A flipped bit may turn bytes into text that is none: bytes are taken as they are, and the chain decides.
        sql.text_factory = bytes
        sql.execute("PRAGMA trusted_schema=OFF")
        sql.execute("PRAGMA cell_size_check=ON")
        if not read_only:
            sql.execute("PRAGMA journal_mode=DELETE")
            sql.execute("PRAGMA synchronous=EXTRA")
        (version,) = sql.execute("PRAGMA user_version").fetchone()
        written = version + _FORMAT_OF_VERSION_0
        if written != FORMAT:
            raise LedgerDamaged(
                f"the file {self.path} is of format {written} and this release reads {FORMAT}: nothing was changed; "
                f"use the release that wrote it, or a later one."
            )
        sql.execute("BEGIN")
        whole = self._is_whole(sql)
        sql.execute("COMMIT")
        if not whole:
            raise LedgerDamaged(
                f"{self.path} is not a ledger, or not a whole one: its size, tables or triggers are not as made."
            )

    def _is_whole(self, sql: sqlite3.Connection) -> bool:
        """Within a transaction, so that no writer is half-way."""
        found = {made.decode() for (made,) in sql.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")}
        application, pages, page = (
            sql.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "page_count", "page_size")
        )
        # One bit of a page's count hides its last entries, and no chain misses its tail: the page's own sums do.
        (sound,), *_ = sql.execute("PRAGMA quick_check(entries)").fetchall()
        size = _size(self.path)
        if sound != b"ok":
            return False
        return application == APPLICATION_ID and found == set(_SCHEMA) and size % page == 0 and size >= pages * page

    def close(self) -> None:
        """Let go of the file."""
        self._sql.close()

    @contextmanager
    def moment(self) -> Iterator[None]:
        """All that is read in the block is of one moment; writers wait."""
        with explained(self.path):
            self._sql.execute("BEGIN")
            try:
                yield
            finally:
                self._sql.execute("ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction, the only writer; all of it is on disk when the block ends, or nothing."""
        self._refuse_replaced()
        with explained(self.path):
            self._sql.execute("BEGIN IMMEDIATE")
            self._probe("begun")
            try:
                yield
                self._probe("before commit")
                self._sql.execute("COMMIT")
                self._probe("committed")
            finally:
                if self._sql.in_transaction:
                    self._sql.execute("ROLLBACK")

    def entries(self, after: int = 0) -> Generator[tuple[bytes, bytes], None, None]:
        """The entries after number ``after``; close what is not read to the end, for it holds a lock."""
        with explained(self.path), closing(self._sql.cursor()) as cursor:
            yield from cursor.execute("SELECT line, digest FROM entries WHERE seq > ? ORDER BY seq", (after,))

    def digest_at(self, seq: int) -> str | None:
        """The hash of one entry in hexadecimal; None where there is none."""
        with explained(self.path):
            row = self._sql.execute("SELECT digest FROM entries WHERE seq = ?", (seq,)).fetchone()
        return None if row is None else stored_bytes(row[0], self.path).hex()

    def append(self, seq: int, line: bytes, digest: bytes) -> None:
        """Within ``writing``: one entry more."""
        self._sql.execute("INSERT INTO entries VALUES (?, ?, ?)", (seq, line, digest))
        self._probe("entry written")

    def put_reply(self, charge: int, head: str, reply: bytes) -> None:
        """Within ``writing``: keep the bytes that will be sent."""
        self._sql.execute("INSERT INTO outbox VALUES (?, ?, ?)", (charge, head, reply))
        self._probe("reply written")

    def reply(self, charge: int) -> tuple[str, bytes] | None:
        """The head and the bytes kept for a charge."""
        with explained(self.path):
            row = self._sql.execute("SELECT head, reply FROM outbox WHERE charge = ?", (charge,)).fetchone()
        if row is None:
            return None
        head, reply = (stored_bytes(value, self.path) for value in row)
        return head.decode(errors="replace"), reply

    def drop_replies(self, charges: list[int]) -> None:
        """Within ``writing``: forget bytes that were sent long ago; their hashes stay in the chain."""
        self._sql.executemany("DELETE FROM outbox WHERE charge = ?", [(charge,) for charge in charges])

    def put_room(self, size: int) -> bool:
        """Within ``writing``: zeros in the place of a reply that is still to come; False if free pages suffice for it.

        They are committed before they are freed: pages freed in the transaction that made them are holes in the file.
        """
        free, page = (self._sql.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_size"))
        if free >= size // (page - 4) + _SPARE_PAGES:  # each page of a long value names the next, in 4 bytes
            return False
        # More than is asked for, since entries take free pages too: the next reply of this size finds enough of them.
        self._sql.execute("INSERT INTO outbox VALUES (?, '', zeroblob(?))", (_ROOM, size + 4 * _SPARE_PAGES * page))
        return True

    def free_room(self) -> None:
        """Within ``writing``: turn those zeros into free pages. The next reply fills these, with hardly a journal."""
        (wiping,) = self._sql.execute("PRAGMA secure_delete").fetchone()
        # Zeros need no wiping, for which the journal would have to hold them all.
        self._sql.execute("PRAGMA secure_delete=OFF")
        try:
            self._sql.execute("DELETE FROM outbox WHERE charge = ?", (_ROOM,))
        finally:
            self._sql.execute(f"PRAGMA secure_delete={wiping}")

    def kept_replies(self) -> list[int]:
        """The charges whose bytes are kept."""
        with explained(self.path):
            return [charge for (charge,) in self._sql.execute("SELECT charge FROM outbox ORDER BY charge")]

    def count_unlisted(self, refusal: str) -> int:
        """Within ``writing``: one more request refused without an entry; how many there are by now."""
        self._sql.execute(
            "INSERT INTO unlisted VALUES (?, 1) ON CONFLICT (refusal) DO UPDATE SET requests = requests + 1", (refusal,)
        )
        return int(self._sql.execute("SELECT sum(requests) FROM unlisted").fetchone()[0])

    def take_unlisted(self) -> list[tuple[str, int]]:
        """Within ``writing``: what was counted, by reason; counting starts over."""
        rows = self._sql.execute("SELECT refusal, requests FROM unlisted ORDER BY refusal").fetchall()
        if rows:
            self._sql.execute("DELETE FROM unlisted")
        return [(str(refusal, "utf-8", "replace"), int(requests)) for refusal, requests in rows]

    def copy_to(self, path: Path) -> None:
        """A consistent copy of a live ledger, by SQLite's backup; whole, or not there.

        To restore it later is a rollback, and is noticed.
        """
        refuse_existing(path)
        begun = path.with_name(f".{path.name}.{token_hex(4)}")  # all that is left where the process is killed
        try:
            with closing(Store.create(begun)) as target, explained(path):
                self._sql.backup(target._sql)
            files.publish(begun, path)
        finally:
            unmake(begun)

    def _refuse_replaced(self) -> None:
        try:
            inode = self.path.stat().st_ino
        except OSError:
            inode = -1
        if inode != self._inode:
            raise LedgerRolledBack(
                f"{self.path} was replaced or removed while it was open: what is written to the old file is lost, so "
                f"nothing is written; stop every process and run `lrdp ledger verify`."
            )


def refuse_existing(path: Path) -> None:
    """Raise where something is there already: before anything is begun, so that only one's own file is unmade."""
    if os.path.lexists(path):
        raise _existing(path)


def _existing(path: Path) -> InvalidInput:
    return InvalidInput(f"there is a file at {path} already: a ledger is never overwritten.")


def unmake(path: Path) -> None:
    """Remove a file that was begun and could not be finished, so that it can be begun again.

    SQLite's journal goes too: it would be played back into the ledger that is made next.
    """
    for begun in (path, path.with_name(f"{path.name}-journal")):
        with suppress(OSError):
            begun.unlink()


def _size(path: Path) -> int:
    try:
        found = path.stat()
    except FileNotFoundError:
        raise InvalidInput(f"there is no ledger at {path}: make one with `lrdp init`, or name where it is.") from None
    except OSError as problem:
        raise LedgerUnwritable(f"the ledger {path} cannot be used: {problem.strerror}.") from None
    if not stat.S_ISREG(found.st_mode):
        raise InvalidInput(f"{path} is not a regular file, so it is not a ledger: name the file that `lrdp init` made.")
    return found.st_size
