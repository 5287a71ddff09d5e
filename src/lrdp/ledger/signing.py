"""Who signs for a ledger: the key in force, and the heads that it signs."""

from __future__ import annotations

from functools import lru_cache

from lrdp.accounting import Mechanism, costliest_of
from lrdp.errors import PolicyRefused
from lrdp.ledger.books import Books
from lrdp.ledger.heads import ChainPoint, Head
from lrdp.ledger.key_files import SigningKey
from lrdp.ledger.policy_file import parse_policy
from lrdp.ledger.refusals import Refusal
from lrdp.ledger.store import Store


def check_key(books: Books, key: SigningKey) -> None:
    """Raise if another key is in force."""
    if books.client_key != key.public:
        raise PolicyRefused(
            f"the key is not the one that signs for this ledger ({books.client_key[:16]}…): name that one, or open the "
            f"ledger again if its key was rotated just now.",
            Refusal.OTHER_LEDGER,
        )


def signed_head(store: Store, books: Books, key: SigningKey) -> Head:
    """The head of the books as they are: their end, and the entries 1, 2, 4, 8, … before it."""
    check_key(books, key)
    distances = [0] + [1 << power for power in range(books.seq.bit_length()) if 1 << power < books.seq]
    points = [
        ChainPoint(seq=seq, digest=store.digest_at(seq) or "", steps=books.steps_at[seq - 1])
        for seq in (books.seq - distance for distance in distances)
    ]
    head = Head(
        ledger=books.opened.ledger,
        generation=len(books.adopted),
        points=tuple(points),
        costliest=costliest_allowed(books),
        successors=tuple(books.successors),
    )
    return head.signed(key)


def costliest_allowed(books: Books, *heads: Head) -> Mechanism:
    """A step that costs at least as much as each that a policy allowed: in these books, or up to a head.

    Heads that were adopted before count as well: steps of theirs were charged here, and their policies are lost.
    """
    told = (head.costliest for head in (*books.adopted, *heads))
    return costliest_of([*(_costliest_in(past.text) for past in books.policies), *(step for step in told if step)])


@lru_cache(maxsize=1024)
def _costliest_in(policy: str) -> Mechanism:
    return parse_policy(policy, source="an earlier policy").mechanism.costliest
