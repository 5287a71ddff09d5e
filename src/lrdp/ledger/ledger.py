"""The ledger: pay, then release.

The order is *charge* (RESERVED) → train → *ready* (READY, the bytes on disk) → send → *sent* (SENT). A crash anywhere
leaves the charge standing; bytes that were ready are sent again as they are, and never noised again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Self

from lrdp.accounting import Filter, FilterAnswer, FilterRule, RenyiOrders
from lrdp.errors import InvalidInput, LedgerDamaged, LedgerRolledBack, ReceiptRefused
from lrdp.figures import AtMost
from lrdp.ledger import events, records
from lrdp.ledger.books import Books
from lrdp.ledger.charges import State
from lrdp.ledger.decisions import Decision, check_same_data, decide, tighter
from lrdp.ledger.heads import ChainPoint, Head
from lrdp.ledger.journal import Journal
from lrdp.ledger.key_files import SigningKey
from lrdp.ledger.outbox import Reply, make_room, store_reply, stored_reply
from lrdp.ledger.policy import Clipped, Policy
from lrdp.ledger.receipt import Receipt, issue
from lrdp.ledger.refusals import MOST_LISTED, Refusal
from lrdp.ledger.request import Request
from lrdp.ledger.signing import check_key, signed_head
from lrdp.ledger.store import Probe, Store, silent

Clock = Callable[[], int]


def system_clock() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


class Ledger:
    """One data set's books, open for charging under a policy. Use one per thread; processes may share the file.

    >>> from tempfile import TemporaryDirectory
    >>> from lrdp.accounting import Budget, Training
    >>> from lrdp.ledger import Holder, Home, ReceivedModel, open_budget, read_policy, write_policy
    >>> plan = Training(
    ...     dataset_size=5000, batch_size=128, rounds=50, local_steps=10, budget=Budget(epsilon=4.0, delta=1e-6)
    ... )
    >>> with TemporaryDirectory() as folder:
    ...     home = Home(folder=Path(folder))
    ...     write_policy(home, Holder(client="hospital-a", unit="patient", max_rows_per_unit=1), plan)
    ...     open_budget(home, plan_rounds=50).close()
    ...     key, policy = SigningKey.read(home.key), read_policy(home.policy)
    ...     with Ledger.open(home.ledger, policy=policy, key=key) as ledger:
    ...         request = Request(
    ...             run="run-1",
    ...             round=1,
    ...             model=ReceivedModel(digest="0" * 64, size=1000, largest_weight=0.5),
    ...             config_digest="1" * 64,
    ...             mechanism=ledger.policy.mechanism.costliest,
    ...             steps=10,
    ...             clip_norm=1.0,
    ...         )
    ...         receipt = ledger.charge(request)
    ...         receipt.steps, ledger.books.charges.steps, 0 < ledger.answer().guaranteed.epsilon < 4
    (10, 10, True)
    """

    def __init__(self, *, store: Store, policy: Policy, key: SigningKey, clock: Clock = system_clock) -> None:
        self._store, self.policy, self._key, self._clock = store, policy, key, clock
        self._journal = Journal(store)

    @classmethod
    def create(
        cls, path: Path, *, policy: Policy, key: SigningKey, administrator: str, rule: FilterRule | None = None
    ) -> Ledger:
        """Open the budget of a new data set; ``administrator`` is the public half of the administrator's key.

        Without a ``rule`` the filter is hedged around the policy's costliest step.
        """
        budget, adjacency = policy.budget.total, policy.budget.adjacency
        rule = rule or RenyiOrders.hedged(budget, adjacency, policy.mechanism.costliest)
        paid = Filter(rule=rule, budget=budget, adjacency=adjacency).guaranteed
        if not paid.epsilon <= budget.epsilon:
            raise InvalidInput(
                f"the slots cost ε={AtMost(paid.epsilon)}, above the budget of {budget.epsilon}: "
                f"nothing was opened; take fewer slots or more noise."
            )
        ledger = cls(store=Store.create(path), policy=policy, key=key)
        with ledger._journal.transaction():
            ledger._journal.record(records.opening(policy, key.public, administrator, rule, system_clock()))
            ledger._journal.record(events.PolicySet(system_clock(), policy.digest, policy.text))
        return ledger

    @classmethod
    def open(
        cls, path: Path, *, policy: Policy, key: SigningKey, clock: Clock = system_clock, probe: Probe = silent
    ) -> Ledger:
        """Read and check all entries, and put the policy in force.

        Raises:
            LedgerDamaged: if any entry is not as it was written.
            PolicyRefused: if the policy is for other data, or the key is not this ledger's.
        """
        ledger = cls(store=Store(path, probe=probe), policy=policy, key=key, clock=clock)
        try:
            ledger._put_in_force()
        except BaseException:
            ledger.close()
            raise
        return ledger

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._store.close()

    @property
    def books(self) -> Books:
        """What the entries say, as of now."""
        with self._journal.now() as books:
            return books

    def answer(self) -> FilterAnswer:
        """ε guaranteed and ε spent, recomputed from the entries."""
        books = self.books
        return books.filter(tighter(books.budget, self.policy.budget.total)).answer()

    def charge(self, request: Request, *, room: int = 0) -> Receipt:
        """Pay for a request; when this returns, the charge is on disk, and so is room for a reply of ``room`` bytes.

        Guarantees: there is no other way to a receipt, so nothing is noised that was not charged first.

        Raises:
            AlreadyAnswered: if the same request has its reply: see :meth:`reply_to`.
            BudgetExceeded, PolicyRefused: if it is refused; the refusal is recorded and costs nothing.
            LedgerDamaged: if the books cannot be trusted or written, or the disk has no room for the reply.
        """
        if room:
            make_room(self._store, self._journal, room)
        with self._journal.transaction() as books:
            check_key(books, self._key)
            decision = self._decided(books, request)
            if decision.after is not None:
                self._record_unlisted()
                self._journal.record(
                    records.reservation(request, decision.after, books.rule.accountant.name, self._clock())
                )
            entry = books.seq
        if decision.after is None:
            raise decision.error()
        return issue(
            mechanism=request.mechanism,
            steps=request.steps,
            clip_norm=request.clip_norm,
            request_key=request.key,
            entry=entry,
            by_unit=self.policy.identity.clipped is Clipped.UNITS,
        )

    def afford(self, request: Request) -> None:
        """Raise what :meth:`charge` would refuse with, and record it; otherwise nothing is written or spent."""
        with self._journal.transaction() as books:
            check_key(books, self._key)
            decision = self._decided(books, request)
        if decision.refusal is not None:
            raise decision.error()

    def _decided(self, books: Books, request: Request) -> Decision:
        """The decision; a refusal that is new is recorded."""
        decision = decide(books, self.policy, request)
        if decision.refusal and (request.key, decision.refusal) not in books.refusals.listed:
            self._decline(books, request, decision.refusal, decision.sentence)
        return decision

    def ready(self, receipt: Receipt, body: bytes) -> Reply:
        """Put the noised reply in the outbox; only what this returns may be sent."""
        if not receipt.redeemed:
            raise ReceiptRefused(f"the receipt of entry {receipt.entry} was not redeemed: nothing was trained on it.")
        with self._journal.transaction() as books:
            state, charge = books.charges.states.get(receipt.entry), books.charges.unanswered(receipt.entry)
            if state is None or (charge is not None and charge.key != receipt.request_key):
                raise ReceiptRefused(
                    f"entry {receipt.entry} is not the charge of this receipt: the receipt is of another ledger."
                )
            if charge is None:
                raise ReceiptRefused(
                    f"the charge of entry {receipt.entry} is {state.value}: its reply cannot be stored any more."
                )
            self._journal.record(events.ReplyReady(self._clock(), receipt.entry, sha256(body).hexdigest(), len(body)))
            reply = Reply(
                charge=receipt.entry, body=bytes(body), head=signed_head(self._store, books, self._key).encode()
            )
            store_reply(self._store, books, reply)
        return reply

    def sent(self, reply: Reply) -> None:
        """Record that the reply left; saying so twice changes nothing."""
        with self._journal.transaction() as books:
            state = books.charges.states.get(reply.charge)
            if state is State.READY:
                self._journal.record(events.Sent(self._clock(), reply.charge))
        if state not in (State.READY, State.SENT):
            raise InvalidInput(
                f"entry {reply.charge} has no reply that could have been sent: store it with ready() first."
            )

    def reply_to(self, request: Request) -> Reply | None:
        """The stored reply to a request asked again; None where none is stored (any more)."""
        with self._journal.moment() as books:
            charge = books.charges.answered.get(request.key)
            return None if charge is None else stored_reply(self._store, books, charge)

    def reply_of(self, charge: int) -> Reply | None:
        """The stored reply to a charge; None where none is stored (any more)."""
        with self._journal.moment() as books:
            return stored_reply(self._store, books, charge) if charge in books.charges.replies else None

    def unsent(self) -> list[Reply]:
        """The replies that were ready when the process died."""
        with self._journal.moment() as books:
            replies = [stored_reply(self._store, books, charge) for charge in books.charges.unsent]
        return [reply for reply in replies if reply is not None]

    def head(self) -> Head:
        """The current signed head."""
        with self._journal.now() as books:
            return signed_head(self._store, books, self._key)

    def witness(self, head: Head) -> None:
        """Look at a head that a server or a peer hands back; call for each, before charging.

        Raises:
            InvalidInput: if this ledger's key did not sign it.
            LedgerRolledBack: if these books do not contain it; from then on every request is refused.
        """
        with self._journal.transaction() as books:
            if not head.is_signed_by(books.opened.client_key):
                raise InvalidInput("the head was not signed with this ledger's key: nothing follows from it.")
            end = books.seq
            contained = self.contains(books, head.points[0])
            if not contained and books.suspended is None:
                self._journal.record(events.Suspended(self._clock(), head.encode()))
        if not contained:
            raise LedgerRolledBack(
                f"these books end at entry {end} and do not contain entry {head.seq} that they signed: a backup "
                f"was restored or the machine was cloned, so nothing is released; see `lrdp ledger adopt-head`."
            )

    def contains(self, books: Books, point: ChainPoint) -> bool:
        """Whether everything up to a point was charged here: it is in this chain, or was adopted."""
        return self._store.digest_at(point.seq) == point.digest or point.digest in books.known_points

    def continues(self, head: Head) -> bool:
        """Whether a head is in this very chain: these are the books that signed it, with all that they held then."""
        with self._journal.now():
            return self._store.digest_at(head.seq) == head.digest

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Every entry's line and hash."""
        return self._store.entries()

    def record_signed(self, event: events.Signed) -> None:
        """For :mod:`lrdp.ledger.administration`: append an event whose signature the books check."""
        with self._journal.transaction():
            self._journal.record(event)

    def _decline(self, books: Books, request: Request, refusal: Refusal, sentence: str) -> None:
        """Write a refusal in full, or count it: a server that invents requests must not fill the disk."""
        listed, total = books.refusals.since(len(books.charges.states))
        if listed < MOST_LISTED:
            self._journal.record(records.declined(request, refusal, sentence, self._clock()))
            return
        if self._store.count_unlisted(refusal.value) >= total:
            self._record_unlisted()

    def _record_unlisted(self) -> None:
        try:
            counted = [(Refusal(reason), requests) for reason, requests in self._store.take_unlisted()]
        except (TypeError, ValueError) as problem:
            raise LedgerDamaged(f"the refusals were not counted as they stand in the file: {problem}.") from None
        for refusal, requests in counted:
            self._journal.record(events.Unlisted(self._clock(), refusal, requests))

    def _put_in_force(self) -> None:
        with self._journal.transaction() as books:
            check_key(books.begun(), self._key)
            check_same_data(books, self.policy)
            if books.policies[-1].digest != self.policy.digest:
                self._journal.record(events.PolicySet(self._clock(), self.policy.digest, self.policy.text))
