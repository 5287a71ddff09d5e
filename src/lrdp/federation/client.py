"""A client in a federation: the one place that decides what leaves it.

The order is *validate → charge → sample → clip → noise → commit → send*; :meth:`Participant.work` is it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from lrdp.errors import AlreadyAnswered, InvalidInput, LedgerDamaged, NotVerified, Refused
from lrdp.federation.catching_up import Behind, agreed_session, caught_up, joined, last_verified
from lrdp.federation.frames import Frame, admit
from lrdp.federation.home import ClientHome
from lrdp.federation.layout import pack_values, unpack_values
from lrdp.federation.measuring import counting, private_accuracy
from lrdp.federation.messages import (
    NOWHERE,
    Accepted,
    Announcement,
    Answer,
    Closing,
    Decline,
    Done,
    Hello,
    Here,
    OwnTag,
    Work,
    read_message,
    to_frame,
)
from lrdp.federation.orders import Order
from lrdp.federation.pins import check_order_signed, check_pins
from lrdp.federation.standing import LeftSession, Standing
from lrdp.federation.task import Workbench
from lrdp.integrity import RoundReceipt, Verdict, Wire, client, quantise
from lrdp.integrity.messages import NONCE_SIZE
from lrdp.integrity.repeats import Repeats, same_roster, smaller_roster
from lrdp.integrity.verdicts import rejection
from lrdp.ledger import Head, Ledger, Reply
from lrdp.ledger.policy import Retries
from lrdp.ledger.receipt import Receipt as Paid
from lrdp.screen import visible
from lrdp.training import Task, Update, check_gradients, private_update

_LOG: Final = logging.getLogger("lrdp.client")
_OWN: Final = "an exception's text may tell about the data, so the server is told a constant"
_CODES: Final[dict[type[Exception], str]] = {
    Behind: "behind",
    LeftSession: "left",
    AlreadyAnswered: "answered",
    LedgerDamaged: "ledger",
    InvalidInput: "invalid",
}


@dataclass(frozen=True)
class Made:
    """A paid and noised update, and the round whose model it was trained from."""

    reply: Reply
    trained_from: int


def most_vectors(model_bytes: int) -> int:
    """Bytes of all vectors of a message: a sum of updates has twice those of a model."""
    return 2 * model_bytes


class Participant:
    """One client: bytes in, bytes out. What must outlast a message is on disk."""

    def __init__(self, home: ClientHome, bench: Workbench) -> None:
        self._home, self._bench = home, bench
        self._standing = Standing(home.folder / "session")
        self._accept = b""

    def handle(self, given: Frame) -> Frame:
        """The answer to a message; a refusal, whatever went wrong, is a constant."""
        self._accept = b""
        try:
            with self._standing.locked():
                return to_frame(self._answer(given))
        except Refused as refused:
            return self._declined(refused, str(refused.refusal.value))
        except NotVerified as found:
            return self._declined(found, str(found.verdict.value))
        except tuple(_CODES) as problem:
            return self._declined(problem, next(code for kind, code in _CODES.items() if isinstance(problem, kind)))
        except Exception as problem:  # noqa: BLE001 — see _OWN
            _LOG.exception("a message to %s failed; %s", self._home.folder.name, _OWN)
            return self._declined(problem, "failed")

    def _answer(self, given: Frame) -> Answer:
        policy = self._home.policy()
        self._bench.set_up(policy)
        admit(given.sizes, most_vectors(policy.model.max_bytes))
        question: Any = read_message(given)
        answers: dict[type, Callable[[Any], Answer]] = {
            Hello: self.hello,
            Work: self.work,
            Announcement: self.announcement,
            Closing: self.closing,
        }
        if type(question) not in answers:
            raise InvalidInput(f"{type(question).__name__} is an answer: a client is asked questions.")
        return answers[type(question)](question)

    def hello(self, hello: Hello) -> Here:
        """Enter the session, if it is as the policy pins it and its model is the client's own."""
        identity, proposed = self._home.identity(), to_frame(hello).head
        session = agreed_session(hello, self._home.policy(), identity, self._bench.layout)
        if not self._standing.is_in(session.digest):
            self._standing.enter(session.digest, proposed)
        state, here = self._standing.load(identity), Here(name=identity.name, round=0, head=NOWHERE)
        if state is not None:
            position = last_verified(state).position
            here = replace(here, round=position.round, head=position.head, accept=self._standing.accepted())
        return replace(here, signature=identity.sign(*here.claim(session.digest)))

    def work(self, work: Work) -> Done:
        """One private update: *validate → charge → sample → clip → noise → commit → send*."""
        ready = self._up_to_date(work)
        check_pins(ready.position.session, self._home.policy())  # also if the policy changed since the greeting
        check_order_signed(ready.position, work.order, work.signature)
        begun = client.begin(ready, Wire(ready.position).read_train(work.train)) if work.train else None
        with closing(self._home.ledger()) as ledger:
            self._witness(ledger, work.heads)
            order = Order.decode(work.order) if work.order else None
            made = self._waiting(ledger) if order is None else self._made(ledger, order, ready)
            answer = Done(trained_from=made.trained_from, head=made.reply.head, accept=self._accept)
            if order is not None and order.metrics:
                ledger.sent(made.reply)
                return replace(answer, values=made.reply.body)
            if begun is None:
                self._standing.wait_with(made.reply.charge, made.trained_from)
                return answer
            values = unpack_values(made.reply.body, ready.position.session.parameters.point)
            bound = client.commit(begun, values, os.urandom(NONCE_SIZE), update=made.reply.charge)
            committed, update = client.reveal(bound, repeats=self._repeats())
            self._standing.save(committed)
            ledger.sent(made.reply)
        return replace(answer, update=Wire(ready.position).update(update), values=made.reply.body)

    def _witness(self, ledger: Ledger, heads: tuple[str, ...]) -> None:
        """A head that this ledger signed and does not contain stops everything; from any other nothing follows."""
        for head in heads:
            with suppress(InvalidInput):
                ledger.witness(Head.decode(head))

    def _made(self, ledger: Ledger, order: Order, ready: client.Ready) -> Made:
        """What was ordered: from the outbox if it was made before, or else paid for and made now."""
        policy = self._home.policy()
        request = order.request(policy, ready.position, ready.model)
        reply = ledger.reply_to(request)
        if reply is None:
            self._bench.rehearse(policy)
            task = self._bench.task(request, order.learning_rate, ready.model)
            if order.metrics:
                task = counting(task, request.clip_norm)
            # Whatever would be refused once it is paid is refused here, on these very weights, and costs nothing.
            task = replace(task, checked=check_gradients(request.mechanism, task))
            receipt = ledger.charge(request)
            if order.metrics:
                body = private_accuracy(receipt, task)
            else:
                point = ready.position.session.parameters.point
                update = self._update(receipt, task)
                body = pack_values(quantise(self._bench.layout.flat(update.delta), point).values, point)
            reply = ledger.ready(receipt, body)
        return Made(reply, ready.position.round)

    def _update(self, receipt: Paid, task: Task) -> Update:
        """What was paid for. Studies alone put another in its place, whose randomness can be had again."""
        return private_update(receipt, task)

    def _waiting(self, ledger: Ledger) -> Made:
        charge, trained_from = self._standing.waiting()
        reply = ledger.reply_of(charge) if charge else None
        if reply is None:
            raise Behind("no update waits here: nothing was trained ahead, or it took part in a verified round.")
        return Made(reply, trained_from)

    def announcement(self, given: Announcement) -> OwnTag:
        """Check what the server published, and sign one's tag for it."""
        state = self._standing.load(self._home.identity())
        if not isinstance(state, client.Committed | client.Tagged):
            raise Behind("this client has committed to nothing that could be published.")
        wire = Wire(last_verified(state).position)
        publish = wire.read_publish(given.publish, given.aggregate or b"")
        if isinstance(state, client.Tagged) and state.header != publish.header:
            raise rejection(Verdict.STALE_CONTEXT, "another PUBLISH was answered in this attempt")
        committed = state.committed if isinstance(state, client.Tagged) else state
        tagged, tag = client.answer(committed, publish, self._repeats())
        word = RoundReceipt(header=publish.header, signature=publish.signature, tags=(tag,), accepts=())
        self._standing.answer(tagged, word.encode())
        return OwnTag(tag=wire.tag(tag))

    def _repeats(self) -> Repeats:
        """In which other sums the policy lets an update stand that was shown in one."""
        return {Retries.SAME_ROSTER: same_roster, Retries.SMALLER_ROSTER: smaller_roster}[
            self._home.policy().peers.retries
        ]

    def closing(self, given: Closing) -> Accepted:
        """Finish the round: everybody's tags prove the sum, and only now does the client move to the next model."""
        state = self._standing.load(self._home.identity())
        if not isinstance(state, client.Tagged):
            raise Behind("this client has signed no tag that is open.")
        self._settled(state, given.tags)
        return Accepted(accept=self._accept)

    def _settled(self, state: client.Tagged, tags: bytes) -> client.Ready:
        wire = Wire(state.ready.position)
        ready, accept = client.settle(state, wire.read_tags(tags, state.header))
        self._accept = wire.accept(accept)
        self._standing.accept(ready, self._accept)
        return ready

    def _up_to_date(self, work: Work) -> client.Ready:
        """The verified state to train from, after the round that the message ended."""
        identity = self._home.identity()
        state = self._standing.load(identity)
        if isinstance(state, client.Tagged) and work.tags:
            state = self._settled(state, work.tags)
        if work.model is None:
            if state is None:
                raise Behind("this client has no model: it needs the receipts from the first round on, and the model.")
            return last_verified(state)
        hello = read_message(Frame(self._standing.agreed() or b""))
        if not isinstance(hello, Hello):
            raise Behind("this client has not been greeted.")
        session = agreed_session(hello, self._home.policy(), identity, self._bench.layout)
        if state is not None:
            ready = caught_up(last_verified(state), work)
        else:
            ready = joined(identity, session, work, self._last_update())
        self._standing.save(ready)
        return ready

    def _last_update(self) -> int:
        with closing(self._home.ledger()) as ledger:
            return ledger.books.seq

    def _declined(self, problem: Exception, code: str) -> Frame:
        _LOG.warning("%s refused (%s): %s", self._home.folder.name, code, visible(str(problem)))
        return to_frame(Decline(code=code, accept=self._accept))
