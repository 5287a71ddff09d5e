"""The journal: a store and its books, kept in step with each other.

What other processes appended is read and checked before anything is said of the books; what is appended is folded in at
once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from lrdp.errors import LedgerRolledBack
from lrdp.ledger import events
from lrdp.ledger.books import Books
from lrdp.ledger.chain import link
from lrdp.ledger.store import Store


class Journal:
    """Entries on disk, and what they say. Use one per thread; processes may share the file."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._books: Books | None = None

    @contextmanager
    def now(self) -> Iterator[Books]:
        """The books as of now."""
        with self._fresh():
            yield self._caught_up()

    @contextmanager
    def moment(self) -> Iterator[Books]:
        """Books and outbox as of one moment: otherwise what another process sends and drops meanwhile looks lost."""
        with self._fresh(), self._store.moment():
            yield self._caught_up()

    @contextmanager
    def transaction(self) -> Iterator[Books]:
        """The books, to which nobody else appends meanwhile; on disk as a whole, or not at all."""
        with self._fresh(), self._store.writing():
            yield self._caught_up()

    @contextmanager
    def _fresh(self) -> Iterator[None]:
        """What failed half-way is read again from the disk the next time."""
        try:
            yield
        except BaseException:
            self._books = None
            raise

    def record(self, event: events.Event) -> None:
        """Append one entry, within a transaction."""
        books = self._books or Books()
        line = events.encode(event)
        digest = link(books.digest, line)
        self._store.append(books.seq + 1, line, digest)
        books.append(line, digest)
        self._books = books

    def _caught_up(self) -> Books:
        """The books with what other processes appended, each link checked."""
        books = self._books or Books()
        if books.seq and self._store.digest_at(books.seq) != books.digest.hex():
            raise LedgerRolledBack(f"entry {books.seq} has gone or changed since it was read: nothing is released.")
        with closing(self._store.entries(after=books.seq)) as entries:
            books.extend(entries)
        self._books = books
        return books
