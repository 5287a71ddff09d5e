"""What people do, and sign: void a charge and adopt a head with the administrator's key, rotate the client's key."""

from __future__ import annotations

from lrdp.accounting import Mechanism, costliest_of
from lrdp.errors import InvalidInput
from lrdp.ledger import events
from lrdp.ledger.books import Books, adopt_message, void_message
from lrdp.ledger.charges import State
from lrdp.ledger.heads import MOST_ROTATIONS, Head, rotation_message
from lrdp.ledger.key_files import SigningKey
from lrdp.ledger.ledger import Ledger, system_clock
from lrdp.ledger.policy import Policy
from lrdp.ledger.policy_file import parse_policy


def void(ledger: Ledger, charge: int, reason: str, administrator: SigningKey) -> None:
    """Record that nothing of a charge left the machine, so that it no longer counts; the history stays.

    Guarantees: only a charge without a reply can be voided, and its receipt then stores none. That nothing else left is
    the administrator's word, with a name under it: software cannot know it, so no refund is automatic.
    """
    books = ledger.books
    _check_administrator(books, administrator)
    state = books.charges.states.get(charge)
    if state is not State.RESERVED:
        raise InvalidInput(
            f"entry {charge} must be a charge without a reply, and is {state.value if state else 'no charge'}: what "
            f"may have left the machine is never voided, and nothing was changed."
        )
    if not (reason.strip() and reason.isprintable()):
        raise InvalidInput(f"reason must say in printable words why nothing left the machine, got {reason[:40]!r}.")
    signature = administrator.sign(void_message(books.opened.ledger, charge, reason))
    ledger.record_signed(events.Voided(system_clock(), charge, reason, signature))


def adopt_head(ledger: Ledger, head: Head, administrator: SigningKey) -> events.Adopted:
    """Charge what is missing below a head at the worst case of every policy known, and go on.

    Guarantees: every step on the head's chain beyond the newest point that was charged here is charged now, as a step
    that dominates every one that this or any earlier policy in these books allowed. The charge may exceed the budget;
    then all that follows is refused.
    """
    books = ledger.books
    _check_administrator(books, administrator)
    if not head.is_signed_by(books.opened.client_key):
        raise InvalidInput("the head was not signed with this ledger's key: there is nothing to adopt.")
    if ledger.contains(books, head.points[0]):
        raise InvalidInput(f"entry {head.seq} of the head is in these books already: there is nothing to adopt.")
    charged = max((point.steps for point in head.points if ledger.contains(books, point)), default=0)
    steps = head.steps - charged
    mechanism = _costliest(books, ledger.policy)
    signature = administrator.sign(adopt_message(head, mechanism, steps))
    adopted = events.Adopted(system_clock(), head.encode(), mechanism, steps, signature)
    ledger.record_signed(adopted)
    return adopted


def rotate_key(ledger: Ledger, old: SigningKey, new: SigningKey) -> None:
    """Let a new key sign from here on; open the ledger anew with it.

    Guarantees: only the key in force can hand over. Heads that the old one signed still count against these books, also
    if they were signed later: a stolen key can make a ledger stop, never make it forget.
    """
    books = ledger.books
    if new.public in (books.opened.client_key, *(successor.key for successor in books.successors)):
        raise InvalidInput("the new key signed for this ledger before: make another one.")
    if len(books.successors) >= MOST_ROTATIONS:
        raise InvalidInput(f"a ledger's key is rotated at most {MOST_ROTATIONS} times: each makes every head longer.")
    signature = old.sign(rotation_message(books.opened.ledger, books.client_key, new.public))
    ledger.record_signed(events.Rotated(system_clock(), new.public, signature))


def _costliest(books: Books, policy: Policy) -> Mechanism:
    """A step that costs at least as much as each that some policy in these books allowed."""
    policies = [policy, *(parse_policy(past.text, source="an earlier policy") for past in books.policies)]
    return costliest_of(rule.mechanism.costliest for rule in policies)


def _check_administrator(books: Books, key: SigningKey) -> None:
    if key.public != books.opened.administrator_key:
        raise InvalidInput(
            "the key is not that of this ledger's administrator: only that one may do this, and nothing was changed."
        )
