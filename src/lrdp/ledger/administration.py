"""What people do, and sign: with the administrator's key void, adopt, raise and close; rotate the client's key."""

from __future__ import annotations

from typing import Final

from lrdp.errors import InvalidInput
from lrdp.ledger import events
from lrdp.ledger.books import Books, adopt_message, close_message, raise_message, void_message
from lrdp.ledger.charges import State
from lrdp.ledger.heads import MOST_ROTATIONS, Head, rotation_message
from lrdp.ledger.key_files import SigningKey
from lrdp.ledger.ledger import Ledger, system_clock
from lrdp.ledger.signing import costliest_allowed

_LONGEST_REASON: Final = 400


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
    _check_reason(reason, "nothing left the machine")
    signature = administrator.sign(void_message(books.opened.ledger, charge, reason))
    ledger.record_signed(events.Voided(system_clock(), charge, reason, signature))


def adopt_head(ledger: Ledger, head: Head, administrator: SigningKey) -> events.Adopted:
    """Charge what is missing below a head at the worst case of every policy known, and go on.

    Guarantees: every step on the head's chain beyond the newest point that was charged here is charged now, as a step
    that dominates every one that a policy in these books, or on the head's chain, allowed. The charge may exceed the
    budget; then all that follows is refused. (A head of the first form says nothing of the policies on its chain: one
    that allowed more than these books know must then be the one in force here.)
    """
    books = ledger.books
    _check_administrator(books, administrator)
    if not head.is_signed_by(books.opened.client_key):
        raise InvalidInput("the head was not signed with this ledger's key: there is nothing to adopt.")
    if ledger.contains(books, head.points[0]):
        raise InvalidInput(f"entry {head.seq} of the head is in these books already: there is nothing to adopt.")
    charged = max((point.steps for point in head.points if ledger.contains(books, point)), default=0)
    steps = head.steps - charged
    mechanism = costliest_allowed(books, head)
    signature = administrator.sign(adopt_message(head, mechanism, steps))
    adopted = events.Adopted(system_clock(), head.encode(), mechanism, steps, signature)
    ledger.record_signed(adopted)
    return adopted


def raise_budget(ledger: Ledger, reason: str, administrator: SigningKey) -> events.Raised:
    """Let the budget be what the policy in force states, which is more than before; both stay in the books.

    Guarantees: by Theorem 7 of docs/accounting.md all that is admitted is private at the budget in force when it was
    admitted, even if somebody who saw the answers decided to raise it. If whoever decides looked at the records, no
    theorem covers it.
    """
    books, epsilon = ledger.books, ledger.policy.budget.total.epsilon
    _check_administrator(books, administrator)
    _check_reason(reason, "the budget is raised")
    if objection := books.objection_to_raising(epsilon):
        raise InvalidInput(
            f"the budget cannot be raised to the ε={epsilon} that {ledger.policy.where('budget.epsilon')} states: "
            f"{objection}; the budget stays as it was."
        )
    signature = administrator.sign(raise_message(books.opened.ledger, books.budget, epsilon, reason))
    raised = events.Raised(system_clock(), epsilon, reason, signature)
    ledger.record_signed(raised)
    return raised


def end_participation(ledger: Ledger, reason: str, administrator: SigningKey) -> None:
    """Close the ledger: every request is refused from here on, for good; what was spent stays in the books."""
    books = ledger.books
    _check_administrator(books, administrator)
    _check_reason(reason, "the participation ends")
    if books.closed is not None:
        raise InvalidInput("the ledger was closed before: nothing was changed.")
    signature = administrator.sign(close_message(books.opened.ledger, reason))
    ledger.record_signed(events.Closed(system_clock(), reason, signature))


def rotate_key(ledger: Ledger, old: SigningKey, new: SigningKey) -> None:
    """Let a new key sign from here on; open the ledger again with it.

    Guarantees: only the key in force can hand over. Heads that the old one signed still count against these books, even
    if they were signed later: a stolen key can make a ledger stop, never make it forget.
    """
    books = ledger.books
    if new.public in (books.opened.client_key, *(successor.key for successor in books.successors)):
        raise InvalidInput("the new key signed for this ledger before: make another one.")
    if len(books.successors) >= MOST_ROTATIONS:
        raise InvalidInput(f"a ledger's key is rotated at most {MOST_ROTATIONS} times: each makes every head longer.")
    signature = old.sign(rotation_message(books.opened.ledger, books.client_key, new.public))
    ledger.record_signed(events.Rotated(system_clock(), new.public, signature))


def _check_reason(reason: str, what: str) -> None:
    if not (reason.strip() and reason.isprintable() and len(reason) <= _LONGEST_REASON):
        raise InvalidInput(
            f"reason must say in 1 to {_LONGEST_REASON} printable characters why {what}, got {reason[:40]!r}: nothing "
            f"was changed."
        )


def _check_administrator(books: Books, key: SigningKey) -> None:
    if key.public != books.opened.administrator_key:
        raise InvalidInput(
            "the key is not that of this ledger's administrator: only that one may do this, and it was not done."
        )
