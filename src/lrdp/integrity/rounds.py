"""A whole round among honest parties, to be read alongside docs/integrity.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lrdp.integrity import client, server
from lrdp.integrity.fixed_point import Whole
from lrdp.integrity.receipts import RoundReceipt


@dataclass(frozen=True, kw_only=True, eq=False)
class Contribution:
    """What one client brings: its quantised update with its number, and 32 fresh random bytes."""

    update: int
    values: Whole
    nonce: bytes


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """Everybody, one verified round further, and what an auditor keeps of it."""

    server: server.Idle
    clients: dict[str, client.Ready]
    receipt: RoundReceipt


def run_round(
    idle: server.Idle, clients: Mapping[str, client.Ready], contributions: Mapping[str, Contribution]
) -> Outcome:
    """The round of those who contribute; the same for `sketch` and `exact`."""
    # M1: the server opens the round. Each client trains only from the model that it verified itself.
    gathering, train = server.open_round(idle, tuple(contributions))
    begun = {name: client.begin(clients[name], train) for name in train.invited}

    # M2: each client binds itself to its update by a signed commitment; then it sends the update.
    committed = {
        name: client.commit(begun[name], brought.values, brought.nonce, update=brought.update)
        for name, brought in contributions.items()
    }
    for name in train.invited:
        gathering = server.enlist(gathering, committed[name].pledge)
    for name in train.invited:
        committed[name], update = client.reveal(committed[name], gathering.pledges)
        gathering = server.admit(gathering, update)

    # M3: the server publishes roster, aggregate and the hash of the next model.
    published, publish = server.publish(gathering)

    # M4: each client checks all of it and answers with its masked tag, signed for what it saw.
    tagged = {}
    for name in train.invited:
        tagged[name], tag = client.answer(committed[name], publish)
        published = server.collect(published, tag)

    # M5: all tags go to all. Their sum proves the aggregate; only now does a client move to the next model.
    tags = server.all_tags(published)
    settled = {name: client.settle(tagged[name], tags) for name in train.invited}

    # ACCEPTs make the receipt, with which an absent client can follow and an auditor can check.
    concluded, receipt = server.conclude(published, [accept for _, accept in settled.values()])
    return Outcome(server=concluded, clients={name: ready for name, (ready, _) in settled.items()}, receipt=receipt)
