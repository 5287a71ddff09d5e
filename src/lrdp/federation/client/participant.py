"""A client in a federation: the one place that decides what leaves it.

The order is *validate → charge → sample → clip → noise → commit → send*: see :meth:`Participant.contribute`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Final

from lrdp.errors import AlreadyAnswered, InvalidInput, LedgerDamaged, NotVerified, Refused
from lrdp.federation.client.catching_up import Behind, last_verified
from lrdp.federation.client.following import Follower
from lrdp.federation.client.home import ClientHome
from lrdp.federation.client.lineage import NotAMember
from lrdp.federation.client.local_task import Workbench
from lrdp.federation.client.masking import Masking, mask_key, most_vectors, require_clear
from lrdp.federation.client.opened_books import opened_books
from lrdp.federation.client.paying import Job, Made, MakeUpdate, Payer, unseen
from lrdp.federation.client.pins import allowed_repeats
from lrdp.federation.client.standing import LeftSession, Standing
from lrdp.federation.wire.disputing import Deposed, Dispute
from lrdp.federation.wire.frames import Frame, admit
from lrdp.federation.wire.layout import unpack_values
from lrdp.federation.wire.masked import AbleToMask, MaskedAnnouncement, Pledged, Pledging, Reveal, Revealed
from lrdp.federation.wire.orders import Order
from lrdp.federation.wire.questions import (
    NOWHERE,
    Able,
    Accepted,
    Announcement,
    Answer,
    CanYou,
    CatchUp,
    Closing,
    Contribute,
    Contributed,
    Count,
    Counted,
    Decline,
    HandIn,
    Hello,
    Here,
    OwnTag,
    Question,
    Sum,
    TrainAhead,
    TrainedAhead,
    Work,
    read_message,
    to_frame,
)
from lrdp.federation.wire.signing import check_order_signed
from lrdp.integrity import NONCE_SIZE, RoundReceipt, Wire, client, depose
from lrdp.ledger import Ledger
from lrdp.screen import visible
from lrdp.training import private_update

_LOG: Final = logging.getLogger("lrdp.client")
_OWN: Final = "an exception's text may tell about the data, so the server is told a constant"
_CODES: Final[dict[type[Exception], str]] = {
    Behind: "behind",
    LeftSession: "left",
    NotAMember: "no-member",
    AlreadyAnswered: "answered",
    LedgerDamaged: "ledger",
    InvalidInput: "invalid",
}


class Participant:
    """One client: bytes in, bytes out. What must outlast a message is on disk."""

    def __init__(self, home: ClientHome, bench: Workbench, update: MakeUpdate = private_update) -> None:
        self._home, self._bench, self._payer = home, bench, Payer(home, bench, update)
        self._standing = Standing(home.standing)
        self._follower = Follower(home, bench, self._standing)
        self._masking = Masking(home, self._standing, self._payer)

    def handle(self, given: Frame) -> Frame:
        """The answer to a message; a refusal, whatever went wrong, is a constant.

        A round that the message ends is accepted first: nothing wrong with the rest of it takes that back.
        """
        accept = b""
        try:
            with self._standing.locked():
                question = self._question(given)
                accept = self._accept(question)
                return to_frame(self._answer(question, accept))
        except Refused as refused:
            return self._declined(refused, str(refused.refusal.value), accept)
        except NotVerified as found:
            return self._declined(found, str(found.verdict.value), accept)
        except tuple(_CODES) as problem:
            code = next(code for kind, code in _CODES.items() if isinstance(problem, kind))
            return self._declined(problem, code, accept)
        except Exception as problem:  # noqa: BLE001 — see _OWN
            _LOG.exception("a message to %s failed; %s", self._home.folder.name, _OWN)
            return self._declined(problem, "failed", accept)

    def verified_rounds(self) -> int | None:
        """How many rounds this client has verified in the session that it is in; None where it is in none."""
        state = self._standing.load(self._home.identity())
        return None if state is None else last_verified(state).position.round

    def _question(self, given: Frame) -> Question:
        policy = self._home.policy()
        self._bench.set_up(policy)
        admit(given.sizes, most_vectors(policy))
        question = read_message(given)
        if not isinstance(question, Question):
            raise InvalidInput(f"{type(question).__name__} is an answer: a client is asked questions.")
        return question

    def _answer(self, question: Question, accept: bytes) -> Answer:
        answers: dict[type, Callable[[Any, bytes], Answer]] = {
            Hello: self.hello,
            Contribute: self.contribute,
            TrainAhead: self.train_ahead,
            HandIn: self.hand_in,
            Count: self.count,
            Pledging: self.pledging,
            Reveal: self.reveal,
            Announcement: self.announcement,
            MaskedAnnouncement: self.announcement,
            Closing: self.closing,
            CanYou: self.can_you,
            Dispute: self.dispute,
        }
        return answers[type(question)](question, accept)

    # --------------------------------------------------------------------------------------------- entering and ending
    def hello(self, hello: Hello, _accept: bytes) -> Here:
        """Enter the session, if it is as the policy pins it and its model is the client's own."""
        self._home.require_budget()
        identity, session = self._home.identity(), self._follower.entered(hello)
        state, here = self._standing.load(identity), Here(name=identity.name, round=0, tip=NOWHERE)
        if state is not None:
            position = last_verified(state).position
            here = replace(here, round=position.round, tip=position.tip, accept=self._standing.accepted())
        return replace(here, signature=identity.sign(*here.claim(session.digest)))

    def _accept(self, question: Question) -> bytes:
        """Finish the round that a question ends: everybody's tags prove the sum, and only now does the client move on.

        The ACCEPT to send, or nothing where no round ends.
        """
        tags = _tags_in(question)
        state = self._standing.load(self._home.identity()) if tags else None
        if not isinstance(state, client.Tagged):
            return b""
        wire = Wire(state.ready.position)
        ready, word = client.settle(state, wire.read_tags(tags, state.header))
        accept = wire.accept(word)
        self._standing.accept(ready, accept)
        return accept

    def closing(self, _given: Closing, accept: bytes) -> Accepted:
        """The ACCEPT of the round that these tags ended."""
        if not accept:
            raise Behind("this client has signed no tag that is open.")
        return Accepted(accept=accept)

    # ------------------------------------------------------------------------------------------------------------ work
    def contribute(self, asked: Contribute, accept: bytes) -> Contributed:
        """One private update: *validate → charge → sample → clip → noise → commit → send*."""
        with self._job(asked) as job:
            require_clear(job.ready)
            begun = client.begin(job.ready, Wire(job.ready.position).read_train(asked.invitation))
            return self._committed(job.ledger, begun, self._payer.trained(job), accept)

    def pledging(self, asked: Pledging, accept: bytes) -> Pledged:
        """The same where updates are masked: *… → noise → mask → commit*, and the commitment alone leaves."""
        with self._job(asked) as job:
            return replace(self._masking.pledged(job, asked), accept=accept)

    def reveal(self, asked: Reveal, _accept: bytes) -> Revealed:
        """*Send*, once everybody is bound: what leaves is masked for those who are, and for nobody else."""
        return self._masking.revealed(asked, allowed_repeats(self._home.policy()))

    def train_ahead(self, asked: TrainAhead, accept: bytes) -> TrainedAhead:
        """The same without the last two steps: the update waits for a round that it can be part of."""
        with self._job(asked) as job:
            made = unseen(job, *self._standing.waiting()) or self._payer.trained(job)
        self._standing.wait_with(made.reply.charge, made.trained_from)
        return TrainedAhead(trained_from=made.trained_from, head=made.reply.head, accept=accept)

    def hand_in(self, asked: HandIn, accept: bytes) -> Contributed:
        """The last two steps: *commit → send*."""
        with self._books(asked.since) as ledger:
            ready, _ = self._follower.up_to_date(asked.since)
            require_clear(ready)
            begun = client.begin(ready, Wire(ready.position).read_train(asked.invitation))
            return self._committed(ledger, begun, self._waiting(ledger), accept)

    def count(self, asked: Count, accept: bytes) -> Counted:
        """A noised and charged count, in the same order."""
        with self._job(asked) as job:
            reply = self._payer.counted(job)
            job.ledger.sent(reply)
        return Counted(share=reply.body, head=reply.head, accept=accept)

    def can_you(self, asked: CanYou, accept: bytes) -> Able | AbleToMask:
        """Yes, or the very refusal that the order would meet; nothing is charged, and no record is looked at."""
        with self._job(asked) as job:
            self._standing.ask_about(job.ready.position.round, asked.order)
            self._payer.afford(job)
            key = mask_key(job.ready)
        return AbleToMask(key=key, accept=accept) if key else Able(accept=accept)

    @contextmanager
    def _job(self, asked: Contribute | Pledging | TrainAhead | Count | CanYou) -> Iterator[Job]:
        """*Validate*: where the client stands, and what its server ordered for there."""
        with self._books(asked.since) as ledger:
            ready, registries = self._follower.up_to_date(asked.since)
            yield Job(ledger, self._order(ready, asked), ready, registries)

    def _order(self, ready: client.Ready, asked: Contribute | Pledging | TrainAhead | Count | CanYou) -> Order:
        """What the server orders, under its signature for this round; a count counts, and other work does not."""
        check_order_signed(ready.position, asked.order, asked.signature)
        order = Order.decode(asked.order)
        if bool(order.metrics) is not isinstance(asked, Count):
            raise InvalidInput("an order with metrics is for a count, and for nothing else: nothing was spent.")
        return order

    def _books(self, since: CatchUp) -> AbstractContextManager[Ledger]:
        return opened_books(self._home, self._standing, since.heads)

    def _waiting(self, ledger: Ledger) -> Made:
        charge, trained_from = self._standing.waiting()
        reply = ledger.reply_of(charge) if charge else None
        if reply is None:
            raise Behind("no update waits here: nothing was trained ahead, or it took part in a verified round.")
        return Made(reply, trained_from)

    def _committed(self, ledger: Ledger, begun: client.Begun, made: Made, accept: bytes) -> Contributed:
        """Bind oneself to the update, remember that on disk, and only then let it go."""
        position, reply = begun.ready.position, made.reply
        values = unpack_values(reply.body, position.session.parameters.point)
        bound = client.commit(begun, values, os.urandom(NONCE_SIZE), update=reply.charge)
        committed, update = client.reveal(bound, repeats=allowed_repeats(self._home.policy()))
        self._standing.bind(committed, ledger.head().encode())
        ledger.sent(reply)
        return Contributed(
            trained_from=made.trained_from,
            head=reply.head,
            accept=accept,
            update=Wire(position).update(update),
            values=reply.body,
        )

    # --------------------------------------------------------------------------------------------------------- the sum
    def announcement(self, given: Sum, _accept: bytes) -> OwnTag:
        """Check what the server published, and sign one's tag for it; asked again, give the same tag again."""
        state = self._standing.load(self._home.identity())
        if not isinstance(state, client.Committed | client.Tagged):
            raise Behind("this client has committed to nothing that could be published.")
        wire = Wire(last_verified(state).position)
        publish = wire.read_publish(given.publish, *given.vectors)
        if isinstance(state, client.Tagged):
            return OwnTag(tag=wire.tag(client.answer_again(state, publish, allowed_repeats(self._home.policy()))))
        tagged, tag = client.answer(state, publish, allowed_repeats(self._home.policy()))
        word = RoundReceipt(header=publish.header, signature=publish.signature, tags=(tag,), accepts=())
        self._standing.answer(tagged, word.encode())
        return OwnTag(tag=wire.tag(tag))

    def dispute(self, asked: Dispute, _accept: bytes) -> Deposed:
        """One's tag without its masks, where all tags of the attempt that this client is in do not add up."""
        state = self._standing.load(self._home.identity())
        if not isinstance(state, client.Tagged):
            raise Behind("this client has signed no tag that is open, or the round was accepted.")
        tags = Wire(state.ready.position).read_tags(asked.tags, state.header)
        return Deposed(word=depose(state, tags).encode())

    def _declined(self, problem: Exception, code: str, accept: bytes) -> Frame:
        _LOG.warning("%s refused (%s): %s", self._home.folder.name, code, visible(str(problem)))
        return to_frame(Decline(code=code, accept=accept))


def _tags_in(question: Question) -> bytes:
    """The tags of the round before, which travel with work or alone."""
    if isinstance(question, Work | CanYou):
        return question.since.tags
    return question.tags if isinstance(question, Closing) else b""
