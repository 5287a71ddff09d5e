"""Exports: all entries of a ledger as text, and their verification anywhere.

The first line names the format; then each entry has a line of its hash in hexadecimal, a tab and the entry's own line;
the last line is ``HEAD``, a tab and the signed head. Replies are not exported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lrdp import files
from lrdp.errors import InvalidInput, LedgerDamaged, LedgerRolledBack
from lrdp.ledger.books import Books
from lrdp.ledger.heads import Head
from lrdp.ledger.ledger import Ledger
from lrdp.ledger.store import Store
from lrdp.ledger.texts import LONGEST_LINE

HEADER: Final = b"lrdp-ledger-export-1"
_SQLITE: Final = b"SQLite format 3\x00"
_LONGEST_ROW: Final = LONGEST_LINE + 128  # a hash, a tab, an entry and the line's end


@dataclass(frozen=True, kw_only=True)
class VerifiedBooks:
    """Books whose every entry was checked; ``head`` is the signed head, None where the file holds none."""

    books: Books
    head: Head | None


def write_export(ledger: Ledger, path: Path) -> Head:
    """Write all entries and the current signed head to a new file of mode 0600."""
    head = ledger.head()
    try:
        with files.creating(path, files.OWNER_ONLY) as file:
            file.write(HEADER + b"\n")
            for seq, (line, digest) in enumerate(ledger.entries(), start=1):
                if seq <= head.seq:
                    file.write(digest.hex().encode() + b"\t" + line + b"\n")
            file.write(b"HEAD\t" + head.encode().encode() + b"\n")
    except FileExistsError:
        raise InvalidInput(f"there is a file at {path} already: it is not overwritten.") from None
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be written: {problem.strerror}.") from None
    return head


def verify_export(path: Path) -> VerifiedBooks:
    """Check every entry of a ledger or of an export, without keys and without a policy.

    >>> from tempfile import TemporaryDirectory
    >>> from lrdp.accounting import Budget, Training
    >>> from lrdp.ledger import Holder, Home, open_budget, write_policy
    >>> plan = Training(
    ...     dataset_size=5000, batch_size=128, rounds=50, local_steps=10, budget=Budget(epsilon=4.0, delta=1e-6)
    ... )
    >>> with TemporaryDirectory() as folder:
    ...     home, export = Home(folder=Path(folder)), Path(folder) / "export.txt"
    ...     write_policy(home, Holder(client="hospital-a", unit="patient", max_rows_per_unit=1), plan)
    ...     with open_budget(home) as ledger:
    ...         signed = write_export(ledger, export)
    ...     verified = verify_export(export)
    >>> verified.books.opened.client, verified.head == signed
    ('hospital-a', True)

    Raises:
        LedgerDamaged: naming the first entry that is not as it was written, or what is wrong with the head.
        InvalidInput: for a file that is neither.
    """
    try:
        with files.opened(path) as file:
            start = file.read(max(len(_SQLITE), len(HEADER)))
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be read: {problem.strerror}.") from None
    if start.startswith(HEADER):
        return _verified_export(path)
    if start.startswith(_SQLITE):
        return _verified_ledger(path)
    raise LedgerDamaged(f"{path} is neither a ledger nor an export of one: it begins with {start[:16]!r}.")


def digests_at(path: Path, seqs: set[int]) -> dict[int, str]:
    """The hashes of some entries of a verified ledger or export, in hexadecimal."""
    with files.opened(path) as file:
        is_export = file.read(len(HEADER)) == HEADER
    if is_export:
        return {seq: digest.decode() for seq, (digest, _) in enumerate(_pairs(path), start=1) if seq in seqs}
    with closing(Store(path, read_only=True)) as store:
        found = {seq: store.digest_at(seq) for seq in seqs}
    return {seq: digest for seq, digest in found.items() if digest is not None}


def check_key_known(verified: VerifiedBooks, key: str | None) -> None:
    """Raise LedgerDamaged where another key than this one signs for the books, now and before."""
    books = verified.books
    if key is not None and key not in (books.opened.client_key, *(each.key for each in books.successors)):
        raise LedgerDamaged(
            f"these books are signed by the key {books.client_key[:16]}…, not by {key[:16]}…: they are somebody "
            f"else's, or older than that key: then the one before is theirs, which `rotate-key` left beside it."
        )


def check_heads(path: Path, verified: VerifiedBooks, heads: Sequence[Head]) -> None:
    """Raise LedgerRolledBack where the books of ``path`` do not contain a head that they signed."""
    digests = digests_at(path, {head.seq for head in heads})
    for head in heads:
        if not head.is_signed_by(verified.books.opened.client_key):
            raise InvalidInput("the head was not signed with this ledger's key: nothing follows from it.")
        if digests.get(head.seq) != head.digest and head.digest not in verified.books.known_points:
            raise LedgerRolledBack(
                f"these books do not contain entry {head.seq} that they signed: a backup was restored or the "
                f"machine was cloned; see `lrdp ledger adopt-head`."
            )


def _verified_ledger(path: Path) -> VerifiedBooks:
    books = Books()
    with closing(Store(path, read_only=True)) as store, closing(store.entries()) as entries:
        books.extend(entries)
    return VerifiedBooks(books=books.begun(), head=None)


def _verified_export(path: Path) -> VerifiedBooks:
    books = Books()
    head = b""

    def entries() -> Iterator[tuple[bytes, bytes]]:
        nonlocal head
        for seq, (digest, line) in enumerate(_pairs(path), start=1):
            if head:
                raise LedgerDamaged(f"{path} goes on after its head: something was added to it.")
            if digest == b"HEAD":
                head = line
            else:
                yield line, _hash(digest, seq)

    books.extend(entries())
    return VerifiedBooks(books=books, head=_checked_head(head, books.begun(), path))


def _pairs(path: Path) -> Iterator[tuple[bytes, bytes]]:
    try:
        with files.opened(path) as file:
            rows = files.lines(file, _LONGEST_ROW)
            if next(rows, b"") != HEADER + b"\n":
                raise LedgerDamaged(f"{path} does not begin with the line {HEADER.decode()}: it was changed.")
            for row in rows:
                digest, _, line = row.rstrip(b"\n").partition(b"\t")
                yield digest, line
    except OSError as problem:
        raise LedgerDamaged(f"{path} cannot be read: {problem.strerror}.") from None


def _hash(digest: bytes, seq: int) -> bytes:
    try:
        return bytes.fromhex(digest.decode("ascii"))
    except ValueError:
        raise LedgerDamaged(f"entry {seq} of the export has no hash: the file was cut or changed.") from None


def _checked_head(text: bytes, books: Books, path: Path) -> Head:
    if not text:
        raise LedgerDamaged(f"{path} does not end with a signed head: its tail was cut off.")
    try:
        head = Head.decode(text.decode("ascii", "replace"))
    except InvalidInput as problem:
        raise LedgerDamaged(f"{path} ends with a damaged head: {problem}") from None
    if (head.ledger, head.seq, head.digest) != (books.opened.ledger, books.seq, books.digest.hex()):
        raise LedgerDamaged(
            f"{path} ends at entry {books.seq} but its head is of entry {head.seq}: entries are missing or not its own."
        )
    followed = list(head.successors) == books.successors
    if head.steps != books.charges.steps or not followed or not head.is_signed_by(books.opened.client_key):
        raise LedgerDamaged(f"{path} has a head that the client's key did not sign.")
    return head
