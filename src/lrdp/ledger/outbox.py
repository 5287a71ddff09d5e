"""The outbox: the noised bytes as they were stored, to be sent again and never noised again."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from heapq import nlargest
from shutil import disk_usage
from typing import Final

from lrdp.errors import InvalidInput, LedgerDamaged, LedgerUnwritable
from lrdp.ledger.books import Books
from lrdp.ledger.charges import State
from lrdp.ledger.heads import Head
from lrdp.ledger.journal import Journal
from lrdp.ledger.store import Store

KEPT_REPLIES: Final = 4
"""Replies that were sent and whose bytes are kept for a server that asks again; of older ones the hash remains."""
_FOR_THE_JOURNAL: Final = 1 << 20
"""Bytes that must be free on the disk before a charge, and one in 256 of the reply's: SQLite notes old pages there."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The bytes that answer a charge, and the signed head that travels with them."""

    charge: int
    body: bytes
    head: str


def stored_reply(store: Store, books: Books, charge: int) -> Reply | None:
    """The reply to a charge, as it was stored; None if it was sent long ago.

    Raises:
        LedgerDamaged: if it is not as it was stored, or is gone though it was never sent.
    """
    stored = store.reply(charge)
    if stored is None:
        if books.charges.states[charge] is State.READY:
            raise LedgerDamaged(f"the reply to entry {charge} is gone though it was never sent: nothing is released.")
        if charge in nlargest(
            KEPT_REPLIES, (sent for sent, state in books.charges.states.items() if state is State.SENT)
        ):
            raise LedgerDamaged(f"the reply to entry {charge} is gone though it was sent lately: nothing is released.")
        return None
    head, body = stored
    if not _vouched(head, books.opened.client_key) or sha256(body).hexdigest() != books.charges.replies[charge]:
        raise LedgerDamaged(f"the stored reply to entry {charge} is not as it was stored: it is not sent.")
    return Reply(charge=charge, body=body, head=head)


def make_room(store: Store, journal: Journal, size: int) -> None:
    """Free pages in the file for a reply of ``size`` bytes, before it is charged for.

    Guarantees: a disk that fills up after the charge still takes the reply, but for a journal of few pages. This does
    not hold where a file system writes in new places (btrfs, ZFS); processes that train at the same time on one ledger
    share the room.

    Raises:
        LedgerUnwritable: if there is no such room; nothing is charged.
    """
    try:
        with journal.transaction() as books:
            _let_go(store, books)
            store.free_room()  # of a process that was killed below
            put = store.put_room(size)
        if put:
            with store.writing():
                store.free_room()
    except LedgerUnwritable as problem:
        raise LedgerUnwritable(f"{problem} {_nothing_spent(store, size)}") from problem
    if disk_usage(store.path.parent).free < _FOR_THE_JOURNAL + size // 256:
        raise LedgerUnwritable(
            f"the ledger {store.path} cannot be used, the disk is full. {_nothing_spent(store, size)}"
        )


def _nothing_spent(store: Store, size: int) -> str:
    return f"Nothing was spent: a round is charged once {store.path.parent} has room for its reply of {size} bytes."


def store_reply(store: Store, books: Books, reply: Reply) -> None:
    """Within a transaction: keep a reply, and let go of those that were sent long ago."""
    store.put_reply(reply.charge, reply.head, reply.body)
    _let_go(store, books)


def _let_go(store: Store, books: Books) -> None:
    sent = [charge for charge in store.kept_replies() if books.charges.states.get(charge) is State.SENT]
    store.drop_replies(sent[:-KEPT_REPLIES])


def _vouched(head: str, key: str) -> bool:
    try:
        return Head.decode(head).is_signed_by(key)
    except InvalidInput:
        return False
