"""A client's part of `exact` rounds: its update leaves under masks, once everybody is bound to one.

*… → noise → mask → commit* and a commitment leaves; then *send*. In such a session nothing else makes an update leave.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lrdp.errors import InvalidInput
from lrdp.federation.client.catching_up import Behind
from lrdp.federation.client.home import ClientHome
from lrdp.federation.client.opened_books import opened_books
from lrdp.federation.client.paying import Job, Payer
from lrdp.federation.client.standing import Standing
from lrdp.federation.wire.layout import raw, unpack_values
from lrdp.federation.wire.masked import MOST_RELAYED_BYTES, Pledged, Pledging, Reveal, Revealed, require_relayable
from lrdp.integrity import (
    NONCE_SIZE,
    ExactClient,
    ProofMethod,
    Repeats,
    SessionKey,
    Train,
    Wire,
    client,
)
from lrdp.ledger import Policy, Scheme


def most_vectors(policy: Policy) -> int:
    """The most bytes of a message's vectors: a sum of updates has twice a model's; masked updates come with it."""
    least = 2 * policy.model.max_bytes
    return max(least, MOST_RELAYED_BYTES) if policy.peers.scheme is Scheme.EXACT else least


def require_clear(ready: client.Ready) -> None:
    """Refuse, before anything is paid, to take part with an update that is not masked where all are."""
    if ready.scheme.method is not ProofMethod.SKETCH:
        raise InvalidInput("in exact sessions no update leaves without its masks: nothing was trained or spent.")


def mask_key(ready: client.Ready) -> bytes:
    """One's own mask key for this session, signed; nothing where updates are not masked."""
    return ready.scheme.announced.encode() if isinstance(ready.scheme, ExactClient) else b""


@dataclass(frozen=True)
class Masking:
    """A client's session on disk, and who makes its updates."""

    home: ClientHome
    standing: Standing
    payer: Payer

    def pledged(self, job: Job, asked: Pledging) -> Pledged:
        """*Validate → charge → sample → clip → noise → mask → commit*; what leaves is the commitment.

        Asked again in the same attempt, a client answers the same: its masks are used once.
        """
        position = job.ready.position
        wire = Wire(position)
        train = wire.read_train(asked.invitation)
        committed = self._bound_to(train)
        if committed is None:
            begun = _begun(job.ready, train, asked.keys)
            reply = self.payer.trained(job).reply
            values = unpack_values(reply.body, position.session.parameters.point)
            committed = client.commit(begun, values, os.urandom(NONCE_SIZE), update=reply.charge)
            self.standing.bind(committed, job.ledger.head().encode())  # before the commitment leaves
        kept = job.ledger.reply_of(committed.update)
        head = job.ledger.head().encode() if kept is None else kept.head
        return Pledged(trained_from=position.round, head=head, pledge=wire.pledge(committed.pledge))

    def _bound_to(self, train: Train) -> client.Committed | None:
        state = self.standing.load(self.home.identity())
        return state if isinstance(state, client.Committed) and state.begun.train == train else None

    def revealed(self, asked: Reveal, repeats: Repeats) -> Revealed:
        """*Send*, once everybody invited is bound; the list that it is masked for is on disk before it leaves."""
        with opened_books(self.home, self.standing) as ledger:
            state = self.standing.load(self.home.identity())
            if not isinstance(state, client.Committed) or not isinstance(state.begun.ready.scheme, ExactClient):
                raise Behind("this client has committed to no masked update that could be sent.")
            wire = Wire(state.begun.ready.position)
            committed, update = client.reveal(state, [wire.read_pledge(data) for data in asked.pledges], repeats)
            self.standing.save(committed)
            kept = ledger.reply_of(committed.update)
            if kept is not None:
                ledger.sent(kept)
        return Revealed(update=wire.update(update), values=raw(np.ascontiguousarray(update.values)))


def _begun(ready: client.Ready, train: Train, keys: Sequence[bytes]) -> client.Begun:
    """Invited, with everybody's mask key; refused, before anything is paid, where there are too many to relay."""
    if not isinstance(ready.scheme, ExactClient):
        raise InvalidInput("in this session updates are not masked: nothing was trained or spent.")
    begun, session = client.begin(ready, train), ready.position.session
    require_relayable(session.parameters.point, len(train.invited))
    keyed = ready.scheme.keyed(session, [SessionKey.decode(data) for data in keys])
    keyed.require_keys(train)
    return replace(begun, ready=replace(ready, scheme=keyed))
