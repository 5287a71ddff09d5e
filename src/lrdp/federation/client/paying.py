"""What an order costs and what is made for it: *charge → sample → clip → noise*, and the result waits in the outbox."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from lrdp.federation.client.counting import counting, private_accuracy
from lrdp.federation.client.home import ClientHome
from lrdp.federation.client.kept_moments import KeptMoments
from lrdp.federation.client.local_task import Workbench
from lrdp.federation.client.requests import requested
from lrdp.federation.wire.layout import pack_values, packed_size
from lrdp.federation.wire.orders import Order
from lrdp.federation.wire.shares import pack_share
from lrdp.integrity import client, quantise
from lrdp.ledger import Ledger, Policy, Receipt, Reply, Request
from lrdp.training import Task, Update, check_gradients, private_update

MakeUpdate = Callable[[Receipt, Task], Update]
"""Makes what was paid for. Only studies put another in the place of ``private_update``: one with repeatable noise."""


@dataclass(frozen=True)
class Job:
    """Work that a server orders of a client that stands at ``ready``, and the books that it is paid from.

    ``registries`` are the digests of those that led to the one in force.
    """

    ledger: Ledger
    order: Order
    ready: client.Ready
    registries: Sequence[bytes] = ()

    def request(self, policy: Policy) -> Request:
        """What the ledger decides on."""
        return requested(self.order, policy, self.ready.position, self.ready.model, self.registries)


@dataclass(frozen=True)
class Made:
    """A paid and noised update, and the round whose model it was trained from."""

    reply: Reply
    trained_from: int


@dataclass(frozen=True)
class Payer:
    """What was ordered: from the outbox if it was made before, otherwise paid for and made now."""

    home: ClientHome
    bench: Workbench
    update: MakeUpdate = private_update

    def trained(self, job: Job) -> Made:
        """A noised update, in whole numbers."""
        ledger, position, request = job.ledger, job.ready.position, job.request(self.home.policy())
        reply = ledger.reply_to(request)
        if reply is None:
            session, kept = position.session, KeptMoments(self.home.standing, ledger)
            task = self._task(request, job)
            going_on = replace(task, moments=kept.load(session.digest, task))
            point = session.parameters.point
            receipt, task = _paid(ledger, request, going_on, room=packed_size(point))
            update = self.update(receipt, task)
            values = quantise(self.bench.layout.flat(update.delta), point).values
            reply = ledger.ready(receipt, pack_values(values, point))
            if task.constants.optimiser.over_rounds:
                kept.save(session.digest, task.constants.optimiser, update.moments)
        return Made(reply, position.round)

    def afford(self, job: Job) -> None:
        """Refuse as ``trained`` would refuse to pay; nothing is charged, and no record is looked at."""
        job.ledger.afford(job.request(self.home.policy()))

    def counted(self, job: Job) -> Reply:
        """A noised share of correct records."""
        ledger, request = job.ledger, job.request(self.home.policy())
        reply = ledger.reply_to(request)
        if reply is None:
            count = counting(self._task(request, job), request.clip_norm)
            receipt, task = _paid(ledger, request, count, room=len(pack_share(0.0)))
            reply = ledger.ready(receipt, private_accuracy(receipt, task))
        return reply

    def _task(self, request: Request, job: Job) -> Task:
        self.bench.rehearse(self.home.policy())
        return self.bench.task(request, job.order, job.ready.model)


def unseen(job: Job, charge: int, trained_from: int) -> Made | None:
    """What was trained ahead, as long as nobody was sent it: that an answer was lost costs no second update.

    A client that came back without its place, or under new keys, counts it as spent, and trains again.
    """
    free = (reply for reply in job.ledger.unsent() if reply.charge == charge > job.ready.stands.spent)
    return next((Made(reply, trained_from) for reply in free), None)


def _paid(ledger: Ledger, request: Request, task: Task, *, room: int) -> tuple[Receipt, Task]:
    """Charge; whatever would be refused once it is paid for is refused before, on these very weights, at no cost.

    So is what the disk has no ``room`` for, in bytes.
    """
    checked = replace(task, checked=check_gradients(request.mechanism, task))
    return ledger.charge(request, room=room), checked
