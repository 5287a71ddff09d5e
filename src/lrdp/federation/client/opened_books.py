"""A client's ledger, opened for its session: the books that the session knows, or others, which the session is told of.

A session numbers updates as the ledger does. So it keeps the ledger's last head: books that were restored from a backup
or opened anew give the same numbers to other updates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress

from lrdp.errors import InvalidInput
from lrdp.federation.client.home import ClientHome
from lrdp.federation.client.standing import Standing
from lrdp.ledger import Head, Ledger


@contextmanager
def opened_books(home: ClientHome, standing: Standing, heads: Sequence[str] = ()) -> Iterator[Ledger]:
    """The ledger, once it has seen the ``heads`` that were handed back, and the last one that was kept here.

    Guarantees: books that do not contain a head which they signed stop everything, whoever holds it, and nothing leaves
    that is not in them.

    Raises:
        LedgerRolledBack: where they do not contain one.
    """
    with closing(home.ledger()) as ledger:
        kept = standing.head()
        for head in (kept, *heads):
            with suppress(InvalidInput):
                ledger.witness(Head.decode(head))
        if not (_continues(ledger, kept) or standing.predates_heads()):
            standing.turn_to_other_books(home.identity(), ledger.books.seq)
            standing.keep_head(ledger.head().encode())
        yield ledger
        standing.keep_head(ledger.head().encode())


def _continues(ledger: Ledger, kept: str) -> bool:
    """Whether these are the books that the session knows; where it does not say which, they are not."""
    try:
        return ledger.continues(Head.decode(kept))
    except InvalidInput:
        return False
